"""PyTorch models on any Tile device.

    compiled = torch.compile(model, backend="tile")       # options={"device": "opencl:0", "fallback": "eager"}

Installing this package is enough: PyTorch finds the backend by its entry point. `explain` shows what a call runs.
`torch_function` (which `tile_runtime` has, too) makes one Tile function part of a PyTorch program, with gradients.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tile_torch.autograd import torch_function
    from tile_torch.backend import tile
    from tile_torch.explaining import explain

__version__ = "0.1.0"

_HOME = {"explain": "explaining", "tile": "backend", "torch_function": "autograd"}

__all__ = ["explain", "tile", "torch_function"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"tile_torch.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
