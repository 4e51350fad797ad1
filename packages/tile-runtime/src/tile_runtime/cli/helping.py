"""Help of groups of commands: whole summaries under headings, in colours on a terminal."""

from __future__ import annotations

import sys
from typing import Any

from typer.core import TyperGroup

from tile_runtime.cli.colours import BOLD, CYAN, styled, wanted

WIDTH = 100
"""Columns of help at most."""
_WHOLE = 10_000
"""Characters of a summary: all of them."""


class Grouped(TyperGroup):
    """A group whose commands stand under the headings that they name, with their summaries whole."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands."""
        coloured = wanted(sys.stdout)
        panels: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                row = (styled(name, CYAN) if coloured else name, command.get_short_help_str(_WHOLE))
                panels.setdefault(_panel(command), []).append(row)
        for heading, rows in panels.items():
            with formatter.section(styled(heading, BOLD) if coloured else heading):
                formatter.write_dl(rows)


def _panel(command: Any) -> str:
    found = getattr(command, "rich_help_panel", None)
    return found if isinstance(found, str) else "Commands"
