"""A chain of stencils whose groups walk along one loop of the result: items keep what is still needed in their registers.

    kernel [grid] {                                 one group per strip of the result
      group [items] {
        windows that are the same for all cells
        rings of what parts hand on
        steps {
          windows; cells of the first part            a sibling per kind of edge
          windows; cells of the next part, as far as what they need is there
          rings move on
        }
      }
    }

A part lags behind the first one by as many rows as its cells need of those after their own. Nothing of a strip is computed
twice, and nobody waits for others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from tile_ir.frozen import frozen, replace
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import (
    STATIC,
    Bind,
    Block,
    Const,
    Direction,
    Index,
    Order,
    Refinement,
    Scope,
    Store,
    Sync,
    TensorType,
    Wait,
)

from tile_opt.kernel.view import KernelView, Stage, Use, as_forms
from tile_opt.kernel.work import MERGING
from tile_opt.plan.builders.group_chain import GroupChain, Made, Part, Place
from tile_opt.plan.plan import Staging
from tile_opt.plan.steps.digits import Digit, Split
from tile_opt.plan.steps.groups.copy import GroupCopy, Items, Limit, Ranges, group_copy
from tile_opt.plan.steps.groups.homes import row_part, sized
from tile_opt.plan.steps.groups.parts import Version, item_kernel
from tile_opt.plan.steps.groups.staging import WIDEST, box_of
from tile_opt.plan.steps.groups.window import Window
from tile_opt.plan.tree import REGISTER, Nest, Node

AROUND = "around"
"""The loop over what a copy has beyond the elements that are needed."""


@frozen
class Ring:
    """The last rows of what a part hands on: those that others still need, and those of the step behind them."""

    alloc: Refinement
    forms: tuple[Affine | None, ...]
    """Subscripts by dimension; None along the walk."""
    first: Affine
    """The row of the box that the ring begins with."""
    kept: int
    """Rows of earlier steps."""

    def use(self, use: Use) -> Use:
        forms = (f - self.first if own is None else own for f, own in zip(use.forms, self.forms, strict=True))
        return replace(use, forms=tuple(forms))


@frozen
class AlignedCopy:
    """The copy of an operand for a step, from the start of a vector on."""

    copy: GroupCopy
    shift: int
    """Elements before those that are needed."""

    def inside(self, use: Use) -> Use:
        """What `use` reads of the copy, which version of it not said."""
        forms = (f.substitute({AROUND: Affine((), self.shift)}) for f in self.copy.box.inside)
        return replace(use, buffer=self.copy.local.into, forms=tuple(forms))


def aligned_copy(
    use: Use, source: TensorType, staging: Staging, loops: tuple[Index, ...], around: Ranges, items: tuple[Index, ...]
) -> AlignedCopy:
    """What `use` touches while `loops` and `items` run, in rows of whole vectors."""
    inner = {i.name: i.range for i in (*items, *loops)}
    box, near = box_of(use.forms, inner), source.strides.index(1)
    lanes = max(1, WIDEST // source.dtype.bytes)
    shift, extent = box.corner[near].const % lanes, box.extents[near]
    more = -(extent + shift) % lanes + shift
    forms = tuple(f + (Affine.var(AROUND) - shift) if d == near else f for d, f in enumerate(use.forms))
    names = {"local": f"{use.buffer}_local", "held": f"{use.buffer}_held"}
    copy = group_copy(use, forms, source, staging, inner | {AROUND: more + 1}, around, Items(items), names)
    return AlignedCopy(copy, shift)


@dataclass(frozen=True)
class WalkingChain(GroupChain):
    """Builds the kernel of a chain (`kernel.item_chain`) along the ordered level of its plan."""

    @cached_property
    def walked(self) -> tuple[str, ...]:
        """The loop along the walk of each part; ValueError where a part has none."""
        covers = {c.loop: c.size for level in self.plan.levels if level.ordered for c in level.covers}
        found = [[n for n in part.cells if n in covers] for part in self.parts]
        plain = [n for part in self.parts for n in part.cells if n not in covers]
        if any(len(names) != 1 for names in found) or len({*covers.values()}) > 1:
            raise ValueError(f"every part of {self.view.name!r} walks along one loop, in steps of as many rows")
        planned = self.planned()
        if any(planned[n].bound(Bind.NONE) for n in plain):
            raise ValueError(f"items of {self.view.name!r} have all that a strip is wide in a step")
        return tuple(names[0] for names in found)

    @cached_property
    def size(self) -> int:
        """Rows of a step."""
        return next(c.size for level in self.plan.levels if level.ordered for c in level.covers)

    @cached_property
    def extents(self) -> tuple[int, ...]:
        """Rows of each part in a strip."""
        ranges = {i.name: i.range for s in self.view.stages for i in s.loops}
        return tuple(ranges[n] for n in self.walked)

    @cached_property
    def step(self) -> Index:
        return Index("step", -(-max(self.extents) // self.size), order=Order.ORDERED)

    def lag(self, part: Part) -> int:
        """Rows by which it is behind the first one."""
        return max(self.extents) - self.extents[self.parts.index(part)]

    @cached_property
    def splits(self) -> dict[str, Split]:
        found = self.planned()
        for part, loop in zip(self.parts, self.walked, strict=True):
            within = tuple(d for d in found[loop].digits if d.index.bind is not Bind.NONE)
            steps = Digit(self.step, self.size, 0)
            found[loop] = replace(found[loop], digits=(steps, *within), start=-self.lag(part))
        return found

    def rounds(self, part: Part) -> tuple[Index, ...]:
        del part
        return ()

    def around(self, part: Part) -> tuple[Index, ...]:
        return (*super().around(part), self.step)

    def in_a_loop(self, stage: Stage, part: Part) -> Stage:
        """Straight-line code at edges, too: no loop subscripts registers."""
        del part
        return stage

    def begun(self, part: Part) -> tuple[Affine, ...]:
        last = Affine.var(self.step.name, self.size) + (self.size - 1 - self.lag(part))
        return () if last.const >= 0 else (last,)

    # --- buffers --------------------------------------------------------------------------------------

    @cached_property
    def seen(self) -> dict[str, list[Part]]:
        """The parts that use each buffer of the kernel's own, the one that makes it first."""
        names = (a.into for a in self.view.allocs)
        return {n: [p for p in self.parts if any(u.buffer == n for s in p.stages for u in s.uses)] for n in names}

    @cached_property
    def private(self) -> dict[str, Part]:
        """All of them are in an item's registers."""
        return {name: parts[0] for name, parts in self.seen.items()}

    @cached_property
    def handed(self) -> tuple[Refinement, ...]:
        """What parts hand on to others."""
        return tuple(a for a in self.view.allocs if len(self.seen[a.into]) > 1)

    def homes(self, part: Part) -> Mapping[str, Place]:
        here = (a for a in self.view.allocs if self.seen[a.into] == [part])
        own: dict[str, Place] = {a.into: row_part(a, self.run(part)) for a in here}
        return own | {a.into: self.ring(a, part) for a in self.handed if part in self.seen[a.into]}

    @cached_property
    def rings(self) -> tuple[Ring, ...]:
        """One per box, as its maker sees it; ValueError where a part would have to see what others have."""
        found = [[self.ring(box, part) for part in self.seen[box.into]] for box in self.handed]
        return tuple(maker for maker, *_ in found)

    def ring(self, box: Refinement, part: Part) -> Ring:
        """The ring of a box as a part sees it; ValueError where others than the item itself would have to see it."""
        maker, *others = self.seen[box.into]
        loop = self.walked[self.parts.index(part)]
        near = {f: n for n in part.cells if n != loop for f in (Affine.var(n),)}
        uses = [u for s in part.stages for u in s.uses if u.buffer == box.into]
        kept = max(map(self.lag, others)) - self.lag(maker)
        forms = tuple(self._own(d, {u.forms[d] for u in uses}, loop, near) for d in range(len(box.type.sizes)))
        sizes = tuple(kept + self.size if f is None else 1 + f.bounds(self._spans(part))[1] for f in forms)
        first = Affine.var(self.step.name, self.size) - (self.lag(maker) + kept)
        return Ring(sized(box, sizes, REGISTER), forms, first, kept)

    def _own(self, dim: int, forms: set[Affine], loop: str, near: Mapping[Affine, str]) -> Affine | None:
        """The subscript of an item's own cells in a dimension of a box."""
        if all(f.coefficient(loop) == 1 for f in forms):
            return None
        (form,) = forms if len(forms) == 1 else (Affine.var(loop),)
        if form.is_const:
            return Affine()
        if form not in near:
            raise ValueError(
                f"items of {self.view.name!r} need cells of others in dimension {dim} of what parts hand on"
            )
        return sum((d.form for d in self.digits((near[form],), *STATIC)), Affine())

    def _spans(self, part: Part) -> dict[str, tuple[int, int]]:
        return {d.index.name: (0, d.index.range - 1) for d in self.run(part)}

    # --- operands in local memory ---------------------------------------------------------------------

    @cached_property
    def ahead(self) -> int:
        """Steps that copies run ahead of the one that is computed."""
        return max((s.versions for s in self.plan.stagings), default=1) - 1

    @cached_property
    def copies(self) -> dict[str, AlignedCopy]:
        """Of the first part's operands that the plan stages, by the name of the use."""
        wanted = {s.operand: s for s in self.plan.stagings}
        stages = [self.over(s, self.parts[0]) for s in self.parts[0].stages]
        found = [(s, u) for s in stages for u in s.uses if u.buffer in wanted and u.reads]
        if sorted(u.buffer for _, u in found) != sorted(wanted.keys() - self.view.writes()):
            raise ValueError(f"the first part of {self.view.name!r} reads every staged operand, once")
        around = {i.name: (0, i.range - 1) for i in (*self.grid, self.step)}
        return {
            u.name: aligned_copy(u, self.view.type_of(u.buffer), wanted[u.buffer], s.loops, around, self.items)
            for s, u in found
        }

    @cached_property
    def outside(self) -> KernelView:
        """Copies in local memory are memory, too."""
        found = super().outside
        return replace(found, refs=(*found.refs, *self._local))

    @property
    def local_bytes(self) -> int:
        """Of a group's memory."""
        return sum(r.type.nbytes * r.versions for r in self._local)

    @property
    def _local(self) -> tuple[Refinement, ...]:
        """Copies of operands and of results."""
        return (*(c.copy.local for c in self.copies.values()), *(c.local for c in self.results.values()))

    def placed(self, stage: Stage, part: Part) -> Stage:
        copies = self.copies if part is self.parts[0] else {}
        return stage.map_uses(lambda u: copies[u.name].inside(u) if u.name in copies else self._given(u))

    def _given(self, use: Use) -> Use:
        copy = self.results.get(use.buffer)
        return use if copy is None else replace(use, buffer=copy.local.into, forms=as_forms(copy.inside(Affine())))

    @cached_property
    def results(self) -> dict[str, GroupCopy]:
        """Of results that meet in local memory first, by the buffer."""
        last, staged = self.parts[-1], {s.operand: s for s in self.plan.stagings}
        around = {i.name: (0, i.range - 1) for i in (*self.grid, self.step)}
        found: dict[str, GroupCopy] = {}
        for stage in last.stages:
            for plain, use in zip(stage.uses, self.over(stage, last).uses, strict=True):
                if use.writes and use.buffer in staged:
                    self._check_result(stage, plain)
                    inner = {i.name: i.range for i in (*self.items, *(d.index for d in self.run(last)))}
                    names = {"local": f"{use.buffer}_local", "held": f"{use.buffer}_held"}
                    found[use.buffer] = group_copy(
                        use, use.forms, self.view.type_of(use.buffer), staged[use.buffer], inner, around,
                        Items(self.items), names, tuple(self._of_strip(plain)),
                    )  # fmt: skip
        return found

    def _check_result(self, stage: Stage, use: Use) -> None:
        """ValueError unless the stage stores every cell that lies inside of the result, in one place."""
        sizes = self.view.type_of(use.buffer).sizes
        ends = {c for f, s in zip(use.forms, sizes, strict=True) for c in (f, f * -1 + (s - 1))}
        alone = sum(u.buffer == use.buffer for u in self.view.uses) == 1
        if not alone or use.reads or use.agg in MERGING or not {*stage.constraints} <= ends:
            raise ValueError(f"results of {stage.name!r} do not meet in local memory: it does not just store them")

    def _of_strip(self, use: Use) -> Iterator[Limit]:
        """The rows of a result that are the strip's own; `use` over loops."""
        loop = self.walked[-1]
        dim = next(d for d, f in enumerate(use.forms) if loop in f.names)
        tile = {n: s.form for n, s in self.splits.items() if n in self.shared}
        first = (use.forms[dim] - Affine.var(loop)).substitute(tile)
        yield Limit(dim, 1, first * -1)
        yield Limit(dim, -1, first + (self.extents[-1] - 1))

    def is_met(self, constraint: Affine, stage: Stage, part: Part) -> bool:
        return super().is_met(constraint, stage, part) or any(u.writes and u.buffer in self.results for u in stage.uses)

    def _stored(self) -> Iterator[Node]:
        """The step's results, neighbours side by side."""
        if self.results:
            yield Sync(Scope.GROUP)
            gives = tuple(c.give() for c in self.results.values())
            yield Nest("give_results", (), gives, guard=self.begun(self.parts[-1]))

    def windows(self, stage: Stage) -> Iterator[tuple[Use, Window]]:
        staged = {c.copy.local.into for c in self.copies.values()}
        now = (Affine.var(self.step.name),)
        for use, found in super().windows(stage):
            yield use, replace(found, version=now) if use.buffer in staged else found

    def started(self, at: Affine) -> Iterator[Stage]:
        """The copies for the step `at`."""
        step = Affine.var(self.step.name)
        for c in self.copies.values():
            yield c.copy.ahead(step, ()).substitute({self.step.name: at})

    def _before(self) -> Iterator[Node]:
        """Copies that are under way before the first step: a wait closes the batch before it."""
        for number in range(self.ahead if self.copies else 0):
            yield from (Wait(0, self.ahead - 1),) if number else ()
            yield Nest(f"copy_step_{number}", (), tuple(self.started(Affine((), number))))

    def _arrived(self) -> Iterator[Node]:
        """The step's operands are there for all items, and later ones under way."""
        if self.copies:
            yield from (Wait(0, self.ahead - 1), Sync(Scope.GROUP))
            left = Affine.var(self.step.name, -1) + (self.step.range - 1 - self.ahead)
            yield Nest("copy_ahead", (), tuple(self.started(Affine.var(self.step.name) + self.ahead)), guard=(left,))

    # --- the kernel -----------------------------------------------------------------------------------

    def build(self) -> Block:
        assert self.count
        made = Made(self)
        parts = [node for part in self.parts for node in made.nodes(part)]
        carried = [ring for ring in self.rings if ring.kept]
        steps = Nest(
            f"{self.view.name}_steps",
            (self.step,),
            (*self._arrived(), *parts, *self._stored(), *map(_moved_on, carried)),
        )
        whole = (*made.before, *map(_empty, carried), *self._before(), steps)
        handed = {a.into for a in self.handed}
        own = (a for a in self.registers if a.into not in handed)
        items = tuple(replace(i, axis=0) for i in self.items)
        allocs = (*(r.alloc for r in self.rings), *own, *made.held, *self._local)
        return item_kernel(self.view, self.grid, items, [Version(whole)], allocs)


