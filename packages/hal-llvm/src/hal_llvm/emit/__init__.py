"""Semtree to LLVM IR text: types, scalar and vector arithmetic, memory, statements, modules."""
