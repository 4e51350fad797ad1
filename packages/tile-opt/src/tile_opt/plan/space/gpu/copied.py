"""Whole operands copied before a contraction on items: rows that begin where wide accesses may, along which items walk.

Where rows along the reduction begin anywhere, items of every group fetch elements one by one, again and again. A kernel of its own
does that once, and the reduction's steps then fetch 16 bytes at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod

from tile_ir.diagnostics import TileDeviceError
from tile_ir.frozen import replace
from tile_ir.machine import Machine
from tile_ir.stripe.hashing import structural_hash

from tile_opt.kernel.merging import merged
from tile_opt.kernel.view import KernelView
from tile_opt.model.contraction import Contraction, Operand, contraction
from tile_opt.model.group_cost import HANDOFF
from tile_opt.plan.panels import Panels, copied_before
from tile_opt.plan.plan import Plan, Staging

WIDE = 16
"""Bytes on multiples of which rows should begin."""
BANDWIDTH = 0.85
"""Share of the memory's bandwidth that a copy reaches."""
GAIN = 1.1
"""Times longer than `GroupCost` says that steps take whose copies go element by element: products measured both ways."""


@dataclass(frozen=True)
class Copied:
    """A contraction on copies of some of its operands, and the seconds that making them takes in every run."""

    work: Contraction
    stagings: tuple[Staging, ...]
    panels: tuple[Panels, ...]
    seconds: float

    def plan(self, inner: Plan) -> Plan:
        """`inner`, which speaks of the copies, as a plan of the kernel that has none."""
        return with_copies(inner, self.stagings, self.panels)


def copied(work: Contraction, machine: Machine) -> Copied | None:
    """The contraction on copies of all operands that are awkward to fetch.

    None where none is, where windows slide along some, and where two operands are one buffer.
    """
    awkward = [o for o in work.operands if _is_awkward(o, work)]
    alone = len({o.use.buffer for o in work.operands}) == len(work.operands)
    if not (awkward and alone and all(map(_is_plain, work.operands))):
        return None
    stagings = tuple(_staging(work, o) for o in awkward)
    try:
        view, _, panels = copied_before(work.view, Plan((), stagings))
    except TileDeviceError:  # data chooses its elements, or the kernel itself writes them
        return None
    found = contraction(view)
    seconds = copy_seconds(work.view, panels, machine)
    return None if found is None else Copied(found, stagings, panels, seconds)


def _is_awkward(o: Operand, work: Contraction) -> bool:
    """Rows along the reduction begin anywhere: items fetch, and transpose, one by one."""
    if not o.loops:
        return False
    along = {n for dim, stride in zip(o.dims, o.strides, strict=True) if stride == 1 for n, _ in dim}
    return o.aligned * o.kept.bytes % WIDE != 0 and not along.isdisjoint(work.own)


def _is_plain(o: Operand) -> bool:
    """A loop per dimension: a copy has each element once."""
    loops = [n for dim in o.dims for n, _ in dim]
    return len(loops) == len(set(loops)) == len([d for d in o.dims if d]) and all(c == 1 for d in o.dims for _, c in d)


def _staging(work: Contraction, o: Operand) -> Staging:
    """The loops of the reduction outside those along which items walk: steps then fetch along these."""
    order = sorted(_loops(o), key=lambda n: (n in work.reused, n not in work.own))
    pad = -work.shared.get(order[-1], work.own.get(order[-1], 1)) % (WIDE // min(o.kept.bytes, WIDE))
    return Staging(o.use.buffer, -1, "DRAM", tuple(order), pad=pad, dtype=o.kept.value if o.converts else "")


def _loops(o: Operand) -> Iterator[str]:
    return (n for dim in o.dims for n, _ in dim)


def with_copies(inner: Plan, stagings: tuple[Staging, ...], panels: tuple[Panels, ...]) -> Plan:
    """A plan that speaks of copies as one of the kernel that has none, and makes them."""
    operands = {p.name: p.operand.buffer for p in panels}
    rest = (replace(s, operand=operands.get(s.operand, s.operand)) for s in inner.stagings)
    reason = f"{inner.reason}; {' and '.join(p.operand.buffer for p in panels)} copied before"
    return replace(inner, stagings=(*stagings, *rest), reason=reason)


def copy_seconds(view: KernelView, panels: Iterable[Panels], machine: Machine) -> float:
    """Of copies that begin by one launch; nothing where no call changes what they are copies of, or earlier kernels have made them."""
    made = [p for p in panels if p.operand.buffer not in view.fixed and not _is_made(view, p)]
    moved = sum(prod(p.type.sizes) * (p.source.dtype.bytes + p.dtype.bytes) for p in made)
    return moved / (BANDWIDTH * machine.memory.all_cores.write * 1e9) + HANDOFF * machine.launch.kernel * bool(made)


def _is_made(view: KernelView, panels: Panels) -> bool:
    made = view.copied.get(panels.operand.buffer)
    return made is not None and structural_hash(merged(panels.kernel(view))) in made
