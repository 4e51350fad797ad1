"""in_place: the parts of a concatenation are written straight into the result instead of being copied there.

``Y0[i : 5] = =(A[i]); Y[i + 3 : 5] = =(B[i]) default Y0;``, one link of a concatenation, would copy all of Y0 to Y before
it writes B's part. Here Y0's kernel writes Y, the copy goes, and cells that parts cover are not set to zero first. A
temporary that is copied to such a part is a view of the result from the start. What else fills a part becomes a kernel
of its own, as early as what it reads allows: it can join what computes that.

Where the default is an input, it is copied by a kernel of its own, which a call goes without that donates the input.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from math import prod
from operator import add

from tile_ir.frozen import frozen
from tile_ir.stripe.nodes import (
    Block,
    Const,
    Direction,
    Load,
    Program,
    Statement,
    Store,
    TensorType,
)
from tile_ir.stripe.walk import buffers_named, buffers_written
from tile_ir.target import Target

from tile_opt.blocks.buffers import Box, drop_unused_temporaries, fixed_kernels, part_ref, temporaries, with_parts
from tile_opt.blocks.tree import kernels_of, main_of, with_kernels
from tile_opt.kernel.bodies import facts
from tile_opt.kernel.view import KernelView, Stage, Use, close_kernel, open_kernel
from tile_opt.passes.base import Pass

Place = tuple[int, int, int]
"""Where a kernel runs: behind which of the program's kernels, from which of them it comes, and which part of it it is."""


@dataclass(frozen=True)
class InPlace(Pass):
    """Let defaults and parts share the memory of what they are for.

    A temporary is placed in a part when rows of at least `row` bytes of it stay together.
    """

    row: int = 1024
    apart: bool = True
    """What is no temporary becomes a kernel of its own; without it, only results of which all parts are temporaries share their memory."""

    def apply(self, program: Program, target: Target) -> Program:
        work = _Work.of(program, self.row)
        joined = work.joined()
        if not self.apart:
            work = _Work.of(program, self.row, frozenset(b for b, placed in joined.items() if placed))
            joined = work.joined()
        apart = [place for place in sorted(work.kernels) if self.apart and work.set_apart(place, program)]
        return drop_unused_temporaries(work.result(program)) if joined or apart else program


@frozen
class _Part:
    """Some cells of a result, and the stage that writes them."""

    place: Place
    view: KernelView
    stage: Stage
    box: Box


@frozen
class _View:
    """A box of a larger buffer."""

    whole: str
    starts: tuple[int, ...]


