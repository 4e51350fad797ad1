"""Run ONNX models with Tile, on any device.

    import tile_onnx
    model = tile_onnx.load("model.onnx")
    outputs = model(x)                       # or model.run({"x": x}): arrays by output name

Importing this package opens no device and imports no compiler.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tile_onnx.model import Model, load

__version__ = "0.1.0"

__all__ = ["Model", "load"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module("tile_onnx.model"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
