"""How a Tensor looks to people: as text, and as a table in notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any, Protocol

import numpy as np
from tile_hal.interfaces import Device
from tile_ir.diagnostics import TileError
from tile_ir.dtype import DType

from tile_runtime.arrays import Array

MOST = 1 << 16
"""A tensor of more elements shows none of them."""
EDGE = 4
"""Rows and columns of a large table that are shown at each end."""


class Shown(Protocol):
    """What has elements, somewhere."""

    device: Device
    dtype: DType
    shape: tuple[int, ...]

    @property
    def size(self) -> int: ...
    def numpy(self) -> Array: ...


def text(tensor: Shown) -> str:
    """Its numbers, unless they are many or work on them has failed, its dtype and its device."""
    numbers, why = _elements(tensor)
    kind = f"shape={tensor.shape}, dtype={tensor.dtype}, device={tensor.device.id!r})"
    if numbers is None:
        return f"Tensor({kind}{why}"
    return f"Tensor({np.array2string(numbers, separator=', ', prefix='Tensor(', threshold=100)}, {kind}"


def table(tensor: Shown) -> str:
    """HTML of one or two dimensions as a table; of others, of large ones and those whose work failed as they are printed."""
    numbers, _ = _elements(tensor) if len(tensor.shape) in (1, 2) and tensor.size else (None, "")
    if numbers is None:
        return f"<pre>{escape(text(tensor))}</pre>"
    rows = numbers.reshape(-1, numbers.shape[-1])
    body = "".join(_row(rows, k) for k in _ends(len(rows)))
    caption = escape(f"{tensor.dtype}{list(tensor.shape)} on {tensor.device.id}")
    return f"<table><caption>{caption}</caption>{body}</table>"


def _elements(tensor: Shown) -> tuple[Array | None, str]:
    """The numbers, if they are shown; else why not, where that is no matter of their count."""
    if tensor.size > MOST:
        return None, ""
    try:
        return tensor.numpy(), ""
    except TileError as problem:
        return None, f" of work that failed: {problem.diagnostics[0].message}"


def _ends(count: int) -> Sequence[int | None]:
    """Numbers of rows or columns; None stands for those that are left out."""
    if count <= 2 * EDGE + 1:
        return range(count)
    return [*range(EDGE), None, *range(count - EDGE, count)]


def _row(rows: Any, number: int | None) -> str:
    cells = ["⋮" if number is None or k is None else _number(rows[number, k]) for k in _ends(rows.shape[1])]
    return f"<tr>{''.join(f'<td>{c}</td>' for c in cells)}</tr>"


def _number(value: Any) -> str:
    return str(value) if value.dtype.kind in "biu" else f"{float(value):.6g}"