@dataclass(slots=True)
class _Work:
    """The kernels of a program, and which of them touch each buffer."""

    row: int
    kernels: dict[Place, Statement]
    own: set[str]
    """Temporaries that every run makes."""
    types: dict[str, TensorType]
    touching: defaultdict[str, set[Place]]
    """The kernels that touch a buffer, or a view of it."""
    views: dict[str, _View] = field(default_factory=dict[str, "_View"])
    """Temporaries that are parts of others."""
    wanted: frozenset[str] | None = None
    """The results that may share memory with their parts; None where all may."""

    @staticmethod
    def of(program: Program, row: int, wanted: frozenset[str] | None = None) -> _Work:
        kernels = kernels_of(program)
        known = {s for n in fixed_kernels(program) for s in buffers_named(kernels[n])}
        types = {r.into: r.type for r in main_of(program).refs}
        work = _Work(row, {}, set(temporaries(program)) - known, types, defaultdict(set), wanted=wanted)
        for number, kernel in enumerate(kernels):
            work._put((number, -1, 0), kernel)
        return work

    def _put(self, place: Place, kernel: Statement) -> None:
        self.kernels[place] = kernel
        for buffer in buffers_named(kernel):
            self.touching[buffer].add(place)

    def _view(self, place: Place) -> KernelView | None:
        kernel = self.kernels[place]
        view = open_kernel(kernel) if isinstance(kernel, Block) else None
        return None if view is None or view.loops else view

    def result(self, program: Program) -> Program:
        kernels = with_kernels(program, tuple(self.kernels[place] for place in sorted(self.kernels)))
        return _with_views(kernels, {name: self._resolved(name) for name in self.views})

    def _resolved(self, name: str) -> _View:
        """The view as one of a buffer that is none."""
        view = self.views[name]
        if view.whole not in self.views:
            return view
        outer = self._resolved(view.whole)
        return _View(outer.whole, tuple(map(add, view.starts, outer.starts)))

    # --- defaults ------------------------------------------------------------------------------------

    def joined(self) -> dict[str, bool]:
        """The results that share memory with their parts now, and whether all of these are temporaries."""
        links = [self.join(place) for place in sorted(self.kernels, reverse=True)]
        found = list(dict.fromkeys(buffer for buffer in links if buffer is not None))
        return {buffer: self.divide(buffer) for buffer in reversed(found)}

    def join(self, place: Place) -> str | None:
        """The result of a kernel that takes its default's place from now on; None where it has none to take."""
        view = self._view(place)
        if view is None or len(view.stages) < 2 or view.allocs:
            return None
        old, new = _copied(view.stages[0]) or ("", "")
        later = {u.buffer for s in view.stages[1:] for u in s.uses}
        whole = old in self.own and self.types[old] == self.types[new] and old not in later
        if self.wanted is not None and new not in self.wanted:
            return None
        if not whole or _box(view, view.stages[0], new) != _everything(self.types[new]):
            return None
        if max(self.touching[old]) != place or min(self.touching[new]) != place:
            return None
        views = {p: self._view(p) for p in self.touching[old] - {place}}
        if any(v is None for v in views.values()):
            return None
        for p, found in views.items():
            self._put(p, close_kernel(_renamed(found, old, new)) if found else self.kernels[p])
        del self.touching[old]
        self.kernels[place] = close_kernel(replace(view, stages=view.stages[1:]))
        return new

    def set_apart(self, place: Place, program: Program) -> bool:
        """Lets a kernel copy an input, of which nothing else is read then, by itself: the result may be in the input's memory."""
        view = self._view(place)
        if view is None or len(view.stages) < 2 or view.allocs:
            return False
        old, new = _copied(view.stages[0]) or ("", "")
        later = {u.buffer for s in view.stages[1:] for u in s.uses}
        known = old in program.inputs and new in program.outputs and self.types[old].sizes == self.types[new].sizes
        if not known or old in later or max(self.touching[old]) != place or min(self.touching[new]) != place:
            return False
        self._put(place, close_kernel(replace(view, name=f"{view.name}_copy", stages=view.stages[:1])))
        self._put((place[0], place[0], 0), close_kernel(replace(view, stages=view.stages[1:])))
        return True

    # --- parts ---------------------------------------------------------------------------------------

    def divide(self, buffer: str) -> bool:
        """Lets each part of a result that parts cover be made by itself; a kernel that sets it to zero first is left out.

        Whether all of them are temporaries, in its memory now.
        """
        parts, kept = self._parts(buffer), 0
        others = self.touching[buffer] - {part.place for part in parts}
        for fill in [place for place in others if parts and place < parts[-1].place]:
            self.kernels.pop(fill, None)
            self.touching[buffer].discard(fill)
        for number, part in enumerate(parts):
            self.kernels.pop(part.place, None)
            for touched in {u.buffer for u in part.stage.uses}:
                self.touching[touched].discard(part.place)
            if self._is_placed(part, buffer):
                continue
            kept += 1
            after = self._after(part)
            name = part.view.name if len(part.view.stages) == 1 else f"{part.view.name}_{number}"
            self._put((after, part.place[0], number), close_kernel(replace(part.view, name=name, stages=(part.stage,))))
        return bool(parts) and not kept

    def _parts(self, buffer: str) -> list[_Part]:
        """What writes a result, if it is boxes apart from each other that cover it, but for zeros that it starts with."""
        writers = [
            (p, view) for p in sorted(self.touching[buffer]) if (view := self._view(p)) and buffer in view.writes()
        ]
        found = [(p, view, s, _box(view, s, buffer)) for p, view in writers for s in view.stages]
        everything = _everything(self.types[buffer])
        if _is_fill(found[0][2]) and found[0][3] == everything:
            del found[0]
        parts = [_Part(p, view, s, box) for p, view, s, box in found if box is not None]
        early = {p for p in self.touching[buffer] if p <= writers[-1][0]}
        alone = early == {p for p, _ in writers} and not any(buffer in view.reads() for _, view in writers)
        covered = sum(_cells(part.box) for part in parts) == _cells(everything)
        whole = alone and covered and len(parts) == len(found) and _are_apart([part.box for part in parts])
        return parts if whole else []

    def _is_placed(self, part: _Part, buffer: str) -> bool:
        """The part is a temporary, which is a view of the result from now on."""
        old, _ = _copied(part.stage) or ("", "")
        if old not in self.own or old in self.views or tuple(map(len, part.box)) != self.types[old].sizes:
            return False
        read = next(u for u in part.stage.uses if u.reads)
        whole = _walked(part.view, part.stage, read) == _everything(self.types[old])
        early = all(
            p < part.place for p in self.touching[old] if p in self.kernels and old in buffers_written(self.kernels[p])
        )
        same = self.types[old].dtype is self.types[buffer].dtype
        if not (whole and early and same and self._is_dense(part.box, self.types[buffer])):
            return False
        self.views[old] = _View(buffer, tuple(cells.start for cells in part.box))
        self.touching[buffer] |= self.touching[old]
        return True

    def _is_dense(self, box: Box, type: TensorType) -> bool:
        """Rows of the box are long, or it is one piece of memory."""
        cut = max(
            (d for d, (cells, size) in enumerate(zip(box, type.sizes, strict=True)) if len(cells) < size), default=0
        )
        outer = prod(map(len, box[:cut]))
        return outer == 1 or prod(map(len, box[cut:])) * type.dtype.bytes >= self.row

    def _after(self, part: _Part) -> int:
        """The last of the program's kernels that makes what the part reads, or touches a temporary of that, before the part's own."""
        read = {u.buffer for u in part.stage.uses if u.reads}
        touching = ((b, p) for b in read for p in self.touching[b] if p < part.place and p in self.kernels)
        made = (p[0] for b, p in touching if b in self.own or b in buffers_written(self.kernels[p]))
        return max(made, default=part.place[0])


