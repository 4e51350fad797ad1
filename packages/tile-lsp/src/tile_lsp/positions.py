"""Places of a text as offsets, and as editors count them: lines, and units of an encoding within a line."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field

_END_OF_LINE = re.compile(r"\r\n|\n|\r")
"""What ends a line for an editor; Python's `splitlines` knows more."""

_UNITS = {"utf-8": ("utf-8", 1), "utf-16": ("utf-16-le", 2), "utf-32": ("utf-32-le", 4)}
"""Python's name of an encoding, and the bytes of its unit."""


@dataclass(slots=True)
class Lines:
    """The lines of a text; `encoding` is one of ``utf-8``, ``utf-16`` and ``utf-32``."""

    text: str
    encoding: str = "utf-16"
    _starts: list[int] = field(init=False)
    _plain: bool = field(init=False)
    """Whether every character is one unit."""

    def __post_init__(self) -> None:
        self._starts = [0, *(found.end() for found in _END_OF_LINE.finditer(self.text))]
        self._plain = self.text.isascii() or self.encoding == "utf-32"

    def position(self, offset: int) -> tuple[int, int]:
        """Line and unit, both from 0, of a character."""
        offset = min(offset, len(self.text))
        line = bisect_right(self._starts, offset) - 1
        return line, self.units(self.text[self._starts[line] : offset])

    def offset(self, line: int, unit: int) -> int:
        """The character there; the end of the line, or of the text, for what is beyond."""
        if line >= len(self._starts):
            return len(self.text)
        start = self._starts[line]
        found = _END_OF_LINE.search(self.text, start)
        written = self.text[start : found.start() if found else len(self.text)]
        return start + self._characters(written, unit)

    def units(self, part: str) -> int:
        """How many units a part of a line has."""
        if self._plain or part.isascii():
            return len(part)
        codec, size = _UNITS[self.encoding]
        return len(part.encode(codec, "surrogatepass")) // size

    def _characters(self, part: str, units: int) -> int:
        if self._plain or part.isascii():
            return min(units, len(part))
        for count, character in enumerate(part):
            if units <= 0:
                return count
            units -= self.units(character)
        return len(part)
