"""A kernel's iterations dealt out to groups and items, as a plan says.

Every stage becomes a nest of its own inside the item's block. What iterations of the shared loops keep to themselves
stays in registers of the item that has them; a row that other items read lies in the group's memory, behind barriers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod

from tile_ir.frozen import replace
from tile_ir.names import claim
from tile_ir.stripe.affine import Affine, names_in
from tile_ir.stripe.nodes import ITEMS, STATIC, Bind, Block, Direction, Index, Order, Refinement, Scope, Sync, number_of

from tile_opt.kernel.unify import is_atomic, is_indirect
from tile_opt.kernel.view import KernelView, Stage, Use
from tile_opt.kernel.work import merged_use
from tile_opt.plan.plan import Plan
from tile_opt.plan.steps.digits import Digit, Split, lanes_agree, split
from tile_opt.plan.steps.groups.combine import Total, identities
from tile_opt.plan.steps.groups.homes import Home, at_home, in_group, is_plain, keeps_apart, private, row_part, sized
from tile_opt.plan.steps.groups.parts import (
    DEVICE_MEMORY,
    inner_and_edges,
    item_kernel,
    same_cell,
    synchronised,
)
from tile_opt.plan.steps.groups.pieces import in_pieces, row_operands
from tile_opt.plan.tree import ARRAY, REGISTER, Nest, Node, Straight, spans

INSIDE = (Bind.NONE, *STATIC)
MOST_CELLS = 64
"""Partial results of an item, each with code of its own."""
_FENCES = {
    frozenset[bool](): "local", frozenset({False}): "local", frozenset({True}): "global", frozenset({False, True}): "all",
}  # fmt: skip
"""What barriers make visible, by whether what items share lies in the device's memory."""


