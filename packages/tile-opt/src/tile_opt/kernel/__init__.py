"""Kernels in normal form: `view.py` opens a kernel block as a flat list of shared loops and stages, which passes join, split and rewrite.

A stage is one operation with loops of its own. `unify.py`, `merge_stages.py` and `inlining.py` decide what can be fused, `widen.py` and `segments.py` make
iteration spaces equal, `work.py` and `strides.py` count operations and strides; the others recognise forms: prefix sums, attention, stencil chains.
"""
