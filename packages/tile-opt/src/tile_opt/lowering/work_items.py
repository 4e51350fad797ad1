"""Numbers of groups, work items and lanes as index variables."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tile_ir.semtree.nodes import Binary, Cast, Expr, IdKind, Var, WorkId
from tile_ir.stripe import nodes as stripe
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import ITEMS, Bind

from tile_opt.lowering.builder import Builder

Size = tuple[int, int, int]


class WorkItems:
    """The work items of one kernel's groups; every number is computed once, at the top of the kernel."""

    def __init__(self, builder: Builder, group_size: Size, launched: Size) -> None:
        """`launched` is the shape in which groups are launched, of as many items as `group_size`."""
        self.builder = builder
        self.group_size = group_size
        self.launched = launched

    @property
    def count(self) -> int:
        """Work items of a group."""
        return prod(self.group_size)

    def work_id(self, kind: IdKind, axis: int) -> Expr:
        """The number of the group or work item on `axis`, as an index integer."""
        if kind is IdKind.LOCAL and self.launched != self.group_size:
            return self._of_other_shape(axis)
        value: Expr = WorkId(kind, axis)
        return value if self.builder.index_type == value.type else Cast(value, self.builder.index_type)

    def _of_other_shape(self, axis: int) -> Expr:
        """A work item's number on `axis` where the launch deals items out to other axes: in the same order over all axes."""
        type, step = self.builder.index_type, 1
        number: Expr = self.builder.literal(0)
        for other, size in enumerate(self.launched):
            if size > 1:
                own: Expr = WorkId(IdKind.LOCAL, other)
                own = own if own.type == type else Cast(own, type)
                number = Binary("add", number, Binary("mul", own, self.builder.literal(step), type), type)
            step *= size
        before = prod(self.group_size[:axis])
        number = Binary("div", number, self.builder.literal(before), type)
        return Binary("mod", number, self.builder.literal(self.group_size[axis]), type)

    def thread_index(self, index: stripe.Index, block: stripe.Block) -> Affine:
        """The value of a thread index: threads of an axis are dealt out, last listed index fastest."""
        faster = prod(i.range for i in _after(index, bound_to_items(block, index.axis)))
        key = ("thread", index.axis, faster, index.range)
        found = self.builder.top.index.get(key)
        if found is None:
            value: Expr = Var(self.local(index.axis), self.builder.index_type)
            if faster > 1:
                value = Binary("div", value, self.builder.literal(faster), value.type)
            if faster * index.range < self.group_size[index.axis]:
                value = Binary("mod", value, self.builder.literal(index.range), value.type)
            found = self.builder.let(index.name, value, self.builder.top)
            self.builder.top.index[key] = found
            self.builder.declare(found.name, 0, index.range - 1, self.builder.top)
            if index.bind is Bind.LANE:
                self.builder.lanes[found.name] = (faster, index.range)
        return Affine.var(found.name)

    def thread_step(self, index: stripe.Index, block: stripe.Block) -> int:
        """Distance in linear thread number between neighbours of a thread index."""
        faster = prod(i.range for i in _after(index, bound_to_items(block, index.axis)))
        return faster * prod(self.group_size[: index.axis])

    def linear_thread(self) -> Affine:
        """The number of the thread in its group, over all axes."""
        total, step = Affine(), 1
        for axis, size in enumerate(self.group_size):
            if size > 1:
                total = total + Affine.var(self.local(axis), step)
            step *= size
        return total

    def local(self, axis: int) -> str:
        key = ("local", axis)
        found = self.builder.top.index.get(key)
        if found is None:
            found = self.builder.let(f"thread{axis}", self.work_id(IdKind.LOCAL, axis), self.builder.top)
            self.builder.top.index[key] = found
            self.builder.declare(found.name, 0, self.group_size[axis] - 1, self.builder.top)
        return found.name

    def lane_digit(self, divisor: int, modulus: int) -> Affine:
        """``lane // divisor % modulus`` of the work item's lane in its sub-group."""
        axis = self._alone(divisor)
        if axis is not None and self.group_size[axis] <= modulus:
            return Affine.var(self.local(axis))
        key = ("lane", divisor, modulus)
        found = self.builder.top.index.get(key)
        if found is None:
            number: Expr = self.builder.index(self.linear_thread())
            if divisor > 1:
                number = Binary("div", number, self.builder.literal(divisor), number.type)
            value = Binary("mod", number, self.builder.literal(modulus), number.type)
            found = self.builder.let("lane_part", value, self.builder.top)
            self.builder.top.index[key] = found
            self.builder.declare(found.name, 0, modulus - 1, self.builder.top)
        return Affine.var(found.name)

    def _alone(self, divisor: int) -> int | None:
        """The axis whose number is that of the item without so many faster ones: no axis behind it has several."""
        sizes = self.group_size
        fits = (n for n in range(len(sizes)) if prod(sizes[:n]) == divisor and prod(sizes[n:]) == sizes[n] > 1)
        return next(fits, None)


def bound_to_items(block: stripe.Block, axis: int) -> list[stripe.Index]:
    """The block's indexes that are dealt out to the work items of an axis."""
    return [i for i in block.indexes if i.bind in ITEMS and i.axis == axis and i.value is None]


def _after(index: stripe.Index, indexes: Sequence[stripe.Index]) -> Sequence[stripe.Index]:
    return indexes[[i.name for i in indexes].index(index.name) + 1 :]
