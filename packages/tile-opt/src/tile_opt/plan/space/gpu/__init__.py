"""Legal plans on GPUs without matrix instructions: work groups (thread blocks) of items (threads), tiled through local (shared) memory.

`tiles.py` and `group_plan.py` are for contractions, `windows.py` and `copied.py` for those with short reductions or unaligned rows; `rows.py` and
`row_shares.py` for memory-bound kernels, `transpose.py` and `odd_tiles.py` for transposes, `scan.py` for prefix aggregations, `rows_in_steps.py` for attention,
`chain.py` and `chain_cost.py` for chains of stencils.
"""
