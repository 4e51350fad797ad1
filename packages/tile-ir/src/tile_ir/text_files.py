"""Files of text that users name, sources and plans: of one that never ends no more is read than any of them has."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import TextIO

LONGEST = 1 << 26
"""Characters."""


def read_text(path: str | Path) -> str:
    """UTF-8, without a byte-order mark at its start; OSError where it cannot be read or has more than `LONGEST` characters."""
    with Path(path).open(encoding="utf-8-sig") as file:
        return _bounded(file, str(path))


def read_standard_input() -> str:
    """The same of what is piped in; Python has no stream where the shell closed it."""
    given: TextIO | None = sys.stdin
    if given is None:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF), "standard input")
    return _bounded(given, "standard input").removeprefix("\ufeff")


def _bounded(file: TextIO, name: str) -> str:
    text = file.read(LONGEST + 1)
    if len(text) > LONGEST:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), name)
    return text
