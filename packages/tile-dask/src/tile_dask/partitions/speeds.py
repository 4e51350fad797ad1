"""What the devices of workers are like, as far as it says how loops are cut."""

from __future__ import annotations

from tile_ir.frozen import frozen


@frozen
class Speed:
    """A kind of device."""

    computed: float
    """Scalar operations a second."""
    written: int
    """Rounds of a task that are written out, each with a shape of its own: its kernels compute no cell twice, but as many are
    compiled, and cells in a frame of all rounds need a look at its borders."""
    most: int
    """Rounds that a task may compute between two exchanges."""


PROCESSOR = Speed(1e10, 32, 32)
GRAPHICS = Speed(1e12, 4, 256)
"""A message takes as long as 80 passes over half a gigabyte, and each round has kernels that a driver compiles."""
CHOICES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128, 192, 256)
"""Rounds between two exchanges that are looked at."""
