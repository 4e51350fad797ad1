"""Kernels in normal form: a flat view of one kernel, and what rewrites it."""
