"""What Python's `logging` hears under ``tile``: ``tile.compile``, ``tile.cache`` (why a program is not in it) and ``tile.fallback``.

Everything is of level INFO; nothing is said, or found out, unless somebody listens.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tile_hal.interfaces import Device

COMPILE, CACHE, FALLBACK = (logging.getLogger(f"tile.{name}") for name in ("compile", "cache", "fallback"))


@contextmanager
def telling(name: str, device: Device) -> Generator[None]:
    """Says how long a compilation took."""
    begin = time.perf_counter()
    yield
    COMPILE.info("compiled %r for %s in %.3f s", name, device.id, time.perf_counter() - begin)
