"""Where the automaton stopped: the tokens it would have taken, in words, and which part of a statement it is in."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from tile_ir.diagnostics import Diagnostic, Span
from tile_ir.frozen import frozen

from tile_lang._tables import RULES, STATES
from tile_lang.lexer import PUNCTUATION, Lexed, Token

Region = Literal["header", "attribute", "start", "target", "aggregation", "body", "access", "constraints", "assign"]

OPENERS = {"LPAR": ")", "LSQB": "]", "LDSQB": "]]", "LBRACE": "}"}
CLOSERS = {"RPAR": "(", "RSQB": "[", "RDSQB": "[[", "RBRACE": "{"}
COMPARISONS = {"LT", "GT", "LE", "GE", "EQEQ", "NE"}
ARITHMETIC = {"PLUS", "MINUS", "STAR", "SLASH"}
OPERATORS = COMPARISONS | ARITHMETIC | {"SHL", "SHR", "AMP", "BAR", "CARET", "QUESTION"}
EXPRESSION = {"INT", "FLOAT", "ID", "IDX", "MINUS", "TILDE", "LPAR"}
FORMULA = {"INT", "ID", "IDX", "MINUS", "LPAR"}
AGGREGATION = {"PLUS", "STAR", "GT", "LT", "EQUAL"}

SYMBOLS = {kind: text for text, kind in PUNCTUATION.items()}
_WORDS = {
    "ID": "a name",
    "IDX": "an index",
    "INT": "an integer",
    "FLOAT": "a number",
    "FUNCTION": "'function'",
    "DEFAULT": "'default'",
    "NO_DEFRACT": "'no_defract'",
    "$END": "the end",
}
_GROUPS: tuple[tuple[set[str], str], ...] = (
    (EXPRESSION, "an expression"),
    (FORMULA, "an index formula"),
    (AGGREGATION, "an aggregation (+ * > < =)"),
    (OPERATORS, "an operator"),
    (ARITHMETIC, "+ - * /"),
)


@frozen
class Fault(Exception):
    """The automaton has no move for the token at `position` of a piece; `states` is its stack."""

    position: int
    states: tuple[int, ...]


def accepted(states: tuple[int, ...]) -> frozenset[str]:
    """The terminals that the automaton would shift, found by trying each."""
    return frozenset(kind for kind in STATES[states[-1]] if (kind.isupper() and _shifts(list(states), kind)))


def _shifts(states: list[int], kind: str) -> bool:
    while True:
        move = STATES[states[-1]].get(kind)
        if move is None:
            return False
        if move >= 0:
            return True
        symbol, length, _ = RULES[~move]
        if length:
            del states[-length:]
        states.append(STATES[states[-1]][symbol])


def in_words(expected: frozenset[str]) -> str:
    """``an expression or ')'``: what could stand here, in groups."""
    left = set(expected)
    words: list[str] = []
    for group, word in _GROUPS:
        if group <= left:
            words.append(word)
            left -= group
    words += sorted(_WORDS.get(kind, f"'{SYMBOLS.get(kind, kind)}'") for kind in left)
    if len(words) < 2:
        return "".join(words)
    return ", ".join(words[:-1]) + " or " + words[-1]


@dataclass(frozen=True)
class Context:
    """A fault with its surroundings; `tokens` is the piece, `following` the token after it."""

    fault: Fault
    start: str
    tokens: list[Token]
    lexed: Lexed
    following: Token

    @cached_property
    def expected(self) -> frozenset[str]:
        return accepted(self.fault.states)

    def only(self, kind: str) -> bool:
        """True when nothing but `kind` could stand here."""
        return len(self.expected) == 1 and kind in self.expected

    @cached_property
    def token(self) -> Token:
        """The token that does not fit."""
        return self.at(0)

    def at(self, offset: int) -> Token:
        """The token at an offset from the fault; an empty one before the piece, `following` after it."""
        index = self.fault.position + offset
        if index < 0:
            return Token("", "", 0, 0)
        return self.tokens[index] if index < len(self.tokens) else self.following

    @property
    def before(self) -> list[Token]:
        return self.tokens[: self.fault.position]

    @cached_property
    def region(self) -> Region:
        return "header" if self.start == "header" else _region(self.before)

    @cached_property
    def open_brackets(self) -> list[Token]:
        """Brackets that are open at the fault, outermost first."""
        stack: list[Token] = []
        for token in self.before:
            if token.kind in OPENERS:
                stack.append(token)
            elif token.kind in CLOSERS and stack:
                stack.pop()
        return stack

    @cached_property
    def in_formula(self) -> bool:
        """True inside an index formula."""
        if self.region == "access":
            return True
        if self.region == "target":
            return all(t.kind != "COLON" for t in self.before)
        if self.region == "constraints" and self.before:
            return last_clause(self.before)[0].kind == "COMMA" and all(t.kind != "LT" for t in last_clause(self.before))
        return False

    def report(self, code: str, message: str, hint: str | None = None, at: Token | None = None) -> Diagnostic:
        token = at or self.token
        end = token.end if token.end > token.start else token.start + 1
        return Diagnostic(
            code, message, Span(self.lexed.source, token.start, min(end, len(self.lexed.source.text))), hint
        )


def last_clause(tokens: list[Token]) -> list[Token]:
    """The tokens from the last comma outside brackets on; all of them when there is none."""
    depth = start = 0
    for index, token in enumerate(tokens):
        depth += (token.kind in OPENERS) - (token.kind in CLOSERS)
        if token.kind == "COMMA" and depth == 0:
            start = index
    return tokens[start:]


def _region(before: list[Token]) -> Region:
    index = 0
    while index < len(before) and before[index].kind == "LDSQB":
        while index < len(before) and before[index].kind != "RDSQB":
            index += 1
        if index == len(before):
            return "attribute"
        index += 1
    kinds = [t.kind for t in before[index:]]
    if len(kinds) < 2:
        return "start"
    if kinds[1] == "LSQB":
        return _contraction_region(kinds)
    return "assign" if kinds[1] in ("EQUAL", "COMMA") else "start"


def _contraction_region(kinds: list[str]) -> Region:
    equal = kinds.index("EQUAL") if "EQUAL" in kinds else len(kinds)
    if equal == len(kinds):
        return "target"
    depth = 0
    for kind in kinds[equal + 1 :]:
        if kind in OPENERS:
            depth += 1
        elif kind in CLOSERS:
            depth -= 1
            if depth == 0:
                return "constraints"
    return ("aggregation", "body", "access")[min(depth, 2)]
