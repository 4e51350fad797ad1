"""Names that nothing else has, for values that the compiler adds."""

from __future__ import annotations

from collections.abc import Container


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
