"""places: what kernels that are alike read of an input, or write of an output, each at a place of its own, is a view of it.

Steps of an unrolled recurrence each read a row of one tensor and write a row of another. A place within a kernel's accesses
would make a kernel of each step, with a plan and machine code of its own; where the place is that of a view, the steps are
one kernel.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import pairwise

from tile_ir.names import claim
from tile_ir.stripe.affine import Affine, intervals
from tile_ir.stripe.hashing import structural_hash
from tile_ir.stripe.nodes import Block, Direction, Program, Refinement
from tile_ir.stripe.walk import buffers_written
from tile_ir.target import Target

from tile_opt.blocks.buffers import Box, part_ref, with_parts
from tile_opt.blocks.tree import main_of
from tile_opt.kernel.bodies import facts
from tile_opt.kernel.view import KernelView, Use, close_kernel, open_kernel
from tile_opt.passes.base import Pass

Parts = Mapping[str, Box]
"""By buffer of main the cells that a kernel touches."""
Root = tuple[str, tuple[int, ...]]
"""The buffer that one of main is, or is a part of, and the cell where it begins there."""


@dataclass(frozen=True)
class Places(Pass):
    """From `least` kernels on that differ in places of whole buffers alone, these places are those of views of main."""

    least: int = 8

    def apply(self, program: Program, target: Target) -> Program:
        del target
        main = main_of(program)
        views = dict(_views(main)) if len(main.body) >= self.least else {}
        work = _Work.of(program, views, self.least) if views else None
        families: defaultdict[str, list[int]] = defaultdict(list)
        found = {number: parts for number, view in views.items() if work and (parts := work.parts(view))}
        for number, parts in found.items():
            seen = {name: (_anywhere(work.part(name, name, box)), box) for name, box in parts.items()} if work else {}
            families[structural_hash(_through(views[number], seen))].append(number)
        alike = sorted(n for family in families.values() if len(family) >= self.least for n in family)
        return work.divided_among(program, {n: (views[n], found[n]) for n in alike}) if work and alike else program


@dataclass(slots=True)
class _Work:
    """What is known of main's buffers."""

    refs: Mapping[str, Refinement]
    roots: Mapping[str, Root]
    inputs: Set[str]
    """Those that no kernel writes."""
    written: Mapping[str, Collection[Box]]
    """Others of which many kernels each write a part, without reading any: these parts."""

    @staticmethod
    def of(program: Program, views: Mapping[int, KernelView], least: int) -> _Work:
        main = main_of(program)
        roots = {r.into: _root(r) for r in main.refs}
        work = _Work({r.into: r for r in main.refs}, roots, {r.into for r in main.refs if r.dir is Direction.IN}, {})
        boxes: defaultdict[str, list[Box]] = defaultdict(list)
        for number, kernel in enumerate(main.body):
            for name in buffers_written(kernel) if isinstance(kernel, Block) else ():
                view = views.get(number)
                boxes[roots[name][0]].append(() if view is None else work.written_by(view, name))
        own = {b: each for b, each in boxes.items() if b not in program.inputs and len(each) >= least and all(each)}
        return replace(work, written={b: each for b, each in own.items() if _apart(each)})

    def written_by(self, view: KernelView, name: str) -> Box:
        """The cells, in all of the buffer, of which a kernel writes some and reads none; () where they are not known."""
        root = self.roots[name][0]
        reads = {self.roots[read][0] for read in view.reads()}
        return self.at(name, _box(view, name)) if root not in reads and _is_plain(view, name) else ()

    def at(self, name: str, box: Box) -> Box:
        """Cells of a buffer as those of what it is a part of."""
        starts = self.roots[name][1]
        return tuple(range(start + c.start, start + c.stop) for start, c in zip(starts, box, strict=True))

    def parts(self, view: KernelView) -> Parts:
        """The parts of buffers that a kernel touches, where its accesses alone say which."""
        touched = sorted(
            n for n in view.reads() | view.writes() if n in self.inputs or self.roots[n][0] in self.written
        )
        boxes = {name: _box(view, name) for name in touched if _is_plain(view, name)}
        return {name: box for name, box in boxes.items() if self._is_part(name, box)}

    def _is_part(self, name: str, box: Box) -> bool:
        if box == tuple(map(range, self.refs[name].type.sizes)):
            return False
        return name in self.inputs or self.at(name, box) in self.written[self.roots[name][0]]

    def part(self, name: str, part: str, box: Box) -> Refinement:
        """The view `part` of main: these cells of a buffer."""
        ref, (root, _) = self.refs[name], self.roots[name]
        starts = [cells.start for cells in self.at(name, box)]
        dir = Direction.IN if name in self.inputs else Direction.INOUT
        made = part_ref(part, replace(ref.type, sizes=tuple(map(len, box))), (root, self.refs[root].type), starts, dir)
        return replace(made, const=ref.const)

    def divided_among(self, program: Program, alike: Mapping[int, tuple[KernelView, Parts]]) -> Program:
        """`program` whose kernels `alike` touch views of main."""
        kernels, taken = list(main_of(program).body), {*self.refs, *(r.into for r in program.entry.refs)}
        made: dict[tuple[str, Box], Refinement] = {}
        for number, (view, parts) in alike.items():
            seen: dict[str, tuple[Refinement, Box]] = {}
            for name, box in parts.items():
                key = self.roots[name][0], self.at(name, box)
                if key not in made:
                    made[key] = self.part(name, claim(f"{name}_part", taken), box)
                seen[name] = made[key], box
            kernels[number] = _through(view, seen)
        return with_parts(program, made.values(), kernels)


