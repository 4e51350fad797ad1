"""Source text, spans and diagnostics: what every user-facing error is made of.

A diagnostic has a code, a span, one sentence and, where there is an obvious mend, a hint.
Errors are collected and raised together.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import accumulate
from types import FrameType

from tile_ir.frozen import frozen


@dataclass(frozen=True, slots=True)
class Source:
    """A named text that spans point into."""

    text: str
    name: str = "<tile>"
    _line_starts: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        lengths = (len(line) + 1 for line in self.text.split("\n"))
        object.__setattr__(self, "_line_starts", (0, *accumulate(lengths))[:-1])

    def position(self, offset: int) -> tuple[int, int]:
        """1-based (line, column) of a character offset."""
        line = bisect_right(self._line_starts, offset) - 1
        return line + 1, offset - self._line_starts[line] + 1

    def line(self, number: int) -> str:
        """Text of a 1-based line, without its newline."""
        start = self._line_starts[number - 1]
        end = self.text.find("\n", start)
        return self.text[start:] if end < 0 else self.text[start:end]


@frozen
class Span:
    """Characters [start, end) of a source."""

    source: Source = field(repr=False)
    start: int
    end: int
    label: str = field(default="", compare=False, repr=False)
    """What a user calls the application of a function that it belongs to (a node of a network, say); "" for nothing."""
    op: int = field(default=-1, compare=False, repr=False)
    """Number of the operation of a program that it belongs to, while that is compiled."""

    @property
    def is_place(self) -> bool:
        """Whether it points into a text; what came from none may have a label still."""
        return self.source != NOWHERE

    @property
    def text(self) -> str:
        return self.source.text[self.start : self.end]

    @property
    def line(self) -> int:
        return self.source.position(self.start)[0]

    @property
    def column(self) -> int:
        return self.source.position(self.start)[1]

    def __str__(self) -> str:
        return f"{self.source.name}:{self.line}:{self.column}"

    def to(self, other: Span) -> Span:
        """The span from this one's start to the other's end."""
        return Span(self.source, self.start, other.end)


NOWHERE = Source("", "")
"""The source of spans that point into no text."""


def labelled(span: Span | None, label: str) -> Span:
    """The span with a label in front of its own: that of an application inside another one comes last."""
    known = span or Span(NOWHERE, 0, 0)
    return replace(known, label=f"{label} > {known.label}" if known.label else label)


class Severity(Enum):
    ERROR = "error"
    WARNING = "warning"


@frozen
class Note:
    """A second place that explains a diagnostic ("first defined here")."""

    message: str
    span: Span | None = None


@frozen
class Diagnostic:
    """One finding: code such as ``TILE-E012``, a sentence, where it is, and a hint."""

    code: str
    message: str
    span: Span | None = None
    hint: str | None = None
    notes: tuple[Note, ...] = ()
    severity: Severity = Severity.ERROR

    def render(self) -> str:
        """``file:line:col: error TILE-E012: sentence``, the line, carets, notes and the hint."""
        head = f"{self.severity.value} {self.code}: {self.message}"
        place = self.span if self.span and self.span.is_place else None
        lines = [f"{place}: {head}", *_excerpt(place)] if place else [head]
        if self.span and self.span.label:
            lines.append(f"  in: {shown(self.span.label)}")
        for note in self.notes:
            lines.append(f"{note.span}: note: {note.message}" if note.span else f"note: {note.message}")
            if note.span:
                lines += _excerpt(note.span)
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)


_EXCERPT_WIDTH = 120


def _excerpt(span: Span) -> list[str]:
    number, column = span.source.position(span.start)
    text = span.source.line(number).rstrip("\r")
    shift = max(0, column - 1 - _EXCERPT_WIDTH // 2) if len(text) > _EXCERPT_WIDTH else 0
    part = shown(text[shift : shift + _EXCERPT_WIDTH])
    width = max(1, min(span.end - span.start, shift + len(part) - column + 1))
    gutter = f"{number:>5} | "
    return [gutter + part, " " * (len(gutter) - 2) + "| " + " " * (column - 1 - shift) + "^" * width]


def shown(text: str) -> str:
    """The text for a terminal: one cell a character, or carets stand elsewhere; no control characters."""
    return "".join(c if c.isprintable() else " " if c == "\t" else "\ufffd" for c in text)


_QUOTED = 80


def quoted(text: str) -> str:
    """What a user gave, in quotes; where it is long, its beginning."""
    return repr(text if len(text) <= _QUOTED else text[: _QUOTED - 1] + "…")


class TileError(Exception):
    """Root of every error a user can cause; carries its diagnostics."""

    def __init__(self, diagnostics: Diagnostic | Iterable[Diagnostic] | str, *, code: str = "TILE-E000") -> None:
        if isinstance(diagnostics, str):
            diagnostics = Diagnostic(code, diagnostics)
        items = (diagnostics,) if isinstance(diagnostics, Diagnostic) else tuple(diagnostics)
        self.diagnostics: tuple[Diagnostic, ...] = items
        super().__init__("\n".join(item.render() for item in items))

    def name_application(self, label: str) -> None:
        """Let findings that do not say what application of a function they are about say that it is this one."""
        self.diagnostics = tuple(
            d if d.span and d.span.label else replace(d, span=labelled(d.span, label)) for d in self.diagnostics
        )
        self.args = ("\n".join(item.render() for item in self.diagnostics),)

    def __reduce__(self) -> tuple[type[TileError], tuple[tuple[Diagnostic, ...]], dict[str, list[str]]]:
        """Notes go along, to whichever process is told."""
        return (type(self), (self.diagnostics,), {"__notes__": [*getattr(self, "__notes__", ())]})

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows: the findings and where they are in the text, without Python's frames."""
        return [f"{type(self).__name__}: {self}", *getattr(self, "__notes__", ())]


class TileSyntaxError(TileError):
    """The text is not Tile (or Stripe, or semtree)."""


class TileTypeError(TileError):
    """Shapes, dtypes, names or indices do not fit together."""


class TilePlanError(TileError):
    """A plan does not fit its kernel or the device."""


class TileMachineWarning(UserWarning):
    """What was measured of a device is damaged and not used."""


class TilePlanWarning(UserWarning):
    """A plan that works, and will be slow."""


class TileFallbackWarning(UserWarning):
    """Steps of a program run on another device than was asked for, because that one cannot."""


class TileShapeWarning(UserWarning):
    """A function was compiled for many shapes, each of which takes compile time and memory of its own."""


class TileLimitError(TileError):
    """A program exceeds one of the documented limits."""


class TileDeviceError(TileError):
    """A device is unknown, lacks a feature, or failed."""


class TileSettingError(TileError, ValueError):
    """A TILE_* environment variable is malformed."""


class TileInternalError(Exception):
    """A mistake of ours, never the user's; deliberately not a TileError."""


def warn_user(message: str, category: type[Warning]) -> None:
    """Warn at the line that called these packages, whatever they called meanwhile."""
    import warnings
    from inspect import currentframe

    frame, level = currentframe(), 1
    while frame is not None and is_ours(frame):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def is_ours(frame: FrameType) -> bool:
    """Whether a line of these packages runs there."""
    return frame.f_globals.get("__name__", "").startswith("tile_")
