"""What differs between devices and compilations."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a kernel is written; the defaults suit every device."""

    fast_math: bool = False
    """Use ``mad`` and ``native_*``."""
    math_by_lane: bool = False
    """Call math functions lane by lane: on CPUs the vector versions give other bits than the scalar ones, and in
    PoCL one lane with a large argument spoils the others."""
    vector_bytes: int = 128
    """Bytes of the widest vector that the compiler can be given."""
    ptx: bool = False
    """Write asynchronous copies and matrix instructions as inline PTX, which NVIDIA's compiler alone takes."""
    reduced: bool = False
    """Matrix instructions round their factors: functions of their results need not be better than these."""
    teams: bool = False
    """Write products of teams of sub-groups, which `hal_opencl.emit.teams.retargeted` brings to their target."""
    subgroup_products: bool = False
    """Write matrix instructions as functions of Intel's extensions, and say what sub-groups a kernel has."""


PLAIN = Dialect()
