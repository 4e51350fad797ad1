"""Tile in notebooks: after ``%load_ext tile_runtime`` a cell that begins with ``%%tile NAME`` is a function in Tile; Tensors are tables."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from tile_ir.diagnostics import Diagnostic, TileSyntaxError

from tile_runtime.function import Function

if TYPE_CHECKING:
    from tile_runtime.tensor import Tensor

EDGE = 4
"""Rows and columns of a large table that are shown at each end."""
HINT = "write '%%tile conv' in the first line of the cell, and the function below it"


def load(shell: Any) -> None:
    """Register the magic with an IPython shell."""

    def magic(line: str, cell: str) -> Function:
        """``%%tile NAME``: the cell's text as a Function, which is also the value of the cell."""
        name = line.strip()
        if not name.isidentifier():
            message = f"a cell of Tile is called by a name, not {name!r}" if name else "this cell of Tile has no name"
            raise TileSyntaxError(Diagnostic("TILE-E513", message, hint=HINT))
        function = Function(cell, f"{name}.tile")
        shell.push({name: function})
        return function

    shell.register_magic_function(magic, "cell", "tile")


def tensor_html(tensor: Tensor) -> str:
    """A Tensor of one or two dimensions as a table; others, large ones and those whose work failed as they are printed."""
    from tile_runtime.tensor import SHOWN

    text = repr(tensor)
    if len(tensor.shape) not in (1, 2) or not tensor.size or tensor.size > SHOWN or " of work that failed: " in text:
        return f"<pre>{escape(text)}</pre>"
    array = tensor.numpy()
    rows = array.reshape(-1, array.shape[-1])
    body = "".join(_row(rows, k) for k in _ends(len(rows)))
    caption = escape(f"{tensor.dtype}{list(tensor.shape)} on {tensor.device.id}")
    return f"<table><caption>{caption}</caption>{body}</table>"


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
