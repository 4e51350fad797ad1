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
    """`wanted`, or `wanted_1`, `wanted_2`, … whichever is free first."""
    name, k = wanted, 0
    while name in taken:
        k += 1
        name = f"{wanted}_{k}"
    return name


def claim(wanted: str, taken: set[str]) -> str:
    """`fresh`, and taken from then on."""
    name = fresh(wanted, taken)
    taken.add(name)
    return name
