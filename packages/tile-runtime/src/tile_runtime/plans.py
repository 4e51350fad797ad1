"""Plans as a user gives them: values by kernel name, their text, or a file of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tile_ir.diagnostics import Diagnostic, Source, TileSyntaxError, TileTypeError
from tile_ir.text_files import read_text

if TYPE_CHECKING:
    from tile_opt.plan.plan import Plan

    Given = Mapping[str, Plan] | str | os.PathLike[str] | None
    """Plans by kernel name, their text, or a file of it; None for none."""


def read_plans(given: Given) -> Mapping[str, Plan]:
    """What was given, as plans by kernel name; they keep their places in a text or a file.

    TileSyntaxError when a text is no plan text, OSError when a file cannot be read, TileTypeError for anything else.
    """
    if given is None:
        return {}
    from tile_opt.plan.text import Plans, parse_plans

    match given:
        case str():
            return parse_plans(given)
        case os.PathLike():
            return parse_plans(Source(_text(Path(given)), os.fspath(given)))
        case Plans():
            return given
        case _:
            return Plans(_mapping(given))


def _text(path: Path) -> str:
    try:
        return read_text(path)
    except UnicodeDecodeError as problem:
        raise TileSyntaxError(Diagnostic("TILE-E513", f"{path} is not UTF-8 text: {problem}")) from None


def _mapping(given: Any) -> Mapping[str, Plan]:
    from tile_opt.plan.plan import Plan

    if isinstance(given, Mapping):
        plans = cast("Mapping[Any, Any]", given)
        if all(isinstance(name, str) and isinstance(plan, Plan) for name, plan in plans.items()):
            return cast("Mapping[str, Plan]", plans)
    hint = "a Path names a file of plans; text is what `tile plan` prints"
    message = f"plans are Plan values by kernel name, plan text or a Path, not {given!r:.60}"
    raise TileTypeError(Diagnostic("TILE-E517", message, hint=hint))
