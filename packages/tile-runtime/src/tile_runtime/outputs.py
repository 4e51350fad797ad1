"""Outputs that a caller gives: arrays or Tensors that receive the results."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from tile_ir.diagnostics import Diagnostic, TileTypeError
from tile_ir.kernels import BufferInfo

from tile_runtime.arguments import unknown_name
from tile_runtime.arrays import Array, overlaps_itself
from tile_runtime.checks import checked_names
from tile_runtime.tensor import Tensor, same_device

if TYPE_CHECKING:
    from tile_hal.interfaces import Device

    from tile_runtime.signature import Signature

_EXACT_OVERLAP_WORK = 10_000
"""Bound on NumPy's exact overlap test of strided arrays; beyond it they count as overlapping."""


def given_outputs(
    function: Signature,
    infos: Sequence[BufferInfo],
    out: Any,
    inputs: Sequence[Any],
    donate: Collection[str],
    device: Device,
) -> list[Any]:
    """One array, Tensor or None for each result, checked: nothing has been changed when this raises.

    TileTypeError names the output whose array has the wrong shape or dtype, cannot be written, or overlaps
    another output or an input that is not in `donate`.
    """
    names = function.results
    given: list[Any] = list(cast("Sequence[Any]", out)) if isinstance(out, (tuple, list)) else [out]
    if len(given) != len(names):
        results = "1 result" if len(names) == 1 else f"{len(names)} results"
        raise _bad(f"function {function.name!r} gives {results} ({', '.join(names)}), out has {len(given)}")
    byname = dict(zip(function.outputs, infos, strict=True))
    kept = [(n, v) for n, v in zip(function.inputs, inputs, strict=True) if n not in donate]
    for k, (name, value) in enumerate(zip(names, given, strict=True)):
        if value is None:
            continue
        _check(name, byname[name], value, device)
        for other, x in kept:
            if overlaps(value, x):
                donate_it = f"pass a copy of the input, or donate=({other!r},) to let it be overwritten"
                hint = (
                    "tile.compose(…, updates=…) writes tensors that it reads" if other in function.bound else donate_it
                )
                raise _bad(f"the memory given for output {name!r} overlaps input {other!r}", hint)
        for other, x in zip(names[:k], given, strict=False):
            if overlaps(value, x):
                raise _bad(f"the memory given for output {name!r} overlaps that of output {other!r}")
    return given


def donated(function: Signature, donate: str | Sequence[str]) -> tuple[str, ...]:
    """The names in `donate`; TileTypeError for one that is no input."""
    names = checked_names("donate", donate)
    for name in names:
        if name not in function.arguments:
            raise unknown_name(function, "input", name, function.arguments)
    return names


def _check(name: str, info: BufferInfo, value: Any, device: Device) -> None:
    if isinstance(value, Tensor):
        same_device([(name, value)], device, "the tensor given for output")
    elif not isinstance(value, np.ndarray):
        raise _bad(
            f"output {name!r} needs a NumPy array or a Tensor, not {type(value).__module__}.{type(value).__name__}"
        )
    given = cast("Array | Tensor", value)
    dtype = str(given.dtype) if isinstance(given, Tensor) else given.dtype.name
    if given.shape != info.shape or dtype != str(info.dtype):
        found = f"{dtype}{list(given.shape)}"
        raise _bad(f"output {name!r} is {info.dtype}{list(info.shape)}, what was given for it is {found}")
    if isinstance(given, np.ndarray):
        _check_array(name, given)


def _check_array(name: str, given: Array) -> None:
    if not given.flags.writeable:
        raise _bad(f"the array given for output {name!r} is read-only", "give a writable array, or none")
    if isinstance(given, np.ma.MaskedArray):
        raise _bad(f"the array given for output {name!r} is masked, and results have no masks", "give a.data, or none")
    if overlaps_itself(given):
        message = (
            f"the array given for output {name!r} overlaps itself: its strides {given.strides} put several elements"
        )
        raise _bad(f"{message} of {list(given.shape)} at one place", "give np.empty_like(a), or none")


def overlaps(a: Any, b: Any) -> bool:
    """True when two arrays or two Tensors have memory in common."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        left, right = cast(Array, a), cast(Array, b)
        if not np.may_share_memory(left, right):
            return False
        try:
            return bool(np.shares_memory(left, right, max_work=cast(Any, _EXACT_OVERLAP_WORK)))
        except np.exceptions.TooHardError:
            return True
    return isinstance(a, Tensor) and isinstance(b, Tensor) and a.buffer is b.buffer


def _bad(message: str, hint: str | None = None) -> TileTypeError:
    return TileTypeError(Diagnostic("TILE-E505", message, hint=hint))
