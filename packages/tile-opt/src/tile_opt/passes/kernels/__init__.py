"""Passes over kernels in normal form (`tile_opt.kernel`), for CPUs and GPUs: fusion, normalisation, then scheduling by plans."""