def _anywhere(ref: Refinement) -> Refinement:
    """A view whose place does not show in its alignment."""
    return replace(ref, type=replace(ref.type, layout=replace(ref.type.layout, align=1)))


def _root(ref: Refinement) -> Root:
    if ref.source in ("", ref.into):
        return ref.into, (0,) * len(ref.access)
    return ref.source, tuple(form.const if isinstance(form, Affine) else 0 for form in ref.access)


def _views(main: Block) -> Iterator[tuple[int, KernelView]]:
    for number, kernel in enumerate(main.body):
        view = open_kernel(kernel) if isinstance(kernel, Block) else None
        if view is not None:
            yield number, view


def _apart(boxes: Sequence[Box]) -> bool:
    """No two boxes share a cell, as one of the dimensions shows."""
    for cells in zip(*boxes, strict=True):
        if all(a.stop <= b.start for a, b in pairwise(sorted(cells, key=lambda c: c.start))):
            return True
    return False


def _is_plain(view: KernelView, buffer: str) -> bool:
    """No element says where in the buffer an access is."""
    return not any(use.extent or use.name in facts(stage.body).indirect for stage, use in view.users(buffer))


def _box(view: KernelView, buffer: str) -> Box:
    """The cells of a buffer that accesses reach; a whole dimension where constraints are what keeps them in it."""
    ranges, sizes = intervals(view.ranges), view.type_of(buffer).sizes
    places = [[form.bounds(ranges) for form in use.forms] for _, use in view.users(buffer)]
    ends = [(min(low for low, _ in each), max(high for _, high in each)) for each in zip(*places, strict=True)]
    return tuple(
        range(low, high + 1) if low >= 0 and high < size else range(size)
        for (low, high), size in zip(ends, sizes, strict=True)
    )


def _through(view: KernelView, seen: Mapping[str, tuple[Refinement, Box]]) -> Block:
    """The kernel that touches the views `seen` of main in the place of the buffers that these are parts of."""

    def moved(use: Use) -> Use:
        part = seen.get(use.buffer)
        if part is None:
            return use
        forms = tuple(form - cells.start for form, cells in zip(use.forms, part[1], strict=True))
        return replace(use, buffer=part[0].into, forms=forms)

    refs = tuple(_as_kernels_see(seen[r.into][0]) if r.into in seen else r for r in view.refs)
    return close_kernel(replace(view.map_uses(moved), refs=refs))


def _as_kernels_see(ref: Refinement) -> Refinement:
    """All of a buffer of main."""
    return replace(ref, source=ref.into, access=(Affine(),) * len(ref.access))
