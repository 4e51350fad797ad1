"""Factors of teams of sub-groups on their way through registers: rounded, and turned into rows that a team reads.

Teams multiply what lies in local memory, so what is fetched waits in registers for a step, in fragments: an element of
every lane for each point of the loops of the copy. What is outside, or not wanted, is 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tile_ir.dtype import DType
from tile_ir.frozen import replace
from tile_ir.matrix import ROUND, TF32_BITS
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import (
    Bind,
    Direction,
    Fragment,
    Index,
    Instr,
    Layout,
    Refinement,
    TensorType,
    row_major_strides,
)

from tile_opt.kernel.view import Stage, Use, as_forms
from tile_opt.plan.steps.groups.copy import GroupCopy
from tile_opt.plan.steps.groups.fragments import FRAGMENT, LANE, LANE_INDEXES


@dataclass(frozen=True)
class TeamCopy:
    """A step's box of a factor that its copy moves by way of fragments."""

    copy: GroupCopy

    @cached_property
    def _loops(self) -> tuple[Index, ...]:
        """The copy's loops, the last one along a vector if one is."""
        *outer, last = self.copy.plan.loops or (Index("piece", 1),)
        if last.name != self.copy.plan.turned:
            return (*outer, last)
        return (*outer, replace(last, bind=Bind.VECTOR, lanes=last.range))

    @cached_property
    def held(self) -> Refinement:
        """Fragments: a variable of a lane has what it moves along the last loop."""
        *outer, last = self._loops
        whole = last.range if last.bind is Bind.VECTOR else 1
        counts = tuple(i.range for i in (outer if whole > 1 else self._loops))
        sizes = (*counts, *(i.range for i in LANE_INDEXES), whole)
        high, low, element = (Affine.var(f"d{len(counts) + n}") for n in range(3))
        lane = LANE.substitute(dict(zip((i.name for i in LANE_INDEXES), (high, low), strict=True)))
        layout = Layout(row_major_strides(sizes), 16, fragment=Fragment((lane,), (element,)))
        type = TensorType(self.copy.source.dtype, sizes, layout)
        return replace(self.copy.held, type=type, access=(Affine(),) * len(sizes), loc=FRAGMENT)

    def fetch(self) -> Stage:
        """Global memory into fragments, which are 0 where nothing is fetched."""
        ahead = self.copy.ahead(Affine(), LANE_INDEXES)
        source = next(u for u in ahead.uses if u.reads)
        first = {i.name: Affine() for i in self.copy.plan.loops if i.bind is Bind.VECTOR}
        held = self._held("dst", Direction.OUT).substitute(first)
        extent = (*(1 for _ in held.forms[1:]), self.copy.plan.lanes)
        return replace(ahead, name=f"fetch_{self.copy.use.name}", uses=(source, replace(held, extent=extent)))

    def put(self, step: Affine) -> Stage:
        """Fragments into local memory for a step; float32 is rounded to what a team takes of it."""
        put = self.copy.put(step)
        target = next(u for u in put.uses if u.writes)
        uses = (self._held("src", Direction.IN), replace(target, buffer=self.copy.local.into))
        rounded = self.copy.source.dtype is DType.FLOAT32
        loops, where = (*LANE_INDEXES, *self._along_rows()), as_forms(self.copy.plan.constraints)
        stage = Stage.copy(put.name, loops, *uses, where)
        return replace(stage, instr=Instr(ROUND, params=(TF32_BITS,)) if rounded else None)

    def _along_rows(self) -> tuple[Index, ...]:
        """The loops, the last one along rows in local memory."""
        turned = next((i for i in self._loops if i.name == self.copy.plan.turned), None)
        if turned is None:
            return self._loops
        others = (replace(i, bind=Bind.UNROLL, lanes=1) for i in self._loops if i is not turned)
        return (*others, replace(turned, bind=Bind.VECTOR, lanes=turned.range))

    def _held(self, name: str, direction: Direction) -> Use:
        """The lane's fragment at a point of the copy's loops."""
        *outer, last = (Affine.var(i.name) for i in self._loops)
        lanes = (Affine.var(i.name) for i in LANE_INDEXES)
        vector = self._loops[-1].bind is Bind.VECTOR
        forms = (*outer, *lanes, last) if vector else (*outer, last, *lanes, Affine())
        return Use(name, self.copy.held.into, forms, direction)
