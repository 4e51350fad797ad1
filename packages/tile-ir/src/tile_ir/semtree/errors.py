"""What can be wrong with a semtree function; all of it is a compiler's mistake, never a user's."""

from __future__ import annotations

from tile_ir.diagnostics import TileInternalError


class SemtreeError(TileInternalError):
    """A function breaks a rule of the language."""


class SemtreeRuntimeError(SemtreeError):
    """A launch did something undefined: a race, an access out of bounds, a read of nothing, a lost barrier."""
