"""The examples of docs/errors.md: what each is about, and what it says when it is run."""

from __future__ import annotations

import io
import os
import re
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "errors.md"
BLOCK = re.compile(r"```(python|text)\n(.*?)```\n", re.DOTALL)
SECTION = re.compile(r"^### (TILE-[EW]\d{3})\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
FRAMEWORK = re.compile(r"^import (?:tile_)?(torch|jax|dask)\b", re.MULTILINE)
"""What the tests of those packages run, where the framework is installed."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """A code, the sentence about it, and its example: Python that makes the error, or the text of one that takes broken hardware."""

    code: str
    says: str
    language: str
    example: str

    @property
    def framework(self) -> str | None:
        found = FRAMEWORK.search(self.example)
        return found[1] if found else None


def mistakes() -> list[Mistake]:
    """All of the page, in its order."""
    return [*_mistakes(PAGE.read_text("utf-8"))]


def _mistakes(page: str) -> Iterator[Mistake]:
    for code, body in SECTION.findall(page):
        block = BLOCK.search(body)
        assert block is not None, f"{code} has no example"
        yield Mistake(code, " ".join(body[: block.start()].split()), block[1], block[2])


def prelude() -> str:
    """The names that the examples begin with."""
    found = BLOCK.search(PAGE.read_text("utf-8"))
    assert found is not None
    return found[2]


def said(mistake: Mistake) -> str:
    """What running the example says: the text of its error, or of its warnings and what it prints."""
    names: dict[str, Any] = {}
    before, place = dict(os.environ), Path.cwd()
    printed = io.StringIO()
    with (
        tempfile.TemporaryDirectory() as folder,
        warnings.catch_warnings(record=True) as caught,
        redirect_stdout(printed),
    ):
        warnings.simplefilter("always")
        os.chdir(folder)
        try:
            exec(compile(prelude(), "prelude", "exec"), names)
            exec(compile(mistake.example, f"{mistake.code}", "exec"), names)
        except Exception as error:
            return str(error)
        finally:
            os.chdir(place)
            os.environ.clear()
            os.environ.update(before)
    return "\n".join([*(str(w.message) for w in caught), printed.getvalue()]).strip()