def _rows(ring: Ring, name: str) -> tuple[tuple[Index, ...], tuple[Affine, ...]]:
    """Loops over the rows of a ring that are kept, and the subscripts there."""
    walk = ring.forms.index(None)
    sizes = (ring.kept if d == walk else n for d, n in enumerate(ring.alloc.type.sizes))
    loops = tuple(Index(f"{name}_{d}", n, bind=Bind.UNROLL) for d, n in enumerate(sizes))
    ordered = sorted(loops, key=lambda i: i is not loops[walk])
    return tuple(i for i in ordered if i.range > 1), tuple(
        Affine.var(i.name) if i.range > 1 else Affine() for i in loops
    )


def _empty(ring: Ring) -> Stage:
    """Rows before the first are nobody's, but they are there."""
    name, dtype = f"{ring.alloc.into}_empty", ring.alloc.type.dtype
    loops, at = _rows(ring, name)
    body = (Const("$x", 0, dtype), Store("dst", "$x"))
    return Stage(name, loops, (), (Use("dst", ring.alloc.into, at, Direction.OUT),), body)


def _moved_on(ring: Ring) -> Stage:
    """The last rows become the first: by the step, in this order."""
    name, walk = f"{ring.alloc.into}_moved_on", ring.forms.index(None)
    loops, at = _rows(ring, name)
    later = tuple(f + (ring.alloc.type.sizes[walk] - ring.kept) if d == walk else f for d, f in enumerate(at))
    ends = Use("src", ring.alloc.into, later, Direction.IN), Use("dst", ring.alloc.into, at, Direction.OUT)
    return Stage.copy(name, loops, *ends)
