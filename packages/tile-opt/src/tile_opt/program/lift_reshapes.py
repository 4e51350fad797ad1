"""Reshapes behind elementwise work on a product's result go in front of it, to the product, which then can have their shape.

Front ends put dimensions together for a product, add a bias, round, and take the dimensions apart again. With the reshape
beside the product nothing stands between that and its elementwise tail, so that both are one kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tile_ir.frozen import frozen
from tile_ir.names import claim
from tile_ir.program.liveness import reads
from tile_ir.program.nodes import Contraction, Elementwise, Op, Operand, Program, Reshape, TensorType

from tile_opt.program.base import Rewrite, with_each

Shape = tuple[int, ...]


@frozen
class LiftReshapes(Rewrite):
    """Give elementwise operations, the only readers of one another and of a product, the shape that a reshape behind them makes."""

    def apply(self, program: Program) -> Program:
        if not any(isinstance(op, Reshape) for op in program.ops):
            return program
        return with_each(program, _Work(program).op)


class _Work:
    """Who makes and who reads each value; what has become of the operations between a product and a reshape."""

    def __init__(self, program: Program) -> None:
        self.types: Mapping[str, TensorType] = program.types()
        self.makers = {op.name: op for op in program.ops if isinstance(op, Contraction | Elementwise)}
        self.readers = reads(program)
        self.taken = set(self.types)
        self.lifted: dict[str, Iterator[Op]] = {}
        """By the reshape: what stands in its place."""
        self.gone: set[str] = set()
        """Operations that were given another shape."""
        for op in program.ops:
            if isinstance(op, Reshape) and (chain := self._chain(op)):
                self.lifted[op.name] = self._lift(op, chain)
                self.gone.update(each.name for each in chain)

    def op(self, op: Op) -> Iterator[Op]:
        """What takes the place of an operation."""
        name = getattr(op, "name", "")
        if name in self.lifted:
            yield from self.lifted[name]
        elif name not in self.gone:
            yield op

    def _chain(self, op: Reshape) -> list[Elementwise]:
        """The elementwise operations between a product and the reshape, the last one first; none where one cannot have its shape."""
        found: list[Elementwise] = []
        name, kept = op.arg, _kept(self.types[op.arg].shape, op.type.shape)
        while self.readers[name] == 1 and isinstance(made := self.makers.get(name), Elementwise):
            whole = [a for a in made.args if isinstance(a, str) and self.types[a].shape == made.type.shape]
            others = [a for a in made.args if a not in whole]
            if len(whole) != 1 or not all(self._broadcasts(a, kept, len(op.type.shape)) for a in others):
                return []
            found.append(made)
            name = whole[0]
        product = self.makers.get(name)
        ends = isinstance(product, Contraction) and len(product.loads) > 1 and self.readers[name] == 1
        same = op.type.dtype is self.types[op.arg].dtype
        return found if ends and same else []

    def _broadcasts(self, operand: Operand, kept: int, rank: int) -> bool:
        """The operand is the same along all dimensions that the reshape changes."""
        shape = self.types[operand].shape if isinstance(operand, str) else ()
        return len(shape) <= rank and all(size == 1 for size in shape[: len(shape) - kept])

    def _lift(self, op: Reshape, chain: list[Elementwise]) -> Iterator[Op]:
        """The reshape of the product, then the elementwise operations in its shape, the last one under its name."""
        before = next(a for a in chain[-1].args if self._is_whole(a, chain[-1]))
        assert isinstance(before, str), "literals have no shape"
        shape, name = op.type.shape, claim(f"{before}_shaped", self.taken)
        yield Reshape(name, replace(self.types[before], shape=shape), before, op.origin)
        for each in reversed(chain):
            result = op.name if each is chain[0] else claim(f"{each.name}_shaped", self.taken)
            args = tuple(name if self._is_whole(a, each) else a for a in each.args)
            yield replace(each, name=result, type=replace(each.type, shape=shape), args=args)
            name = result

    def _is_whole(self, operand: Operand, op: Elementwise) -> bool:
        return isinstance(operand, str) and self.types[operand].shape == op.type.shape


def _kept(before: Shape, after: Shape) -> int:
    """How many of the last dimensions both shapes have."""
    pairs = zip(reversed(before), reversed(after), strict=False)
    differ = (k for k, (a, b) in enumerate(pairs) if a != b)
    return next(differ, min(len(before), len(after)))
