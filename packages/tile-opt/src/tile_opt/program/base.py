"""What a program rewrite is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from tile_ir.program.nodes import Program


@dataclass(frozen=True)
class Rewrite(ABC):
    """A rewrite of bound programs that keeps their results; every field is an option with a default."""

    name: ClassVar[str] = ""

    @abstractmethod
    def apply(self, program: Program) -> Program:
        """The rewritten program; `program` itself when nothing changes."""
