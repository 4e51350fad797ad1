"""Programs as object files that need no Python: kernels, constants and a C function (`tile_hal.ahead`)."""
