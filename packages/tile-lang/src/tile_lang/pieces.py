"""A text in pieces, each parsed once: what an editor asks for after every key.

A piece is a header, a statement or a closing brace, with the blanks and comments in front of it. Its tokens, nodes and
diagnostics stand in a source of its own, so that they stay what they are when other pieces change; `Pieced.place` says
where a span is in the whole text. The diagnostics are those of `tile_lang.parse`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum

from tile_ir.collector import uncollected
from tile_ir.diagnostics import Diagnostic, Source, Span, TileError, TileLimitError
from tile_ir.frozen import frozen

from tile_lang import ast
from tile_lang.lexer import Lexed, check_limits, lex
from tile_lang.limits import DEFAULT_LIMITS, Limits
from tile_lang.parser import Parser, misnamed

_BREAK = re.compile(r'//[^\n]*|/\*(?:[^*]|\*(?!/))*(?:\*/)?|"[^"\n]*"?|[;{}]')
"""What ends a piece, and what may hide it."""


class Kind(Enum):
    """What a piece is."""

    HEADER = "header"
    STATEMENT = "statement"
    CLOSING = "closing brace"
    AFTER = "text behind the last function"


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Part of a text, all of whose places count from its own start."""

    kind: Kind
    lexed: Lexed
    header: ast.Function | None = None
    """The function without its statements, of a header that is well formed."""
    statements: tuple[ast.Statement, ...] = ()
    """One; several where only a ``;`` between them is missing, none where it cannot be read."""
    diagnostics: tuple[Diagnostic, ...] = ()

    length: int = 0

    @property
    def source(self) -> Source:
        return self.lexed.source

    @property
    def text(self) -> str:
        return self.source.text[: self.length]

    @property
    def is_named(self) -> bool:
        """Whether it begins a function with a name, so that another one may follow."""
        return [t.kind for t in self.lexed.tokens[:2]] in (["FUNCTION", "ID"], ["FUNCTION", "IDX"])


@frozen
class Placed:
    """A piece and where it begins."""

    start: int
    piece: Piece


@frozen
class Pieced:
    """A text that was read piece by piece."""

    source: Source
    pieces: tuple[Placed, ...]
    function: ast.Function | None
    """The text's own function with those before it, whatever of them can be read; None without a header of it."""
    diagnostics: tuple[Diagnostic, ...]
    """What `tile_lang.parse` would raise, in the order of the text."""
    starts: dict[int, int] = field(repr=False)
    """Where pieces begin, by the identities of their sources."""

    def place(self, span: Span) -> Span:
        """Where a span of a piece is in the whole text."""
        start = self.starts.get(id(span.source))
        return (
            span if start is None else replace(span, source=self.source, start=span.start + start, end=span.end + start)
        )

    def placed(self, found: Diagnostic) -> Diagnostic:
        """The diagnostic with its places in the whole text."""
        notes = tuple(replace(n, span=n.span and self.place(n.span)) for n in found.notes)
        return replace(found, span=found.span and self.place(found.span), notes=notes)

    def in_order(self, found: Iterable[Diagnostic]) -> list[Diagnostic]:
        """The diagnostics with their places in the whole text, in its order."""
        return sorted(map(self.placed, found), key=lambda d: d.span.start if d.span else 0)


class Reader:
    """Reads one version of a text after the other; pieces that were in the last one are not read again."""

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        self.limits = limits
        self._known: dict[tuple[Kind, str, bool, int], Piece] = {}

    def read(self, source: Source) -> Pieced:
        """The text in pieces; never raises."""
        with uncollected():
            found = _Reading(source, self.limits, self._known)
            pieces = tuple(found.pieces())
            self._known = found.used
        starts = {id(p.piece.source): p.start for p in pieces}
        bare = Pieced(source, pieces, None, (), starts)
        function, diagnostics = _assembled(bare, self.limits)
        return replace(bare, function=function, diagnostics=diagnostics)


