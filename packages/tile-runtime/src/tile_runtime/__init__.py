"""Run Tile functions on any device: NumPy in, NumPy out, or tensors that stay on the device.

    import tile_runtime as tile
    matmul = tile.Function("function (A[M, L], B[L, N]) -> (C) { C[i, j : M, N] = +(A[i, k] * B[k, j]); }")
    c = matmul(a, b)

Importing this package opens no device and imports no compiler.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

import tile_ir.forking  # noqa: F401  # pyright: ignore[reportUnusedImport] - from now on a fork waits for imports: the others are made when first needed

from tile_runtime.above import functions as _functions

if TYPE_CHECKING:
    from tile_ir.diagnostics import (
        TileDeviceError,
        TileError,
        TileFallbackWarning,
        TileInternalError,
        TileLimitError,
        TilePlanError,
        TilePlanWarning,
        TileShapeWarning,
        TileSyntaxError,
        TileTypeError,
    )

    from tile_runtime import random
    from tile_runtime.ahead import build
    from tile_runtime.brought import torch_function
    from tile_runtime.compose import compose
    from tile_runtime.devices import device, devices, synchronize
    from tile_runtime.evaluator import Evaluator
    from tile_runtime.function import Function
    from tile_runtime.invoker import Invoker
    from tile_runtime.jit import jit
    from tile_runtime.loops import repeat, scan
    from tile_runtime.lowered import Lowered
    from tile_runtime.measuring.profiling import Profile, profile
    from tile_runtime.provenance import provenance
    from tile_runtime.random.keys import key
    from tile_runtime.shapes import eval_shape
    from tile_runtime.symbols import Symbol, constant, placeholder
    from tile_runtime.tensor import Tensor, asarray, from_dlpack
    from tile_runtime.transforms.batching import vmap
    from tile_runtime.transforms.custom import custom_vjp, hessian_vector_product, jvp
    from tile_runtime.transforms.derivatives import vjp
    from tile_runtime.transforms.gradients import grad, value_and_grad
    from tile_runtime.trees import register_tree, tree_leaves, tree_map
    from tile_runtime.while_loops import while_loop

__version__ = "0.1.0"

_functions.is_at("tile_runtime.numpy")

_HOME = {
    "build": "ahead",
    "Function": "function",
    "eval_shape": "shapes",
    "device": "devices",
    "devices": "devices",
    "synchronize": "devices",
    "Tensor": "tensor",
    "asarray": "tensor",
    "from_dlpack": "tensor",
    "vjp": "transforms.derivatives",
    "vmap": "transforms.batching",
    "grad": "transforms.gradients",
    "value_and_grad": "transforms.gradients",
    "jit": "jit",
    "key": "random.keys",
    "register_tree": "trees",
    "tree_leaves": "trees",
    "tree_map": "trees",
    "torch_function": "brought",
    "custom_vjp": "transforms.custom",
    "hessian_vector_product": "transforms.custom",
    "jvp": "transforms.custom",
    "Evaluator": "evaluator",
    "Invoker": "invoker",
    "Lowered": "lowered",
    "Symbol": "symbols",
    "provenance": "provenance",
    "repeat": "loops",
    "scan": "loops",
    "while_loop": "while_loops",
    "Profile": "measuring.profiling",
    "profile": "measuring.profiling",
    "compose": "compose",
    "constant": "symbols",
    "placeholder": "symbols",
}
_MODULES = ("numpy", "random")
"""Submodules that need no import of their own: ``tile.random.normal``."""
_ERRORS = (
    "TileDeviceError", "TileError", "TileFallbackWarning", "TileInternalError", "TileLimitError", "TilePlanError",
    "TilePlanWarning", "TileShapeWarning", "TileSyntaxError", "TileTypeError",
)  # fmt: skip

__all__ = [
    "Evaluator",
    "Function",
    "Invoker",
    "Lowered",
    "Profile",
    "Symbol",
    "Tensor",
    "TileDeviceError",
    "TileError",
    "TileFallbackWarning",
    "TileInternalError",
    "TileLimitError",
    "TilePlanError",
    "TilePlanWarning",
    "TileShapeWarning",
    "TileSyntaxError",
    "TileTypeError",
    "asarray",
    "build",
    "compose",
    "constant",
    "custom_vjp",
    "device",
    "devices",
    "eval_shape",
    "from_dlpack",
    "grad",
    "hessian_vector_product",
    "jit",
    "jvp",
    "key",
    "placeholder",
    "profile",
    "provenance",
    "random",
    "register_tree",
    "repeat",
    "scan",
    "torch_function",
    "tree_leaves",
    "tree_map",
    "value_and_grad",
    "synchronize",
    "vjp",
    "vmap",
    "while_loop",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(f"tile_runtime.{_HOME[name]}"), name)
    elif name in _ERRORS:
        value = getattr(import_module("tile_ir.diagnostics"), name)
    elif name in _MODULES:
        value = import_module(f"tile_runtime.{name}")
    else:
        absent = import_module("tile_runtime.absent")
        raise AttributeError(absent.reason(name, __all__), name=name, obj=None)
    globals()[name] = value
    return value


def load_ipython_extension(shell: Any) -> None:
    """``%load_ext tile_runtime`` in a notebook: see `tile_runtime.notebook`."""
    import_module("tile_runtime.notebook").load(shell)


def __dir__() -> list[str]:
    return sorted(__all__)


class _Package(ModuleType):
    """Importing the submodules `compose` and `devices` must not hide the functions of the same name."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (isinstance(value, ModuleType) and name in _HOME):
            super().__setattr__(name, value)

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        """By name, as other modules go to other processes inside functions that use them."""
        return import_module, (self.__name__,)


sys.modules[__name__].__class__ = _Package
