"""The rates of this processor on disk: measured once, and again when the probe has changed."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from tile_hal.disk_cache import DiskCache, disk_cache
from tile_ir.frozen import replace
from tile_ir.settings import Settings
from tile_ir.target import Target

if TYPE_CHECKING:
    from hal_llvm.binding import Processor
    from hal_llvm.probe.timing import Rates

PART = "processors"
"""Of the disk cache."""
VERSION = 2
"""Of the loops."""


def probed(target: Target, processor: Processor, name: str, settings: Settings) -> Target:
    """`target` with the numbers of its processor, called `name`; as it is where that cannot be measured.

    Nothing is measured where nothing is kept on disk: each process would do it again, and plan otherwise.
    """
    found = _rates(target, processor, name, settings)
    if found is None:
        return target
    from hal_llvm.probe.fitting import measured

    return replace(target, machine=measured(target.machine, found))


def _rates(target: Target, processor: Processor, name: str, settings: Settings) -> Rates | None:
    if settings.cache == "off":
        return None
    cache, key = disk_cache(settings, PART), _key(target, processor, name)
    if (found := _read(cache, key)) is not None or settings.cache == "read":
        return found
    made = _measured(target, processor)
    if made is not None:  # another process may have been faster: both plan by the same numbers
        cache.write(key, json.dumps(made).encode(), first=True)
    return _read(cache, key) or made


def _read(cache: DiskCache, key: str) -> Rates | None:
    payload = cache.read(key)
    return None if payload is None else json.loads(payload)


def _key(target: Target, processor: Processor, name: str) -> str:
    sizes = [(c.level, c.bytes) for c in target.machine.caches]
    parts = [VERSION, name, processor.triple, processor.cpu, processor.used, target.machine.vector.bytes, sizes]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _measured(target: Target, processor: Processor) -> Rates | None:
    from hal_llvm.probe.timing import rates

    try:
        return rates(target.machine, processor, target.settings.fma)
    except (OSError, RuntimeError):  # no memory, or no code for this processor: its document stays
        return None
