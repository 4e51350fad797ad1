"""Products that use what they read a few times: an operand that was transposed for them is read as it lies.

``x.T @ y`` of many rows and few columns takes less time than a copy of x in another order. Lanes go along x's columns, which
the result has, where along the copy's rows they would add up.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace
from math import prod

from tile_ir.frozen import frozen
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import Contraction, Op, Program, TensorLoad, TensorType
from tile_ir.stripe.affine import names_in

from tile_opt.program.base import Rewrite, with_each
from tile_opt.program.factorise import index_sizes
from tile_opt.program.permutations import Order, order_of, reading

Copies = Mapping[str, tuple[str, Order]]
"""What each copy is made of, and which dimension of that each of its own is."""


@frozen
class TallProducts(Rewrite):
    """Read through permuted copies where each element is used `uses` times at most, for results that add up more steps than they have cells."""

    uses: int = 32

    def apply(self, program: Program) -> Program:
        types = program.types()
        orders = ((op, order_of(op, types)) for op in program.ops if isinstance(op, Contraction))
        copies = {op.name: (str(op.loads[0].tensor), order) for op, order in orders if order is not None}
        return with_each(program, lambda op: (self._op(op, copies, types),)) if copies else program

    def _op(self, op: Op, copies: Copies, types: Mapping[str, TensorType]) -> Op:
        if not isinstance(op, Contraction) or op.agg is Aggregation.ASSIGN or len(op.loads) < 2:
            return op
        kept = names_in(op.output)
        common = kept.intersection(*(names_in(load.formulas) for load in op.loads))
        points = prod((index_sizes(op) or {}).values())
        if common or points < op.type.size**2:
            return op
        loads = tuple(self._load(load, points, kept, copies, types) for load in op.loads)
        return op if loads == op.loads else replace(op, loads=loads)

    def _load(
        self, load: TensorLoad, points: int, kept: Set[str], copies: Copies, types: Mapping[str, TensorType]
    ) -> TensorLoad:
        """From what a copy was made of where that has rows along an index of the result, and the copy has not."""
        name = str(load.tensor)
        if name not in copies or points > self.uses * types[name].size or _along(load) in kept:
            return load
        source, order = copies[name]
        through = reading(load, source, order)
        return through if _along(through) in kept else load


def _along(load: TensorLoad) -> str | None:
    """The index that goes along the rows of what is read."""
    return load.formulas[-1].index
