"""Functions that other packages bring: entry points of the group `tile_functions`."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

from tile_ir.diagnostics import Diagnostic, TileTypeError

GROUP = "tile_functions"


def torch_function(function: Callable[..., Any], *, device: Any = None) -> Any:
    """A Tile function, or a Python function as `jit` takes it, as a function of PyTorch's tensors, with gradients.

    It is `tile_torch.torch_function`: TileTypeError (TILE-E546) where package tile-torch is not installed.
    """
    return _found("torch_function", "tile-torch")(function, device=device)


def _found(name: str, package: str) -> Any:
    points = entry_points(group=GROUP, name=name)
    if not points:
        raise TileTypeError(
            Diagnostic(
                "TILE-E546",
                f"{name} is in package {package}",
                hint=f"python3 dev.py install {package}, in Tile's repository",
            )
        )
    try:
        return next(iter(points)).load()
    except Exception as problem:  # it is somebody else's code
        message = f"package {package}, which has {name}, cannot be loaded: {problem}"
        raise TileTypeError(Diagnostic("TILE-E546", message)) from problem
