"""One kernel block to one semtree function and its launch grid."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod

from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.semtree.nodes import (
    Access,
    Binary,
    Block,
    Compare,
    Const,
    Expr,
    Function,
    IdKind,
    If,
    Param,
    Space,
    Type,
    Var,
    WorkId,
)  # fmt: skip
from tile_ir.stripe import nodes as stripe
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import ITEMS, Bind
from tile_ir.target import HardwareSettings

from tile_opt.lowering.allocate import Allocator
from tile_opt.lowering.body import LoweringError, View
from tile_opt.lowering.builder import BOOL, Builder
from tile_opt.lowering.context import Context
from tile_opt.lowering.nest import Nest
from tile_opt.lowering.places import Home, Root
from tile_opt.lowering.work_items import Size, WorkItems
from tile_opt.plan.steps.groups.last_group import waits_for_all
from tile_opt.plan.steps.groups.together import parts_of_launch

INT32_ELEMENTS = 1 << 30
"""Below this many elements every subscript, and each term of it, fits 32 bits with room to spare."""


@frozen
class Slot:
    """A buffer of main as a kernel sees it: its storage and what is known of its address."""

    buffer: str
    type: stripe.TensorType
    align: int


@frozen
class Source:
    """A name that a kernel's refinements refer to: a view of a slot."""

    slot: int
    offset: Affine
    type: stripe.TensorType


@frozen
class LoweredKernel:
    """A kernel's function; `params[i]` is the slot number of parameter i, or -1 - n for its own temporary n."""

    function: Function
    params: tuple[int, ...]
    temps: tuple[tuple[DType, int], ...]
    groups: tuple[int, int, int]


@frozen
class _Share:
    """The groups of a launch that a kernel has: those from `first` on, of as many items as its own, in the shape `items`."""

    first: int
    items: Size
    names: dict[str, int]
    """How often names have been given, in all kernels of the launch."""


def lower_kernel(
    block: stripe.Block,
    name: str,
    slots: Sequence[Slot],
    sources: Mapping[str, Source],
    settings: HardwareSettings,
    backward: bool = False,
) -> LoweredKernel:
    """Lower a kernel block whose refinements refer to `sources`; `backward` starts with the last group."""

    def lowered(part: stripe.Block, share: _Share) -> LoweredKernel:
        return _lowered(part, name, slots, sources, settings, backward, share)

    parts = parts_of_launch(block)
    return _together(name, parts, lowered) if parts else lowered(block, _Share(0, _group_size(block), {}))


def _lowered(
    block: stripe.Block,
    name: str,
    slots: Sequence[Slot],
    sources: Mapping[str, Source],
    settings: HardwareSettings,
    backward: bool,
    share: _Share,
) -> LoweredKernel:
    grid = _Grid(block, settings)
    index = _index_dtype(block, slots, grid.total, settings)
    builder = Builder(index, settings.masks, settings.shuffles, share.names)
    roots = _roots(block, builder, slots, sources)
    views = {
        name: View(roots[s.slot], s.offset, (), s.type.sizes, s.type.strides)
        for name, s in sources.items()
        if s.slot in roots
    }
    nest, finish = _prepare(builder, grid, share, block, backward)
    nest.block(block, Context({}, views))
    body = finish()
    order = _parameter_order(roots, nest.allocator.temps)
    params = tuple(_param(root) for _, root in order)
    function = Function(name, params, body, share.items, _subgroup(block))
    temps = tuple((t.dtype, t.elements) for t in nest.allocator.temps)
    return LoweredKernel(function, tuple(number for number, _ in order), temps, grid.sizes)


def _together(
    name: str, parts: Sequence[stripe.Block], lowered: Callable[[stripe.Block, _Share], LoweredKernel]
) -> LoweredKernel:
    """One function whose groups do what those of the parts do, one part's behind the other's."""
    items = max(map(_group_size, parts), key=lambda size: size[::-1])
    names, made, ends = dict[str, int](), list[LoweredKernel](), [0]
    for part in parts:
        made.append(lowered(part, _Share(ends[-1], items, names)))
        ends.append(ends[-1] + made[-1].groups[0])
        if prod(_group_size(part)) != prod(items) or made[-1].groups[1:] != (1, 1):
            raise LoweringError(f"groups of {part.name!r} are others than those that they are launched with")
    params = sorted(_numbered(made), key=lambda each: each[1].access is Access.READ)
    subgroup = max(m.function.subgroup for m in made)
    body = _by_group([m.function.body for m in made], ends[1:])
    function = Function(name, tuple(p for _, p in params), body, items, subgroup)
    return LoweredKernel(
        function, tuple(n for n, _ in params), tuple(t for m in made for t in m.temps), (ends[-1], 1, 1)
    )


