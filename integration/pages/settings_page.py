"""The environment variables: from the docstrings of `tile_ir.settings.Settings`, and a table of the few that others read."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

from tile_ir.settings import Settings

from pages.markdown import table

HEAD = """\
# Environment variables

Read once, by `tile_ir.settings.Settings.from_environment`; an empty variable counts as unset. One that is malformed is an error that names it
(TILE-E060), never silently something else.
"""
OTHERS: Mapping[str, str] = {
    "TILE_JAX_DEVICES": 'devices that `jax.devices("tile")` lists, with commas between: see [JAX](../jax.md)',
    "TILE_MODELS": "folder of the wheels that hold networks for the [examples](../models.md)",
    "CC": "the C compiler that links what `tile build` writes; `cc` when unset",
    "VISUAL, EDITOR": "the editor that `tile plan --edit` opens",
}
"""Read elsewhere than in the settings."""


def page() -> str:
    rows = [(f"`{name}`", f"`{default}`" if default else "", says) for name, default, says in settings()]
    others = [(f"`{name}`", says) for name, says in OTHERS.items()]
    parts = [HEAD, table(("variable", "default", "what it says"), rows), "## Read by one command or package\n"]
    return "\n".join([*parts, table(("variable", "what it says"), others)])


def settings() -> Iterator[tuple[str, str, str]]:
    """Variable, default and meaning of every setting, from the docstrings below the fields."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(Settings))).body
    assert isinstance(definition, ast.ClassDef)
    defaults = Settings()
    field = ""
    for statement in definition.body:
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name)):
                field = name
            case ast.Expr(value=ast.Constant(value=str(text))) if field:
                variable, _, says = " ".join(text.split()).partition(": ")
                yield variable, _default(getattr(defaults, field)), says.rstrip(".")
            case _:
                field = ""


def _default(value: object) -> str:
    match value:
        case None | () | "":
            return ""
        case bool():
            return "1" if value else "0"
        case float():
            return f"{value:g}"
        case _:
            return str(value)


def read_in(folder: Path) -> set[str]:
    """The variables that sources name, in quotes: what the page must have."""
    found: set[str] = set()
    for file in folder.glob("*/src/**/*.py"):
        found |= set(re.findall(r"[\"'](TILE_[A-Z_]*[A-Z])[\"']", file.read_text("utf-8")))
    return found
