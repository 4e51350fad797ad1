"""Products whose factors go through several loops of a sum in different orders: one depth, on a copy of one factor.

``C[m, n] = +(A[m, a, b, c] * B[c, a, n, b])`` is a sum over three loops, since no two of them follow each other in both
factors. Matrix instructions go through steps along one of them, of which there are few and short ones. On a copy of B in
the order n, a, b, c all three are one loop, as in the product of two matrices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile
from math import prod

from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import Contraction, Op, Program, TensorLoad, TensorType

from tile_opt.program.base import Rewrite, with_each
from tile_opt.program.factorise import index_sizes
from tile_opt.program.permutations import Order, PermutedCopies, walks_whole
from tile_opt.program.unfold import is_product


@frozen
class OneDepth(Rewrite):
    """A copy of one of two factors of these dtypes, each of whose elements is used `uses` times or more.

    Only where no loop of the sum, nor several that follow each other in both factors, has `deep` iterations.
    """

    dtypes: frozenset[DType]
    uses: int = 128
    deep: int = 64

    def apply(self, program: Program) -> Program:
        types = program.types()
        return with_each(program, _Products(self, types, PermutedCopies(types, "_deep", set(types))).op)


@dataclass(slots=True)
class _Products:
    """Products on copies of one of their factors, and the copies in front of the first of them."""

    options: OneDepth
    types: Mapping[str, TensorType]
    copies: PermutedCopies

    def op(self, op: Op) -> list[Op]:
        if not isinstance(op, Contraction) or (sizes := self._sizes(op)) is None:
            return [op]
        copies: list[Op] = []
        orders = self._orders(op, sizes)
        loads = tuple(self.copies.read(load, orders.get(load.dst), op, copies) for load in op.loads)
        return [*copies, replace(op, loads=loads)] if copies or loads != op.loads else [op]

    def _sizes(self, op: Contraction) -> dict[str, int] | None:
        """Of the loops of a product of two such factors that go over whole dimensions."""
        sizes = index_sizes(op)
        factors = {self.types[str(load.tensor)].dtype for load in op.loads if isinstance(load.tensor, str)}
        summed = op.agg is Aggregation.SUM and len(op.loads) == 2 and op.default is None and is_product(op)
        known = summed and len(factors) == 1 and factors <= self.options.dtypes
        return sizes if known and sizes is not None and walks_whole(op, sizes, self.types) else None

    def _orders(self, op: Contraction, sizes: Mapping[str, int]) -> dict[str, Order]:
        """The order of a copy of the smaller factor, or of the larger one, by the name that the sum reads it by."""
        results = {f.index for f in op.output}
        sides = sorted(op.loads, key=lambda load: self.types[str(load.tensor)].size)
        names = [_names(load) for load in sides]
        summed = [n for n in names[0] if n in names[1] and n not in results]
        if self._is_deep(names, summed, sizes):
            return {}
        for (copied, mine), other in zip(zip(sides, names, strict=True), reversed(names), strict=True):
            depth = [n for n in other if n in summed]
            used = prod(size for n, size in sizes.items() if n not in mine)
            if _follow(other, depth) and used >= self.options.uses:
                return {copied.dst: tuple(map(mine.index, self._arranged(copied, mine, depth)))}
        return {}

    def _arranged(self, copied: TensorLoad, mine: Sequence[str], depth: Sequence[str]) -> list[str]:
        """The copy's dimensions: the depth last, or in front of rows of results that lie so already; TF32 is read along the depth alone."""
        rows = list(takewhile(lambda n: n not in depth, reversed(mine)))[::-1]
        behind = [] if self.types[str(copied.tensor)].dtype is DType.FLOAT32 else rows
        return [*(n for n in mine if n not in depth and n not in behind), *depth, *behind]

    def _is_deep(self, names: Sequence[Sequence[str]], summed: Sequence[str], sizes: Mapping[str, int]) -> bool:
        """Some loops of the sum that follow each other in both factors have enough iterations, or all have too few."""
        first, second = names
        runs = [sizes[n] for n in summed[:1]]
        for before, loop in pairwise(summed):
            follow = all(_follow(side, (before, loop)) for side in (first, second))
            runs = [*runs[:-1], runs[-1] * sizes[loop]] if follow else [*runs, sizes[loop]]
        return len(runs) < 2 or max(runs) >= self.options.deep or prod(runs) < self.options.deep


def _names(load: TensorLoad) -> list[str]:
    return [f.index or "" for f in load.formulas]


def _follow(side: Sequence[str], loops: Sequence[str]) -> bool:
    """The loops walk neighbouring dimensions of a factor, in this order."""
    first = side.index(loops[0])
    return list(side[first : first + len(loops)]) == list(loops)
