"""Tile in notebooks: after ``%load_ext tile_runtime`` a cell that begins with ``%%tile NAME`` is a function in Tile."""

from __future__ import annotations

from typing import Any

from tile_ir.diagnostics import Diagnostic, TileSyntaxError

from tile_runtime.function import Function

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
