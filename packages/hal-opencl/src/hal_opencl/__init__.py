"""Every OpenCL device of the machine as a Tile device; loaded through the `tile_hal` entry point."""
