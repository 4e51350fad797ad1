"""The command line: every command of `tile`, with its options, from typer's own tree; other packages' commands included."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer.main
from tile_runtime.cli.app import app

from pages.markdown import fenced, table

HEAD = """\
# The command line

`tile COMMAND --help` says the same. Exit codes: 0 nothing to report, 1 findings or an error in what was given, 2 wrong usage or an
unreadable file. Wherever a FILE is asked for, `-` is standard input; `--json` prints data.
"""


def page() -> str:
    root: Any = typer.main.get_command(app)
    context = root.make_context("tile", [], resilient_parsing=True)
    return "\n".join([HEAD, *_options(root, context), *_below(root, context, "tile")])


def _below(group: Any, context: Any, path: str) -> Iterator[str]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if not command.hidden:
            yield from _command(
                command, command.context_class(command, parent=context, info_name=name), f"{path} {name}"
            )


def _command(command: Any, context: Any, path: str) -> Iterator[str]:
    yield f"## {path}\n"
    yield f"{_plain(command.help)}\n"
    if hasattr(command, "list_commands"):
        yield from _below(command, context, path)
        return
    yield fenced(command.get_usage(context).removeprefix("Usage: "), "text")
    yield from _options(command, context)
    example, found, _ = (command.epilog or "").partition(" Exit codes:")
    if found and example.startswith("Example: "):
        yield fenced(example.removeprefix("Example: ").rstrip("."), "sh")


def _options(command: Any, context: Any) -> Iterator[str]:
    records = [record for p in command.get_params(context) if (record := p.get_help_record(context))]
    if records:
        yield table(("argument or option", ""), [(f"`{name}`", _plain(says)) for name, says in records])


def _plain(text: str | None) -> str:
    return " ".join((text or "").split()).replace("<", "&lt;")
