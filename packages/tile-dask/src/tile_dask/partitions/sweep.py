"""The regions of all chunks of a stage, most of them without a walk.

Everything that a region says follows the corner of its box by affine forms, as long as the same conditions hold, and
these are affine inequalities and equal remainders. So where a row of equal chunks begins and ends with regions of one
form, and its second chunk is of that form, too, all between are, and what they read lies evenly between. The same goes
for blocks of chunks, by their corners.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import pairwise, product
from math import prod
from typing import NamedTuple

from tile_opt.regions.boxes import Box
from tile_opt.regions.region import Region, Walks

from tile_dask.partitions.chunks import Grid, Place

Ranges = tuple[range, ...]
"""A block: the numbers of its chunks along each axis."""


class Found(NamedTuple):
    """What computing one chunk takes."""

    form: int
    """Chunks of one form have one program: see `Sweep.forms`."""
    reads: tuple[tuple[int, Box], ...]
    """(number of the array in the stage's reads, box of it)."""
    numbers: tuple[int, ...]


class Sweep:
    """The regions of a walker for every box of a grid."""

    def __init__(self, walker: Walks, grid: Grid) -> None:
        self._walker, self._grid = walker, grid
        self._numbers: dict[Hashable, int] = {}
        self.forms: list[Region] = []
        """A region of each form."""
        self._found: dict[Place, Found] = {}

    def all(self) -> dict[Place, Found]:
        """What every chunk takes."""
        if len(self._found) < self._grid.chunks:
            for block in product(*map(_runs, self._grid.sizes)):
                self._fill(block)
        return self._found

    def _fill(self, block: Ranges) -> None:
        probes = {place: self._region(place) for place in product(*map(_probes, block))}
        if len(probes) == prod(map(len, block)):
            self._found.update(probes)
        elif len({found.form for found in probes.values()}) == 1:
            self._between(block, probes)
        else:
            for part in _halves(block):
                self._fill(part)

    def _region(self, place: Place) -> Found:
        found = self._found.get(place)
        if found is None:
            region = self._walker.region(self._grid.box(place))
            form = self._numbers.setdefault(region.key, len(self.forms))
            if form == len(self.forms):
                self.forms.append(region)
            found = self._found[place] = Found(form, region.reads, region.numbers)
        return found

    def _between(self, block: Ranges, probes: dict[Place, Found]) -> None:
        """Fill a block whose probes are of one form."""
        first = tuple(r.start for r in block)
        start = probes[first]
        steps = [_step(start, probes.get(_next(first, k))) for k in range(len(block))]
        arrays = [(array, box.shape) for array, box in start.reads]
        for place in product(*block):
            values = _corner(start)
            for step, at, begin in zip(steps, place, first, strict=True):
                if at != begin:
                    values = [v + (at - begin) * s for v, s in zip(values, step, strict=True)]
            self._found[place] = _found(start.form, arrays, values)


def _corner(found: Found) -> list[int]:
    """Where the boxes begin, and the numbers, in a row."""
    return [*(low for _, box in found.reads for low in box.low), *found.numbers]


def _found(form: int, arrays: Sequence[tuple[int, tuple[int, ...]]], values: Sequence[int]) -> Found:
    reads: list[tuple[int, Box]] = []
    n = 0
    for array, shape in arrays:
        low = tuple(values[n : n + len(shape)])
        reads.append((array, Box(low, tuple([a + b for a, b in zip(low, shape, strict=True)]))))
        n += len(shape)
    return Found(form, tuple(reads), tuple(values[n:]))


def _step(start: Found, after: Found | None) -> list[int]:
    """What one chunk further adds."""
    values = _corner(start)
    return [0] * len(values) if after is None else [b - a for a, b in zip(values, _corner(after), strict=True)]


def _next(place: Place, axis: int) -> Place:
    return (*place[:axis], place[axis] + 1, *place[axis + 1 :])


def _runs(sizes: Sequence[int]) -> Iterator[range]:
    """Chunks of equal size beside each other; the first and the last chunk, which meet the borders, on their own."""
    ends = [0, *(n for n in range(1, len(sizes)) if sizes[n] != sizes[n - 1] or n in (1, len(sizes) - 1)), len(sizes)]
    for a, b in pairwise(ends):
        yield range(a, b)


def _probes(run: range) -> list[int]:
    return sorted({run.start, min(run.start + 1, run.stop - 1), run.stop - 1})


def _halves(block: Ranges) -> Iterator[Ranges]:
    """The block cut in two along its longest axis."""
    axis = max(range(len(block)), key=lambda k: len(block[k]))
    run = block[axis]
    middle = (run.start + run.stop) // 2
    for part in (range(run.start, middle), range(middle, run.stop)):
        yield (*block[:axis], part, *block[axis + 1 :])
