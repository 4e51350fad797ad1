"""Terms at one point, in words: what a witness shows."""

from __future__ import annotations

from collections.abc import Sequence

from tile_opt.proof.spaces import OUT, Relation, isl, sample
from tile_opt.proof.terms import Aggregate, Apply, Constant, Leaf, Term, Unwritten, aggregation, leaves_in

_SYMBOLS = {"add": "+", "sub": "-", "mul": "*", "div": "/"}


def described(term: Term, point: Sequence[int]) -> str:
    """A term at a point."""
    found: list[int] = []
    for leaf in leaves_in(term):
        found += _image(leaf.at, point)
    return term_with(term, found)


def term_with(term: Term, cells: Sequence[int]) -> str:
    """A term whose leaves, in order, take cells with these subscripts; more of them are left out."""
    return _Words([*cells]).of(term)


class _Words:
    def __init__(self, left: list[int]) -> None:
        self._left = left

    def of(self, term: Term) -> str:
        match term:
            case Leaf(buffer, at):
                return cell(buffer, self._taken(at))
            case Unwritten(load, at):
                return f"{cell(load.buffer.name, self._taken(at))}, which nothing has written,"
            case Constant(value):
                return f"{value}"
            case Apply(name, args) if aggregation(term) is None:
                words = [self.of(arg) for arg in args]
                symbol = _SYMBOLS.get(name)
                return (
                    f"{words[0]} {symbol} {words[1]}" if symbol and len(words) == 2 else f"{name}({', '.join(words)})"
                )
            case Aggregate() | Apply():
                return f"an aggregate ({'' if (agg := aggregation(term)) is None else agg.value})"

    def _taken(self, at: Relation) -> list[int]:
        count = at.dim(OUT)
        taken, self._left = self._left[:count], self._left[count:]
        return taken


def cell(buffer: str, at: Sequence[int]) -> str:
    """A cell of a buffer as it is written in Tile."""
    if not buffer:
        return f"the index {', '.join(map(str, at))}"
    return f"{buffer.partition('.')[0]}[{', '.join(map(str, at))}]"


def _image(relation: Relation, point: Sequence[int]) -> tuple[int, ...]:
    for n, value in enumerate(point):
        relation = relation.fix_val(isl.dim_type.in_, n, isl.Val.int_from_si(relation.get_ctx(), value))
    return sample(relation.range())
