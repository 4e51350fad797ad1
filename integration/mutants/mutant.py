"""A mutant: what is changed, and what that breaks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Mutant:
    """`old` stands exactly once in `file`, below the repository's root."""

    breaks: str
    file: str
    old: str
    new: str

    @property
    def folder(self) -> Path:
        """The source folder of the package that is mutated."""
        return ROOT / self.file.partition("/src/")[0] / "src"

    @property
    def place(self) -> str:
        """The file below the source folder."""
        return self.file.partition("/src/")[2]

    def text(self) -> str:
        """The file with the mutation; ValueError when the old text is not there once."""
        text = (ROOT / self.file).read_text("utf-8")
        if text.count(self.old) != 1:
            raise ValueError(f"{self.file} has {self.old!r} {text.count(self.old)} times")
        return text.replace(self.old, self.new)
