"""`tile cache`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from tile_runtime.cli.common import Json, print_json, print_pairs
from tile_runtime.cli.errors import FINDINGS

if TYPE_CHECKING:
    from tile_hal.disk_cache import DiskCache


def info(json: Json = False) -> None:
    """Where the cache is, how many kernels it holds, and how large it is."""
    from tile_ir.settings import Settings

    cache = _cache()
    entries = cache.entries()
    facts = {
        "folder": str(cache.folder),
        "setting": Settings.from_environment().cache,
        "entries": len(entries),
        "bytes": sum(e.bytes for e in entries),
        "max_bytes": cache.max_bytes,
    }
    print_json(facts) if json else print_pairs(facts)


def clear(json: Json = False) -> None:
    """Remove every entry, and what is remembered of plugins."""
    from tile_hal.disk_cache import PLUGINS

    removed = _cache().clear()
    _cache(PLUGINS).clear()
    print_json({"removed": removed}) if json else print(f"removed {removed} entries")


def verify(json: Json = False) -> None:
    """Check every entry; exit code 1 when one is damaged (it would be compiled again when next used)."""
    cache = _cache()
    damaged = [str(path) for path in cache.verify()]
    if json:
        print_json({"entries": len(cache.entries()), "damaged": damaged})
    else:
        print("\n".join([f"damaged: {path}" for path in damaged] or [f"{len(cache.entries())} entries are sound"]))
    if damaged:
        raise typer.Exit(FINDINGS)


def _cache(part: str = "") -> DiskCache:
    from tile_hal.disk_cache import disk_cache
    from tile_ir.settings import Settings

    return disk_cache(Settings.from_environment(), part)
