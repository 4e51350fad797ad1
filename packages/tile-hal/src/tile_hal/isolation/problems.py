"""Errors as plain data, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tile_ir.diagnostics import Diagnostic, TileDeviceError, TileError, TileInternalError

from tile_hal.errors import Code, device_error

_PLAIN: Mapping[str, type[Exception]] = {
    "ValueError": ValueError,
    "TypeError": TypeError,
    "TileInternalError": TileInternalError,
}
"""Errors that are what they are on the other side too; all others are device errors there."""


def report(problem: BaseException) -> dict[str, Any]:
    """What is said of an error."""
    if isinstance(problem, TileError):
        return {"diagnostics": [[d.code, d.message, d.hint] for d in problem.diagnostics]}
    kind = next((name for name, known in _PLAIN.items() if isinstance(problem, known)), type(problem).__name__)
    return {"kind": kind, "message": str(problem)}


def reported(said: Mapping[str, Any]) -> Exception:
    """The error of a report."""
    if "diagnostics" in said:
        return TileDeviceError([Diagnostic(code, message, hint=hint) for code, message, hint in said["diagnostics"]])
    kind = _PLAIN.get(said["kind"])
    if kind is not None:
        return kind(said["message"])
    return device_error(Code.EXECUTION, f"device work failed: {said['kind']}: {said['message']}")
