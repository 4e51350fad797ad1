"""Typed programs: one list of operations per function, shared by the language, gradients and the optimizer."""
