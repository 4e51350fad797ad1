"""What cannot be lowered, and where JAX says it stands."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from tile_ir.diagnostics import Diagnostic, TileTypeError


class Unlooped(Exception):
    """A region that cannot be the body of a loop on the device: the host has a part in it."""


@dataclass(frozen=True, slots=True)
class Problem:
    """An operation that is not supported."""

    operation: str
    place: str
    why: str
    hint: str | None


_NAMED = re.compile(r'loc\("([^"]*)"')
_FILE = re.compile(r'"([^"]+)":(\d+)')


def place(location: Any) -> str:
    """JAX's name of an operation and the user's line: ``jit(f)/sort at model.py:12``; "" where neither is known."""
    text = str(location)
    named, files = _NAMED.match(text), _FILE.findall(text)
    name = named[1] if named and not _FILE.match(text[4:]) else ""
    line = f"{PurePath(files[0][0]).name}:{files[0][1]}" if files else ""
    return " at ".join(filter(None, (name, line)))


def refusal(problems: Sequence[Problem]) -> TileTypeError:
    """One error that names every operation that is not supported, each once with its places counted."""
    grouped: dict[tuple[str, str, str | None], list[str]] = {}
    for p in problems:
        grouped.setdefault((p.operation, p.why, p.hint), []).append(p.place)
    diagnostics = [
        Diagnostic("TILE-E956", f"{operation}{_places(places)}: {why}", hint=hint)
        for (operation, why, hint), places in grouped.items()
    ]
    return TileTypeError(diagnostics)


def _places(places: Sequence[str]) -> str:
    known = [p for p in dict.fromkeys(places) if p]
    if not known:
        return ""
    more = len(places) - 1
    return f" ({known[0]}{f', and {more} more' if more else ''})"
