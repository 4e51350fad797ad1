"""Tile's devices as JAX's platform `tile`: jit, grad, vmap and scan on any device that Tile has.

    JAX_PLATFORMS=tile python train.py

Installing this package is enough: JAX finds it by its entry point. Importing it opens no device and compiles nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tile_jax.explaining import explain, lower

__version__ = "0.1.0"

__all__ = ["explain", "initialize", "lower", "register"]

OLDEST, NEXT = (0, 10, 0), (0, 11, 0)
"""The versions of JAX that this release is made for: from the first up to the second."""
FIRST, LAST = 400, -10
"""Priorities of the platform. JAX's own CPU has 0: installing this package changes nobody's default."""


def register(*, default: bool = False) -> None:
    """Makes the platform `tile` known to JAX, before it has opened its platforms; a second time does nothing.

    With `default` it goes before JAX's own. TileDeviceError, saying what to install, for a JAX that this release is not made for.
    """
    _check_version()
    bridge: Any = import_module("jax._src.xla_bridge")
    if "tile" in bridge._backend_factories:
        return
    from tile_jax.pjrt.api import capsule

    bridge.register_plugin("tile", c_api=capsule(), priority=FIRST if default else LAST)
    donating: list[str] = import_module("jax._src.interpreters.mlir")._platforms_with_donation
    donating.append("tile")
    import_module("tile_jax.rules").register()


def initialize() -> None:
    """What JAX calls when it looks for plugins."""
    register()


def __getattr__(name: str) -> Any:
    if name not in ("explain", "lower"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("tile_jax.explaining"), name)


def _check_version() -> None:
    from tile_ir.diagnostics import Diagnostic, TileDeviceError

    version: Any = import_module("jax.version")
    found = version.__version_info__
    if OLDEST <= found < NEXT:
        return
    wanted = f"jax>={'.'.join(map(str, OLDEST))},<{'.'.join(map(str, NEXT))}"
    message = f"tile-jax {__version__} is made for {wanted}, and this is jax {version.__version__}"
    raise TileDeviceError(Diagnostic("TILE-E951", message, hint=f"pip install '{wanted}'"))
