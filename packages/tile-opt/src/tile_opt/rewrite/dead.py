"""Drop operations that no output needs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from tile_lang.program import Op, Program

from tile_opt.rewrite.base import Rewrite, defined, used


@dataclass(frozen=True)
class DropDead(Rewrite):
    """Liveness from the outputs backwards (facts 1.12); inputs stay, they are the program's signature."""

    name: ClassVar[str] = "drop_dead"

    def apply(self, program: Program) -> Program:
        live = {value for _, value in program.outputs}
        kept: list[Op] = []
        for op in reversed(program.ops):
            if live.intersection(defined(op)):
                live.update(used(op))
                kept.append(op)
        if len(kept) == len(program.ops):
            return program
        return replace(program, ops=tuple(reversed(kept)))