class Spread:
    """Builds the scheduled kernel of a view whose own loops are named alike (`plan.steps.alike`)."""

    def __init__(self, view: KernelView, plan: Plan, local_bytes: int) -> None:
        self.view = view
        self.local_bytes = local_bytes
        """What a group's memory holds; a longer row lies in the device's."""
        self.loops = {i.name: i for i in (*view.loops, *(i for s in view.stages for i in s.loops))}
        self.splits = {name: split(plan, loop) for name, loop in self.loops.items()}
        self.own = tuple(n for n in self.loops if n not in {i.name for i in view.loops})
        self.grid = self._ordered(plan, Bind.GRID)
        items = self._ordered(plan, *ITEMS)
        self.items = tuple(replace(i, bind=Bind.GROUP) for i in items)
        self.inner = tuple(d for i in view.loops for d in self.splits[i.name].bound(*INSIDE))
        """What each item does of the shared loops, in every stage."""
        self.staged = {s.operand for s in plan.stagings if s.unit == "LOCAL"}
        self.runs = _runs(view, {k: self._steps(k) for k in range(len(view.stages))}, self._divided)
        self.apart: set[str] = set()
        """What one item makes and all use."""
        self.homes: dict[str, Home] = {}
        while more := self._place():
            self.apart |= more
        self.taken = view.buffers

    def _ordered(self, plan: Plan, *binds: Bind) -> tuple[Index, ...]:
        """The loops bound so, in the order in which the plan names them."""
        named = [c.loop for level in plan.levels if level.bind in binds for c in level.covers]
        names = [n for n in dict.fromkeys((*named, *self.loops)) if n in self.splits]
        return tuple(d.index for n in names for d in self.splits[n].bound(*binds))

    # --- buffers of the kernel's own ---------------------------------------------------------------

    def spread(self, loop: str) -> bool:
        """Items share the iterations of this own loop."""
        return loop in self.own and any(d.index.bind not in INSIDE for d in self.splits[loop].digits)

    def _place(self) -> set[str]:
        """Give every buffer a home; those that one item would make for itself, though others use them."""
        self.homes = {a.into: self._home(a) for a in self.view.allocs}
        return {n for n, home in self.homes.items() if not home.shared and self._is_apart(n)}

    def _is_apart(self, buffer: str) -> bool:
        """A stage that one item does alone makes it, and others use it."""
        users = [(u, self._alone(s)) for s in self.view.stages for u in s.uses if u.buffer == buffer]
        makers = {alone for u, alone in users if u.writes}
        return any(makers) and len({alone for _, alone in users}) > 1

    def _home(self, alloc: Refinement) -> Home:
        users = self.view.users(alloc.into)
        apart = alloc.into in self.apart or any(self._anywhere(s, u) for s, u in users)
        if not apart and not any(self.spread(n) for _, u in users for f in u.forms for n in f.names):
            return private(alloc, self.inner)
        if apart or not is_plain(users):
            items = [d for i in self.view.loops for d in self.splits[i.name].bound(*ITEMS)]
            side_by_side = any(d.index.name == self.items[-1].name for d in items)
            return in_group(alloc, (*items, *self.inner), self.local_bytes, side_by_side)
        names = dict.fromkeys(n for f in users[0][1].forms for n in f.names)
        stages = {k for k, s in enumerate(self.view.stages) if any(u.buffer == alloc.into for u in s.uses)}
        steps = self._steps_around(stages)
        own = tuple(d for n in names for d in self._inside(n) if d.index not in steps)
        return row_part(alloc, (*own, *self.inner))

    def _anywhere(self, stage: Stage, use: Use) -> bool:
        """Items that share the stage store where data say, which may be what others read."""
        return use.writes and is_indirect(stage, use) and any(map(self.spread, stage.loop_names))

    def _inside(self, loop: str) -> tuple[Digit, ...]:
        return self.splits[loop].bound(*INSIDE) if loop in self.own else ()

    def _steps_around(self, stages: set[int]) -> tuple[Index, ...]:
        """The steps that an item takes with all of `stages` together."""
        return next((self._steps(min(run)) for run in self.runs if stages <= set(run)), ())

    def _steps(self, stage: int) -> tuple[Index, ...]:
        """Serial loops over a stage's share of the rows."""
        loops = [n for n in self.view.stages[stage].loop_names if self.spread(n)]
        return tuple(d.index for n in loops for d in self.splits[n].bound(Bind.NONE))

    # --- stages -------------------------------------------------------------------------------------

    def build(self) -> Block:
        """The scheduled kernel; ValueError for a plan that cannot be built."""
        self._check_tails()
        self._check_order()
        self._check_grid()
        self._check_apart()
        parts, more = self._all_parts()
        allocs = (*(h.alloc for h in self.homes.values()), *more)
        shared = [h.alloc for h in self.homes.values() if h.shared]
        fence = _FENCES[frozenset(a.loc == DEVICE_MEMORY for a in shared)]
        names = {a.into for a in shared}
        parts = synchronised(parts, names, {n for n in names if self._is_apart(n)}, Sync(Scope.GROUP, fence))
        if not any(isinstance(p, (Straight, Sync)) for p in parts):
            parts += self._tails()
        versions = inner_and_edges(parts, (*self.grid, *self.items), {i.name for i in self.grid})
        return item_kernel(self.view, self.grid, self.items, versions, allocs)

    def _check_apart(self) -> None:
        spread = {n for n in self.own if self.spread(n)}
        for buffer in self.view.writes() - self.homes.keys():
            if not keeps_apart(self.view.users(buffer), spread):
                raise ValueError(
                    f"items share {sorted(spread)[0]!r}: each would meet what another one stores to {buffer!r}"
                )

    def _check_order(self) -> None:
        """Serial steps run around what is unrolled: a loop with an order cannot be cut the other way round."""
        for name, loop in self.loops.items():
            form = self.splits[name].form
            steps = [form.coefficient(i.name) for i in _nested(self.splits[name].bound(*INSIDE))]
            if loop.order is Order.ORDERED and steps != sorted(steps, reverse=True):
                raise ValueError(f"the iterations of {name!r} have an order: unroll no more than the last of its steps")

    def _check_grid(self) -> None:
        """Every group runs all stages: what has no part in a loop on the grid would be done by each of them."""
        for name in self.own:
            shared = any(d.index.range > 1 for d in self.splits[name].bound(Bind.GRID))
            if shared and any(name not in s.loop_names for s in self.view.stages):
                raise ValueError(f"the grid runs whole kernels, and not all stages have {name!r}")

    def _all_parts(self) -> tuple[list[Node], list[Refinement]]:
        parts: list[Node] = []
        allocs: list[Refinement] = []
        for run in self.runs:
            made = [self._parts(self.view.stages[k]) for k in run]
            whole = [p for some, _ in made for p in some]
            around = (*self.grid, *self.items)
            alone = [q for p in whole for q in whole_steps(p, around)] if len(run) == 1 else []
            parts += alone or [_together(whole, self._steps(run[0]))]
            allocs += [a for _, some in made for a in some]
        return parts, allocs

    def _check_tails(self) -> None:
        """What is less than a vector at the end of a row has no cells of its own in what an item keeps of the row."""
        moved = {n for u in self.view.uses if self._is_kept(u) for f in u.forms for n in f.names}
        for loop in self.own:
            if loop in moved and self.splits[loop].tail() is not None:
                raise ValueError(f"items keep a row along {loop!r}: let whole vectors divide it")

    def _is_kept(self, use: Use) -> bool:
        return use.buffer in self.homes and not self.homes[use.buffer].shared

    def _divided(self, stage: Stage) -> bool:
        """Items combine what they make of this stage."""
        return bool(self._reduced(stage, merged_use(stage)))

    def _tails(self) -> list[Node]:
        """What is left of shared loops that whole vectors do not divide."""
        tails = [t for i in self.view.loops if (t := self.splits[i.name].tail()) is not None]
        return [self._moved(s, tail) for tail in tails for s in self.view.stages]

    def _parts(self, stage: Stage) -> tuple[list[Node], list[Refinement]]:
        whole = merged_use(stage)
        over = self._reduced(stage, whole)
        pieces = [self._moved(stage, t) for n in stage.loop_names if (t := self.splits[n].tail()) is not None]
        pieces = [self._moved(stage), *pieces]
        if whole is None or not over:
            return [*pieces], []
        assert whole.agg is not None
        if self.homes[whole.buffer].shared:
            raise ValueError(f"items that share the sums of {stage.name!r} would all merge into the same cells")
        digits = self._cells(stage, whole)
        partial = self._partial(stage, whole, digits)
        into = replace(whole, buffer=partial.into, forms=tuple(Affine.var(d.index.name) for d in digits) or (Affine(),))
        start = identities(f"{stage.name}_start", partial, whole.agg, tuple(d.index for d in digits))
        merging = [p.map_uses(lambda use: into if use.name == into.name else use) for p in pieces]
        dims = tuple(d.index.name for d in digits)
        home = self.homes[whole.buffer]
        cell = tuple(f.substitute(self._forms(stage)) for f in home.use(whole).forms)
        names = tuple(i.name for i in over)
        total = Total(partial, dims, whole.buffer, cell, home.alloc.type.sizes, whole.agg, names).straight()
        operands = frozenset(u.name for u in row_operands(self.view, stage, self.own) if u.buffer in self.staged)
        if not operands:
            return [start, *merging, total], [partial]
        steps, pieces = self._in_pieces(stage, merging[0], operands)
        return [start, steps, total], [partial, *pieces]

    def _in_pieces(self, stage: Stage, merging: Stage, operands: frozenset[str]) -> tuple[Nest, list[Refinement]]:
        """An element lies where its item and lane say."""
        own = [d for n in stage.loop_names for d in self.splits[n].digits]
        lanes = next((d.index for d in own if d.index.bind is Bind.VECTOR), None)
        inner = (*self.items, lanes) if lanes else self.items
        place, step = number_of(inner), prod(i.range for i in inner)
        alone = {i.name for i in self.items} <= {d.index.name for d in own}
        size = min(step, prod(self.loops[n].range for n in stage.loop_names)) if alone else step
        return in_pieces(self.view, merging, operands, frozenset(d.index.name for d in own), place, size, self.taken)

    def _cells(self, stage: Stage, merged: Use) -> tuple[Digit, ...]:
        """What an item has a partial result for each of: its shared iterations, and those of own loops that are not summed."""
        moved = names_in(merged.forms)
        kept = [d for n in stage.loop_names if n in moved for d in self._inside(n)]
        digits = sorted((*kept, *self.inner), key=lambda d: d.index.bind is Bind.VECTOR)
        if prod(d.index.range for d in digits) > MOST_CELLS:
            raise ValueError(f"each item of {stage.name!r} would keep more than {MOST_CELLS} partial results")
        return tuple(digits)

    def _forms(self, stage: Stage) -> dict[str, Affine]:
        """The loops of a stage, as forms of their digits."""
        names = (*(i.name for i in self.view.loops), *stage.loop_names)
        return {n: self.splits[n].form for n in names}

    def _partial(self, stage: Stage, merged: Use, digits: tuple[Digit, ...]) -> Refinement:
        """Registers for an item's partial result of each of its shared iterations."""
        name = claim(f"{merged.buffer}_partial", self.taken)
        alloc = Refinement(Direction.ALLOC, name, "", (), self.view.type_of(merged.buffer))
        static = all(d.index.bind in STATIC for d in digits)
        return sized(alloc, tuple(d.index.range for d in digits) or (1,), REGISTER if static else ARRAY)

    def _reduced(self, stage: Stage, merged: Use | None) -> tuple[Index, ...]:
        """Items' indexes of the own loops that what `stage` merges into does not move with; none where all merge at once."""
        if merged is None or is_atomic(stage, merged):
            return ()
        kept = names_in(merged.forms)
        loops = {n for n in stage.loop_names if n not in kept and self.spread(n)}
        names = {d.index.name for n in loops for d in self.splits[n].digits}
        return tuple(i for i in self.items if i.name in names)

    def _moved(self, stage: Stage, tail: Split | None = None) -> Stage:
        """`stage` over the digits of its loops; of one of them, when a `tail` is given, over that alone."""
        names = (*(i.name for i in self.view.loops), *stage.loop_names)
        splits = [tail if tail is not None and n == tail.loop else self.splits[n] for n in names]
        digits = [d for s in reversed(splits) for d in s.bound(*INSIDE)]
        moved = replace(at_home(stage, self.homes), loops=_nested(digits), constraints=())
        moved = moved.substitute({s.loop: s.form for s in splits} | self._gone(stage, digits))
        kept = tuple(_of_all_lanes(c, splits) for c in stage.constraints)
        limits = () if self._starts(stage) else tuple(c for s in splits if s is not tail for c in s.inside())
        alone = () if tail is None else self.splits[tail.loop].first()
        return replace(moved, constraints=(*kept, *limits, *alone, *self._alone(stage)))

    def _starts(self, stage: Stage) -> bool:
        """It only starts what each item has for itself: items beyond the edges may do so, too, and then combine something."""
        own = all(self._is_kept(u) and self._has_all_cells(u) for u in stage.uses)
        return own and not stage.constraints and not any(u.reads for u in stage.uses)

    def _has_all_cells(self, use: Use) -> bool:
        """What an item keeps has a cell for each of its iterations, those beyond the ends of loops among them."""
        ragged = any(self.splits[n].ragged for f in use.forms for n in f.names)
        return self.homes[use.buffer].rows or not ragged

    def _gone(self, stage: Stage, digits: list[Digit]) -> dict[str, Affine]:
        """Digits that a tail does without: the cells of the first ones are used."""
        known = {d.index.name for d in digits}
        names = (*(i.name for i in self.view.loops), *stage.loop_names)
        return {d.index.name: Affine() for n in names for d in self._all_inside(n) if d.index.name not in known}

    def _all_inside(self, loop: str) -> tuple[Digit, ...]:
        return self.splits[loop].bound(*INSIDE)

    def _alone(self, stage: Stage) -> tuple[Affine, ...]:
        """One item does what the others, which differ in loops that `stage` does not have, would repeat."""
        seen = any(u.writes and not self._is_kept(u) for u in stage.uses)
        idle = [
            d
            for n in self.own
            if n not in stage.loop_names
            for d in self.splits[n].digits
            if d.index.bind not in INSIDE and d.index.name in {i.name for i in self.items}
        ]
        if not (seen and idle):
            return ()
        if any(u.writes and self._is_kept(u) for u in stage.uses):
            raise ValueError(f"one item would store some of what {stage.name!r} makes, and every item needs the rest")
        return (sum((Affine.var(d.index.name, -1) for d in idle), Affine()),)


