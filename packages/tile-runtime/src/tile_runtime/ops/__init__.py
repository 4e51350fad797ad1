"""Operators for tensors of any rank, as Tile text and as compositions: what front ends build on.

A front end (ONNX, PyTorch, JAX) reads its own graph and calls these functions with the tensors of a node. A tensor is a
Symbol, on which nothing is computed yet, or a NumPy array whose numbers are known now; what is made of known arrays by
moving elements alone is known, too. Each module is a family:

| module | holds |
|---|---|
| `text` | pieces of Tile text: index names, subscripts that broadcast, contractions, functions, casts, literals |
| `values` | what flows: arrays and Symbols, and `apply` of a text to them |
| `moving` | other shapes, orders and windows; slices, pads, parts and joins |
| `windows`, `convolution`, `pooling` | windows that slide over spatial axes, and what is made of them |
| `matmul`, `einsum`, `reducing`, `softmax` | products and sums |
| `gather`, `scatter` | elements taken from, or put, where data says |
| `resize`, `sampling` | axes made of weighted old cells; images read between their cells |
| `unsupported` | what is said of a node that cannot be converted |
"""