def _by_group(bodies: Sequence[Block], ends: Sequence[int]) -> Block:
    """What a group does, by its number: the groups of each body end at such a one."""
    first, *others = bodies
    if not others:
        return first
    group = WorkId(IdKind.GROUP, 0)
    mine = Compare("cmp_lt", group, Const(ends[0], group.type), BOOL)
    return Block((If(mine, first, _by_group(others, ends[1:])),))


def _numbered(made: Sequence[LoweredKernel]) -> Iterator[tuple[int, Param]]:
    """All parameters with the numbers of their slots, or of temporaries behind those of the kernels before."""
    own = 0
    for one in made:
        numbers = (n if n >= 0 else n - own for n in one.params)
        yield from zip(numbers, one.function.params, strict=True)
        own += len(one.temps)


def _roots(
    block: stripe.Block, builder: Builder, slots: Sequence[Slot], sources: Mapping[str, Source]
) -> dict[int, Root]:
    """One root per distinct buffer, named after the first refinement of it."""
    roots: dict[int, Root] = {}
    for ref in block.refs:
        if not ref.source:
            continue
        number = sources[ref.source].slot
        if number not in roots:
            slot = slots[number]
            name = builder.fresh(ref.into)
            type = Type(slot.type.dtype, space=Space.GLOBAL, ptr=True)
            elements = slot.type.extent
            roots[number] = Root(
                name, type.dtype, Home.PARAM, elements, Var(name, type), slot.align, slot.type.solid, shared=True
            )
    return roots


def _parameter_order(roots: Mapping[int, Root], temps: Sequence[Root]) -> list[tuple[int, Root]]:
    """Written buffers, then the kernel's temporaries, then what is only read; untouched ones are left out."""
    written = [(n, r) for n, r in roots.items() if r.written]
    own = [(-1 - n, r) for n, r in enumerate(temps)]
    read = [(n, r) for n, r in roots.items() if r.read and not r.written]
    return written + own + read


def _param(root: Root) -> Param:
    assert root.ptr is not None
    access = Access.READWRITE if root.read and root.written else Access.WRITE if root.written else Access.READ
    return Param(root.name, root.ptr.type, access, root.align, root.elements)


def _index_dtype(block: stripe.Block, slots: Sequence[Slot], groups: int, settings: HardwareSettings) -> DType:
    if settings.index_bits == 64:
        return DType.INT64
    own = [r.type.extent for b in blocks_of(block) for r in b.refs if not r.source]
    largest = max((*(s.type.extent for s in slots), groups * max(own, default=0), groups), default=0)
    return DType.INT32 if largest < INT32_ELEMENTS else DType.INT64


def blocks_of(block: stripe.Block) -> list[stripe.Block]:
    """The block and every block nested in it, outermost first."""
    found = [block]
    for current in found:
        found.extend(s for s in current.body if isinstance(s, stripe.Block))
    return found


def _group_size(block: stripe.Block) -> Size:
    sizes = [1, 1, 1]
    for inner in blocks_of(block):
        for axis in range(3):
            used = prod(i.range for i in inner.indexes if i.bind in ITEMS and i.axis == axis)
            sizes[axis] = max(sizes[axis], used)
    return (sizes[0], sizes[1], sizes[2])


def _subgroup(block: stripe.Block) -> int:
    """Lanes of a sub-group: what the indexes bound to lanes span; 0 where there are none."""
    spans = (
        prod(i.range for i in b.indexes if i.bind is Bind.LANE)
        for b in blocks_of(block)
        if any(i.bind is Bind.LANE for i in b.indexes)
    )
    return max(spans, default=0)


