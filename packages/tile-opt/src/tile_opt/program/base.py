"""What a program rewrite is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from operator import is_
from typing import ClassVar

from tile_ir.program.nodes import Op, Program


@dataclass(frozen=True)
class Rewrite(ABC):
    """A rewrite of bound programs that keeps their results; every field is an option with a default."""

    name: ClassVar[str] = ""

    @abstractmethod
    def apply(self, program: Program) -> Program:
        """The rewritten program; `program` itself when nothing changes."""


def with_each(program: Program, instead: Callable[[Op], Iterable[Op]]) -> Program:
    """`program` with what takes the place of each operation; `program` itself where that is the operation everywhere."""
    ops = tuple([made for op in program.ops for made in instead(op)])
    return program if len(ops) == len(program.ops) and all(map(is_, ops, program.ops)) else replace(program, ops=ops)
