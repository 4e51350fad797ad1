"""What is told to whoever uses a layer, an optimiser or a file wrongly."""

from __future__ import annotations

from tile_ir.diagnostics import Diagnostic
from tile_runtime import TileTypeError


def wrong_shape(message: str, hint: str | None = None) -> TileTypeError:
    """Tensors that do not fit a layer or a loss."""
    return TileTypeError(Diagnostic("TILE-E981", message, hint=hint))


def wrong_number(message: str, hint: str | None = None) -> TileTypeError:
    """A setting outside of its range."""
    return TileTypeError(Diagnostic("TILE-E982", message, hint=hint))


def wrong_file(message: str, hint: str | None = None) -> TileTypeError:
    """A checkpoint that cannot be read, or is not of this network."""
    return TileTypeError(Diagnostic("TILE-E983", message, hint=hint))


def shown(value: object) -> str:
    """The type of a tensor: ``float32[3, 4]``."""
    return f"{getattr(value, 'dtype', type(value).__name__)}{list(getattr(value, 'shape', ()))}"
