"""Narrow numbers that a contraction uses again and again, converted once; those that it uses a few times, where they are used.

``C[m, n] = +(A[m, k] * B[k, n])`` of float16 converts each element of A for every n, and each of B for every m: beside a
multiply-add that is most of the work. Copies in the dtype that the contraction computes in cost little beside that. Few rows times a
matrix read it as it is: there a copy would be most of the work, be it one that the program makes (``as_float(B, 32)``). The
few rows themselves are copied. What a conversion gives does not depend on where it stands.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from math import prod

from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.names import claim
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import Contraction, Elementwise, Op, Program, ScalarStatement, TensorLoad, TensorType

from tile_opt.program.base import Rewrite, fixed_values, with_each
from tile_opt.program.dead import DropDead
from tile_opt.program.factorise import index_sizes


@frozen
class ConvertOnce(Rewrite):
    """Give contractions converted copies of the narrow operands whose elements they convert `uses` times and more.

    Only where `least` terms are met. Others convert what they load, unless it is converted before a run. With `alike` that
    is left as it is unless all operands are of one dtype, or bytes: instructions that take such may add up their products.
    """

    uses: int = 32
    least: int = 1 << 14
    alike: bool = False

    def apply(self, program: Program) -> Program:
        types = program.types()
        work = _Copies(self, types, fixed_values(program).keys(), set(types))
        made = with_each(program, work.op)
        return program if made is program else DropDead().apply(made)


@dataclass(slots=True)
class _Copies:
    """Contractions on converted copies of what they read, and the copies in front of the first of them."""

    options: ConvertOnce
    types: Mapping[str, TensorType]
    fixed: Container[str]
    taken: set[str]
    made: dict[tuple[str, DType], str] = field(default_factory=dict[tuple[str, DType], str])
    """By what is converted, and to what."""
    given: dict[str, Elementwise] = field(default_factory=dict[str, Elementwise])
    """The program's own conversions."""

    def op(self, op: Op) -> list[Op]:
        match op:
            case Elementwise(name=name, type=type, fn="cast", args=(str(source),)) if name not in self.fixed:
                if type.dtype.bits > self.types[source].dtype.bits:
                    self.given[name] = op
                    self.made.setdefault((source, type.dtype), name)
                return [op]
            case Contraction() if op.agg is not Aggregation.ASSIGN:
                return self._contraction(op)
            case _:
                return [op]

    def _contraction(self, op: Contraction) -> list[Op]:
        inner = self._taken_in(op)
        wide = {load.dst: dtype for load in inner.loads if (dtype := self._converted(inner, load)) is not None}
        if not wide or (self.options.alike and not _are_alike({self.types[str(x.tensor)].dtype for x in inner.loads})):
            return [op]
        worth = self._worth(inner, [load for load in inner.loads if load.dst in wide])
        if not worth:
            return [inner]
        copies: list[Op] = []
        loads = tuple(self._copied(op, x, wide[x.dst], copies) if x.dst in worth else x for x in inner.loads)
        return [*copies, _unconverted(replace(inner, loads=loads), worth)]

    def _taken_in(self, op: Contraction) -> Contraction:
        """The contraction with the conversions of what it loads as its own."""
        body, names, loads = list[ScalarStatement](), dict[str, str](), list[TensorLoad]()
        for load in op.loads:
            given = self.given.get(load.tensor) if isinstance(load.tensor, str) else None
            if given is not None:
                names[load.dst] = claim(f"{load.dst}_wide", {x.dst for x in (*op.loads, *op.body, *body)})
                body.append(ScalarStatement(names[load.dst], "cast", (load.dst,), given.type.dtype))
            loads.append(load if given is None else replace(load, tensor=given.args[0]))
        return replace(_renamed(op, names), loads=tuple(loads), body=(*body, *_renamed(op, names).body)) if body else op

    def _converted(self, op: Contraction, load: TensorLoad) -> DType | None:
        """The wider dtype that all that reads a narrow number converts it to; None for other loads."""
        readers = [s for s in op.body if load.dst in s.args]
        if not isinstance(load.tensor, str) or load.dst == op.result or not all(s.fn == "cast" for s in readers):
            return None
        own, found = self.types[load.tensor].dtype, {s.dtype for s in readers}
        wide = found.pop() if len(found) == 1 else own
        return wide if wide.bits > own.bits else None

    def _worth(self, op: Contraction, loads: Sequence[TensorLoad]) -> set[str]:
        """What is loaded often enough."""
        sizes = index_sizes(op)
        points = prod(sizes.values()) if sizes is not None else 0
        if points < self.options.least:
            return set()
        return {x.dst for x in loads if points >= self.options.uses * self.types[str(x.tensor)].size}

    def _copied(self, op: Contraction, load: TensorLoad, dtype: DType, copies: list[Op]) -> TensorLoad:
        """The load from a copy in `dtype`, which goes to `copies` if there is none yet."""
        source = str(load.tensor)
        if (source, dtype) not in self.made:
            name = self.made[source, dtype] = claim(f"{source}_{dtype}", self.taken)
            type = TensorType(dtype, self.types[source].shape)
            copies.append(Elementwise(name, type, "cast", (source,), origin=op.origin))
        return replace(load, tensor=self.made[source, dtype])


def _are_alike(dtypes: Set[DType]) -> bool:
    """Instructions may take them together: of one dtype, or bytes, signed or not."""
    return len(dtypes) == 1 or dtypes <= {DType.INT8, DType.UINT8}


def _unconverted(op: Contraction, loaded: Set[str]) -> Contraction:
    """The contraction without the conversions of what is converted when it is `loaded`."""
    same = {s.dst: str(s.args[0]) for s in op.body if s.args[0] in loaded}
    return _renamed(replace(op, body=tuple(s for s in op.body if s.dst not in same)), same)


def _renamed(op: Contraction, names: Mapping[str, str]) -> Contraction:
    """The contraction with statements, and a result, that read other scalars."""
    body = tuple(replace(s, args=tuple(names.get(a, a) if isinstance(a, str) else a for a in s.args)) for s in op.body)
    return replace(op, body=body, result=names.get(op.result, op.result) if isinstance(op.result, str) else op.result)
