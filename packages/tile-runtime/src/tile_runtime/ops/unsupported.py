"""What a front end says of a node that it cannot convert."""

from __future__ import annotations

from tile_ir.diagnostics import TileError


class Unsupported(Exception):
    """A node that cannot be converted: why, and what would help."""

    def __init__(self, why: str, hint: str | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.hint = hint


def explained(reason: Exception, other: str | None = None) -> tuple[str, str | None]:
    """What an exception of a converter says, and what would help; `other` of one that no converter raises on purpose."""
    match reason:
        case Unsupported():
            return reason.why, reason.hint
        case TileError():
            return reason.diagnostics[0].message, reason.diagnostics[0].hint
        case _:
            return other or f"it does not fit its operator ({type(reason).__name__}: {reason})", None
