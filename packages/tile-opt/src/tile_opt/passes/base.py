"""What a Stripe pass is: a frozen dataclass whose fields are its options."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, cast

from tile_ir.deadline import check
from tile_ir.stripe.nodes import Block, Program, Statement
from tile_ir.target import Target

from tile_opt.blocks.tree import kernels_of, with_kernels
from tile_opt.kernel.pipeline import close_pipeline, open_pipeline


@dataclass(frozen=True)
class Pass(ABC):
    """A rewrite of scheduled Stripe; subclasses are frozen dataclasses, one file each.

    `name` is the registered name that targets use: the class's, in snake case. Every field is an option with a default.
    """

    name: ClassVar[str]
    places: ClassVar[tuple[str, ...]] = ()
    """Options that name a unit, or several."""

    def __init_subclass__(cls) -> None:
        cls.name = re.sub(r"\B(?=[A-Z])", "_", cls.__name__).lower()

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Self:
        """The pass of a target's options, JSON lists as tuples; passes with structured options read them here."""
        return cls(**{k: _units(given) if k in cls.places else given for k, given in options.items()})

    @abstractmethod
    def apply(self, program: Program, target: Target) -> Program:
        """The rewritten program: same results, structurally valid. Must not change `program`."""


@dataclass(frozen=True)
class KernelPass(Pass):
    """A pass that rewrites each kernel on its own; equal kernel blocks are rewritten once."""

    @abstractmethod
    def rewrite(self, kernel: Block, target: Target) -> Block:
        """The kernel's new block; return `kernel` itself when nothing changes."""

    def apply(self, program: Program, target: Target) -> Program:
        kernels = kernels_of(program)
        done: dict[int, Block] = {}
        result: list[Statement] = []
        for kernel in kernels:
            if not isinstance(kernel, Block):
                result.append(kernel)
                continue
            if id(kernel) not in done:
                check(self.name, kernel.name)
                done[id(kernel)] = self._rewritten(kernel, target)
            result.append(done[id(kernel)])
        if all(a is b for a, b in zip(kernels, result, strict=True)):
            return program
        return with_kernels(program, tuple(result))

    def _rewritten(self, kernel: Block, target: Target) -> Block:
        """A kernel rewritten; the parts of a pipeline are, each by itself."""
        pipeline = open_pipeline(kernel)
        if pipeline is None:
            return self.rewrite(kernel, target)
        made = pipeline.map(lambda part: self.rewrite(part, target))
        return kernel if made == pipeline else close_pipeline(made)


def _units(given: Any) -> str | tuple[str, ...]:
    """The unit of a location option: ``{"name": "CONV"}``, or just the name; of a list of them all."""
    if isinstance(given, list | tuple):
        return tuple(str(_units(loc)) for loc in cast("Sequence[Any]", given))
    return str(cast("Mapping[str, Any]", given)["name"] if isinstance(given, Mapping) else given)
