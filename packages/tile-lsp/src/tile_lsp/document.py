"""A document that is open in an editor: its Tile texts, and what is known of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from tile_ir.diagnostics import Diagnostic, Source
from tile_lang.checking import Checked, Checker, Known
from tile_lang.lint import lint
from tile_lang.pieces import Piece, Pieced, Reader
from tile_lang.stated import stated_types

from tile_lsp.embedded import Region, regions
from tile_lsp.names import Names, Occurrence, names, occurrences
from tile_lsp.positions import Lines


@dataclass
class Analysis:
    """One version of one Tile text; `start` is where it begins in its document."""

    start: int
    pieced: Pieced
    diagnostics: tuple[Diagnostic, ...]
    known: Mapping[str | None, Known]
    """What names stand for, by the name of the function that they are in; of the last version without mistakes in its syntax."""
    _memory: dict[int, tuple[Piece, Sequence[Occurrence]]] = field(repr=False)

    @property
    def text(self) -> str:
        return self.pieced.source.text

    @cached_property
    def names(self) -> Names:
        """All names of the text."""
        used: dict[int, tuple[Piece, Sequence[Occurrence]]] = {}

        def remembered(piece: Piece) -> Sequence[Occurrence]:
            used[id(piece)] = self._memory.get(id(piece)) or (piece, occurrences(piece))
            return used[id(piece)][1]

        found = names(self.pieced.pieces, remembered)
        self._memory.clear()
        self._memory.update(used)
        return found


class Text:
    """A Tile text through its versions."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._reader = Reader()
        self._checker = Checker()
        self._checked = Checked((), {})
        self._memory: dict[int, tuple[Piece, Sequence[Occurrence]]] = {}

    def read(self, region: Region) -> Analysis:
        """The next version."""
        pieced = self._reader.read(Source(region.text, self.name))
        found = list(pieced.diagnostics)
        stated = stated_types(pieced.source)
        if pieced.function is not None and not found:
            self._checked = self._checker.check(pieced.function, stated.types)
            found += pieced.in_order([*self._checked.diagnostics, *lint(pieced.function)])
        found += stated.diagnostics
        return Analysis(region.start, pieced, tuple(found), self._checked.known, self._memory)


class Document:
    """A file in an editor: Tile, or Python with Tile in its strings."""

    def __init__(self, uri: str, language: str = "tile") -> None:
        self.uri = uri
        self.is_python = language == "python" or uri.endswith((".py", ".pyi", ".ipynb"))
        self.lines = Lines("")
        self.texts: list[Analysis] = []
        self._kept: list[Text] = []

    def update(self, text: str, encoding: str = "utf-16") -> None:
        """The text as it is now."""
        self.lines = Lines(text, encoding)
        found = regions(text) if self.is_python else [Region(0, text)]
        name = self.uri.rpartition("/")[2]
        self._kept += [Text(name) for _ in range(len(found) - len(self._kept))]
        del self._kept[len(found) :]
        self.texts = [kept.read(region) for kept, region in zip(self._kept, found, strict=True)]

    def at(self, offset: int) -> Analysis | None:
        """The Tile text around a character of the document."""
        return next((t for t in self.texts if t.start <= offset <= t.start + len(t.text)), None)
