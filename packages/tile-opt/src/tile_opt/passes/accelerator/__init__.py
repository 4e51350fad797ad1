"""Passes over nested blocks, for accelerators whose memories and engines the target describes."""
