"""The time of a chain of stencils whose groups hold in local memory what its parts hand on: a closed formula.

Items hold windows around their cells. Of a sub-group, instructions that start and the path to local memory and the first
cache take their time one after the other, as measured: loads come in bursts, between which nothing is left to load.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from math import prod

from tile_ir.frozen import frozen
from tile_ir.machine import Machine
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Bind
from tile_ir.target import Target

from tile_opt.kernel.item_chain import ITEMS, REGISTERS
from tile_opt.kernel.view import KernelView, Stage, Use
from tile_opt.kernel.work import op_cost
from tile_opt.model.coalescing import PER_TURN
from tile_opt.plan.builders.group_chain import GroupChain
from tile_opt.plan.builders.walking_chain import WalkingChain
from tile_opt.plan.plan import Plan
from tile_opt.plan.space.gpu.chain import lanes_of, own_plan, shared_plan, shares, walking_plan
from tile_opt.plan.steps.digits import split
from tile_opt.plan.steps.groups.staging import NARROWEST

ACCESS = 2.0
"""Instructions around a load or a store, with itself."""
BODY = 1400
"""Points of an item's straight-line code: of each stage where groups share boxes, of all stages where items have their own."""
OTHERS = 104
"""Registers of an item that walks beside what it keeps: with fewer, compilers load so much of what is the same again and again that boxes are faster."""
STREAMS = 0.8
"""Share of the memory's bandwidth that strips get: the rows of many of them are under way, each a small piece of a row."""
CONSTANTS = 64
"""Elements of what is the same in all rounds, which registers hold."""


@frozen
class Cost:
    """What a plan makes of a tile of a chain."""

    plan: Plan
    cycles: float
    """Of a multiprocessor."""
    streams: float = 1.0
    """Share of the memory's bandwidth that it gets."""


def plans(view: KernelView, target: Target) -> Iterator[Plan]:
    """The plan of a chain of kernels."""
    if ITEMS in view.tags and not shares(view):
        yield own_plan(view, target)
    elif ITEMS in view.tags:
        found = cost(view, target)
        yield shared_plan(view, target) if found is None else found.plan


def cost(view: KernelView, target: Target) -> Cost | None:
    """What a tile takes whose group holds the boxes of a chain, or walks where they are too large; None where it cannot."""
    if any(u.extent for u in view.uses):
        return None
    for way in (_in_boxes, _walking):
        with suppress(ValueError, StopIteration):
            return way(view, target)
    return None


def _in_boxes(view: KernelView, target: Target) -> Cost:
    """What parts hand on lies in local memory: nothing is left to load between the bursts in which loads come."""
    chain = GroupChain(view, plan := shared_plan(view, target))
    if sum(box.type.nbytes for box in chain.boxes.values()) > target.settings.max_mem:
        raise ValueError(f"what parts of {view.name!r} hand on is more than local memory holds")
    return Cost(plan, _of_stages(view, plan, target, chain.count))