class _Reading:
    """One pass over one text."""

    def __init__(self, source: Source, limits: Limits, known: dict[tuple[Kind, str, bool, int], Piece]) -> None:
        self.text = source.text
        self.name = source.name
        self.limits = limits
        self.known = known
        self.used: dict[tuple[Kind, str, bool, int], Piece] = {}
        self.copies: Counter[tuple[Kind, str, bool]] = Counter()
        """Of equal pieces each has a source of its own, or nobody could tell their places apart."""

    def pieces(self) -> Iterator[Placed]:
        start = 0
        while True:
            header = self._piece(Kind.HEADER, start, self._brace(start))
            yield header
            start = header.start + header.piece.length
            if header.piece.lexed.tokens[-2:-1] and header.piece.lexed.tokens[-2].kind == "LBRACE":
                for body in self._body(start):
                    yield body
                    start = body.start + body.piece.length
            rest = self._piece(Kind.HEADER, start, self._brace(start))
            if not (header.piece.is_named and rest.piece.lexed.tokens[0].kind == "FUNCTION"):
                break
        if start < len(self.text):
            yield self._piece(Kind.AFTER, start, len(self.text))

    def _brace(self, start: int) -> int:
        """Behind the next ``{``."""
        return next((m.end() for m in _BREAK.finditer(self.text, start) if m[0] == "{"), len(self.text))

    def _body(self, start: int) -> Iterator[Placed]:
        """Statements and the closing brace."""
        while start < len(self.text):
            end = self._statement_end(start)
            if end == start:
                yield self._piece(Kind.CLOSING, start, start + 1)
                return
            yield self._piece(Kind.STATEMENT, start, end)
            start = end

    def _statement_end(self, start: int) -> int:
        """Behind the next ``;``, or before the ``}`` in front of it; braces inside belong to the statement."""
        depth = 0
        for found in _BREAK.finditer(self.text, start):
            mark = found[0]
            depth += (mark == "{") - (mark == "}")
            if depth < 0:
                return found.start()
            if depth == 0 and mark in (";", "}"):
                return found.end()
        return len(self.text)

    def _piece(self, kind: Kind, start: int, end: int) -> Placed:
        text = self.text[start:end]
        closed = kind is Kind.STATEMENT and self.text.startswith("}", end)
        self.copies[(kind, text, closed)] += 1
        key = (kind, text, closed, self.copies[(kind, text, closed)])
        piece = self.known.get(key)
        if piece is None:
            piece = _read(kind, Source(text + "}" * closed, self.name), closed, self.limits)
        self.used[key] = piece
        return Placed(start, piece)


# --- one piece -----------------------------------------------------------------------------------


def _read(kind: Kind, source: Source, closed: bool, limits: Limits) -> Piece:
    """A piece; `closed`: a statement without its ``;``, in a source with the ``}`` behind it, of which messages tell."""
    lexed = lex(source)
    parser = Parser(lexed, limits)
    end = len(lexed.tokens) - 1 - closed
    header, statements = None, ()
    try:
        check_limits(lexed, limits)
        if kind is Kind.HEADER:
            header, _ = parser.header(0)
        elif kind is Kind.STATEMENT and end:
            statements = _statements(parser, end)
    except TileLimitError as problem:
        parser.diagnostics += problem.diagnostics
    if closed:
        del lexed.tokens[-2]
    return Piece(
        kind, lexed, header, statements, (*parser.diagnostics, *parser.builder.diagnostics), len(source.text) - closed
    )


def _statements(parser: Parser, end: int) -> tuple[ast.Statement, ...]:
    if parser.tokens[0].kind == "SEMI":
        parser.empty_statement(parser.tokens[0])
        return ()
    return tuple(parser.statement(0, end))


# --- the whole -----------------------------------------------------------------------------------


def _assembled(text: Pieced, limits: Limits) -> tuple[ast.Function | None, tuple[Diagnostic, ...]]:
    """The function, and everything that is wrong."""
    found = [d for p in text.pieces for d in p.piece.diagnostics]
    functions = list(_functions(text.pieces))
    found += _at_the_end(text, limits, bool(found))
    own, local = (functions[-1], functions[:-1]) if functions else (None, [])
    known = [f for f in local if f is not None]
    if own is not None and not found:
        found += misnamed(own, known)
    try:
        limits.check("max_source_bytes", len(text.source.text.encode("utf-8", "surrogatepass")))
        limits.check("max_statements", max((len(f.statements) for f in functions if f), default=0))
    except TileError as problem:
        found += problem.diagnostics
    whole = None if own is None else replace(own, functions=tuple(known))
    return whole, tuple(text.in_order(found)[: limits.max_errors])


def _functions(pieces: Iterable[Placed]) -> Iterator[ast.Function | None]:
    """Each header with its statements; None for one that cannot be read."""
    header: ast.Function | None = None
    statements: list[ast.Statement] = []
    began = False
    for part in (p.piece for p in pieces):
        if part.kind is Kind.HEADER:
            if began:
                yield header and replace(header, statements=tuple(statements))
            began, header, statements = True, part.header, []
        statements += part.statements
    if began:
        yield header and replace(header, statements=tuple(statements))


def _at_the_end(text: Pieced, limits: Limits, mistaken: bool) -> list[Diagnostic]:
    """A brace that is missing, or what follows the last one."""
    last = text.pieces[-1].piece
    parser = Parser(last.lexed, limits)
    parser.diagnostics = []
    if last.kind is Kind.AFTER:
        parser.after(0)
    elif last.kind is not Kind.CLOSING and not mistaken:
        parser.missing_brace(last.lexed.tokens[-1])
    return parser.diagnostics
