"""Contractions of several loops whose lanes should go along the largest operand: what lies across it is copied, the result too.

``O[b, c] = +(A[b, c, a] * B[a, c])`` reads a large A along a and B across it. Whatever loop lanes take, one of them is fetched
element by element. A copy of B with a last costs little beside A, and both are read side by side then. A result that A's
last index moves, but not last, is made in the order of A and turned in the end. Short rows count together with those around
them where nothing keeps the two apart: matrices of 4×8 are rows of 32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from math import prod

from tile_ir.frozen import frozen
from tile_ir.names import claim
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import Contraction, Op, Poly, Program, TensorLoad, TensorType

from tile_opt.program.base import Rewrite, with_each
from tile_opt.program.factorise import index_sizes
from tile_opt.program.permutations import Order, PermutedCopies, permuted, walks_whole


@frozen
class AlongLargest(Rewrite):
    """Copies of operands, and results that are turned, where the largest operand has `least` elements and each is used `uses` times at most.

    Its last dimension has `run` elements or more, or the last few that merge into one. All that is copied or turned has together no more elements than it, half as
    many where rows of the result have `run` elements, too, and an operand's lie along them.
    """

    least: int = 1 << 12
    uses: int = 4
    run: int = 16

    def apply(self, program: Program) -> Program:
        types = program.types()
        return with_each(program, _Turned(self, types, PermutedCopies(types, "_along", set(types))).op)


@dataclass(slots=True)
class _Turned:
    """Contractions on copies of what they read across the largest operand, and the copies in front of the first of them."""

    options: AlongLargest
    types: Mapping[str, TensorType]
    copies: PermutedCopies

    def op(self, op: Op) -> list[Op]:
        if not isinstance(op, Contraction) or (names := self._largest(op)) is None:
            return [op]
        copies: list[Op] = []
        loads = tuple(self.copies.read(load, _order(load.formulas, names), op, copies) for load in op.loads)
        result = _order(op.output, names)
        if result is None:
            return [*copies, replace(op, loads=loads)]
        shape = tuple(op.type.shape[d] for d in result)
        first = replace(
            op,
            name=claim(f"{op.name}_along", self.copies.taken),
            type=TensorType(op.type.dtype, shape),
            output=tuple(op.output[d] for d in result),
            loads=loads,
        )
        back = tuple(result.index(d) for d in range(len(result)))
        return [*copies, first, permuted(op.name, first.name, first.type, back, op)]

    def _largest(self, op: Contraction) -> tuple[str, ...] | None:
        """Indexes of the largest operand in its order, where something that lies across it is worth a copy."""
        if op.agg is Aggregation.ASSIGN or op.default is not None or not op.loads or not self._is_plain(op):
            return None
        sizes = [self.types[str(load.tensor)].size for load in op.loads]
        most = max(range(len(sizes)), key=lambda k: (sizes[k], self._last(op.loads[k])))
        names = _names(op.loads[most].formulas)
        points = prod((index_sizes(op) or {}).values())
        if (
            sizes[most] < self.options.least
            or _run(op, names) < self.options.run
            or points > self.options.uses * sizes[most]
        ):
            return None
        turned = [size for load, size in zip(op.loads, sizes, strict=True) if _order(load.formulas, names)]
        turned += [op.type.size] if _order(op.output, names) else []
        return names if turned and sum(turned) * (2 if self._along_result(op) else 1) <= sizes[most] else None

    def _along_result(self, op: Contraction) -> bool:
        """Lanes can go along a result's rows, as these are long and an operand's lie so: then a copy must be worth more."""
        long = bool(op.type.shape) and op.type.shape[-1] >= self.options.run
        return long and any(load.formulas[-1:] == op.output[-1:] for load in op.loads)

    def _is_plain(self, op: Contraction) -> bool:
        sizes = index_sizes(op)
        return sizes is not None and walks_whole(op, sizes, self.types)

    def _last(self, load: TensorLoad) -> int:
        return (self.types[str(load.tensor)].shape or (1,))[-1]


def _names(forms: Sequence[Poly]) -> tuple[str, ...]:
    return tuple(f.index or "" for f in forms)


def _run(op: Contraction, names: Sequence[str]) -> int:
    """How many elements lie side by side wherever the last of `names` is last, once everything is in their order."""
    sizes = index_sizes(op) or {}
    merged = min(_tail(forms, names) for forms in (op.output, *(load.formulas for load in op.loads)))
    return prod(sizes[name] for name in names[len(names) - merged :])


def _tail(forms: Sequence[Poly], names: Sequence[str]) -> int:
    """How many of the last of `names` these subscripts end with, once they are in their order, or do without."""
    mine, order = _names(forms), _order(forms, names)
    arranged = mine if order is None else [mine[d] for d in order]
    there = zip(reversed(names), reversed(arranged), strict=False)
    pairs = takewhile(lambda pair: pair[0] == pair[1], there)
    return sum(1 for _ in pairs) or sum(1 for _ in takewhile(lambda name: name not in mine, reversed(names)))


def _order(forms: Sequence[Poly], names: Sequence[str]) -> Order | None:
    """The dimensions in the order of the largest operand's indexes, others first; None where its last one is last, or missing."""
    mine = _names(forms)
    if not names or names[-1] not in mine or mine[-1] == names[-1]:
        return None
    return tuple(sorted(range(len(mine)), key=lambda d: names.index(mine[d]) if mine[d] in names else -1))
