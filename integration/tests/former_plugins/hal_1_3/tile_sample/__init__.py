"""A sample device for Tile: kernels become Python functions."""
