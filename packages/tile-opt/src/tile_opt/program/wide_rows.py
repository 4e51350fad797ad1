"""Numbers of attention's rows that are divided by the sum of its weights: kept in float32, and divided by who reads them.

Gradients of keys weigh elements ``(G[s, t] + r[s]) / z[s]``, which programs write ``G / z + R`` with ``R = r / z``. R may be as large as
the other, and where it is rounded to a shorter float, or z, all elements of the row have the error of their difference. What is
divided by the same z, however that is rounded, has an error of that relative size alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from tile_ir.dtype import DType
from tile_ir.frozen import frozen, replace
from tile_ir.names import claim
from tile_ir.program.nodes import Contraction, Op, ScalarStatement, TensorLoad, TensorType

from tile_opt.program.cascade import Groups, Made, OverRows, Weighted, quotient
from tile_opt.program.trees import Leaf, computed, unwidened


@frozen
class WideRows(OverRows):
    """Sums of rows that are divided by another one, and rounded to shorter floats."""

    def made(self, groups: Groups) -> Made:
        taken = groups.pairs.taken
        found = {
            m.pair.op.name: _Wide(m, claim(f"{m.pair.op.name}_wide", taken)) for m in groups.members() if _is_rounded(m)
        }
        ops = (op for op in groups.program.ops if isinstance(op, Contraction) and op.name not in found)
        readers = {op.name: _reading(op, found) for op in ops if any(x.tensor in found for x in op.loads)}
        return readers | {name: wide.apart() for name, wide in found.items()}


def _is_rounded(member: Weighted) -> bool:
    op, by = member.pair.op, unwidened(member.divisors[-1]) if member.divisors else None
    short = op.acc is DType.FLOAT32 and op.type.dtype.is_float and op.type.dtype.bytes < op.acc.bytes
    alike = isinstance(by, Leaf) and by.forms == member.pair.domain.output
    return short and alike and bool(member.scores) and not member.values


@frozen
class _Wide:
    """A sum, and its name before it is divided by the last of its divisors."""

    member: Weighted
    name: str

    def apart(self) -> tuple[Op, ...]:
        """The sum in float32, and what it is for others."""
        member, op, domain = self.member, self.member.pair.op, self.member.pair.domain
        *divisors, last = member.divisors
        summand = quotient((member.weight, *member.inside, *member.outside), divisors, op.acc)
        wide = computed(domain.extents, self.name, TensorType(op.acc, op.type.shape), domain.output, summand, op)
        value = quotient((Leaf(self.name, domain.output, op.acc),), (last,), op.acc)
        return wide, computed(domain.extents, op.name, op.type, domain.output, value, origin=op.origin)

    def read(self, load: TensorLoad) -> tuple[tuple[TensorLoad, TensorLoad], tuple[ScalarStatement, ...]]:
        """What a reader loads instead, and what it makes of that."""
        by, op, dst = unwidened(self.member.divisors[-1]), self.member.pair.op, load.dst
        assert isinstance(by, Leaf)
        sides = TensorLoad(f"{dst}_wide", self.name, load.formulas), TensorLoad(f"{dst}_by", by.tensor, load.formulas)
        return sides, (
            ScalarStatement(f"{dst}_over", "cast", (f"{dst}_by",), op.acc),
            ScalarStatement(f"{dst}_part", "div", (f"{dst}_wide", f"{dst}_over"), op.acc),
            ScalarStatement(dst, "cast", (f"{dst}_part",), op.type.dtype),
        )


def _reading(op: Contraction, found: Mapping[str, _Wide]) -> tuple[Op, ...]:
    """The operation on sums that it divides, and rounds, itself."""
    read = [found[str(x.tensor)].read(x) for x in op.loads if x.tensor in found]
    left = (x for x in op.loads if x.tensor not in found)
    loads = (load for loads, _ in read for load in loads)
    body = (statement for _, statements in read for statement in statements)
    return (replace(op, loads=(*left, *loads), body=(*body, *op.body)),)
