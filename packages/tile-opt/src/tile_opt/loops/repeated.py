"""A loop of a program as a repeated step of a kernel list: where its body finds what it reads, and leaves what it writes.

A value that a round computes is written to the next place of a ring, and read from there by the rounds that follow, so that
none is copied: the round after it, and, where a carried value is only handed on (``(u, p) -> (new, u)``), those after that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from tile_ir.frozen import frozen
from tile_ir.inherited import inherited, takeable
from tile_ir.kernels import KernelList, Step, Window
from tile_ir.kernels import Loop as Rounds
from tile_ir.program.nodes import Loop, TensorType

from tile_opt.loops.link import Linker, ports
from tile_opt.loops.round import Round, needed
from tile_opt.loops.rows import row_bytes


@frozen
class _Ring:
    """Where a value is written: buffers in turn, or the rows of one; round t begins at byte ``start + t * stride``."""

    buffers: tuple[int, ...]
    bytes: int
    start: int = 0
    stride: int = 0

    def written(self, number: int) -> Window:
        return Window(number, (), self.buffers, self.bytes, self.start, self.stride, written=True)

    def read(self, number: int, first: tuple[int, ...], age: int) -> Window:
        """What was written `age` + 1 rounds ago."""
        turned = tuple(self.buffers[(k - 1 - age) % len(self.buffers)] for k in range(len(self.buffers)))
        return Window(number, first, turned, self.bytes, self.start - (age + 1) * self.stride, self.stride)

    def at(self, round: int) -> tuple[int, int]:
        """The buffer that a round writes, and the byte where."""
        return self.buffers[round % len(self.buffers)], self.start + round * self.stride


@dataclass(slots=True)
class Repeated:
    """One loop, to be linked behind what `linker` has."""

    linker: Linker
    round: Round
    _windows: list[Window] = field(default_factory=list[Window])

    @property
    def loop(self) -> Loop:
        return self.round.loop

    # --- linking ------------------------------------------------------------------------------------------

    def link(self, kernels: KernelList) -> None:
        """Append the loop, its body compiled as `kernels`, and what has to be copied behind it."""
        found = readings(self.round.sources)
        ins, outs = ports(kernels)
        pairs = self._staying(found, kernels, ins, outs)
        places = {name: self._stay(name, found) for b, name in self._outputs(outs) if b in dict(pairs)}
        rings = {name: places.get(name) or self._ring(name, found) for name in self.round.outputs}
        known = {b: self._written(rings[name], name in places) for b, name in self._outputs(outs)}
        known |= dict(zip(ins, self._given(found, rings), strict=True))
        steps = self.linker.embedded(inherited(kernels, pairs), known)
        for step in steps:
            if step.once or step.bound:
                self.linker.launch(step)
        every = inside(steps)
        if every:
            number = self.loop.origin.op if self.loop.origin is not None else -1
            self.linker.loop(Rounds(self.loop.count, tuple(self._windows), every), (number,) if number >= 0 else ())
        self._results(found, rings)

    def _outputs(self, outs: Sequence[int]) -> Iterator[tuple[int, str]]:
        """The body's buffer of each value that a round leaves, and its name."""
        return zip(outs, self.round.outputs, strict=True)

    def _staying(
        self, found: tuple[Reading, ...], kernels: KernelList, ins: Sequence[int], outs: Sequence[int]
    ) -> frozenset[tuple[int, int]]:
        """Values that are carried from round to round where they are: a round changes cells of them."""
        number = {name: b for b, name in self._outputs(outs)}
        alone = Counter(r.ring for r in found)
        own = (r for r in found if r.ring in number and r.inits == (r.carry,) and alone[r.ring] == 1)
        return takeable(
            kernels, [(number[r.ring], ins[r.carry]) for r in own if r.ring and r.ring not in self.round.rows]
        )

    def _stay(self, name: str, found: tuple[Reading, ...]) -> _Ring:
        """The one place of such a value, with its contents before the first round."""
        linker, loop = self.linker, self.loop
        carry = next(r.carry for r in found if r.ring == name)
        wanted = loop.results[carry] in needed(linker.program)
        place = linker.value(loop.results[carry]) if wanted else self._turn(name, loop.types[carry])
        linker.copy(place, linker.value(loop.carries[carry]))
        return _Ring((place,), loop.types[carry].nbytes)

    def _written(self, ring: _Ring, stays: bool) -> int:
        return ring.buffers[0] if stays else self._window(ring.written(0))

    def _window(self, window: Window) -> int:
        number = next(self.linker.windows)
        self._windows.append(replace(window, id=number))
        return number

    def _given(self, found: tuple[Reading, ...], rings: dict[str, _Ring]) -> Iterator[int]:
        """The buffer or window of each input of the body."""
        loop, linker = self.loop, self.linker
        for reading in found:
            yield self._window(self._carried(reading, rings))
        for param, name in zip(loop.body.inputs[len(found) :], loop.slices, strict=False):
            start, stride = self._rows_of(row_bytes(linker.program.types()[name]))
            yield self._window(Window(0, (), (linker.value(name),), param.type.nbytes, start, stride))
        yield from map(linker.value, self.round.captured)

    def _carried(self, reading: Reading, rings: dict[str, _Ring]) -> Window:
        inits = tuple(self.linker.value(self.loop.carries[k]) for k in reading.inits)
        if reading.ring is not None:
            return rings[reading.ring].read(0, inits, reading.age)
        nbytes, period = self.loop.types[reading.carry].nbytes, len(inits) - reading.repeats
        turned = tuple(inits[reading.repeats + (k - reading.repeats) % period] for k in range(period))
        return Window(0, inits[: reading.repeats], turned, nbytes)

    def _ring(self, name: str, found: tuple[Reading, ...]) -> _Ring:
        loop, linker = self.loop, self.linker
        type = self.round.body.types()[self.round.outputs[name]]
        if name in self.round.rows:
            k = len(loop.carries) + self.round.rows.index(name)
            return _Ring((linker.value(loop.results[k]),), type.nbytes, *self._rows_of(row_bytes(loop.types[k])))
        mine = [r for r in found if r.ring == name]
        size = max(r.age for r in mine) + 2
        places: list[int | None] = [None] * size
        for r in mine:
            if r.init(loop.count) is None and loop.results[r.carry] in needed(self.linker.program):
                place = (loop.count - 1 - r.age) % size
                places[place] = linker.value(loop.results[r.carry]) if places[place] is None else places[place]
        return _Ring(tuple(self._turn(name, type) if p is None else p for p in places), type.nbytes)

    def _turn(self, name: str, type: TensorType) -> int:
        return self.linker.temporary(f"{name}_turn", type)

    def _rows_of(self, nbytes: int) -> tuple[int, int]:
        """Where the row of the first round begins, and how far it is to the next."""
        return ((self.loop.count - 1) * nbytes, -nbytes) if self.loop.reverse else (0, nbytes)

    def _results(self, found: tuple[Reading, ...], rings: dict[str, _Ring]) -> None:
        """Copies of what a result shares with others, or is a row of."""
        for reading in found:
            if self.loop.results[reading.carry] not in needed(self.linker.program):
                continue
            target = self.linker.value(self.loop.results[reading.carry])
            init = reading.init(self.loop.count)
            if init is not None:
                self.linker.copy(target, self.linker.value(self.loop.carries[init]))
            elif reading.ring is not None:
                source, start = rings[reading.ring].at(self.loop.count - 1 - reading.age)
                if source != target:
                    self.linker.copy(target, source, start)


