"""Powers of two, in which lanes, items and runs are counted."""

from __future__ import annotations


def power_of_two(number: int) -> int:
    """The least power of two that is not below `number`."""
    return 1 << max(0, number - 1).bit_length()
