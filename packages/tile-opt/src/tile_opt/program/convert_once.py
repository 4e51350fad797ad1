"""Narrow floats that a contraction uses again and again, converted once.

``C[m, n] = +(A[m, k] * B[k, n])`` of float16 converts each element of A for every n, and each of B for every m: beside a
multiply-add that is most of the work. Copies in the dtype that the contraction computes in cost little beside that, and
converting to a wider float changes no value. The kernel that makes such a copy takes in what made the narrow value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

from tile_ir.dtype import DType
from tile_ir.names import claim
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import Contraction, Elementwise, Op, Program, TensorLoad, TensorType

from tile_opt.program.base import Rewrite
from tile_opt.program.factorise import index_sizes


@dataclass(frozen=True)
class ConvertOnce(Rewrite):
    """Give contractions that convert each element of every narrow operand `uses` times and more converted copies of these.

    Only where `least` terms are met. Few rows times a matrix read it as it is: there the copy would be most of the work.
    """

    name: ClassVar[str] = "convert_once"
    uses: int = 32
    least: int = 1 << 14

    def apply(self, program: Program) -> Program:
        types = program.types()
        work = _Copies(self, types, set(types))
        ops = [made for op in program.ops for made in work.op(op)]
        return replace(program, ops=tuple(ops)) if len(ops) > len(program.ops) else program


class _Copies:
    """Contractions on converted copies of what they read, and the copies in front of the first of them."""

    def __init__(self, options: ConvertOnce, types: Mapping[str, TensorType], taken: set[str]) -> None:
        self.options = options
        self.types = types
        self.taken = taken
        self.made: dict[tuple[str, DType], str] = {}

    def op(self, op: Op) -> list[Op]:
        if not isinstance(op, Contraction) or op.agg is Aggregation.ASSIGN:
            return [op]
        wide = {load.dst: dtype for load in op.loads if (dtype := self._converted(op, load)) is not None}
        if not wide or not self._is_worth(op, [load for load in op.loads if load.dst in wide]):
            return [op]
        copies: list[Op] = []
        loads = tuple(self._copied(op, x, wide[x.dst], copies) if x.dst in wide else x for x in op.loads)
        return [*copies, _unconverted(replace(op, loads=loads), wide.keys())]

    def _converted(self, op: Contraction, load: TensorLoad) -> DType | None:
        """The wider float that all that reads a narrow one converts it to; None for other loads."""
        readers = [s for s in op.body if load.dst in s.args]
        if not isinstance(load.tensor, str) or load.dst == op.result or not all(s.fn == "cast" for s in readers):
            return None
        own, found = self.types[load.tensor].dtype, {s.dtype for s in readers}
        wide = found.pop() if len(found) == 1 else own
        return wide if own.is_float and wide.is_float and wide.bits > own.bits else None

    def _is_worth(self, op: Contraction, loads: Sequence[TensorLoad]) -> bool:
        sizes = index_sizes(op)
        points = prod(sizes.values()) if sizes is not None else 0
        most = max(self.types[str(load.tensor)].size for load in loads)
        return points >= self.options.least and points >= self.options.uses * most

    def _copied(self, op: Contraction, load: TensorLoad, dtype: DType, copies: list[Op]) -> TensorLoad:
        """The load from a copy in `dtype`, which goes to `copies` if there is none yet."""
        source = str(load.tensor)
        if (source, dtype) not in self.made:
            name = self.made[source, dtype] = claim(f"{source}_{dtype}", self.taken)
            type = TensorType(dtype, self.types[source].shape)
            copies.append(Elementwise(name, type, "cast", (source,), origin=op.origin))
        return replace(load, tensor=self.made[source, dtype])


def _unconverted(op: Contraction, loaded: Set[str]) -> Contraction:
    """The contraction without the conversions of what is converted when it is `loaded`."""
    same = {s.dst: s.args[0] for s in op.body if s.args[0] in loaded}
    body = tuple(
        replace(s, args=tuple(same.get(a, a) if isinstance(a, str) else a for a in s.args))
        for s in op.body
        if s.dst not in same
    )
    return replace(op, body=body, result=same.get(op.result, op.result) if isinstance(op.result, str) else op.result)
