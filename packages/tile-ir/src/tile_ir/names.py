"""Names that nothing else has, for values that the compiler adds."""

from __future__ import annotations

import re
from collections.abc import Container

_PLAIN = re.compile(r"[A-Za-z0-9_.']+")
_UNSAFE = re.compile(r"[^A-Za-z0-9_]+")


def plain(name: str) -> str:
    """`name`, which may be any text, as one that every text form shows as it is: ``onnx::Conv_1`` is ``onnx_Conv_1``."""
    return name if _PLAIN.fullmatch(name) else _UNSAFE.sub("_", name).strip("_") or "unnamed"


def fresh(wanted: str, taken: Container[str]) -> str:
    """`wanted`, or `wanted_1`, `wanted_2`, … whichever is free first; past a gap in the numbers, any one behind it.

    Asks so often as the number has digits in base 2: thousands of statements may want one name.
    """
    if wanted not in taken:
        return wanted
    free = 1
    while f"{wanted}_{free}" in taken:
        free *= 2
    held = free // 2
    while free - held > 1:
        middle = (held + free) // 2
        held, free = (middle, free) if f"{wanted}_{middle}" in taken else (held, middle)
    return f"{wanted}_{free}"


def claim(wanted: str, taken: set[str]) -> str:
    """`fresh`, and taken from then on."""
    name = fresh(wanted, taken)
    taken.add(name)
    return name
