"""Every name of a Tile text: where it stands, what it is, and which other ones are the same; from tokens, so that mistakes elsewhere do not matter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property

from tile_lang.build import BORDERS
from tile_lang.lexer import CONSTANTS, Token
from tile_lang.pieces import Kind, Piece, Placed

_OPEN, _CLOSE = {"LPAR", "LSQB", "LDSQB"}, {"RPAR", "RSQB", "RDSQB"}
_NAMES = {"ID", "IDX"}


class Role(Enum):
    """What a name stands for."""

    INPUT = "input"
    SIZE = "size"
    TENSOR = "tensor"
    INDEX = "index"
    FUNCTION = "function"
    BORDER = "border"
    ATTRIBUTE = "attribute"


@dataclass(frozen=True, slots=True)
class Occurrence:
    """A name at characters [start, end) of its text, its ``#`` or ``$`` among them."""

    name: str
    role: Role
    start: int
    end: int
    defines: bool = False
    function: int = 0
    """Number of the function that it stands in."""
    piece: int = 0
    """Number of the piece that it stands in."""

    def moved(self, start: int, function: int, piece: int) -> Occurrence:
        """The same name in a text where its piece begins at `start`."""
        return Occurrence(self.name, self.role, self.start + start, self.end + start, self.defines, function, piece)


# --- one piece -----------------------------------------------------------------------------------


def occurrences(piece: Piece) -> tuple[Occurrence, ...]:
    """The names of one piece, by its own places; tensors, inputs and sizes are not told apart in statements."""
    tokens = piece.lexed.tokens[:-1]
    match piece.kind:
        case Kind.HEADER:
            return tuple(_header(tokens))
        case Kind.STATEMENT:
            return tuple(_statement(tokens))
        case _:
            return ()


def _of(token: Token, role: Role, defines: bool = False) -> Occurrence:
    return Occurrence(token.text, role, token.start, token.end, defines)


def _header(tokens: Sequence[Token]) -> Iterator[Occurrence]:
    depth, outputs = 0, False
    for before, token in zip([None, *tokens], tokens, strict=False):
        depth += (token.kind in _OPEN) - (token.kind in _CLOSE)
        outputs = outputs or token.kind == "ARROW"
        if token.kind not in _NAMES:
            continue
        if before is not None and before.kind == "FUNCTION":
            yield _of(token, Role.FUNCTION, True)
        elif outputs:
            yield _of(token, Role.TENSOR)
        else:
            yield _of(token, Role.SIZE if depth > 1 else Role.INPUT, True)


def _statement(tokens: Sequence[Token]) -> Iterator[Occurrence]:
    brackets: list[str] = []
    target = True
    for token, following in zip(tokens, [*tokens[1:], None], strict=False):
        kind = token.kind
        if kind in _OPEN:
            brackets.append(kind)
        elif kind in _CLOSE and brackets:
            brackets.pop()
        elif kind == "EQUAL" and not brackets:
            target = False
        elif kind in _NAMES:
            found = _role(token, following, brackets)
            if found is not None:
                yield _of(token, found, target and not brackets and found is Role.TENSOR)


def _role(token: Token, following: Token | None, brackets: Sequence[str]) -> Role | None:
    """What a name of a statement is; None where it is a number."""
    if "LDSQB" in brackets:
        return Role.ATTRIBUTE
    subscript = bool(brackets) and brackets[-1] == "LSQB"
    if following is not None and following.kind == "LPAR":
        return Role.BORDER if subscript and token.text in BORDERS else Role.FUNCTION
    if token.kind == "ID":
        return Role.TENSOR
    return None if token.text in CONSTANTS and "LSQB" not in brackets else Role.INDEX


# --- the whole text ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Names:
    """All names of a text, in order."""

    all: tuple[Occurrence, ...]

    def at(self, offset: int) -> Occurrence | None:
        """The name at a place, or the one that ends there."""
        touching = [o for o in self.all if o.start <= offset <= o.end]
        return touching[-1] if touching else None

    def same(self, one: Occurrence) -> list[Occurrence]:
        """All places of what a name stands for."""
        return self._groups.get(_key(one), [])

    def definitions(self, one: Occurrence) -> list[Occurrence]:
        """Where it is defined; of a size, all inputs that have it; of an index, where it first stands."""
        same = self.same(one)
        defining = [o for o in same if o.defines]
        return defining or (same[:1] if one.role is Role.INDEX else [])

    def visible(self, offset: int) -> list[Occurrence]:
        """The definitions of tensors, inputs, sizes and functions that may be used at a place, and the indexes around it."""
        here = next((o.function for o in reversed(self.all) if o.start <= offset), 0)
        piece = next((o.piece for o in reversed(self.all) if o.start <= offset), -1)
        found: dict[tuple[object, ...], Occurrence] = {}
        for one in self.all:
            inside = one.function == here and one.start < offset
            if one.role is Role.FUNCTION:
                wanted = one.defines
            elif one.role is Role.INDEX:
                wanted = one.piece == piece
            else:
                wanted = inside and one.defines
            if wanted:
                found.setdefault(_key(one), one)
        return list(found.values())

    def is_ambiguous(self, one: Occurrence) -> bool:
        """Whether a size of the function is called like one of its inputs or tensors: which one is meant depends on the place."""
        roles = {o.role for o in self.same(one) if o.defines}
        return Role.SIZE in roles and len(roles) > 1

    @cached_property
    def functions(self) -> dict[int, str]:
        """The names of functions by their numbers; the text's own has none."""
        return {o.function: o.name for o in self.all if o.role is Role.FUNCTION and o.defines}

    @cached_property
    def _groups(self) -> dict[tuple[object, ...], list[Occurrence]]:
        groups: dict[tuple[object, ...], list[Occurrence]] = {}
        for one in self.all:
            groups.setdefault(_key(one), []).append(one)
        return groups


def _key(one: Occurrence) -> tuple[object, ...]:
    match one.role:
        case Role.FUNCTION | Role.BORDER | Role.ATTRIBUTE:
            return one.role, one.name
        case Role.INDEX:
            return one.role, one.piece, one.name
        case _:
            return Role.TENSOR, one.function, one.name


def names(pieces: Iterable[Placed], known: Callable[[Piece], Sequence[Occurrence]] = occurrences) -> Names:
    """The names of a text in pieces; `known` may remember those of pieces."""
    found: list[Occurrence] = []
    function = -1
    for number, placed in enumerate(pieces):
        function += placed.piece.kind is Kind.HEADER
        found += (o.moved(placed.start, function, number) for o in known(placed.piece))
    return Names(tuple(_resolved(found)))


def _resolved(found: Sequence[Occurrence]) -> Iterator[Occurrence]:
    """Names of statements as what the header, or a statement, says they are."""
    roles: dict[tuple[object, ...], Role] = {}
    for one in found:
        if one.defines:
            roles.setdefault(_key(one), one.role)
    for one in found:
        role = roles.get(_key(one), one.role)
        yield one if role is one.role or one.defines else replace(one, role=role)
