"""A PJRT device made of ctypes callbacks: what JAX calls, answered with Tile's devices, tensors and programs.

`api` makes the table of functions that JAX takes; the other files are a family of callbacks each.
"""
