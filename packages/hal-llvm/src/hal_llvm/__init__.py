"""Tile on the system CPU through LLVM."""
