"""Kernels as flat views (loops, stages, accesses) that scheduling passes read and rewrite."""