def _nested(digits: Sequence[Digit]) -> tuple[Index, ...]:
    """Serial loops outermost, lanes innermost, so that what is unrolled is straight-line code."""
    return tuple(d.index for bind in INSIDE for d in digits if d.index.bind is bind)


def _of_all_lanes(constraint: Affine, splits: Sequence[Split]) -> Affine:
    """The constraint over the digits of the loops; of one lane, where all agree."""
    lanes = {
        d.index.name: Affine()
        for s in splits
        for d in s.bound(Bind.VECTOR)
        if lanes_agree(constraint, s.loop, d.index.range)
    }
    return constraint.substitute({s.loop: s.form for s in splits}).substitute(lanes)


def _together(parts: Sequence[Node], steps: tuple[Index, ...]) -> Nest:
    stages = [p for p in parts if isinstance(p, Stage)]
    inner = tuple(replace(s, loops=tuple(i for i in s.loops if i not in steps)) for s in stages)
    return Nest(f"{stages[-1].name}_steps", steps, inner)


def _runs(
    view: KernelView, steps: Mapping[int, tuple[Index, ...]], divided: Callable[[Stage], bool]
) -> list[tuple[int, ...]]:
    """Neighbouring stages that take the same steps, each with what the ones before made in the same step."""
    runs: list[tuple[int, ...]] = []
    for k, stage in enumerate(view.stages):
        run = runs[-1] if runs and steps[k] and steps[k] == steps[k - 1] else ()
        if run and not divided(stage) and not divided(view.stages[k - 1]) and _follows(view, run, stage):
            runs[-1] = (*run, k)
        elif run and not divided(stage) and _belongs(view, run, stage):
            runs[-1:] = [run[:-1], (run[-1], k)]
        else:
            runs.append((k,))
    return runs


