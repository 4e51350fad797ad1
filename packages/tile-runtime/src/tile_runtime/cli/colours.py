"""Colours of messages and of help: on terminals only, and not where NO_COLOR is set."""

from __future__ import annotations

import os
import re
from typing import TextIO

RED, YELLOW, CYAN, BOLD = "31;1", "33;1", "36", "1"
_OF_WORD = {"error": RED, "warning": YELLOW, "note": CYAN, "hint": CYAN}
_HEAD = re.compile(r"(?<![^\s])(error|warning|note|hint)(?: TILE-[EW]\d+)?:")
_CARETS = re.compile(r"(?<=\| )( *)(\^+)$")


def wanted(stream: TextIO) -> bool:
    """Whether a stream takes colours: https://no-color.org, and terminals that say they are dumb."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def styled(text: str, style: str) -> str:
    """The text in a style, for a terminal."""
    return f"\x1b[{style}m{text}\x1b[0m"


def painted(text: str, stream: TextIO) -> str:
    """A message with its words and carets in colours, where the stream takes them."""
    return "\n".join(map(_painted_line, text.split("\n"))) if wanted(stream) else text


def _painted_line(line: str) -> str:
    line = _HEAD.sub(lambda found: styled(found[0], _OF_WORD[found[1]]), line, count=1)
    return _CARETS.sub(lambda found: found[1] + styled(found[2], RED), line)
