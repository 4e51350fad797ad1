"""What the Tile compiler and its hardware share, as data.

The names below are loaded from their modules when they are first used, so that ``import tile_ir`` costs nothing.
The node classes of Stripe and semtree are in `tile_ir.stripe.nodes` and `tile_ir.semtree.nodes`: some have equal names.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tile_ir import numerics as numerics
    from tile_ir import semtree as semtree
    from tile_ir import stripe as stripe
    from tile_ir.diagnostics import Diagnostic as Diagnostic
    from tile_ir.diagnostics import Note as Note
    from tile_ir.diagnostics import Severity as Severity
    from tile_ir.diagnostics import Source as Source
    from tile_ir.diagnostics import Span as Span
    from tile_ir.diagnostics import TileDeviceError as TileDeviceError
    from tile_ir.diagnostics import TileError as TileError
    from tile_ir.diagnostics import TileInternalError as TileInternalError
    from tile_ir.diagnostics import TileLimitError as TileLimitError
    from tile_ir.diagnostics import TileSyntaxError as TileSyntaxError
    from tile_ir.diagnostics import TileTypeError as TileTypeError
    from tile_ir.dtype import DType as DType
    from tile_ir.dtype import Kind as Kind
    from tile_ir.dtype import from_numpy as from_numpy
    from tile_ir.dtype import promote as promote
    from tile_ir.kernels import BufferInfo as BufferInfo
    from tile_ir.kernels import BufferKind as BufferKind
    from tile_ir.kernels import Kernel as Kernel
    from tile_ir.kernels import KernelList as KernelList
    from tile_ir.kernels import Step as Step
    from tile_ir.kernels import StepKind as StepKind
    from tile_ir.machine import Machine as Machine
    from tile_ir.ops import OPS as OPS
    from tile_ir.ops import Aggregation as Aggregation
    from tile_ir.ops import ScalarOp as ScalarOp
    from tile_ir.ops import Signature as Signature
    from tile_ir.target import Capabilities as Capabilities
    from tile_ir.target import HardwareSettings as HardwareSettings
    from tile_ir.target import PassConfig as PassConfig
    from tile_ir.target import Target as Target

_EXPORTS: dict[str, tuple[str, ...]] = {
    "tile_ir.diagnostics": (
        *("Diagnostic", "Note", "Severity", "Source", "Span", "TileDeviceError", "TileError"),
        *("TileInternalError", "TileLimitError", "TileSyntaxError", "TileTypeError"),
    ),
    "tile_ir.dtype": ("DType", "Kind", "from_numpy", "promote"),
    "tile_ir.kernels": ("BufferInfo", "BufferKind", "Kernel", "KernelList", "Step", "StepKind"),
    "tile_ir.machine": ("Machine",),
    "tile_ir.ops": ("OPS", "Aggregation", "ScalarOp", "Signature"),
    "tile_ir.target": ("Capabilities", "HardwareSettings", "PassConfig", "Target"),
}
_MODULES = ("numerics", "semtree", "stripe")
_HOMES = {name: module for module, names in _EXPORTS.items() for name in names}

__all__ = [*_HOMES, *_MODULES]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"tile_ir.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'tile_ir' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
