"""What a program rewrite is, and the helpers they share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

from tile_lang.program import (
    ConstantTensor,
    Contraction,
    Elementwise,
    Gather,
    IndexOf,
    Op,
    Operand,
    Prng,
    Program,
    Reshape,
    Scatter,
)


@dataclass(frozen=True)
class Rewrite(ABC):
    """A rewrite of bound programs that keeps their results; every field is an option with a default."""

    name: ClassVar[str] = ""

    @abstractmethod
    def apply(self, program: Program) -> Program:
        """The rewritten program; `program` itself when nothing changes."""


def defined(op: Op) -> tuple[str, ...]:
    """Names that an operation defines."""
    return (op.value, op.state) if isinstance(op, Prng) else (op.name,)


def used(op: Op) -> tuple[str, ...]:
    """Names of the tensors that an operation reads, literals left out."""
    return tuple(name for name in _operands(op) if isinstance(name, str))


def _operands(op: Op) -> Iterable[Operand]:
    match op:
        case Contraction():
            return (*(load.tensor for load in op.loads), *((op.default,) if op.default is not None else ()))
        case Elementwise():
            return op.args
        case Reshape():
            return (op.arg,)
        case Gather():
            return (op.data, op.indices)
        case Scatter():
            return (op.updates, op.indices)
        case Prng():
            return (op.seed,)
        case IndexOf() | ConstantTensor():
            return ()


def renamed(op: Op, rename: Callable[[str], str]) -> Op:
    """The operation with the names it reads replaced."""

    def operand(arg: Operand) -> Operand:
        return rename(arg) if isinstance(arg, str) else arg

    match op:
        case Contraction():
            loads = tuple(replace(load, tensor=operand(load.tensor)) for load in op.loads)
            return replace(op, loads=loads, default=None if op.default is None else rename(op.default))
        case Elementwise():
            return replace(op, args=tuple(operand(a) for a in op.args))
        case Reshape():
            return replace(op, arg=rename(op.arg))
        case Gather():
            return replace(op, data=rename(op.data), indices=rename(op.indices))
        case Scatter():
            return replace(op, updates=rename(op.updates), indices=rename(op.indices))
        case Prng():
            return replace(op, seed=rename(op.seed))
        case IndexOf() | ConstantTensor():
            return op