def _walking(view: KernelView, target: Target) -> Cost:
    """What parts hand on lies in registers, and what the first one reads comes while others are computed."""
    machine, chain = target.machine, WalkingChain(view, plan := walking_plan(view, target))
    occupancy, held = machine.occupancy, sum(prod(ring.alloc.type.sizes) for ring in chain.rings)
    if "AsyncCopy" not in target.nodes or chain.local_bytes > target.settings.max_mem:
        raise ValueError(f"nothing brings the operands of {view.name!r} while others are computed")
    constants = max(_Counted(view, stage, plan, frozenset()).constants for stage in view.stages)
    if occupancy is None or held + constants > occupancy.item_registers - OTHERS:
        raise ValueError(f"items have no registers for what parts of {view.name!r} hand on")
    stages = _of_stages(view, plan, target, chain.count, frozenset(box.into for box in chain.handed))
    rings = -(-chain.count // machine.subgroup) * held / machine.ports.issue
    return Cost(plan, stages + chain.step.range * (_copied(chain, machine) + rings), STREAMS)


def _copied(chain: WalkingChain, machine: Machine) -> float:
    """Cycles for the copies of a step, from one memory and into another."""
    cycles = 0.0
    for copy in (*(c.copy for c in chain.copies.values()), *chain.results.values()):
        elements, size = prod(copy.box.extents), copy.source.dtype.bytes
        if copy.plan.lanes * size < NARROWEST:
            raise ValueError(f"{copy.use.buffer!r} has elements that are not copied one by one")
        instructions = 2 * ACCESS * elements / copy.plan.lanes / machine.subgroup
        cycles += 2 * elements * size / PER_TURN + instructions / machine.ports.issue
    return cycles


def _of_stages(view: KernelView, plan: Plan, target: Target, items: int, kept: frozenset[str] = frozenset()) -> float:
    """All rounds of all stages."""
    stages = [_Counted(view, stage, plan, kept) for stage in view.stages]
    if max(s.points for s in stages) > BODY or max(s.constants for s in stages) > CONSTANTS:
        raise ValueError(f"the straight-line code of {view.name!r} is too long")
    return -(-items // target.machine.subgroup) * sum(s.cycles(target.machine) for s in stages)


class _Counted:
    """One stage, as the plan deals it out."""

    def __init__(self, view: KernelView, stage: Stage, plan: Plan, kept: frozenset[str]) -> None:
        self.view, self.stage = view, stage
        self.kept = kept | {a.into for a in view.allocs if a.loc == REGISTERS}
        """What an item has in registers."""
        self.staged = {s.operand for s in plan.stagings}
        splits = [split(plan, i) for i in stage.loops]
        self.forms = {s.loop: s.form for s in splits}
        digits = [d.index for s in splits for d in s.digits]
        self.inner = {i.name: i.range for i in digits if i.bind is Bind.UNROLL}
        self.points = prod(self.inner.values())
        self.rounds = prod(i.range for i in digits if i.bind is Bind.NONE)

    def cycles(self, machine: Machine) -> float:
        """Of all rounds."""
        sizes = list(self._moved())
        path = sum(sizes) * machine.subgroup / PER_TURN
        issued = self.points * op_cost(self.stage) + ACCESS * sum(sizes) / machine.vector.bytes
        return self.rounds * (path + issued / machine.ports.issue)

    def _moved(self) -> Iterator[int]:
        """Bytes of what an item loads and stores in a round; registers hold its sums, and what is the same in all rounds."""
        for use, forms in self._used():
            if not self._is_constant(forms):
                yield prod(map(self._touched, forms)) * self.view.type_of(use.buffer).dtype.bytes * self._apart(use)

    def _apart(self, use: Use) -> int:
        """Times as long that single elements take whose neighbours are other loads of the item: where rows are no whole vectors."""
        type, lanes = self.view.type_of(use.buffer), lanes_of(self.view)
        sizes = (s if t == 1 else t for s, t in zip(type.sizes, type.strides, strict=True))
        near = self.view.is_local(use.buffer) or use.buffer in self.staged
        return lanes if not near and any(n % lanes for n in sizes) else 1

    @property
    def constants(self) -> int:
        """Elements that are the same in all rounds."""
        return sum(prod(map(self._touched, forms)) for _, forms in self._used() if self._is_constant(forms))

    def _used(self) -> Iterator[tuple[Use, list[Affine]]]:
        """What lies in memory, and where in it."""
        for use in (u for u in self.stage.uses if u.buffer not in self.kept):
            yield use, [f.substitute(self.forms) for f in use.forms]

    def _is_constant(self, forms: Sequence[Affine]) -> bool:
        return all(n in self.inner for f in forms for n in f.names)

    def _touched(self, form: Affine) -> int:
        return 1 + sum(abs(form.coefficient(n)) * (self.inner[n] - 1) for n in form.names if n in self.inner)
