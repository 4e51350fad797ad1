"""`tile new`."""

from __future__ import annotations

import keyword
import re
from pathlib import Path
from typing import Annotated

import typer

from tile_runtime.cli.errors import USAGE, CommandError

_NAME = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*")
_TAKEN = re.compile(r"tile(_.*)?|hal_.*|test|tests|numpy|pytest")


def new(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="What to import: lower-case letters, digits, underscores.")
    ],
    into: Annotated[Path, typer.Option("--into", metavar="FOLDER", help="Where the folder NAME goes.")] = Path(),
) -> None:
    """Write a project: a function in Tile, the Python around it, a test against NumPy and a notebook.

    Nothing that is there already is touched.
    """
    from tile_runtime.cli.starter import files

    if not _NAME.fullmatch(name) or keyword.iskeyword(name) or _TAKEN.fullmatch(name):
        raise CommandError(
            f"{name[:60]!r} cannot be a project: lower-case letters, digits and underscores, such as my_filter", USAGE
        )
    folder = into / name
    if not into.is_dir():
        raise CommandError(f"{into} is no folder", USAGE)
    if folder.exists():
        raise CommandError(f"{folder} is there already")
    for place, text in files(name).items():
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    print(
        f"{folder} is written. Next:\n  cd {folder} && pip install '.[test]' && python -m pytest\n  tile explain src/{name}/{name}.tile"
    )
