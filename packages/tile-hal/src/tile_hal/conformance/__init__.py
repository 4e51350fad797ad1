"""The conformance suite: what any backend has to do, as a pytest plugin that runs by the backend's name.

Three ways in: ``pytest --pyargs tile_hal.conformance --backend NAME``, ``python -m tile_hal.conformance
--backend NAME [--plugin MODULE]``, and ``tile_hal.conformance.run(NAME)``. Needs the extra ``[conformance]``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tile_hal.conformance.runner import run

__all__ = ["TIMEOUT", "run"]
TIMEOUT = 60.0
"""Seconds until a test that hangs fails, unless told otherwise."""


def __getattr__(name: str) -> Any:
    # Lazy: pytest imports this package in every run of an environment that has tile-hal.
    if name == "run":
        from tile_hal.conformance.runner import run

        return run
    raise AttributeError(f"module 'tile_hal.conformance' has no attribute {name!r}")
