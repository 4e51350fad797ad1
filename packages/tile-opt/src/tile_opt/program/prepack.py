"""Constant and bound weights in the layout that their contraction reads side by side.

Vector lanes run along the last dimension of a result. ``Y[n, o] = +(X[n, k] * W[o, k])`` reads W a row apart along it;
of a constant or bound W a copy ``[k, o]`` is made, which is done once (`lowering.program.fixed_steps`) and not in every call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tile_ir.frozen import frozen
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import Contraction, Op, Poly, Program, TensorLoad, TensorType
from tile_ir.stripe.affine import names_in

from tile_opt.program.base import Rewrite, fixed_values, with_each
from tile_opt.program.permutations import Order, PermutedCopies


@frozen
class Prepack(Rewrite):
    """Give reductions of several operands the constants and bound inputs of `least` bytes and more with the result's last index last."""

    least: int = 4096

    def apply(self, program: Program) -> Program:
        fixed = fixed_values(program)
        if not fixed:
            return program
        return with_each(program, _Copies(self.least, fixed, set(program.types())).op)


class _Copies:
    """Contractions on copies of constants, and the copies in front of the first of them."""

    def __init__(self, least: int, fixed: Mapping[str, TensorType], taken: set[str]) -> None:
        self.known = fixed.keys()
        self.fixed = {name: t for name, t in fixed.items() if t.nbytes >= least}
        self.copies = PermutedCopies(fixed, "_packed", taken)

    def op(self, op: Op) -> list[Op]:
        if (
            not isinstance(op, Contraction)
            or op.agg is Aggregation.ASSIGN
            or len(op.loads) < 2
            or op.name in self.known
        ):
            return [op]
        copies: list[Op] = []
        loads = tuple(self._load(op, load, copies) for load in op.loads)
        return [*copies, replace(op, loads=loads)] if loads != op.loads else [op]

    def _load(self, op: Contraction, load: TensorLoad, copies: list[Op]) -> TensorLoad:
        order = _order(op, load) if isinstance(load.tensor, str) and load.tensor in self.fixed else None
        return self.copies.read(load, order, op, copies)


def _order(op: Contraction, load: TensorLoad) -> Order | None:
    """The dimensions with that of the result's last index behind the others; None where it is there, or not plain."""
    lane = next((f.names for f in reversed(op.output) if f.terms), ())
    if len(lane) != 1 or all(set(c.formula.names) <= names_in(op.output) for c in op.constraints):
        return None
    subscripted = [d for d, f in enumerate(load.formulas) if lane[0] in f.names]
    if len(subscripted) != 1 or load.formulas[subscripted[0]] != Poly.of({lane[0]: 1}):
        return None
    dim, rank = subscripted[0], len(load.formulas)
    return None if dim == rank - 1 else (*(d for d in range(rank) if d != dim), dim)
