"""Banks of local memory: which row pitch keeps the lanes of one access apart."""

from __future__ import annotations

from collections.abc import Sequence

BANKS = 32
"""Banks of local memory, four bytes each."""
BANK_BYTES = 4
COPY_BYTES = 16
"""Bytes that one asynchronous copy moves."""


def padding(extent: int, width: int) -> range:
    """Elements that rows of `extent` elements of `width` bytes may be padded by: copies stay aligned."""
    unit = COPY_BYTES // width
    start = -extent % unit
    return range(start, start + 8 * unit, unit)


def bank_conflicts(addresses: Sequence[int], bytes: int) -> int:
    """The most lanes that meet in one bank when each reads `bytes` bytes at its address; 1 is free of conflicts."""
    together = max(1, BANKS * BANK_BYTES // bytes)
    worst = 0
    for start in range(0, len(addresses), together):
        words = {a // bytes for a in addresses[start : start + together]}
        slots = [w % together for w in words]
        worst = max(worst, *(slots.count(s) for s in slots))
    return worst
