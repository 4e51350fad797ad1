"""Tile texts inside Python: string literals that are functions of Tile."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_STRING = re.compile(r"""#[^\n]*|(?<![A-Za-z0-9_])(?P<prefix>[A-Za-z]{0,2})(?P<quote>\"{3}|'{3}|"|')""")
"""A comment, or where a string begins."""
_BEGINS = re.compile(r"(?:\s|//[^\n]*\n)*function\b")
_COMPLETE = re.compile(r"(?:\s|//[^\n]*\n)*function\b[^{;]*->\s*\(")
_CALLED = re.compile(r"\bFunction\(\s*\Z")
_BEFORE = 80
"""Characters in front of a string that are looked at."""


@dataclass(frozen=True, slots=True)
class Region:
    """Tile text and where it begins in its document."""

    start: int
    text: str


def regions(text: str) -> list[Region]:
    """The Tile texts of a Python source, which need not be complete.

    A string counts when it is the argument of ``Function(`` or has the header of a function; where it has escapes, or
    is formatted, places in it are not those of the source, and it is left out.
    """
    return [Region(start, found) for start, found in _strings(text) if _is_tile(text, start, found)]


def _strings(text: str) -> Iterator[tuple[int, str]]:
    """Contents of string literals that mean what they show, and where they begin."""
    position = 0
    while found := _STRING.search(text, position):
        quote = found["quote"]
        if quote is None:
            position = found.end()
            continue
        end = _end(text, found.end(), quote)
        if end is None:
            position = found.end() if len(quote) == 1 else len(text)
            continue
        position = end + len(quote)
        prefix, content = found["prefix"].lower(), text[found.end() : end]
        if prefix in ("", "u", "r") and (prefix == "r" or "\\" not in content):
            yield found.end(), content


def _end(text: str, start: int, quote: str) -> int | None:
    """Where the string's closing quote is; None where there is none."""
    rest = re.compile(r"\\.|" + quote + ("" if len(quote) == 3 else r"|\n"), re.DOTALL)
    for found in rest.finditer(text, start):
        if found[0] == quote:
            return found.start()
        if found[0] == "\n":
            return None
    return None


def _is_tile(text: str, start: int, content: str) -> bool:
    if _COMPLETE.match(content):
        return True
    before = text[max(0, start - _BEFORE) : start].rstrip("\"'rRuU")
    return bool(_BEGINS.match(content) and _CALLED.search(before))