def _copied(stage: Stage) -> tuple[str, str] | None:
    """(from, to) of a stage that copies cells in their order: a transposed copy of a square is none."""
    if [type(s) for s in stage.body] != [Load, Store] or len(stage.uses) != 2 or facts(stage.body).indirect:
        return None
    source, target = sorted(stage.uses, key=lambda u: u.writes)
    if [f.names for f in source.forms] != [f.names for f in target.forms]:
        return None
    return (source.buffer, target.buffer) if target.dir is Direction.OUT and not source.writes else None


def _is_fill(stage: Stage) -> bool:
    return [type(s) for s in stage.body] == [Const, Store]


def _everything(type: TensorType) -> Box:
    return tuple(map(range, type.sizes))


def _cells(box: Box) -> int:
    return prod(map(len, box))


def _renamed(view: KernelView, old: str, new: str) -> KernelView:
    """`view` with another buffer of main in the place of `old`."""
    refs = tuple(replace(r, into=new, source=new) if r.into == old else r for r in view.refs)
    return replace(view, refs=refs, stages=tuple(s.with_buffers({old: new}) for s in view.stages))


def _box(view: KernelView, stage: Stage, buffer: str) -> Box | None:
    """The cells of `buffer` that a stage writes, each once and nothing else; None when they are no box."""
    outs = [u for u in stage.uses if u.writes]
    if len(outs) != 1 or outs[0].buffer != buffer or outs[0].agg or outs[0].reads or view.allocs:
        return None
    return None if facts(stage.body).indirect else _walked(view, stage, outs[0])


def _walked(view: KernelView, stage: Stage, use: Use) -> Box | None:
    """The cells that a stage goes over through an access, each once; None when they are no box."""
    if view.loops or stage.constraints or stage.guard or use.extent:
        return None
    names = [n for f in use.forms for n in f.names]
    plain = all(len(f.names) <= 1 and all(c == 1 for _, c in f.terms) for f in use.forms)
    if not plain or sorted(names) != sorted(stage.loop_names):
        return None
    ranges = view.ranges
    return tuple(range(f.const, f.const + (ranges[f.names[0]] if f.names else 1)) for f in use.forms)


def _are_apart(boxes: Sequence[Box]) -> bool:
    return not any(_meet(a, b) for a, b in combinations(boxes, 2))


def _meet(one: Box, other: Box) -> bool:
    return all(a.start < b.stop and b.start < a.stop for a, b in zip(one, other, strict=True))


# --- views -------------------------------------------------------------------------------------------


def _with_views(program: Program, views: Mapping[str, _View]) -> Program:
    """`program` with temporaries as views of buffers, which main gets from outside then."""
    if not views:
        return program
    main = main_of(program)
    types = {r.into: r.type for r in main.refs}
    made = [
        part_ref(name, types[name], (view.whole, types[view.whole]), view.starts, Direction.INOUT)
        for name, view in views.items()
    ]
    return with_parts(program, made, main.body)
