"""Passes over kernels in normal form: what joins which kernel, and how each is scheduled."""
