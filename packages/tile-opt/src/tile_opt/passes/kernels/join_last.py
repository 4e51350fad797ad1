"""The second kernel of a split reduction, fused into the first: the last work group to finish combines the partial results.

A kernel costs microseconds to begin, however little it does. Whichever group of the one before it arrives last may do its
work instead, where one group is enough for it and the device can count groups (the node `LastGroup`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from tile_ir.diagnostics import TileError
from tile_ir.frozen import frozen, replace
from tile_ir.semtree.nodes import MOST_COUNTS
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Bind, Block, Statement
from tile_ir.stripe.walk import buffers_named, buffers_read, buffers_written
from tile_ir.target import Target

from tile_opt.blocks.buffers import fixed_kernels, in_the_way, wholes
from tile_opt.blocks.tree import main_of, with_kernels
from tile_opt.kernel.item_chain import ITEMS
from tile_opt.kernel.view import KernelView
from tile_opt.kernel.work import nbytes
from tile_opt.model.estimate import estimate
from tile_opt.passes.scheduling import Decision, Scheduled, SchedulingPass
from tile_opt.plan.plan import Plan
from tile_opt.plan.space.gpu import rows as gpu_rows
from tile_opt.plan.steps.groups.last_group import grid, group_size, last_group, waits_for_all

NODE = "LastGroup"
MOST_BYTES = 1 << 17
"""Of all that a last group reads and writes."""


def join_last(found: Scheduled, scheduler: SchedulingPass, target: Target, given: Mapping[str, Plan]) -> Scheduled:
    """The scheduled program with every kernel that the last group of another had better do."""
    if NODE not in target.nodes:
        return found
    run = _Join(found, scheduler, target, given)
    for number in range(len(run.kernels)):
        run.join(number)
    kept = tuple(k for k in run.kernels if k is not None)
    if len(kept) == len(run.kernels):
        return found
    return replace(found, program=with_kernels(found.program, kept), decisions=run.decisions)


class _Join:
    def __init__(self, found: Scheduled, scheduler: SchedulingPass, target: Target, given: Mapping[str, Plan]) -> None:
        self.scheduler, self.target, self.given = scheduler, target, given
        self.kernels: list[Statement | None] = list(main_of(found.program).body)
        """None where one has become part of another."""
        self.wholes = wholes(found.program)
        self.decisions = dict(found.decisions)
        self.fixed = fixed_kernels(found.program)

    def join(self, number: int) -> None:
        """Kernel `number` with the one that makes what it reads."""
        then = self.kernels[number]
        decision = self._open(then) if isinstance(then, Block) else None
        if not isinstance(then, Block) or decision is None:
            return
        first = self._maker(number, then)
        if first is None:
            return
        maker = self.kernels[first]
        assert isinstance(maker, Block)
        made = min(self._joined(maker, then, decision), key=lambda m: m[0], default=None)
        if made is not None:
            _, block, plan = made
            self.kernels[first], self.kernels[number] = None, block
            self.decisions[then.name] = replace(decision, plan=plan, within=maker.name)

    def _open(self, then: Block) -> Decision | None:
        """What this pass may decide of a kernel; None where others did, and for chains: no group of rows does one part after another."""
        decision = self.decisions.get(then.name)
        taken = decision is None or decision.within or then.name in self.given or ITEMS in decision.view.tags
        return None if taken else decision

    def _maker(self, number: int, then: Block) -> int | None:
        """The last kernel before it that writes what it reads, where that may run as late and has no last group yet."""
        wanted = {*buffers_read(then)}
        for first in reversed(range(number)):
            kernel = self.kernels[first]
            if not isinstance(kernel, Block) or not wanted & {*buffers_written(kernel)}:
                continue
            reads, writes = frozenset(buffers_named(kernel)), frozenset(buffers_written(kernel))
            late = not in_the_way(self.kernels[first + 1 : number], reads, writes, self.wholes)
            alike = (first in self.fixed) == (number in self.fixed)
            return first if late and alike and kernel.indexes and waits_for_all(kernel) is None else None
        return None

    def _joined(self, maker: Block, then: Block, decision: Decision) -> Iterator[tuple[float, Block, Plan]]:
        """Both as one kernel, where that takes less time: the last group of all, or of each tile."""
        size = group_size(maker)
        if size[1:] != (1, 1):
            return
        separate = estimate(maker, self.target).seconds + estimate(then, self.target).seconds
        for tiles in ({}, self._tiles(maker, decision)):
            count = prod(grid(maker)[t.index] for t in tiles.values())
            bytes_ = sum(nbytes(r.type) for r in then.refs if r.source)
            if bytes_ > MOST_BYTES * count or count > MOST_COUNTS or prod(grid(maker).values()) < 2 * count:
                continue
            plan = gpu_rows.plan_of_group(decision.view, self.target, size[0], {n: t.size for n, t in tiles.items()})
            built = None if plan is None else self._built(decision, plan)
            names = {f"{n}_g": t.index for n, t in tiles.items()}
            if plan is None or built is None or group_size(built) != size:
                continue
            if grid(built) == {n: grid(maker)[i] for n, i in names.items()}:
                block = last_group(maker, built, names)
                seconds = estimate(block, self.target).seconds
                if seconds < separate:
                    yield seconds, block, plan

    def _built(self, decision: Decision, plan: Plan) -> Block | None:
        try:
            built = self.scheduler.build(decision.view, plan, self.target)
        except TileError:
            return None
        return built.kernel if built.alone else None

    def _tiles(self, maker: Block, decision: Decision) -> dict[str, _Tile]:
        """The shared loops of the second kernel whose cells a group of the first makes alone, but for its chunks."""
        made = self.decisions.get(maker.name)
        if made is None:
            return {}
        covers = {c.loop: c.size for level in made.plan.bound(Bind.GRID) for c in level.covers}
        pairs = _pairs(made.view, decision.view)
        return {
            reader: _Tile(f"{loop}_g", covers[loop])
            for reader, loop in pairs.items()
            if loop in covers and grid(maker).get(f"{loop}_g", 1) > 1
        }


@frozen
class _Tile:
    """A loop over the grid, and how many iterations of what it is cut from a group has."""

    index: str
    size: int


def _pairs(maker: KernelView, reader: KernelView) -> dict[str, str]:
    """Shared loops of the reader -> those of the maker, by how both subscript all that passes between them."""
    sources = {r.into: r.source for r in (*maker.refs, *reader.refs)}
    written = {sources[u.buffer]: u for u in maker.uses if u.writes and u.buffer in sources}
    found: dict[str, set[str]] = {}
    for use in (u for u in reader.uses if u.reads and sources.get(u.buffer, "") in written):
        theirs = dict(zip(use.forms, written[sources[use.buffer]].forms, strict=True))
        for loop in reader.loops:
            form = theirs.get(Affine.var(loop.name), Affine())
            plain = len(form.names) == 1 and form == Affine.var(form.names[0])
            found.setdefault(loop.name, set()).add(form.names[0] if plain else "")
    ranges = {i.name: i.range for i in maker.loops}
    single = {n: next(iter(loops)) for n, loops in found.items() if len(loops) == 1}
    return {n: loop for n, loop in single.items() if ranges.get(loop) == reader.ranges[n]}
