"""Semantics-preserving rewrites of a kernel's loop tree, from which plans are built: split, unroll, vectorise, stage, privatise.

`split.py`, `distribute.py` and `edges.py` transform loops, `bind.py` gives them to lanes or unrolled code, `stage.py` makes local copies, `reduce.py` splits
reductions into partial results, `register_transpose.py` and `tiles.py` use shuffles and tile registers. `groups/` has what groups of items need.
"""
