"""The device errors of the HAL: one code per kind of failure, so that tests and users can tell them apart."""

from __future__ import annotations

from enum import Enum

from tile_ir.diagnostics import Diagnostic, TileDeviceError


class Code(Enum):
    """Diagnostic codes of this package."""

    UNKNOWN_DEVICE = "TILE-E700"
    DUPLICATE_DRIVER = "TILE-E701"
    NO_DEVICE = "TILE-E702"
    COMPILE_ONLY = "TILE-E703"
    PARAMETERS = "TILE-E704"
    MEMORY = "TILE-E705"
    EXECUTION = "TILE-E706"
    SIZE_MISMATCH = "TILE-E707"
    READ_ONLY = "TILE-E708"
    BUILD = "TILE-E709"
    WORKER = "TILE-E710"
    SCAFFOLD = "TILE-E711"


def device_error(code: Code, message: str, hint: str | None = None) -> TileDeviceError:
    """A TileDeviceError with one diagnostic."""
    return TileDeviceError(Diagnostic(code.value, message, hint=hint))


def check_range(offset: int, nbytes: int, whole: int) -> None:
    """TileDeviceError unless a buffer of `whole` bytes has these."""
    if offset < 0 or nbytes < 0 or offset + nbytes > whole:
        message = f"bytes {offset}..{offset + nbytes} lie outside a buffer of {whole} bytes"
        raise device_error(Code.SIZE_MISMATCH, message)


def execution_error(cause: BaseException) -> TileDeviceError:
    """What an event raises when its work failed: `cause` itself when it is a TileDeviceError, else wrapped."""
    if isinstance(cause, TileDeviceError):
        return cause
    error = device_error(Code.EXECUTION, f"device work failed: {type(cause).__name__}: {cause}")
    error.__cause__ = cause
    return error
