"""`tile fmt`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def fmt(
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="Tile files; '-' is standard input.")],
    check: Annotated[bool, typer.Option("--check", help="Only name the files that would change.")] = False,
) -> None:
    """Rewrite files in the canonical layout (the same as `python -m tile_lang fmt`)."""
    from tile_lang.__main__ import main

    raise typer.Exit(main(["fmt", *(["--check"] if check else []), "--", *map(str, files)]))