class _Grid:
    """How the GRID indexes of a kernel block are packed onto the axes of the launch grid."""

    def __init__(self, block: stripe.Block, settings: HardwareSettings) -> None:
        last = waits_for_all(block)
        spread = (block,) if last is None else (last[0], block)
        for inner in blocks_of(block):
            if not any(inner is b for b in spread) and any(i.bind is Bind.GRID and i.range > 1 for i in inner.indexes):
                raise LoweringError(f"block {inner.name!r} inside a kernel has an index bound to the grid")
        bound = [i for b in spread for i in b.indexes if i.bind is Bind.GRID and i.value is None and i.range > 1]
        self.axes = [[i for i in bound if i.axis == axis] for axis in range(3)]
        wanted = [prod(i.range for i in axis) for axis in self.axes]
        self.total = prod(wanted)
        limits = settings.dim_sizes
        self.folded = any(size > limit for size, limit in zip(wanted, limits, strict=True))
        sizes = _spread(self.total, limits) if self.folded else wanted
        self.sizes: tuple[int, int, int] = (sizes[0], sizes[1], sizes[2])
        if self.folded:
            self.axes = [[i for axis in reversed(self.axes) for i in axis], [], []]


def _spread(total: int, limits: Sequence[int]) -> list[int]:
    """Sizes within the limits whose product is at least `total`."""
    sizes: list[int] = []
    rest = total
    for limit in limits:
        size = min(rest, limit)
        sizes.append(size)
        rest = -(-rest // size)
    if rest > 1:
        raise LoweringError(f"a grid of {total} groups is larger than the device's limits")
    return sizes


class _Decoder:
    """Group numbers as index variables."""

    def __init__(self, builder: Builder, nest: Nest, grid: _Grid, backward: bool, first: int) -> None:
        self.builder = builder
        self.nest = nest
        self.grid = grid
        self.backward = backward
        self.first = first
        """Number of the first group on the axis that has all."""
        self.numbers: dict[int, Affine] = {}

    def axis(self, axis: int) -> Affine:
        """The group number on an axis."""
        if self.grid.sizes[axis] == 1:
            return Affine()
        if axis not in self.numbers:
            value = self.nest.items.work_id(IdKind.GROUP, axis)
            if self.first:
                value = Binary("sub", value, self.builder.literal(self.first), self.builder.index_type)
            high = self.grid.sizes[axis] - 1
            if self.backward:
                value = Binary("sub", self.builder.literal(high), value, self.builder.index_type)
            self.numbers[axis] = self.builder.index_variable(f"group{axis}", value, high)
        return self.numbers[axis]

    def linear(self) -> Affine:
        """The group number over all axes."""
        total, step = Affine(), 1
        for axis, size in enumerate(self.grid.sizes):
            total = total + self.axis(axis) * step
            step *= size
        return total

    def decode(self) -> None:
        """Give every GRID index its value; the last listed of an axis is the fastest."""
        for axis, indexes in enumerate(self.grid.axes):
            number = self.linear() if self.grid.folded else self.axis(axis)
            size = prod(i.range for i in indexes)
            step = 1
            for index in reversed(indexes):
                self.nest.grid[index.name] = self._part(index, number, step, size)
                step *= index.range

    def _part(self, index: stripe.Index, number: Affine, step: int, size: int) -> Affine:
        if index.range == size and not self.grid.folded:
            return number
        type = self.builder.index_type
        value: Expr = self.builder.atom(number)
        if step > 1:
            value = Binary("div", value, self.builder.literal(step), type)
        if step * index.range < size:
            value = Binary("mod", value, self.builder.literal(index.range), type)
        return self.builder.index_variable(index.name, value, index.range - 1)


def _prepare(builder: Builder, grid: _Grid, share: _Share, block: stripe.Block, backward: bool) -> tuple[Nest, _Finish]:
    """A nest whose grid indexes are decoded; call the second value for the finished body."""
    group_size = _group_size(block)
    items = WorkItems(builder, group_size, share.items)
    nest = Nest(builder, Allocator(builder, prod(group_size), grid.total, Affine()), items)
    decoder = _Decoder(builder, nest, grid, backward, share.first)
    cond: Expr | None = None
    if prod(grid.sizes) > grid.total:
        cond = Compare("cmp_lt", builder.index(decoder.linear()), builder.literal(grid.total), BOOL)
    finish = _Finish(builder, cond, len(builder.top.statements))
    decoder.decode()
    if grid.total > 1 and any(not r.source for b in blocks_of(block) for r in b.refs):
        nest.allocator.group_id = decoder.linear()
    return nest, finish


@frozen
class _Finish:
    """Closes the function body; groups for which `cond` does not hold (a folded grid has some) do nothing."""

    builder: Builder
    cond: Expr | None
    head: int
    """Statements in front of the condition."""

    def __call__(self) -> Block:
        body = tuple(self.builder.top.statements)
        if self.cond is not None:
            body = (*body[: self.head], If(self.cond, Block(body[self.head :])))
        return Block((*self.builder.allocations, *body))
