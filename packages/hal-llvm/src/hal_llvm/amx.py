"""AMX: whether this process may use tile registers, and what that adds to its target."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Collection
from dataclasses import replace
from functools import cache

from tile_ir.matrix.x86 import PRODUCTS
from tile_ir.target import Target

FEATURES = {
    "tdpbf16ps": "amx-bf16", "tdpfp16ps": "amx-fp16",
    "tdpbusd": "amx-int8", "tdpbssd": "amx-int8", "tdpbuud": "amx-int8",
}  # fmt: skip
"""By product, LLVM's name of the feature that has it; all need `TILES`."""
TILES = "amx-tile"
_SYS_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA = 158, 0x1023, 18
"""Linux on x86-64 (``asm/prctl.h``): asking for the state of tile registers, for all threads of the process to come."""


@cache
def permitted() -> bool:
    """Linux lets this process use tile registers; it is asked once. Elsewhere nobody can be asked, so they stay alone."""
    if not sys.platform.startswith("linux"):
        return False
    call = ctypes.CDLL(None).syscall
    call.restype, call.argtypes = ctypes.c_long, (ctypes.c_long,) * 3
    return call(_SYS_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA) == 0


def instructions(features: Collection[str]) -> tuple[str, ...]:
    """The products of tiles among a processor's features, allowed or not."""
    return tuple(name for name in PRODUCTS if {TILES, FEATURES[name]} <= set(features))


def with_tiles(target: Target, features: Collection[str]) -> Target:
    """The target of a processor with these features whose tile registers may be used."""
    found = instructions(features)
    return replace(target, matrix=found, nodes=target.nodes | {"TileStep"}) if found else target


def remark(features: Collection[str]) -> str:
    """A sentence for `tile doctor`."""
    found = ", ".join(instructions(features))
    if not found:
        return "instructions for products of tiles: none"
    if not permitted():
        return f"instructions for products of tiles: {found}, but the system does not let this process use them"
    return f"instructions for products of tiles: {found}"
