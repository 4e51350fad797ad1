"""What Python's `logging` hears under ``tile``: ``tile.compile``, ``tile.cache`` (why a program is not in it) and ``tile.fallback``.

Everything is of level INFO; nothing is said, or found out, unless somebody listens.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tile_hal.interfaces import Device

    from tile_runtime.stored import Parts, Place

COMPILE, CACHE, FALLBACK = (logging.getLogger(f"tile.{name}") for name in ("compile", "cache", "fallback"))
LOOKED_AT = 64
"""Entries of the disk cache, the latest ones, that a missing one is compared with."""


@contextmanager
def telling(name: str, device: Device) -> Generator[None]:
    """Says how long a compilation took."""
    begin = time.perf_counter()
    yield
    COMPILE.info("compiled %r for %s in %.3f s", name, device.id, time.perf_counter() - begin)


def tell_cached(place: Place, found: bool) -> None:
    """Says whether a program was in the disk cache, and why not."""
    if not CACHE.isEnabledFor(logging.INFO):
        return
    where = f"{place.name!r} for {place.device.id}"
    if found:
        CACHE.info("%s is in the disk cache", where)
    else:
        CACHE.info("%s is not in the disk cache: %s", where, missing(place))


def missing(place: Place) -> str:
    """Why there is no entry for a program, by the entry that is most like it."""
    from tile_hal.disk_cache import disk_cache
    from tile_ir.settings import Settings

    settings = Settings.from_environment()
    if settings.cache == "off":
        return "the cache is off"
    if not place.used:
        return f"{place.device.id} does not load whole programs"
    folder = disk_cache(settings)
    wanted = place.short_parts
    others = (_parts(folder.peek(entry)) for entry in folder.entries()[-LOOKED_AT:])
    same = [dict(parts) for parts in others if parts and _subject(parts) == _subject(wanted)]
    if not same:
        return "nothing of this function is stored"
    differing = ([name for name, value in wanted if parts.get(name) != value] for parts in same)
    return f"what is stored differs in {', '.join(min(differing, key=len))}"


def _subject(parts: Parts) -> str:
    """The function, or the program that was composed."""
    return dict(parts).get("function") or dict(parts).get("program", "")


def _parts(entry: bytes | None) -> Parts:
    """The parts of an entry's key; none where it is no program."""
    from tile_ir.record import from_record

    from tile_runtime.stored import Head

    try:
        return from_record(Head, json.loads((entry or b"").partition(b"\n")[0])).parts
    except (ValueError, TypeError, LookupError, RecursionError):
        return ()
