"""Tables for terminals and texts."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from io import StringIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

WIDE = 200
"""Columns where the output is no terminal: nothing is cut off then."""


def print_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a plain table."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else WIDE
    Console(highlight=False, markup=False, emoji=False, width=width).print(_table(headings, rows))


def table_text(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A plain table as text."""
    from rich.console import Console

    out = StringIO()
    Console(file=out, highlight=False, markup=False, emoji=False, width=WIDE).print(_table(headings, rows))
    return "\n".join(line.rstrip() for line in out.getvalue().strip("\n").splitlines() if line.strip())


def _table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(*headings, box=box.SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        table.add_row(*(str(cell) for cell in row))
    return table
