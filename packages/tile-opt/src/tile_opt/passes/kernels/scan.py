"""scan: prefix aggregations (cumulative sums, products, maxima) in linear time.

A kernel whose cells take in each other's elements (`kernel.scan`) gets an ordered loop that carries the aggregate
from cell to cell. Where an element is an aggregate itself (more loops, several elements for each cell), a kernel in
front computes the elements. Where too few scans run side by side to keep the device busy, each is cut into blocks:

    totals[b] = aggregate of block b          ends[b] = aggregate of blocks 0 to b, a scan itself
    cell[b, i] = ends[b - 1] and elements 0 to i of block b
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from tile_ir.names import claim
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Block, Direction, Index, Program, Refinement, Statement
from tile_ir.target import HardwareSettings, Target

from tile_opt.blocks.buffers import with_main_refs
from tile_opt.blocks.tree import main_of, with_kernels
from tile_opt.kernel.prefix import (
    Loops,
    Prefix,
    carried,
    cells,
    completed,
    copied,
    find_prefix,
    free,
    gathered,
    ordered,
    partial_use,
    position,
    started,
    taken_in,
)
from tile_opt.kernel.scan import Scan as Found
from tile_opt.kernel.strides import flat_stride
from tile_opt.kernel.view import KernelView, Stage, Use, close_kernel, open_kernel
from tile_opt.passes.base import Pass

CHAINS = 16
"""Scans per core of a processor whose steps hide each other's latency."""
ALONG, ACROSS = 2, 8
"""The same where the items of a group share each: scans of neighbouring cells, and neighbouring scans."""
TILE = 1024
"""Cells that a sub-group takes at once; a group takes `TILES` times as many."""
TILES = 4


@dataclass(frozen=True)
class Scan(Pass):
    """Rewrite prefix aggregations; a scan that is cut has at least two blocks of about `block` elements.

    On a processor it has `hand_off` times as many: below that, one core is done before others have started.
    """

    block: int = 1056
    """Elements of a block, about."""
    hand_off: int = 16

    def apply(self, program: Program, target: Target) -> Program:
        main = main_of(program)
        work = _Work(self, target.settings, main)
        kernels = [made for kernel in main.body for made in work.kernel(kernel)]
        if not work.changed:
            return program
        return with_main_refs(with_kernels(program, tuple(kernels)), (*main.refs, *work.buffers))


