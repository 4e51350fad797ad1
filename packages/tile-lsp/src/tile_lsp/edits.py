"""Changes of a text: its canonical layout, and the mends that hints name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tile_ir.diagnostics import Diagnostic, TileError
from tile_lang.formatter import format_source

_MEANT = re.compile(r"did you mean ([A-Za-z][A-Za-z0-9_]*'?)\?")


@dataclass(frozen=True, slots=True)
class Edit:
    """`text` in the place of characters [start, end)."""

    start: int
    end: int
    text: str


def formatted(text: str) -> list[Edit]:
    """What makes the layout canonical: one edit of the lines that differ; none where the text has mistakes."""
    try:
        new = format_source(text)
    except TileError:
        return []
    return [] if new == text else [_difference(text, new)]


def _difference(old: str, new: str) -> Edit:
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    head = 0
    while head < min(len(before), len(after)) and before[head] == after[head]:
        head += 1
    tail = 0
    while tail < min(len(before), len(after)) - head and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    start = sum(map(len, before[:head]))
    end = len(old) - sum(map(len, before[len(before) - tail :]))
    return Edit(start, end, "".join(after[head : len(after) - tail]))


def mends(found: Diagnostic) -> Iterator[tuple[str, Edit]]:
    """Titles of changes that a diagnostic's hint names, and the changes."""
    meant = _MEANT.fullmatch(found.hint or "")
    if meant and found.span is not None and re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*'?", found.span.text):
        yield f"Change to {meant[1]}", Edit(found.span.start, found.span.end, meant[1])