def inside(steps: list[Step]) -> tuple[Step, ...]:
    """The steps of each round, with their waits among themselves."""
    kept = [n for n, step in enumerate(steps) if not (step.once or step.bound)]
    place = {n: k for k, n in enumerate(kept)}
    return tuple(replace(steps[n], deps=tuple(place[d] for d in steps[n].deps if d in place)) for n in kept)


@frozen
class Reading:
    """Where a round finds what carry number `carry` holds: first the initial values `inits` (by carry), one a round, then,
    with a `ring`, what was computed as that ring's value `age` + 1 rounds ago; without one, `inits` from `repeats` on again.
    """

    carry: int
    inits: tuple[int, ...]
    ring: str | None
    age: int = 0
    repeats: int = 0

    def init(self, round: int) -> int | None:
        """The carry whose initial value is read in a round (or is the result after so many); None for the ring."""
        if round < len(self.inits):
            return self.inits[round]
        if self.ring is not None:
            return None
        return self.inits[self.repeats + (round - self.repeats) % (len(self.inits) - self.repeats)]


def readings(sources: Sequence[int | str]) -> tuple[Reading, ...]:
    """For each carry where it is read; `sources[j]` is what a round makes carry j: another carry, by number, or a value."""
    return tuple(_reading(carry, sources) for carry in range(len(sources)))


def _reading(carry: int, sources: Sequence[int | str]) -> Reading:
    seen = [carry]
    while isinstance(source := sources[seen[-1]], int):
        if source in seen:
            return Reading(carry, tuple(seen), None, repeats=seen.index(source))
        seen.append(source)
    return Reading(carry, tuple(seen), source, len(seen) - 1)
