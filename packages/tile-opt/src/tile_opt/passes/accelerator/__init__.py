"""Passes over nested blocks, for accelerators with scratchpad memories: tiling, tensorisation, placement, and transfers in and out."""
