"""The cost model: how long a scheduled kernel takes on a machine, without running it.

`estimate.py` is the entry for any schedule: `scheduled.py` reads Stripe as a tree of loops and accesses, `arithmetic.py` counts
instructions by issue port (`operations.py` has those of one operation), `caches.py` and `footprint.py` count cache lines per level
(`sharing.py`: false sharing between cores), `flow.py` finds latency that out-of-order execution does not hide. `processor.py` and
`multiprocessor.py` put these together for CPUs and for GPUs; `coalescing.py` has a GPU's memory transactions and bank conflicts,
`occupancy.py` how many groups a multiprocessor holds.

Before a plan is built, closed formulas rank candidates: `group_cost.py`, `group_step.py` and `direct_cost.py` tiles of contractions on GPUs,
`fusion.py` what to fuse or recompute, `memory_tile.py` tiles for an accelerator's scratchpad. `search.py` takes the best of a few plans.
Numbers of the machine come from the target's `machine` document only.
"""