class _Work:
    """Rewrites the kernels of a program; `buffers` are the temporaries that main gets for them."""

    def __init__(self, options: Scan, settings: HardwareSettings, main: Block) -> None:
        self.serial = serial = settings.threads == 1
        self.block = options.block if serial else options.block // TILE * TILE * TILES or options.block
        self.hand_off = options.hand_off if serial else 1
        self.cores = settings.cores
        self.taken = {r.into for r in main.refs} | {r.into for k in main.body if isinstance(k, Block) for r in k.refs}
        self.names = {k.name for k in main.body if isinstance(k, Block)}
        self.buffers: list[Refinement] = []
        self.changed = False

    def kernel(self, kernel: Statement) -> list[Statement]:
        """The kernels that take the place of this one."""
        view = open_kernel(kernel) if isinstance(kernel, Block) else None
        prefix = None if view is None else find_prefix(view)
        if prefix is None or not prefix.is_ready:
            return [kernel]
        self.changed = True
        elements, prefix = (None, prefix) if prefix.is_plain else self._elements(prefix)
        prefix = self._kept(prefix)
        front = [] if elements is None else self.kernel(close_kernel(elements))
        return [*front, *map(close_kernel, self._scanned(prefix))]

    def _scanned(self, prefix: Prefix) -> list[KernelView]:
        """The kernels of a scan whose elements are ready."""
        block = self._block(prefix)
        cut = prod(i.range for i in prefix.rows) < self._wanted(prefix) and prefix.steps >= 2 * block * self.hand_off
        return self._blocked(prefix) if cut else [self._whole(prefix)]

    def _wanted(self, prefix: Prefix) -> int:
        """Scans that keep the device busy."""
        return self.cores * (CHAINS if self.serial else ALONG if _is_along(prefix) else ACROSS)

    def _block(self, prefix: Prefix) -> int:
        """Elements of a block; a group takes fewer of each of several scans side by side."""
        return max(2, self.block if self.serial or _is_along(prefix) else self.block // TILES)

    def _kept(self, prefix: Prefix) -> Prefix:
        """The cells are in main: other kernels may have to finish them."""
        view, name = prefix.view, prefix.out.buffer
        if prefix.finish is not None or not view.is_local(name):
            return prefix
        local = next(a for a in view.allocs if a.into == name)
        self.buffers.append(replace(local, tags=frozenset({"tmp"})))
        refs = (*view.refs, _whole_view(local))
        allocs = tuple(a for a in view.allocs if a is not local)
        return replace(prefix, view=replace(view, refs=refs, allocs=allocs))

    def _temporary(self, prefix: Prefix, name: str, loops: tuple[Index, ...]) -> Refinement:
        """A buffer of main for partial results."""
        made = prefix.partial(f"{prefix.out.buffer}_{name}", self.taken, loops)
        self.buffers.append(replace(made, tags=frozenset({"tmp"})))
        return made

    def _made(self, prefix: Prefix, name: str, stages: list[Stage], *buffers: Refinement) -> KernelView:
        """A kernel of `stages`; `buffers` are temporaries of main that its view does not know."""
        view = prefix.view
        refs = (*view.refs, *map(_whole_view, buffers))
        return replace(view, name=claim(f"{view.name}_{name}", self.names), stages=tuple(stages), refs=refs)

    # --- elements that are aggregates ---------------------------------------------------------------

    def _elements(self, prefix: Prefix) -> tuple[KernelView, Prefix]:
        """A kernel that aggregates what each cell takes in, and the scan of its results."""
        scan, stride = prefix.scan, prefix.scan.stride
        ahead = max(0, -(-scan.ahead // stride))
        count = ahead + min(scan.cells, -(-(scan.elements - scan.ahead) // stride))
        loop = replace(scan.element, range=count)
        loops = prefix.along(loop)
        buffer = self._temporary(prefix, "elements", loops)
        use = partial_use(buffer, cells(loops))
        part = free(Index(claim("part", {i.name for i in prefix.stage.loops}), 1), stride)
        element = (Affine.var(scan.element.name) + -ahead) * stride + scan.ahead + position(part)
        inside = (element, element * -1 + (scan.elements - 1))
        acc = gathered("acc", prefix, element, use, (*loops, *prefix.reduced, *part))
        acc = replace(acc, constraints=(*acc.constraints, *inside) if stride > 1 else acc.constraints)
        kernel = self._made(prefix, "elements", [started("init", prefix, use, loops), acc], buffer)
        return replace(kernel, allocs=()), self._over(prefix, buffer, ahead, loop)

    def _over(self, prefix: Prefix, buffer: Refinement, ahead: int, element: Index) -> Prefix:
        """The scan of ready elements."""
        scan = replace(
            prefix.scan, element=element, elements=element.range, ahead=ahead, stride=1, start=Affine(), step=1, slope=0,
            constraints=(),
        )  # fmt: skip
        load = copied(prefix.stage.name, partial_use(buffer, cells(prefix.along(element))), prefix.out, ())
        uses = (load.uses[0], replace(prefix.out, name="dst"))
        stage = replace(load, loops=(*prefix.rows, scan.cell, element), uses=uses, origin=prefix.stage.origin)
        view = replace(prefix.view, refs=(*prefix.view.refs, _whole_view(buffer)))
        return replace(prefix, view=view, stage=stage, scan=scan, out=uses[1])

    # --- a scan for each row ------------------------------------------------------------------------

    def _whole(self, prefix: Prefix) -> KernelView:
        rows, scan, steps = prefix.rows, prefix.scan, prefix.steps
        carry = prefix.partial(f"{prefix.out.buffer}_carry", self.taken, rows)
        use = partial_use(carry, cells(rows))
        loop = ordered(scan.cell, steps)
        stages = [*prefix.front, *_ahead(prefix, use, rows)]
        stages += [carried(prefix, position(loop), use, (*rows, *loop))] if steps else []
        stages += _behind(prefix, use)
        view = prefix.view
        return replace(view, stages=(*stages, *prefix.rest), allocs=(*view.allocs, carry))

    # --- a scan in blocks ---------------------------------------------------------------------------

    def _blocked(self, prefix: Prefix) -> list[KernelView]:
        size = _block_size(prefix.steps, self._wanted_block(prefix), self.serial)
        count = -(-prefix.steps // size)
        more = prefix.scan.cells > prefix.steps
        block = Index(claim("block", {i.name for i in prefix.stage.loops}), count)
        known = replace(block, range=count - 1 + more)
        totals = self._temporary(prefix, "totals", prefix.along(known))
        ends = self._temporary(prefix, "ends", prefix.along(known))
        kernels = [self._made(prefix, "front", list(prefix.front))] if prefix.front else []
        kernels += [
            self._totals(prefix, totals, known, size),
            *self._scanned(self._over_totals(prefix, totals, ends, known)),
            self._within(prefix, ends, block, size),
        ]
        return [*kernels, self._behind(prefix, ends, known)] if more or prefix.rest else kernels

    def _wanted_block(self, prefix: Prefix) -> int:
        """Shorter blocks where many items would have nothing to do."""
        block = self._block(prefix)
        idle = 2 * prod(i.range for i in prefix.rows) * -(-prefix.steps // block) < self._wanted(prefix)
        return max(2, block // 2) if idle and not self.serial else block

    def _totals(self, prefix: Prefix, totals: Refinement, block: Index, size: int) -> KernelView:
        """The aggregate of each block."""
        loops = prefix.along(block)
        use = partial_use(totals, cells(loops))
        step = Affine.var(block.name, size) + Affine.var(prefix.scan.element.name)
        acc = gathered("acc", prefix, step + prefix.scan.ahead, use, (*loops, *free(prefix.scan.element, size)))
        acc = replace(acc, constraints=_inside(step, block.range * size, prefix.steps))
        return self._made(prefix, "totals", [started("init", prefix, use, loops), acc], totals)

    def _over_totals(self, prefix: Prefix, totals: Refinement, ends: Refinement, block: Index) -> Prefix:
        """The scan of the blocks' aggregates."""
        element = Index(claim("part", {i.name for i in (*prefix.stage.loops, block)}), block.range)
        out = replace(prefix.out, buffer=ends.into, forms=cells(prefix.along(block)), name="dst")
        load = copied("acc", partial_use(totals, cells(prefix.along(element))), out, (*prefix.along(block), element))
        stage = replace(load, uses=(load.uses[0], out), origin=prefix.stage.origin)
        view = replace(self._made(prefix, "ends", [stage], totals, ends), allocs=())
        scan = Found(block, element, block.range, block.range, 0, 1, Affine(), 1, Affine(), 1, 0)
        return Prefix(view, stage, scan, out, prefix.agg, (), None, ())

    def _within(self, prefix: Prefix, ends: Refinement, block: Index, size: int) -> KernelView:
        """The cells of each block, from what is in front of it."""
        rows, cell = prefix.along(block), prefix.scan.cell
        carry = prefix.partial(f"{prefix.out.buffer}_carry", self.taken, rows)
        use = partial_use(carry, cells(rows))
        step = Affine.var(block.name, size) + Affine.var(cell.name)
        before = Affine.var(block.name) + -1
        stages = [
            *_ahead(prefix, use, rows),
            replace(taken_in(prefix, use, _row_use(prefix, ends, before), rows), constraints=(before,)),
            carried(prefix, step, use, (*rows, *ordered(cell, size)), _inside(step, block.range * size, prefix.steps)),
        ]
        kernel = self._made(prefix, "blocks", stages, ends)
        return replace(kernel, allocs=(*kernel.allocs, carry))

    def _behind(self, prefix: Prefix, ends: Refinement, block: Index) -> KernelView:
        """The cells after the last step, and what follows the scan."""
        carry = prefix.partial(f"{prefix.out.buffer}_carry", self.taken, prefix.rows)
        use = partial_use(carry, cells(prefix.rows))
        last = _row_use(prefix, ends, Affine((), block.range - 1))
        cells_behind = _behind(prefix, use)
        start = [*_ahead(prefix, use, prefix.rows), taken_in(prefix, use, last, prefix.rows)] if cells_behind else []
        kernel = self._made(prefix, "behind", [*start, *cells_behind, *prefix.rest], ends)
        return replace(kernel, allocs=(*kernel.allocs, carry)) if cells_behind else kernel


def _is_along(prefix: Prefix) -> bool:
    """Cells of a scan are neighbours in memory."""
    return abs(flat_stride(prefix.view, prefix.out, prefix.scan.cell.name)) == 1


def _ahead(prefix: Prefix, carry: Use, rows: Loops) -> list[Stage]:
    """The carried value in front of the first step."""
    count = min(prefix.scan.ahead, prefix.scan.elements)
    loop = free(prefix.scan.element, count)
    start = [started("start", prefix, carry, rows)]
    if not count:
        return start
    return [*start, gathered("ahead", prefix, position(loop), carry, (*rows, *prefix.reduced, *loop))]


def _behind(prefix: Prefix, carry: Use) -> list[Stage]:
    """The cells after the last step."""
    loop = free(prefix.scan.cell, prefix.scan.cells - prefix.steps)
    if prefix.scan.cells == prefix.steps:
        return []
    stage = copied("behind", carry, prefix.cell(position(loop) + prefix.steps), (*prefix.rows, *loop))
    return [completed(prefix, stage)]


def _row_use(prefix: Prefix, buffer: Refinement, at: Affine) -> Use:
    """The access to a block's entry."""
    entry = {prefix.scan.cell.name: at}
    return partial_use(buffer, [f.substitute(entry) for f in cells(prefix.along(prefix.scan.cell))])


def _inside(step: Affine, most: int, steps: int) -> tuple[Affine, ...]:
    """What keeps the steps of a last block inside."""
    return (step * -1 + (steps - 1),) if most > steps else ()


def _block_size(steps: int, wanted: int, serial: bool) -> int:
    """Near `wanted`, and a divisor of the steps where one is near, so that no block is ragged.

    On a processor no multiple of 256: blocks side by side would meet in the same sets of a cache.
    """
    near = (size for size in range(max(2, wanted // 2), 2 * wanted) if not (serial and size % 256 == 0))
    divisors = (size for size in near if steps % size == 0)
    return min(divisors, key=lambda size: abs(size - wanted), default=wanted)


def _whole_view(buffer: Refinement) -> Refinement:
    """A kernel's view of a buffer of main; closing the kernel finds its direction."""
    return replace(buffer, dir=Direction.INOUT, source=buffer.into, tags=frozenset())