def _belongs(view: KernelView, run: tuple[int, ...], stage: Stage) -> bool:
    """The last stage of the run starts what `stage` goes on with, and has nothing to do with the stages before it."""
    start = view.stages[run[-1]]
    made = {u.buffer for u in start.uses}
    alone = not any(made & {u.buffer for u in view.stages[k].uses} for k in run[:-1])
    return len(run) > 1 and alone and bool(made & {u.buffer for u in stage.uses}) and _follows(view, run[-1:], stage)


def _follows(view: KernelView, run: tuple[int, ...], stage: Stage) -> bool:
    """What passes between the stages, passes within a step."""
    for use in stage.uses:
        others = [(s, u) for s in (view.stages[k] for k in run) for u in s.uses if u.buffer == use.buffer]
        if any((u.writes or use.writes) and not same_cell((s, u), (stage, use)) for s, u in others):
            return False
    return True


LEAST = 2
"""Whole steps that are worth code of their own."""


def whole_steps(node: Node, around: Iterable[Index]) -> list[Node]:
    """The stage over its whole steps without what they meet anyway, then over the others; `around` are the loops around it.

    Items that ask at every access whether it lies inside load one element after the other; in whole steps loads start together.
    The stage as it is where its outermost loop is not one of steps, or where these are few.
    """
    serial = node.loops[0] if isinstance(node, Stage) and node.loops else None
    if not isinstance(node, Stage) or serial is None or serial.bind is not Bind.NONE:
        return [node]
    bounding = [c for c in node.constraints if c.coefficient(serial.name) < 0]
    ranges = spans((*around, *node.loops))
    count = min((_met(c, serial.name, ranges) for c in bounding), default=serial.range)
    if not LEAST <= count < serial.range:
        return [node]
    rest = serial.range - count
    left = Affine.var(serial.name) + count if rest > 1 else Affine((), count)
    loops = (replace(serial, range=rest), *node.loops[1:]) if rest > 1 else node.loops[1:]
    inside = tuple(c for c in node.constraints if c not in bounding)
    whole = replace(node, loops=(replace(serial, range=count), *node.loops[1:]), constraints=inside)
    return [whole, replace(replace(node, loops=()).substitute({serial.name: left}), loops=loops)]


def _met(constraint: Affine, step: str, ranges: dict[str, tuple[int, int]]) -> int:
    """The first steps, of which all meet the constraint whatever the other loops are at."""
    each = -constraint.coefficient(step)
    least = (constraint + Affine.var(step, each)).bounds(ranges)[0]
    return least // each + 1 if least >= 0 else 0
