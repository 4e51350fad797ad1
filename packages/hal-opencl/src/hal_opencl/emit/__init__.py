"""Semtree to OpenCL C."""
