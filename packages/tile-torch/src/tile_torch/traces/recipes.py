"""Recipes of plans on disk, by the text that decides what a graph computes."""

from __future__ import annotations

import hashlib
import json

from tile_hal.disk_cache import disk_cache
from tile_ir.settings import Settings

from tile_torch.plans import Recipe
from tile_torch.traces.records import BROKEN, Unkept, packed, unpacked


def read(text: str) -> Recipe | None:
    """The recipe; None where there is none, or, with a warning, none that can be used."""
    settings = Settings.from_environment()
    data = None if settings.cache == "off" else disk_cache(settings).read(_key(text))
    if data is None:
        return None
    try:
        found = unpacked(json.loads(data))
        if isinstance(found, Recipe):
            return found
        raise TypeError(type(found).__name__)
    except BROKEN as problem:
        disk_cache(settings).discard(_key(text), f"is no recipe ({problem})")
        return None


def write(text: str, recipe: Recipe) -> None:
    """Keeps a recipe that has a form in JSON, where the settings allow it."""
    settings = Settings.from_environment()
    if settings.cache != "on":
        return
    try:
        data = json.dumps(packed(recipe)).encode()
    except Unkept:
        return
    disk_cache(settings).write(_key(text), data)


def _key(text: str) -> str:
    return hashlib.sha256(f"recipe {text}".encode()).hexdigest()
