"""Looks a program up in the disk cache, and tells whoever listens to ``tile.cache`` why it is not there."""

from __future__ import annotations

import json
import logging

from tile_hal.disk_cache import disk_cache
from tile_hal.interfaces import Library
from tile_ir.collector import uncollected
from tile_ir.record import from_record
from tile_ir.settings import Settings

from tile_runtime.logs import CACHE
from tile_runtime.programs.runnable import Runnable
from tile_runtime.programs.stored import Head, Parts, Place

LOOKED_AT = 64
"""Entries of the disk cache, the latest ones, that a missing one is compared with."""


def find(place: Place) -> tuple[Runnable, Library] | None:
    """A program from the disk cache; the library's kernels have no bodies.

    None while somebody wants to see or verify the passes, which run in a compilation only.
    """
    settings = Settings.from_environment()
    if settings.verify or settings.dump_ir:
        return None
    with uncollected():
        found = place.read(place.run)
    _tell(place, found is not None)
    return found


def _tell(place: Place, found: bool) -> None:
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
    try:
        return from_record(Head, json.loads((entry or b"").partition(b"\n")[0])).parts
    except (ValueError, TypeError, LookupError, RecursionError):
        return ()
