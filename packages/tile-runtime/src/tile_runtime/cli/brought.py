"""Commands that other packages bring: entry points of the group `tile_commands`, each a `typer.Typer`, or a function that
takes the arguments and returns the exit code."""

from __future__ import annotations

import sys
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import typer
from typer.main import get_command

from tile_runtime.cli.conformance import FORWARDED, Forwarding
from tile_runtime.cli.helping import Grouped

GROUP = "tile_commands"


class Commands(Grouped):
    """Our commands, then those of other packages, which are imported when they are asked for, or listed.

    Ours win where names are the same. One that cannot be loaded is a sentence on stderr that names its distribution.
    """

    @cached_property
    def brought(self) -> dict[str, EntryPoint]:
        """Entry points by the command's name."""
        return {point.name: point for point in entry_points(group=GROUP) if point.name not in self.commands}

    def list_commands(self, ctx: typer.Context) -> list[str]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Names, in the order of the help."""
        return [*super().list_commands(ctx), *sorted(self.brought)]

    def get_command(self, ctx: typer.Context, cmd_name: str) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The command of a name; None where there is none that can be loaded."""
        found = super().get_command(ctx, cmd_name)
        if found is None and cmd_name in self.brought:
            found = _loaded(self.brought[cmd_name])
        return found


def _command(found: Any) -> Any:
    if isinstance(found, typer.Typer):
        return get_command(found)

    def forward(context: typer.Context) -> None:
        raise typer.Exit(found(context.args))

    forward.__doc__ = (found.__doc__ or "").partition("\n")[0]
    app = typer.Typer(add_completion=False)
    app.command(cls=Forwarding, add_help_option=False, context_settings=FORWARDED)(forward)
    return get_command(app)


def _loaded(point: EntryPoint) -> Any:
    try:
        command = _command(point.load())
    except Exception as problem:  # it is somebody else's code
        whose = point.dist.name if point.dist is not None else point.value
        print(f"tile: the command {point.name!r} of {whose} cannot be loaded: {problem}", file=sys.stderr)
        return None
    command.name, command.rich_help_panel = point.name, "From other packages"
    return command
