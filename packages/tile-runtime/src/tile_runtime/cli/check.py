"""`tile check`."""

from __future__ import annotations

import json as encode
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from tile_ir.diagnostics import Diagnostic, Severity, TileError

from tile_runtime.cli.colours import painted
from tile_runtime.cli.common import Json, Shapes, placeholders, read_function
from tile_runtime.cli.errors import FINDINGS


def check(
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="Tile files; '-' is standard input.")],
    shape: Shapes = [],  # noqa: B006 - typer copies it
    json: Json = False,
) -> None:
    """Report mistakes; with --shape for every input, those of shapes and types too. --json: one object a line.

    A comment `// shapes: A=float32[3,4]` at the start of a file states types as well. Warnings say what is probably not meant, and leave the exit code alone.
    """
    found: list[Diagnostic] = []
    for path in files:
        try:
            found += _examine(path, shape)
        except TileError as problem:
            found += problem.diagnostics
    for diagnostic in found:
        print(as_json(diagnostic) if json else painted(diagnostic.render(), sys.stdout))
    if any(d.severity is Severity.ERROR for d in found):
        sys.stdout.flush()
        raise typer.Exit(FINDINGS)


def _examine(path: Path, shapes: Sequence[str]) -> list[Diagnostic]:
    """Warnings, and mistakes whatever the shapes are; TileError with all mistakes of given shapes where there are any."""
    import tile_lang

    function = read_function(path)
    if shapes:
        from tile_runtime.shapes import eval_shape

        eval_shape(function, **placeholders(function, shapes))
        return tile_lang.lint(function.syntax)
    return [*tile_lang.check(function.syntax), *tile_lang.lint(function.syntax)]


def as_json(d: Diagnostic) -> str:
    """One line, as `python -m tile_lang check --json` writes it."""
    place = {"file": d.span.source.name, "line": d.span.line, "column": d.span.column} if d.span else {}
    return encode.dumps({**place, "code": d.code, "message": d.message, "hint": d.hint, "severity": d.severity.value})
