"""What tuning found, kept on disk beside the compiled code: the settings whose schedule was the fastest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from tile_ir.diagnostics import TileError
from tile_ir.settings import Settings
from tile_ir.target import Target

from tile_runtime.cache import cache_key, disk_cache

if TYPE_CHECKING:
    from tile_runtime.lowered import Lowered


def find(base: Lowered, count: int) -> Lowered | None:
    """The stored winner among `count` schedules of `base`; None when there is none that still compiles."""
    settings = Settings.from_environment()
    data = None if settings.cache == "off" else disk_cache(settings).read(_key(base, count))
    if data is None:
        return None
    try:
        found: dict[str, int] = json.loads(data)
        return base.retargeted(changed(base.target, found)) if found else base
    except (ValueError, TypeError, TileError):
        return None  # written by another version


def store(base: Lowered, count: int, changes: Mapping[str, int]) -> None:
    """Remember which settings won."""
    settings = Settings.from_environment()
    if settings.cache == "on":
        disk_cache(settings).write(_key(base, count), json.dumps(dict(changes)).encode())


def changed(target: Target, changes: Mapping[str, int]) -> Target:
    """`target` with other hardware settings."""
    return replace(target, settings=replace(target.settings, **changes))


def _key(base: Lowered, count: int) -> str:
    return hashlib.sha256(f"winner of {count}: {cache_key(base.device, base.kernels)}".encode()).hexdigest()
