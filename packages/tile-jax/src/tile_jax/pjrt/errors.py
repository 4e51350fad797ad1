"""Errors: every exception becomes a PJRT error with the text of our diagnostic."""

from __future__ import annotations

from typing import Any

from tile_ir.diagnostics import TileDeviceError, TileError, TileInternalError, TileLimitError

from tile_jax.pjrt.handles import Handler, Text, drop, find, new, written

CANCELLED, INVALID_ARGUMENT, RESOURCE_EXHAUSTED, UNIMPLEMENTED, INTERNAL = 1, 3, 8, 12, 13

OUT_OF_MEMORY = "TILE-E705"
CANNOT = frozenset({"TILE-E952", "TILE-E954", "TILE-E956"})
"""What no version of a program would change: element types, layouts and operations that there are not."""


class Failure:
    """An error that JAX holds."""

    __slots__ = ("code", "message")

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        self.message = Text(message)


def failure(problem: BaseException) -> int:
    """A handle of the error that stands for an exception."""
    return new(Failure(_code(problem), _sentence(problem)))


def _code(problem: BaseException) -> int:
    match problem:
        case TileInternalError():
            return INTERNAL
        case TileLimitError():
            return RESOURCE_EXHAUSTED
        case TileDeviceError() if problem.diagnostics[0].code == OUT_OF_MEMORY:
            return RESOURCE_EXHAUSTED
        case TileError() if problem.diagnostics[0].code in CANNOT:
            return UNIMPLEMENTED
        case TileError():
            return INVALID_ARGUMENT
        case KeyboardInterrupt():
            return CANCELLED
        case MemoryError():
            return RESOURCE_EXHAUSTED
        case NotImplementedError():
            return UNIMPLEMENTED
        case _:
            return INTERNAL


def _sentence(problem: BaseException) -> str:
    if isinstance(problem, KeyboardInterrupt):
        return "interrupted"
    if isinstance(problem, (TileError, NotImplementedError)):
        return str(problem)
    return f"tile-jax: {type(problem).__name__}: {problem}"


def _message(args: Any) -> None:
    written(args, "message", find(Failure, args.error).message)


def _get_code(args: Any) -> None:
    args.code = find(Failure, args.error).code


def _destroy(args: Any) -> None:
    drop(args.error)


def _payloads(args: Any) -> None:
    """Our errors carry a message and nothing else."""


HANDLERS: dict[str, Handler] = {
    "Error_Message": _message,
    "Error_GetCode": _get_code,
    "Error_Destroy": _destroy,
    "Error_ForEachPayload": _payloads,
}
