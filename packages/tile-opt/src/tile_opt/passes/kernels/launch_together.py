"""launch_together: kernels that do not wait for each other begin by one launch, where none of them takes longer for it than that.

Copies of both factors of a product, gradients of several weights, steps of an optimizer: each is a kernel that takes less time
than it takes to begin one. Groups of one launch run side by side, those of one kernel behind the other's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from tile_ir.matrix import MATRIX_INSTRUCTIONS
from tile_ir.stripe.nodes import Bind, Block, Program, Statement, Transfer
from tile_ir.stripe.walk import blocks_in, buffers_read, buffers_written
from tile_ir.target import Target

from tile_opt.blocks.buffers import fixed_kernels, in_the_way, wholes
from tile_opt.blocks.tree import kernels_of, with_kernels
from tile_opt.lowering.tensors import is_tensor_copy
from tile_opt.model.estimate import estimate
from tile_opt.model.multiprocessor import Needs, needs_of
from tile_opt.model.scheduled import read
from tile_opt.passes.base import Pass
from tile_opt.plan.steps.groups.last_group import grid, group_size, waits_for_all
from tile_opt.plan.steps.groups.together import launched_together

LONG = 8
"""Times as long as a launch that kernels which copy ahead take at most to begin with each other."""


@dataclass(frozen=True)
class LaunchTogether(Pass):
    """Let up to `most` kernels begin together, of which the `ahead` launches before one may have the others."""

    most: int = 4
    ahead: int = 3

    def apply(self, program: Program, target: Target) -> Program:
        if target.machine.occupancy is None:
            return program
        launches = _Launches(program, self, target)
        for kernel in launches.kernels:
            launches.add(kernel)
        if len(launches.found) == len(launches.kernels):
            return program
        return with_kernels(program, tuple(map(_launch, launches.found)))


@dataclass(frozen=True, eq=False)
class _Kernel:
    """A kernel that others may begin with, and what that takes."""

    block: Block
    target: Target

    @cached_property
    def needs(self) -> Needs:
        occupancy = self.target.machine.occupancy
        assert occupancy is not None
        return needs_of(read(self.block), occupancy)

    @cached_property
    def seconds(self) -> float:
        """Of the kernel without its launch."""
        launch = self.target.machine.launch
        return estimate(self.block, self.target).seconds - launch.kernel - launch.fill

    @cached_property
    def groups(self) -> int:
        first = waits_for_all(self.block)
        return prod(prod(grid(b).values()) for b in ((self.block,) if first is None else (self.block, first[0])))

    @cached_property
    def items(self) -> int:
        return prod(group_size(self.block))

    @cached_property
    def is_alone(self) -> bool:
        """Its groups count each other, or make descriptors of tensors: of such kernels a launch has one."""
        return waits_for_all(self.block) is not None or any(is_tensor_copy(b.instr) for b in blocks_in(self.block))

    @cached_property
    def is_busy(self) -> bool:
        """It copies ahead, or multiplies matrices."""
        return any(_is_matrix(b) or any(isinstance(s, Transfer) for s in b.body) for b in blocks_in(self.block))

    def delayed(self, together: Needs) -> float:
        """Seconds that it takes longer beside others, with as many of its groups at once as of theirs."""
        machine = self.target.machine
        own = min(self.needs.resident(machine), -(-self.groups // max(1, machine.cores)))
        fewer = own / together.resident(machine) - 1
        return self.seconds * fewer if fewer > 0 else 0.0


def _is_matrix(block: Block) -> bool:
    return block.instr is not None and block.instr.name in MATRIX_INSTRUCTIONS


Launch = Statement | tuple[_Kernel, ...]


def _launch(found: Launch) -> Statement:
    """Few groups take long each: theirs begin first (an H200: those of 17x95² bfloat16 gradients 38 µs so, 49 the other way round)."""
    if not isinstance(found, tuple):
        return found
    ordered = sorted(found, key=lambda k: k.groups)
    return found[0].block if len(found) == 1 else launched_together([k.block for k in ordered])


class _Launches:
    """The kernels of a program, and the launches that begin them so far."""

    def __init__(self, program: Program, options: LaunchTogether, target: Target) -> None:
        self.options, self.target, self.wholes = options, target, wholes(program)
        fixed = fixed_kernels(program)
        self.kernels: list[Launch] = [
            (_Kernel(k, target),) if isinstance(k, Block) and n not in fixed and _may_join(k) else k
            for n, k in enumerate(kernels_of(program))
        ]
        self.found: list[Launch] = []

    def add(self, kernel: Launch) -> None:
        """One more kernel: in the launch of another one, where neither waits for what runs between them."""
        lost = {n: seconds for n in self._before() if (seconds := self._lost(n, kernel)) is not None}
        place = min(lost, key=lambda n: lost[n], default=None)
        if place is None or not isinstance(kernel, tuple):
            self.found.append(kernel)
            return
        other, between = self.found[place], self.found[place + 1 :]
        assert isinstance(other, tuple)
        if self._waits(kernel, between):
            self.found = [*self.found[:place], *between, (*other, *kernel)]
        else:
            self.found[place] = (*other, *kernel)

    def _before(self) -> range:
        """The launches that may have one more kernel, the latest first."""
        last = len(self.found) - 1
        return range(last, max(-1, last - self.options.ahead), -1)

    def _lost(self, place: int, kernel: Launch) -> float | None:
        """Seconds that kernels lose where that launch has one more; None where it cannot, or a launch takes no longer.

        The kernel moves to the launch, or that behind all that follows it.
        """
        other, between = self.found[place], self.found[place + 1 :]
        if not (isinstance(other, tuple) and isinstance(kernel, tuple)) or self._waits(kernel, [other]):
            return None
        movable = not (self._waits(kernel, between) and self._waits(other, between))
        seconds = self._delayed([*other, *kernel]) if movable else None
        return seconds if seconds is not None and seconds < self.target.machine.launch.kernel else None

    def _waits(self, kernels: tuple[_Kernel, ...], others: Sequence[Launch]) -> bool:
        """Some of the kernels cannot change places with others."""
        reads = {b for k in kernels for b in buffers_read(k.block)}
        writes = {b for k in kernels for b in buffers_written(k.block)}
        between = [s for o in others for s in ([k.block for k in o] if isinstance(o, tuple) else [o])]
        blocked = any(not isinstance(s, Block) for s in between)
        return blocked or in_the_way(between, reads, writes, self.wholes)

    def _delayed(self, kernels: Sequence[_Kernel]) -> float | None:
        """Seconds that the kernels of a launch lose because fewer of their groups run at once; None where they cannot have one."""
        same = len({k.items for k in kernels}) == 1 and sum(k.is_alone for k in kernels) <= 1
        few = len(kernels) <= self.options.most and sum(k.groups for k in kernels) <= self.target.settings.dim_sizes[0]
        if not (same and few) or self._is_long([k for k in kernels if k.is_busy]):
            return None
        needs = [k.needs for k in kernels]
        together = Needs(needs[0].items, max(n.registers for n in needs), max(n.local for n in needs))
        return sum(k.delayed(together) for k in kernels)

    def _is_long(self, busy: Sequence[_Kernel]) -> bool:
        """Several fill the cores as they are, and one of them takes so long that a launch is little."""
        return len(busy) > 1 and max(k.seconds for k in busy) > LONG * self.target.machine.launch.kernel


def _may_join(kernel: Block) -> bool:
    """Its groups are along one axis, and several; what it hands from product to product may need all registers of its items."""
    products = {tuple(r.source for r in b.refs) for b in blocks_in(kernel) if _is_matrix(b)}
    joined = waits_for_all(kernel)
    indexes = [*kernel.indexes, *(joined[0].indexes if joined is not None else ())]
    loops = [i for i in indexes if i.bind is Bind.GRID and i.value is None and i.range > 1]
    plain = bool(loops) and all(i.axis == 0 for i in loops) and len(products) <= 1
    return plain and not any(form.names for r in kernel.refs for form in r.access)
