"""Numbers of attention's rows that are divided by the sum of its weights: kept in float32, and divided by who reads them.

Gradients of keys weigh elements ``(G[s, t] + r[s]) / z[s]``, which programs write ``G / z + R`` with ``R = r / z``. R may be as large as
the other, and where it is rounded to a shorter float, or z, all elements of the row have the error of their difference. What is
divided by the same z, however that is rounded, has an error of that relative size alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tile_ir.dtype import DType
from tile_ir.frozen import frozen, replace
from tile_ir.names import claim
from tile_ir.program.nodes import Contraction, Op, ScalarStatement, TensorLoad, TensorType

from tile_opt.program.cascade import Groups, Made, OverRows, Weighted, quotient
from tile_opt.program.shares import Shares
from tile_opt.program.trees import Leaf, computed, unwidened


@frozen
class WideRows(OverRows):
    """Sums of rows that are divided by another one: those that are rounded to shorter floats, and where that makes all divisions needless."""

    def made(self, groups: Groups) -> Made:
        taken, members = groups.pairs.taken, {m.pair.op.name: m for m in groups.members()}
        wide = {name: _Wide(m, claim(f"{name}_wide", taken)) for name, m in members.items() if _is_divided(m)}
        ops = [op for op in groups.program.ops if isinstance(op, Contraction) and op.name not in members]
        shares = {n: new for m in members.values() if _is_total(m) for n, new in _shares(groups, m, wide, ops).items()}
        read = {x.tensor for made in shares.values() for op in made for x in op.loads}
        short = {name: each for name, each in wide.items() if each.is_rounded}
        readers = {op.name: _reading(op, short) for op in ops if any(x.tensor in short for x in op.loads)}
        return readers | {n: w.apart() for n, w in wide.items() if n in short or w.name in read} | shares


def _shares(
    groups: Groups, total: Weighted, wide: Mapping[str, _Wide], ops: Iterable[Contraction]
) -> Mapping[str, tuple[Contraction, ...]]:
    """What takes the place of all that reads the weights that are summed, other than sums of their rows."""
    mine = {name: each.name for name, each in wide.items() if each.by.tensor == total.pair.op.name}
    return Shares(groups, total, mine).made(ops)


def _is_total(member: Weighted) -> bool:
    """It is the sum of the weights themselves, in the place of the largest element."""
    other = member.inside or member.outside or member.divisors
    return not other and member.pair.row.forms == member.pair.domain.output


def _is_divided(member: Weighted) -> bool:
    by = unwidened(member.divisors[-1]) if member.divisors else None
    alike = isinstance(by, Leaf) and by.forms == member.pair.domain.output
    return alike and bool(member.scores) and not member.values


@frozen
class _Wide:
    """A sum, and its name before it is divided by the last of its divisors."""

    member: Weighted
    name: str

    @property
    def by(self) -> Leaf:
        """The last of the divisors."""
        by = unwidened(self.member.divisors[-1])
        assert isinstance(by, Leaf)
        return by

    @property
    def is_rounded(self) -> bool:
        op = self.member.pair.op
        return op.acc is DType.FLOAT32 and op.type.dtype.is_float and op.type.dtype.bytes < op.acc.bytes

    def apart(self) -> tuple[Op, ...]:
        """The sum in float32, and what it is for others."""
        member, op, domain = self.member, self.member.pair.op, self.member.pair.domain
        *divisors, last = member.divisors
        summand = quotient((member.weight, *member.inside, *member.outside), divisors, op.acc)
        wide = computed(domain.extents, self.name, TensorType(op.acc, op.type.shape), domain.output, summand, op)
        value = quotient((Leaf(self.name, domain.output, op.acc),), (last,), op.acc)
        return wide, computed(domain.extents, op.name, op.type, domain.output, value, origin=op.origin)

    def read(self, load: TensorLoad, taken: set[str]) -> tuple[tuple[TensorLoad, ...], tuple[ScalarStatement, ...]]:
        """What a reader loads instead, and what it makes of that; its scalars are `taken`."""
        by, op, dst = self.by, self.member.pair.op, load.dst
        wide, divisor, over, part = (claim(f"{dst}_{name}", taken) for name in ("wide", "by", "over", "part"))
        return (TensorLoad(wide, self.name, load.formulas), TensorLoad(divisor, by.tensor, load.formulas)), (
            ScalarStatement(over, "cast", (divisor,), op.acc),
            ScalarStatement(part, "div", (wide, over), op.acc),
            ScalarStatement(dst, "cast", (part,), op.type.dtype),
        )


def _reading(op: Contraction, found: Mapping[str, _Wide]) -> tuple[Op, ...]:
    """The operation on sums that it divides, and rounds, itself."""
    taken = {x.dst for x in (*op.loads, *op.body)}
    read = [found[str(x.tensor)].read(x, taken) for x in op.loads if x.tensor in found]
    left = (x for x in op.loads if x.tensor not in found)
    loads = (load for loads, _ in read for load in loads)
    body = (statement for _, statements in read for statement in statements)
    return (replace(op, loads=(*left, *loads), body=(*body, *op.body)),)
