"""Rows of local memory: which pitch keeps the lanes of one access in banks apart, which lengths are cut into panels, and how
matrix instructions that read these want them."""

from __future__ import annotations

from collections.abc import Sequence

from tile_ir.dtype import DType
from tile_ir.matrix import CHUNK_BYTES, OWN_BYTES, PANEL_BYTES, MatrixInstruction
from tile_ir.stripe.nodes import Swizzle

BANKS = 32
"""Banks of local memory, four bytes each."""
BANK_BYTES = 4
COPY_BYTES = 16
"""Bytes that one asynchronous copy moves."""
PANELS = 8
"""Powers of two that there may be of panels beside each other."""


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


def in_panels(extent: int, line: int, *, shifts: bool = True) -> bool:
    """Rows of `extent` elements are whole panels of `line`: where places are found by `shifts`, a power of two of them."""
    return extent in (line << n for n in range(PANELS)) or (not shifts and extent % line == 0 < extent)


def takes_copies(instruction: MatrixInstruction) -> bool:
    """It reads float32 from local memory as it is: what it multiplies has been rounded on the way there, or before."""
    return instruction.team > 1 and instruction.a.dtype is DType.FLOAT32


def panel_swizzle(instruction: MatrixInstruction, *, own: bool = False) -> Swizzle:
    """How rows of `PANEL_BYTES` are swizzled, in elements of the instruction's factors; `own` panels are read by items."""
    line, chunk = (n // instruction.a.dtype.bytes for n in (PANEL_BYTES, OWN_BYTES if own else CHUNK_BYTES))
    return Swizzle((line // chunk).bit_length() - 1, chunk.bit_length() - 1, line.bit_length() - 1)
