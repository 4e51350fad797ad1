"""What a program rewrite is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from operator import is_

from tile_ir.frozen import frozen
from tile_ir.program.liveness import used_by
from tile_ir.program.nodes import ConstantTensor, Op, Prng, Program, TensorType, results_of


@frozen
class Rewrite(ABC):
    """A rewrite of bound programs that keeps their results; every field is an option with a default."""

    @abstractmethod
    def apply(self, program: Program) -> Program:
        """The rewritten program; `program` itself when nothing changes."""


@frozen
class OpRewrite(Rewrite):
    """A rewrite that looks at the operations one by one."""

    def apply(self, program: Program) -> Program:
        types = program.types()
        return with_each(program, partial(self.instead, types, set(types)))

    @abstractmethod
    def instead(self, types: Mapping[str, TensorType], taken: set[str], op: Op) -> Iterable[Op]:
        """What takes an operation's place; the names of the program's values are `taken`, and new ones join them."""


def with_each(program: Program, instead: Callable[[Op], Iterable[Op]]) -> Program:
    """`program` with what takes the place of each operation; `program` itself where that is the operation everywhere."""
    ops = tuple([made for op in program.ops for made in instead(op)])
    return program if len(ops) == len(program.ops) and all(map(is_, ops, program.ops)) else replace(program, ops=ops)


def fixed_values(program: Program, *, bound: bool = True) -> dict[str, TensorType]:
    """The types by name of what no call changes. Such steps run once, or once per change of a bound input.

    Without `bound` only what constants alone decide.
    """
    found = {param.name: param.type for param in program.inputs if param.bound and bound}
    for op in program.ops:
        used = used_by(op)
        if isinstance(op, ConstantTensor) or (used and not isinstance(op, Prng) and found.keys() >= set(used)):
            found.update(results_of(op))
    return found
