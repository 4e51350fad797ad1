"""The part of a stage of many equal rounds that computes one box: a loop in one frame.

Written out, every round computes a box of its own, smaller by what the round reads beyond it, and needs kernels for that
shape. In a frame that holds the boxes of all rounds, each round computes the same cells: those whose neighbours are beyond
the frame get any number, and the cells that a later round needs, by the walks that say which, are never among them.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import accumulate, zip_longest
from typing import NamedTuple

from tile_ir.names import claim
from tile_ir.program.nodes import Gather, Loop, Op, Param, Poly, Program, TensorType
from tile_ir.program.rename import spliced
from tile_opt.regions.boxes import Box
from tile_opt.regions.region import Region, Walker


class _Form(NamedTuple):
    """What rounds compute, and where."""

    frames: tuple[Box, ...]
    """Of each value that is carried."""
    regions: tuple[Region, ...]
    """What each frame takes."""
    result: Box
    """Counted from where the frame of the result begins."""


class Rounds:
    """`count` rounds of walkers, each of which computes one of the values that a round hands on."""

    def __init__(self, walkers: Sequence[Walker], types: Sequence[TensorType], count: int, result: int) -> None:
        """Each walker's first arrays are the values of the round before, of `types`; the others are the same in all rounds.

        The value with the number `result` is computed.
        """
        self._walkers, self._types, self._count, self._result = tuple(walkers), tuple(types), count, result
        self._carried = len(walkers)
        captured = [len(w.inputs) - self._carried for w in walkers]
        self._firsts = tuple(accumulate(captured, initial=0))[:-1]
        """What the numbers of each walker's other arrays begin behind."""
        self._forms: dict[Hashable, _Form] = {}

    def region(self, box: Box) -> Region:
        frames = self._frames(box)
        regions = tuple([w.region(frames[k], self._named(w, frames)) for k, w in enumerate(self._walkers)])
        low = frames[self._result].low
        lying = tuple([frame.relative(box.low) for frame in frames])
        key = (tuple([r.key for r in regions]), lying, box.shape)
        self._forms.setdefault(key, _Form(frames, regions, box.relative(low)))
        captured = [
            read for first, region in zip(self._firsts, regions, strict=True) for read in self._captured(region, first)
        ]
        numbers = tuple([n for region in regions for n in region.numbers])
        return Region(key, (*enumerate(frames), *captured), numbers, (), ())

    def cells(self, region: Region) -> dict[int, int]:
        """Cells that a region computes of the result of each operation, by its number, through all rounds."""
        form = self._forms[region.key]
        found: dict[int, int] = {}
        first = 0
        for walker, inner in [*zip(self._walkers, form.regions, strict=True)] * self._count:
            found |= {first + n: cells for n, cells in walker.cells(inner).items()}
            first += walker.operations
        return found

    def program(self, region: Region, type: TensorType) -> Program:
        """The program of a region: its inputs are the boxes read and the numbers, its output has `type`."""
        form = self._forms[region.key]
        frames = [TensorType(t.dtype, box.shape) for t, box in zip(self._types, form.frames, strict=True)]
        body = _Body(frames)
        for walker, inner, frame in zip(self._walkers, form.regions, frames, strict=True):
            body.add(walker.program(inner, frame), inner)
        return _looped(body.program, self._count, self._result, form.result.low, type)

    # --- frames --------------------------------------------------------------------------------------

    def _frames(self, box: Box) -> tuple[Box, ...]:
        """Around the boxes that rounds need of each value which is carried, from the last round back."""
        asked: list[Box | None] = [box if k == self._result else None for k in range(self._carried)]
        frames = list(asked)
        for _ in range(self._count):
            before = self._before(asked)
            frames = [_around(a, b) for a, b in zip(frames, before, strict=True)]
            if before == asked:
                break
            asked = before
        corners = (Box.whole((1,) * len(type.shape)) for type in self._types)
        return tuple([corner if frame is None else frame for frame, corner in zip(frames, corners, strict=True)])

    def _before(self, asked: Sequence[Box | None]) -> list[Box | None]:
        """The boxes that the round before must give."""
        found: list[Box | None] = [None] * len(asked)
        for walker, box in zip(self._walkers, asked, strict=True):
            for array, read in walker.region(box).reads if box is not None else ():
                if array < self._carried:
                    found[array] = _around(found[array], read)
        return found

    def _named(self, walker: Walker, frames: Sequence[Box]) -> Mapping[str, Box]:
        return dict(zip(walker.inputs, frames, strict=False))

    def _captured(self, region: Region, first: int) -> list[tuple[int, Box]]:
        """What is read of arrays that are the same in all rounds; `first` is added to their numbers."""
        return [(first + array, box) for array, box in region.reads if array >= self._carried]


def _around(a: Box | None, b: Box | None) -> Box | None:
    return a.hull(b) if a and b else a or b


class _Body:
    """One round, as it is written down: its inputs are what is carried, then captured boxes, then numbers."""

    def __init__(self, carried: Sequence[TensorType]) -> None:
        self._taken: set[str] = set()
        self._ops: list[Op] = []
        self._outputs: list[tuple[str, str]] = []
        self._carried = [Param(claim("before", self._taken), type) for type in carried]
        self._captured: list[Param] = []
        self._numbers: list[Param] = []

    def add(self, part: Program, region: Region) -> None:
        """The program of the next value that is carried."""
        names: dict[str, str] = {}
        for param, read in zip_longest(part.inputs, region.reads):
            array = None if read is None else read[0]
            names[param.name] = self._given(param, array)
        self._ops += spliced(part.ops, names, self._taken)
        ((_, result),) = part.outputs
        self._outputs.append((f"R{len(self._outputs)}", names[result]))

    def _given(self, param: Param, array: int | None) -> str:
        """The name of an input: something that is carried, a box of another array, or a number."""
        if array is not None and array < len(self._carried):
            return self._carried[array].name
        made = Param(claim(param.name, self._taken), param.type)
        (self._numbers if array is None else self._captured).append(made)
        return made.name

    @property
    def program(self) -> Program:
        inputs = (*self._carried, *self._captured, *self._numbers)
        return Program("round", inputs, tuple(self._ops), tuple(self._outputs))


def _looped(body: Program, count: int, result: int, low: Sequence[int], type: TensorType) -> Program:
    """So many rounds, and a box of the value with the number `result`, from `low` on."""
    taken: set[str] = set()
    inputs = tuple(Param(claim(p.name, taken), p.type) for p in body.inputs)
    carried = len(body.outputs)
    results = tuple(claim("after", taken) for _ in range(carried))
    names = tuple(p.name for p in inputs)
    loop = Loop(results, tuple(p.type for p in inputs[:carried]), body, count, names[:carried], (), names[carried:])
    subscripts = tuple(Poly.of({f"i{k}": 1}, start) for k, start in enumerate(low))
    cut = Gather(claim("cut", taken), type, results[result], subscripts)
    return Program("chunk", inputs, (loop, cut), (("R", cut.name),))
