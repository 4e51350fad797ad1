"""Kernel lists of parts, linked to one: each value of the program has a buffer, and loops repeat their bodies' steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import count

from tile_ir.contents import Contents
from tile_ir.kernels import BufferInfo, BufferKind, Kernel, KernelList, Loop, Step, StepKind, Window
from tile_ir.names import claim, plain
from tile_ir.program.nodes import ConstantTensor, Program, TensorType
from tile_ir.stripe import nodes as stripe
from tile_ir.target import Target

from tile_opt.lowering.accesses import accesses, touched
from tile_opt.lowering.arena import Lifetime, Touch, dependencies, place
from tile_opt.lowering.inherits import inherits
from tile_opt.lowering.program import overlaps

BOUND = 1
"""The arena of what bound inputs decide, which shares no bytes."""


@dataclass(slots=True)
class _Region:
    """Bytes of an arena that are in use from the launch `first` to the launch `last`; -1 before any."""

    bytes: int
    arena: int = 0
    first: int = -1
    last: int = -1
    offset: int = 0

    def touch(self, launch: int) -> None:
        self.first = launch if self.first < 0 else self.first
        self.last = launch


@dataclass(slots=True)
class _Storage:
    """A buffer of the linked list; temporaries are at `offset` of a region."""

    name: str
    kind: BufferKind
    type: TensorType
    region: _Region | None = None
    offset: int = 0

    @property
    def bytes(self) -> int:
        return self.type.nbytes


@dataclass(slots=True)
class Linker:
    """The list as far as it is linked. Buffers have their places in `storages` as numbers, windows numbers below 0."""

    program: Program
    target: Target
    kernels: list[Kernel] = field(default_factory=list[Kernel])
    storages: list[_Storage] = field(default_factory=list[_Storage])
    launches: list[Step] = field(default_factory=list[Step])
    values: dict[str, int] = field(default_factory=dict[str, int])
    """The buffer of each value of the program that has one."""
    constants: dict[tuple[Contents, TensorType], int] = field(default_factory=dict[tuple[Contents, TensorType], int])
    windows: count[int] = field(default_factory=lambda: count(-1, -1))
    outputs: list[str] = field(default_factory=list[str])
    """Names of the buffers of the program's outputs."""
    _names: set[str] = field(default_factory=set[str])
    _types: Mapping[str, TensorType] = field(default_factory=dict[str, TensorType])
    _fixed: set[int] = field(default_factory=set[int])
    """Buffers that constants and bound inputs decide."""
    _copied: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    """Outputs that are copies of values that have a buffer of their own."""

    def __post_init__(self) -> None:
        self._types = self.program.types()
        constants = {op.name: op for op in self.program.ops if isinstance(op, ConstantTensor)}
        for param in self.program.inputs:
            self.values[param.name] = self.buffer(param.name, BufferKind.INPUT, param.type)
            if param.bound:
                self._fixed.add(self.values[param.name])
        for public, value in self.program.outputs:
            number = self.buffer(public, BufferKind.OUTPUT, self._types[value])
            self.outputs.append(self.storages[number].name)
            if value in self.values or value in constants:
                self._copied.append((number, value))
            else:
                self.values[value] = number
        for op in constants.values():
            self.values[op.name] = self.constant(op.name, op.contents, op.type)

    # --- buffers ------------------------------------------------------------------------------------------

    def buffer(
        self, name: str, kind: BufferKind, type: TensorType, region: _Region | None = None, offset: int = 0
    ) -> int:
        """The number of a new buffer."""
        self.storages.append(_Storage(claim(plain(name), self._names), kind, type, region, offset))
        return len(self.storages) - 1

    def temporary(self, name: str, type: TensorType, arena: int = 0) -> int:
        """The number of a new buffer that lives as long as launches touch it."""
        return self.buffer(name, BufferKind.TEMP, type, _Region(type.nbytes, arena))

    def constant(self, name: str, contents: Contents, type: TensorType) -> int:
        found = self.constants.get((contents, type))
        if found is None:
            found = self.constants[contents, type] = self.buffer(name, BufferKind.CONST, type)
            self._fixed.add(found)
        return found

    def value(self, name: str) -> int:
        """The buffer of a value of the program."""
        found = self.values.get(name)
        if found is None:
            found = self.values[name] = self.temporary(name, self._types[name])
        return found

    # --- parts --------------------------------------------------------------------------------------------

    def part(self, part: Program, kernels: KernelList) -> None:
        """Run a part, whose inputs and outputs are called like values, next."""
        inputs, outputs = ports(kernels)
        names = {b: p.name for b, p in zip(inputs, part.inputs, strict=True)}
        names |= {b: value for b, (_, value) in zip(outputs, part.outputs, strict=True)}
        steps = self.embedded(kernels, {b: self.value(name) for b, name in names.items()})
        for step in steps:
            self.launch(step)

    def embedded(self, kernels: KernelList, known: Mapping[int, int]) -> list[Step]:
        """The steps of a list as steps of this one, its buffers being those that are `known`, or new ones."""
        first = len(self.kernels)
        self.kernels += kernels.kernels
        numbers = dict(known)
        regions = {0: _Region(kernels.arenas[0] if kernels.arenas else 0)}
        data = {c.name: c for c in kernels.constants}
        for info in kernels.buffers:
            if info.id not in numbers:
                numbers[info.id] = self._adopted(info, data.get(info.name), regions[0])
        return [self._renumbered(step, numbers, first) for step in kernels.steps]

    def _adopted(self, info: BufferInfo, constant: stripe.ConstantBuffer | None, region: _Region) -> int:
        type = TensorType(info.dtype, info.shape)
        if constant is not None:
            return self.constant(info.name, constant.contents, type)
        if info.kind is BufferKind.KEPT:
            return self.buffer(info.name, BufferKind.KEPT, type)
        if info.arena == BOUND:
            return self.temporary(info.name, type)
        return self.buffer(info.name, BufferKind.TEMP, type, region, info.offset)

    def _renumbered(self, step: Step, numbers: Mapping[int, int], first: int) -> Step:
        loop = step.loop
        if loop is not None:
            inside = {**numbers, **{w.id: next(self.windows) for w in loop.windows}}
            windows = tuple(_renumbered_window(w, inside) for w in loop.windows)
            loop = Loop(loop.count, windows, tuple(self._renumbered(s, inside, first) for s in loop.steps))
        kernel = step.kernel + first if step.kind is StepKind.KERNEL else step.kernel
        copies = tuple((numbers[a], numbers[b]) for a, b in step.copies)
        return replace(step, kernel=kernel, buffers=tuple(numbers[b] for b in step.buffers), loop=loop, copies=copies)

    # --- steps --------------------------------------------------------------------------------------------

    def launch(self, step: Step) -> None:
        """Append a step; what depends on constants alone, or on them and bound inputs, is marked as such."""
        touch = self._touch(step)
        # What a step writes before it reads it is its own; the part has seen that nothing else enters.
        fixed = (step.once or step.bound) and touch.reads - touch.writes <= self._fixed
        if fixed:
            self._fixed |= touch.writes
        once = step.once and fixed
        self.launches.append(replace(step, deps=(), once=once, bound=fixed and not once))
        for b in touch.reads | touch.writes:
            storage = self.storages[b]
            if fixed and not once and b in touch.writes and storage.region is not None:
                storage.region.arena = BOUND
            if storage.region is not None:
                storage.region.touch(len(self.launches) - 1)

    def loop(self, loop: Loop, ops: tuple[int, ...] = ()) -> None:
        """Append a loop, without windows that no step of it looks through."""
        used = {b for step in loop.steps for b in _looked_through(step)}
        loop = replace(loop, windows=tuple(w for w in loop.windows if w.id in used))
        reads, writes = touched(self.kernels, loop)
        buffers = (*sorted(writes), *sorted(reads - writes))
        self.launch(Step(StepKind.LOOP, -1, buffers, ops=ops, loop=loop))

    def copy(self, target: int, source: int, start: int = 0) -> None:
        """Append a copy of a buffer, or of as many bytes of it as `target` has."""
        nbytes = self.storages[target].bytes
        if nbytes == self.storages[source].bytes:
            self.launch(Step(StepKind.COPY, -1, (target, source), copies=((target, source),)))
        else:
            part = Window(next(self.windows), (), (source,), nbytes, start, nbytes)
            self.loop(Loop(1, (part,), (Step(StepKind.COPY, -1, (target, part.id)),)))

    def _touch(self, step: Step) -> Touch:
        flags = list(zip(step.buffers, accesses(self.kernels, step), strict=True))
        return Touch(frozenset(b for b, (read, _) in flags if read), frozenset(b for b, (_, wrote) in flags if wrote))

    # --- the list -----------------------------------------------------------------------------------------

    def finish(self) -> KernelList:
        """The list: temporaries placed, steps connected."""
        for target, value in self._copied:
            self.copy(target, self.value(value))
        arenas = self._placed()
        infos = tuple(self._info(number, storage) for number, storage in enumerate(self.storages))
        touches = [self._touch(step) for step in self.launches]
        waits = dependencies(touches, overlaps(infos))
        steps = tuple(replace(step, deps=deps) for step, deps in zip(self.launches, waits, strict=True))
        constants = tuple(
            stripe.ConstantBuffer(self.storages[n].name, stripe.TensorType.row_major(t.dtype, t.shape), contents)
            for (contents, t), n in self.constants.items()
        )
        pairs = inherits(infos, steps, touches)
        return KernelList(tuple(self.kernels), infos, steps, self.target, constants, arenas, pairs)

    def _placed(self) -> tuple[int, ...]:
        regions = list({id(s.region): s.region for s in self.storages if s.region is not None}.values())
        arenas: list[int] = []
        for number in range(1 + any(r.arena == BOUND for r in regions)):
            mine = [r for r in regions if r.arena == number]
            always = len(self.launches)
            lives = [
                Lifetime(r.bytes, 0, always) if number else Lifetime(r.bytes, max(r.first, 0), max(r.last, 0))
                for r in mine
            ]
            offsets, size = place(lives)
            for region, offset in zip(mine, offsets, strict=True):
                region.offset = offset
            arenas.append(size)
        return tuple(arenas)

    def _info(self, number: int, storage: _Storage) -> BufferInfo:
        type, region = storage.type, storage.region
        arena, offset = (region.arena, region.offset + storage.offset) if region is not None else (0, 0)
        return BufferInfo(number, storage.name, storage.kind, type.shape, type.dtype, storage.bytes, arena, offset)


def _looked_through(step: Step) -> set[int]:
    """The buffers of a step, and those that windows of a loop inside move over."""
    windows = step.loop.windows if step.loop is not None else ()
    return {*step.buffers, *(b for w in windows for b in (*w.first, *w.cycle))}


def _renumbered_window(window: Window, numbers: Mapping[int, int]) -> Window:
    first, cycle = (tuple(numbers[b] for b in group) for group in (window.first, window.cycle))
    return replace(window, id=numbers[window.id], first=first, cycle=cycle)


def ports(kernels: KernelList) -> tuple[list[int], list[int]]:
    """The buffers of a list's inputs and of its outputs, each in header order."""

    def of(kind: BufferKind) -> list[int]:
        return [b.id for b in kernels.buffers if b.kind is kind]

    return of(BufferKind.INPUT), of(BufferKind.OUTPUT)
