"""Tile text to syntax tree: ``parse(text) -> ast.Function``.

Headers and statements are parsed by the LALR tables of tile.lark, one after the other, so that every statement
reports its own mistake. Nothing here recurses; limits are checked before anything is built.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from tile_ir.collector import uncollected
from tile_ir.diagnostics import Diagnostic, Note, Source, Span, TileSyntaxError

from tile_lang import ast
from tile_lang._tables import RULES, STARTS, STATES
from tile_lang.build import ACTIONS, Builder
from tile_lang.faults import Fault
from tile_lang.lexer import CONSTANTS, Lexed, Token, check_limits, lex
from tile_lang.limits import DEFAULT_LIMITS, Limits


def parse(text: str | Source, limits: Limits = DEFAULT_LIMITS) -> ast.Function:
    """The function a text describes.

    Raises TileSyntaxError with every mistake that was found (at most `limits.max_errors`), in source order, and
    TileLimitError when the text exceeds a limit.
    """
    source = text if isinstance(text, Source) else Source(text)
    limits.check("max_source_bytes", len(source.text.encode("utf-8", "surrogatepass")))
    with uncollected():
        lexed = lex(source)
        check_limits(lexed, limits)
        parser = Parser(lexed, limits)
        function = parser.text()
    if parser.diagnostics or function is None:
        found = sorted(parser.diagnostics, key=lambda d: d.span.start if d.span else 0)
        raise TileSyntaxError(found[: limits.max_errors])
    return function


class Parser:
    """The pieces of one text, and what is wrong with them; positions are those of tokens."""

    def __init__(self, lexed: Lexed, limits: Limits) -> None:
        self.lexed = lexed
        self.limits = limits
        self.tokens = lexed.tokens
        self.builder = Builder(lexed.source)
        self.diagnostics: list[Diagnostic] = [*lexed.diagnostics]

    def text(self) -> ast.Function | None:
        """The function that the text describes, with those that stand before it."""
        own, end = self._function(0)
        local: list[ast.Function] = []
        named = self.is_named(0)
        while named and end is not None and self.tokens[end].kind == "FUNCTION":
            local += [] if own is None else [own]
            named = self.is_named(end)
            own, end = self._function(end)
        if end is not None and len(self.diagnostics) < self.limits.max_errors:
            self.after(end)
        self.diagnostics += self.builder.diagnostics
        if own is None or self.diagnostics:
            return None
        self.diagnostics += misnamed(own, local)
        return replace(own, functions=tuple(local))

    def is_named(self, position: int) -> bool:
        """Whether the function that begins here has a name, so that another one may follow."""
        return [t.kind for t in self.tokens[position : position + 2]] in (["FUNCTION", "ID"], ["FUNCTION", "IDX"])

    def _function(self, position: int) -> tuple[ast.Function | None, int | None]:
        """A function, if its header is well formed, and the position after it, if it has a ``{``."""
        header, end = self.header(position)
        if end is None:
            return None, None
        statements, end = self._statements(end)
        if header is None:
            return None, end
        span = Span(self.lexed.source, header.span.start, self.tokens[end - 1].end)
        return replace(header, statements=tuple(statements), span=span), end

    def header(self, position: int) -> tuple[ast.Function | None, int | None]:
        """The header, if it is well formed, and the position after its ``{``, if there is one."""
        tokens = self.tokens
        brace = next((i for i in range(position, len(tokens)) if tokens[i].kind == "LBRACE"), None)
        end = len(tokens) - 1 if brace is None else brace + 1
        header = self._piece("header", position, end)
        return header, None if brace is None else end

    def _statements(self, position: int) -> tuple[list[ast.Statement], int]:
        """All statements up to the closing brace, and the position after it."""
        statements: list[ast.Statement] = []
        tokens = self.tokens
        while tokens[position].kind not in ("RBRACE", "$END") and len(self.diagnostics) < self.limits.max_errors:
            if tokens[position].kind == "SEMI":
                self.empty_statement(tokens[position])
                position += 1
                continue
            end = self._statement_end(position)
            found = self.statement(position, end)
            statements += found
            self.limits.check("max_statements", len(statements), found[-1].span if found else None)
            position = end
        if tokens[position].kind != "RBRACE":
            self.missing_brace(tokens[position])
            return statements, position
        return statements, position + 1

    def _statement_end(self, position: int) -> int:
        """The position after the next ``;``, or of the ``}`` or the end before it; braces inside belong to it."""
        depth = 0
        while (kind := self.tokens[position].kind) != "$END":
            depth += (kind == "LBRACE") - (kind == "RBRACE")
            if depth < 0:
                return position
            position += 1
            if depth == 0 and kind in ("SEMI", "RBRACE"):
                return position
        return position

    def statement(self, start: int, end: int) -> list[ast.Statement]:
        """The statement in [start, end); several where only a ``;`` between them is missing."""
        done: list[ast.Statement] = []
        while start < end and len(self.diagnostics) < self.limits.max_errors:
            split, node = self._one_statement(start, end)
            if node is not None:
                done.append(node)
            if split is None:
                break
            start = split
        return done

    def _one_statement(self, start: int, end: int) -> tuple[int | None, ast.Statement | None]:
        tokens = self.tokens[start:end]
        try:
            return None, run("statement", _ended(tokens), self.builder)
        except Fault as fault:
            split = self._missing_semicolon(fault, tokens)
        if split is None:
            return None, None
        last = tokens[split - 1]
        semi = Token("SEMI", ";", last.end, last.end)
        try:
            node = run("statement", _ended([*tokens[:split], semi]), self.builder)
        except Fault:
            node = None
        return (start + split if start + split < end else None), node

    def _missing_semicolon(self, fault: Fault, tokens: list[Token]) -> int | None:
        """Report a fault; the position in `tokens` to go on from when only a ``;`` is missing there."""
        if not self._report(fault, "statement", tokens):
            return None
        return fault.position if self.diagnostics[-1].code == "TILE-E005" else None

    def _piece(self, start: str, begin: int, end: int) -> Any:
        tokens = self.tokens[begin:end]
        try:
            return run(start, _ended(tokens), self.builder)
        except Fault as fault:
            self._report(fault, start, tokens)
            return None

    def _report(self, fault: Fault, start: str, tokens: list[Token]) -> bool:
        """Add the fault's diagnostic unless a bad character in the same piece already explains it."""
        if tokens and self.lexed.lexical_error_at(tokens[0].start, tokens[-1].end):
            return False
        from tile_lang.explain import explain

        self.diagnostics.append(explain(fault, start, tokens, self.lexed, self._following(tokens)))
        return True

    def _following(self, tokens: list[Token]) -> Token:
        """The token that follows a piece."""
        end = tokens[-1].end if tokens else 0
        return next((t for t in self.tokens if t.start >= end), self.tokens[-1])

    def empty_statement(self, token: Token) -> None:
        span = Span(self.lexed.source, token.start, token.end)
        self.diagnostics.append(Diagnostic("TILE-E025", "a ';' without a statement", span, "remove it"))

    def missing_brace(self, token: Token) -> None:
        if self.diagnostics:
            return
        span = Span(self.lexed.source, token.start, token.end)
        message = "the text ends before the '}' that closes the function"
        self.diagnostics.append(Diagnostic("TILE-E004", message, span, "add '}' at the end"))

    def after(self, position: int) -> None:
        token = self.tokens[position]
        if token.kind == "$END":
            return
        span = Span(self.lexed.source, token.start, token.end)
        match token.kind:
            case "FUNCTION":
                hint = "functions that it calls stand before it, and have names; put all others into texts of their own"
            case "SEMI":
                hint = "no ';' follows the '}' of a function"
            case "RBRACE":
                hint = "remove the second '}'"
            case _:
                hint = "statements stand before the '}'"
        self.diagnostics.append(Diagnostic("TILE-E024", "the function has ended, yet text follows", span, hint))


def misnamed(own: ast.Function, local: Sequence[ast.Function]) -> list[Diagnostic]:
    """Mistakes in the names of functions: the text's `own` one has none, those before it have different ones."""
    found: list[Diagnostic] = []
    if own.name is not None:
        hint = "remove the name" if not local else "end with one without a name, which calls the others"
        message = f"{own.name} has a name, so it is for others to call, and no function follows it"
        found.append(Diagnostic("TILE-E016", message, own.name_span, hint))
    seen: dict[str | None, ast.Function] = {}
    for function in local:
        first = seen.setdefault(function.name, function)
        if first is not function:
            note = Note("first here", first.name_span)
            found.append(
                Diagnostic("TILE-E026", f"{function.name} is defined twice", function.name_span, None, (note,))
            )
    return found


def _ended(tokens: list[Token]) -> list[Token]:
    end = tokens[-1].end if tokens else 0
    return [*tokens, Token("$END", "", end, end)]


_ACTIONS = tuple((symbol, length, ACTIONS.get(action)) for symbol, length, action in RULES)


def run(start: str, tokens: list[Token], builder: Builder) -> Any:
    """Drive the LALR automaton over one piece that ends in ``$END``; raises Fault where it has no move."""
    state, last = STARTS[start]
    states = [state]
    values: list[Any] = []
    position = 0
    while states[-1] != last:
        token = tokens[position]
        kind = token.kind
        if kind == "IDX" and token.text in CONSTANTS and _is_number(states[-1], tokens[position + 1]):
            token, kind = token._replace(kind="FLOAT"), "FLOAT"
        move = STATES[states[-1]].get(kind)
        if move is None:
            raise Fault(position, tuple(states))
        if move >= 0:
            states.append(move)
            values.append(token)
            position += 1
            continue
        symbol, length, action = _ACTIONS[~move]
        if action is None:  # one part, which stays as it is
            states[-1] = _renamed(states[-2], symbol, kind)
            continue
        parts = values[len(values) - length :]
        if length:
            del values[-length:], states[-length:]
        values.append(action(builder, parts))
        states.append(STATES[states[-1]][symbol])
    return values[0]


@cache
def _renamed(below: int, symbol: str, kind: str) -> int:
    """The state once a symbol has had all names that it gets before a token of this kind, each of one part."""
    state = STATES[below][symbol]
    move = STATES[state].get(kind, 0)
    if move >= 0 or _ACTIONS[~move][2] is not None or kind == "IDX":  # an index may be a number
        return state
    return _renamed(below, _ACTIONS[~move][0], kind)


def _is_number(state: int, following: Token) -> bool:
    """A constant's name stands where a number could, and is not called."""
    return "FLOAT" in STATES[state] and following.kind != "LPAR"
