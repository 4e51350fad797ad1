"""The first few in order: one walk over a line keeps them, and lines, or parts of each, lie side by side in lanes.

What is kept are codes and the places they came from. A new element goes before the first code that is larger; those
behind it move on by one. That is a fixed number of comparisons and selections, so all lanes do the same. Part p of so
many has every so many-th element of a line from p on; what is kept of the parts is then walked over in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from tile_ir.frozen import frozen
from tile_ir.program.nodes import Argsort
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Order

from tile_opt.translate.build import Loop, Scalar, Stage, cell_of, loops_over
from tile_opt.translate.codes import code, code_type
from tile_opt.translate.context import Context
from tile_opt.translate.sort import PLACE, Sort

FEW = 32
"""Elements up to which they are kept; sorting all is faster beyond."""
SHARE = 64
"""Elements of a part of a line for each that is kept: what is kept of all parts is walked over one by one."""

Cell = tuple[Affine, ...]
Element = Callable[[Stage], tuple[Scalar, Scalar]]
"""The code and the place of the element that a stage visits."""


def kept(context: Context, op: Argsort) -> None:
    """The places of the first elements in order; they are FEW at most."""
    walk = _Walk(context, op, _parts(context, op, prod(Sort(context, op).lines)))
    if walk.parts == 1:
        walk.store(lambda places: walk.of_lines("", places))
        return
    found = walk.temporaries()
    walk.of_lines(*found)
    walk.store(lambda places: walk.of_parts(*found, places))


def _parts(context: Context, op: Argsort, lines: int) -> int:
    """Of each line: where its elements are neighbours, or lines are few, as many as fill lanes and keep all cores busy."""
    settings, shape, few = context.target.settings, context.shape(op.arg), op.type.shape[op.axis]
    lanes = max(1, settings.vector_bytes // PLACE.bytes)
    if op.axis != len(shape) - 1 and lines >= lanes * settings.cores:
        return 1
    most = shape[op.axis] // few // lanes
    wanted = -(-4 * settings.cores // lines) if settings.cores > 1 else 1
    return lanes * max(1, min(wanted, most // SHARE)) if most >= 4 else 1


@frozen
class _Walk(Sort):
    parts: int
    """Of each line."""

    @property
    def steps(self) -> int:
        """Elements of a part."""
        return self.extent // self.parts

    def temporaries(self) -> tuple[str, str]:
        """Codes and places of what is kept of each part."""
        shape = (self.wanted, *self.lines, self.parts)
        dtypes = {"codes": code_type(self.dtype), "places": PLACE}
        codes, places = (self.context.temporary(f"{self.result}_{n}", d, shape) for n, d in dtypes.items())
        return codes, places

    def store(self, make: Callable[[str], None]) -> None:
        """`make` places, elements before lines, where the result has them so; else they are turned afterwards."""
        if self.op.axis == 0:
            make(self.result)
            return
        turned = self.context.temporary(f"{self.result}_turned", PLACE, (self.wanted, *self.lines))
        make(turned)
        kernel, shape = self.kernel(), (*self.lines, self.wanted)
        stage = kernel.stage("places", loops_over(shape))
        *line, number = cell_of(shape)
        stage.store(self.result, self.outside((*line, number)), stage.load(turned, (number, *line)))
        self.context.add(kernel)

    def of_lines(self, codes: str, places: str) -> None:
        """The first of every part of a line; `codes` are "" where they are not wanted."""
        part: tuple[Loop, ...] = (("p", self.parts),) if self.parts > 1 else ()
        state = _State(
            self, [*loops_over(self.lines), *part], (*cell_of(self.lines), *(Affine.var(n) for n, *_ in part))
        )
        place = Affine.of({"t": self.parts, **{n: 1 for n, *_ in part}})
        state.walk([("t", self.steps, Order.ORDERED)], Affine.var("t"), self._element(place))
        state.store(codes, places)

    def _element(self, place: Affine) -> Element:
        def element(stage: Stage) -> tuple[Scalar, Scalar]:
            key = stage.load(self.context.buffers[self.op.arg], self.outside((*cell_of(self.lines), place)))
            return code(key, self.op.descending), stage.index(place, PLACE)

        return element

    def of_parts(self, codes: str, places: str, result: str) -> None:
        """The first of what was kept of the parts, and of the elements that are too few for all parts."""
        loops: list[Loop] = [("p", self.parts, Order.ORDERED), ("q", self.wanted, Order.ORDERED)]
        cell = (Affine.var("q") if self.wanted > 1 else Affine(), *cell_of(self.lines), Affine.var("p"))
        number = Affine.of({"p": self.wanted, **({"q": 1} if self.wanted > 1 else {})})

        def element(stage: Stage) -> tuple[Scalar, Scalar]:
            return stage.load(codes, cell), stage.load(places, cell)

        state = _State(self, loops_over(self.lines), cell_of(self.lines))
        state.walk([loop for loop in loops if loop[1] > 1], number, element, mixed=True)
        walked = self.steps * self.parts
        rest = self.extent - walked
        if rest:
            place = Affine.of({"t": 1}, walked) if rest > 1 else Affine((), walked)
            steps: list[Loop] = [("t", rest, Order.ORDERED)] if rest > 1 else []
            state.walk(steps, place, self._element(place))
        state.store("", result)


class _State:
    """What is kept while elements pass by: codes and places in order, for the cells that `loops` visit."""

    def __init__(self, walk: _Walk, loops: Sequence[Loop], cell: Cell) -> None:
        kernel = walk.kernel()
        self.of, self.kernel, self.loops, self.cell, self.code = walk, kernel, loops, cell, code_type(walk.dtype)
        ranges = {name: count for name, count, *_ in loops}
        cells = tuple(ranges[f.names[0]] if f.names else 1 for f in cell)
        self.codes = [kernel.alloc(f"code_{k}", self.code, cells) for k in range(walk.wanted)]
        self.places = [kernel.alloc(f"place_{k}", PLACE, cells) for k in range(walk.wanted)]
        stage = kernel.stage("none", loops)
        for codes, places in zip(self.codes, self.places, strict=True):
            stage.store(codes, cell, stage.const((1 << self.code.bits) - 1, self.code))
            stage.store(places, cell, stage.const(0, PLACE))

    def walk(self, steps: Sequence[Loop], number: Affine, element: Element, mixed: bool = False) -> None:
        """Visit elements, in order or, of what has equal codes, `mixed`; `number` counts those before."""
        stage = self.kernel.stage("keep", [*self.loops, *steps])
        new = element(stage)
        old = [
            (stage.load(c, self.cell), stage.load(p, self.cell)) for c, p in zip(self.codes, self.places, strict=True)
        ]
        goes = [self._goes_before(new, kept, mixed) for kept in old]
        if not self.of.dtype.is_float:
            # Until so many have come, an integer goes there, too, if its code is the largest; no float has that.
            goes = [test | (stage.index(number, PLACE) <= k) for k, test in enumerate(goes)]
        for k, (kept_code, kept_place) in enumerate(old):
            moved = new[0] if k == 0 else old[k - 1][0].with_("max", new[0])
            stage.store(self.codes[k], self.cell, kept_code.with_("min", moved))
            moved = new[1] if k == 0 else goes[k - 1].choose(old[k - 1][1], new[1])
            stage.store(self.places[k], self.cell, goes[k].choose(moved, kept_place))

    @staticmethod
    def _goes_before(new: tuple[Scalar, Scalar], old: tuple[Scalar, Scalar], mixed: bool) -> Scalar:
        smaller = new[0] < old[0]
        return smaller | new[0].is_(old[0]) & (new[1] < old[1]) if mixed else smaller

    def store(self, codes: str, places: str) -> None:
        """To buffers that have the elements before the lines; none where "" is given."""
        stage = self.kernel.stage("kept", self.loops)
        for own, target in ((self.codes, codes), (self.places, places)):
            for k, buffer in enumerate(own if target else ()):
                stage.store(target, (Affine((), k), *self.cell), stage.load(buffer, self.cell))
        self.of.context.add(self.kernel)
