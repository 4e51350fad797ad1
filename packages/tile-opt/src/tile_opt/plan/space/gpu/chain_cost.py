"""The time of a chain of stencils whose groups hold in local memory what its parts hand on: a closed formula.

Items hold windows around their cells. Of a sub-group, instructions that start and the path to local memory and the first
cache take their time one after the other, as measured: loads come in bursts, between which nothing is left to load.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from tile_ir.machine import Machine
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Bind
from tile_ir.target import Target

from tile_opt.kernel.item_chain import REGISTERS
from tile_opt.kernel.view import KernelView, Stage, Use
from tile_opt.kernel.work import op_cost
from tile_opt.model.coalescing import PER_TURN
from tile_opt.plan.builders.group_chain import GroupChain
from tile_opt.plan.plan import Plan
from tile_opt.plan.space.gpu.chain import lanes_of, shared_plan
from tile_opt.plan.steps.digits import split

ACCESS = 2.0
"""Instructions around a load or a store, with itself."""
BODY = 1400
"""Points of an item's straight-line code: of each stage where groups share boxes, of all stages where items have their own."""
CONSTANTS = 64
"""Elements of what is the same in all rounds, which registers hold."""


def shared_cycles(view: KernelView, target: Target) -> float | None:
    """Cycles of a multiprocessor for a tile of a chain that `shared_plan` deals out; None where it cannot."""
    if any(u.extent for u in view.uses):
        return None
    try:
        plan = shared_plan(view, target)
        items = GroupChain(view, plan).count
    except (ValueError, StopIteration):
        return None
    stages = [_Counted(view, stage, plan) for stage in view.stages]
    if max(s.points for s in stages) > BODY or max(s.constants for s in stages) > CONSTANTS:
        return None
    return -(-items // target.machine.subgroup) * sum(s.cycles(target.machine) for s in stages)


class _Counted:
    """One stage, as the plan deals it out."""

    def __init__(self, view: KernelView, stage: Stage, plan: Plan) -> None:
        self.view, self.stage = view, stage
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
        return lanes if not self.view.is_local(use.buffer) and any(n % lanes for n in sizes) else 1

    @property
    def constants(self) -> int:
        """Elements that are the same in all rounds."""
        return sum(prod(map(self._touched, forms)) for _, forms in self._used() if self._is_constant(forms))

    def _used(self) -> Iterator[tuple[Use, list[Affine]]]:
        """What lies in memory, and where in it."""
        kept = {a.into for a in self.view.allocs if a.loc == REGISTERS}
        for use in (u for u in self.stage.uses if u.buffer not in kept):
            yield use, [f.substitute(self.forms) for f in use.forms]

    def _is_constant(self, forms: Sequence[Affine]) -> bool:
        return all(n in self.inner for f in forms for n in f.names)

    def _touched(self, form: Affine) -> int:
        return 1 + sum(abs(form.coefficient(n)) * (self.inner[n] - 1) for n in form.names if n in self.inner)
