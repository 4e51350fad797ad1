"""Plans for chains of stencils: all that an item does is straight-line code, or groups share what the parts hand on."""

from __future__ import annotations

from math import prod

from tile_ir.frozen import frozen
from tile_ir.powers import power_of_two
from tile_ir.stripe.affine import names_in
from tile_ir.stripe.nodes import Bind, Scope
from tile_ir.target import Target

from tile_opt.kernel.item_chain import GROUP as OF_GROUP
from tile_opt.kernel.strides import flat_stride
from tile_opt.kernel.view import KernelView
from tile_opt.plan.builders.group_chain import Part, parts_of
from tile_opt.plan.plan import Cover, Level, Plan, Staging
from tile_opt.plan.space.facts import Facts
from tile_opt.plan.space.gpu.rows import prepared
from tile_opt.plan.steps.groups.staging import WIDEST

GROUP = 128
"""Items of a group: what each keeps leaves room for few at once, and they end more evenly."""
SHARING = 256
"""Items of a group that shares boxes."""
VERSIONS = 3
"""Steps whose operands are in local memory: the one that is computed, and those on their way."""
STEP = 4
"""Rows of a step of a walk."""
RUN = 8
"""Rows of the result of which an item has cells at once: windows along more of them leave room for few groups."""
AHEAD, FEW = 2, 20
"""Rows of other parts of which an item has cells at once, so that more of what it loads is under way: of windows of so few elements."""


def shares(view: KernelView) -> bool:
    """Groups hold the boxes of the chain, not items."""
    return any(a.loc == OF_GROUP for a in view.allocs)


def own_plan(view: KernelView, target: Target) -> Plan:
    facts = Facts(prepared(view))
    left, items = min(GROUP, target.settings.threads), dict[str, int]()
    for loop in reversed(facts.shared):
        items[loop] = min(left, power_of_two(facts.extent(loop)))
        left //= items[loop]
    own = [n for n in facts.loops if n not in facts.shared]
    levels = (
        Level(Bind.GRID, tuple(Cover(n, items[n]) for n in facts.shared)),
        Level(Bind.GROUP, tuple(Cover(n, 1) for n in facts.shared)),
        Level(Bind.UNROLL, tuple(Cover(n, 1) for n in own)),
    )
    return Plan(levels, reason="an item keeps its boxes of what it hands on")


def shared_plan(view: KernelView, target: Target) -> Plan:
    """All parts are dealt out to the same items: whole vectors along memory, runs of rows of the result, and rows of the others."""
    parts = [Dealt.of(view, part) for part in parts_of(view)]
    lanes, last = lanes_of(view), parts[-1]
    vectors = max(part.wide for part in parts) // lanes
    across = min(power_of_two(vectors // 2 + 1), target.settings.threads)
    down = max(1, min(SHARING, target.settings.threads) // across)
    down = min(down, power_of_two(-(-last.tall // min(RUN, last.tall))))
    rounds, items = list[Cover](), list[Cover]()
    for part in parts:
        run = min(RUN, last.tall // down) if part is last else part.ahead
        items += [*part.rows(run), Cover(part.near, lanes)]
        rounds += [*part.rows(run * down), Cover(part.near, across * lanes), *(Cover(n, 1) for n in part.others)]
    own = dict.fromkeys(n for s in view.stages for n in s.loop_names)
    levels = (
        Level(Bind.GRID, tuple(Cover(i.name, 1) for i in view.loops)),
        Level(Bind.NONE, tuple(rounds)),
        Level(Bind.GROUP, tuple(items)),
        Level(Bind.UNROLL, tuple(Cover(n, 1) for n in own)),
    )
    return Plan(
        levels, reason="groups keep in local memory what the parts hand on, and items the windows around their cells"
    )


def walking_plan(view: KernelView, target: Target) -> Plan:
    """Groups walk along a strip in steps of a few rows: each item has whole vectors along memory, and keeps what others need."""
    parts = [Dealt.of(view, part) for part in parts_of(view)]
    lanes = lanes_of(view)
    own = dict.fromkeys(n for s in view.stages for n in s.loop_names)
    levels = (
        Level(Bind.GRID, tuple(Cover(i.name, 1) for i in view.loops)),
        Level(Bind.NONE, tuple(Cover(p.far, STEP) for p in parts), ordered=True),
        Level(Bind.GROUP, tuple(Cover(p.near, lanes) for p in parts)),
        Level(Bind.UNROLL, tuple(Cover(n, 1) for n in own)),
    )
    staged = tuple(Staging(b, 1, "LOCAL", scope=Scope.GROUP, versions=VERSIONS) for b in _streamed(view))
    given = tuple(Staging(b, 1, "LOCAL", scope=Scope.GROUP) for b in _apart(view))
    return Plan(
        levels, (*staged, *given), reason="groups walk along strips, and items keep the rows that are needed again"
    )


def _streamed(view: KernelView) -> list[str]:
    """What the first part reads as it walks."""
    part = parts_of(view)[0]
    uses = [u for s in part.stages for u in s.uses if u.reads and not view.is_local(u.buffer)]
    return [u.buffer for u in uses if {*part.cells} & names_in(u.forms)]


def _apart(view: KernelView) -> list[str]:
    """Results whose rows are no whole vectors: items have neighbours of them that lie in no vector."""
    types = {u.buffer: view.type_of(u.buffer) for u in view.uses if u.writes and not view.is_local(u.buffer)}
    lanes = lanes_of(view)
    return [b for b, t in types.items() if any(s % lanes for s in t.strides if s != 1)]


@frozen
class Dealt:
    """The loops over the cells of a part: along memory, the longest of the others, and the rest of them."""

    near: str
    wide: int
    far: str
    tall: int
    others: tuple[str, ...]
    taps: int
    """Terms of its longest reduction."""

    @staticmethod
    def of(view: KernelView, part: Part) -> Dealt:
        """The loops of `part`; StopIteration where its cells are no neighbours in memory."""
        extents = {i.name: i.range for s in part.stages for i in s.loops}
        made = next(u for u in part.stages[-1].uses if u.writes)
        near = next(n for n in reversed(part.cells) if flat_stride(view, made, n) == 1)
        rest = sorted((n for n in part.cells if n != near), key=lambda n: -extents[n])
        far = rest[0] if rest else ""
        taps = max(prod(i.range for i in s.loops if i.name not in part.cells) for s in part.stages)
        return Dealt(near, extents[near], far, extents.get(far, 1), tuple(rest[1:]), taps)

    @property
    def ahead(self) -> int:
        """Rows whose windows an item holds together."""
        return AHEAD if self.taps <= FEW else 1

    def rows(self, size: int) -> tuple[Cover, ...]:
        """So many rows, if there are any."""
        return (Cover(self.far, size),) if self.far else ()


def lanes_of(view: KernelView) -> int:
    """Cells of an item along memory: a vector of the widest elements."""
    widest = max(view.type_of(u.buffer).dtype.bytes for u in view.uses)
    return max(1, WIDEST // widest)
