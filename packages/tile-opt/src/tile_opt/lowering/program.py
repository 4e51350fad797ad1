"""A Stripe program to a kernel list: buffers, distinct kernels, steps and their dependencies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import count

from tile_ir.deadline import check
from tile_ir.diagnostics import Span
from tile_ir.dtype import DType
from tile_ir.emit.names import NameAllocator
from tile_ir.kernels import OUTPUT_ALIGN, BufferInfo, BufferKind, Kernel, KernelList, Loop, Step, StepKind, Window
from tile_ir.stripe import nodes as stripe
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.hashing import structural_hash
from tile_ir.stripe.walk import spans_in
from tile_ir.target import Target

from tile_opt.lowering.alike import alike_parts
from tile_opt.lowering.arena import Lifetime, Touch, dependencies, overlapping, place
from tile_opt.lowering.body import LoweringError
from tile_opt.lowering.cost import flops, traffic
from tile_opt.lowering.forms import linear
from tile_opt.lowering.inherits import inherits
from tile_opt.lowering.kernel import LoweredKernel, Slot, Source, lower_kernel
from tile_opt.lowering.whole import copied, whole_move

ALIKE = 8
"""Kernels that differ in places of inputs and outputs alone from which on they are one, whose steps say where: a step of one
round, which costs a call next to nothing."""
CACHED = 2
"""Of a buffer of at least so much less than the last cache, a part may be gone when the next kernel reads it."""


def lower(program: stripe.Program, target: Target) -> KernelList:
    """Lower a program, scheduled or not, to semtree kernels and the steps that run them.

    Kernels that differ only in names of buffers are generated once. LoweringError means that a pass
    broke a convention.
    """
    run = _Lowering(program, target)
    for number, statement in enumerate(run.main.body):
        if not isinstance(statement, stripe.Block):
            raise LoweringError(f"statement {number} of main is a {type(statement).__name__}, not a kernel block")
        check("lowering", statement.name)
        run.statement(statement)
    return run.finish()


@dataclass(slots=True)
class _Storage:
    """A buffer of the program or of main."""

    name: str
    kind: BufferKind
    type: stripe.TensorType
    number: int = -1
    arena: int = 0
    within: tuple[str, int] | None = None
    """The buffer of which it is a part, and how many bytes into it it starts."""

    @property
    def is_window(self) -> bool:
        """It is a part of what is given, where a step finds it."""
        return self.within is not None and self.kind is not BufferKind.TEMP


@dataclass(slots=True)
class _Launch:
    kind: StepKind
    kernel: int
    buffers: tuple[str, ...]
    written: int
    """The first `written` buffers are written."""
    read: frozenset[int] = frozenset()
    """Positions of written buffers whose old contents matter, and of all inputs."""
    ops: tuple[int, ...] = ()
    """See `Step`."""
    copies: tuple[tuple[str, str], ...] = ()
    """The same by names of buffers."""


@dataclass(slots=True)
class _Lowering:
    program: stripe.Program
    target: Target
    main: stripe.Block = field(init=False)
    storage: dict[str, _Storage] = field(default_factory=dict[str, _Storage])
    """By name: buffers of the entry block, main's own, and kernels' temporaries."""
    views: dict[str, tuple[str, Affine, stripe.TensorType]] = field(
        default_factory=dict[str, tuple[str, Affine, stripe.TensorType]]
    )
    """Name in main -> storage, origin in it, type."""
    kernels: list[Kernel] = field(default_factory=list[Kernel])
    launches: list[_Launch] = field(default_factory=list[_Launch])
    known: dict[object, tuple[int, LoweredKernel]] = field(default_factory=dict[object, tuple[int, LoweredKernel]])
    names: NameAllocator = field(default_factory=NameAllocator)
    origins: dict[int, Span] = field(default_factory=dict[int, Span])
    """Where the operations of the program come from, by number."""
    directions: dict[str, bool] = field(default_factory=dict[str, bool])
    """Whether the last kernel on a buffer began at its end."""

    def __post_init__(self) -> None:
        entry = self.program.entry
        (main,) = entry.body
        if not isinstance(main, stripe.Block):
            raise LoweringError("the entry block must hold the main block")
        self.main = main
        constants = {c.name for c in self.program.constants}
        for ref in entry.refs:
            kind = (
                BufferKind.CONST if ref.into in constants
                else BufferKind.OUTPUT if ref.into in self.program.outputs
                else BufferKind.INPUT if ref.into in self.program.inputs
                else BufferKind.TEMP
            )  # fmt: skip
            self.storage[ref.into] = _Storage(ref.into, kind, ref.type)
        wanted = any(entry.name == "places" for entry in self.target.passes)
        found = alike_parts(main, ALIKE) if wanted else frozenset[str]()
        for ref in main.refs:
            self._main_ref(ref, ref.into in found)

    def _main_ref(self, ref: stripe.Refinement, alike: bool) -> None:
        if ref.source:
            affine, quasi = linear(ref.access, ref.type.strides)
            if not affine.is_const or quasi:
                raise LoweringError(f"main's view of {ref.source!r} must be at a fixed place")
            self.views[ref.into] = self._part(ref, affine, alike) or (ref.source, affine, ref.type)
            return
        name = ref.into
        while name in self.storage:
            name += "_tmp"
        self.storage[name] = _Storage(name, BufferKind.TEMP, ref.type)
        self.views[ref.into] = (name, Affine(), ref.type)

    def _part(self, ref: stripe.Refinement, start: Affine, alike: bool) -> tuple[str, Affine, stripe.TensorType] | None:
        """A part as a buffer of its own: where it lies is no matter of the kernels' code then.

        Of what is given, where kernels that are `alike` touch parts of it.
        """
        whole, at = self.storage[ref.source], start.const * ref.type.dtype.bytes
        if ref.into == ref.source or not (alike or whole.kind is BufferKind.TEMP):
            return None
        storage = _Storage(ref.into, whole.kind, ref.type, within=(ref.source, at))
        if at % (self._align(storage) if storage.is_window else OUTPUT_ALIGN):
            return None
        self.storage[ref.into] = storage
        return ref.into, Affine(), ref.type

    # kernels

    def statement(self, kernel: stripe.Block) -> None:
        """Plan the launch of one kernel block."""
        if self._moved(kernel):
            return
        slots, sources = self._sources(kernel)
        number, lowered = self._lowered(kernel, slots, sources, self._backward(slots))
        if not lowered.function.body.body:
            return
        temps = [self._temporary(kernel, dtype, elements) for dtype, elements in lowered.temps]
        buffers = tuple(slots[p].buffer if p >= 0 else temps[-1 - p] for p in lowered.params)
        accesses = [p.access.value for p in lowered.function.params]
        written = sum("write" in a for a in accesses)
        read = frozenset(i for i, a in enumerate(accesses) if "read" in a)
        copies = self._copies(kernel)
        self.launches.append(_Launch(StepKind.KERNEL, number, buffers, written, read, self._ops(kernel), copies))

    def _moved(self, kernel: stripe.Block) -> bool:
        """True when the kernel became a fill or copy step."""
        move = whole_move(kernel)
        # Drivers of graphics processors take longer to fill a buffer than a kernel does.
        if move is None or (move.source is None and self.target.settings.threads > 1):
            return False
        names = [n for n in (move.target, move.source) if n is not None]
        if not all(map(self._is_whole, names)):
            return False
        kind = StepKind.COPY if move.source is not None else StepKind.FILL
        read = frozenset({1} if len(names) > 1 else ())
        buffers = tuple(self.views[n][0] for n in names)
        self.launches.append(_Launch(kind, -1, buffers, 1, read, self._ops(kernel), self._copies(kernel)))
        return True

    def _copies(self, kernel: stripe.Block) -> tuple[tuple[str, str], ...]:
        """The buffers of which it copies cells to the same cells of others, if that is all that it does."""
        pairs = copied(kernel)
        whole = all(self._is_whole(name) for pair in pairs for name in pair)
        return tuple((self.views[to][0], self.views[source][0]) for to, source in pairs) if whole else ()

    def _is_whole(self, name: str) -> bool:
        buffer, start, type = self.views[name]
        storage = self.storage[buffer]
        return start == Affine() and type.extent == storage.type.extent and not storage.is_window

    def _ops(self, kernel: stripe.Block) -> tuple[int, ...]:
        """The operations that a kernel computes, and where they come from."""
        found = {span.op: span for span in spans_in(kernel) if span.op >= 0}
        self.origins |= found
        return tuple(sorted(found))

    def _sources(self, kernel: stripe.Block) -> tuple[list[Slot], dict[str, Source]]:
        slots: list[Slot] = []
        numbers: dict[tuple[str, DType], int] = {}
        sources: dict[str, Source] = {}
        for ref in kernel.refs:
            if not ref.source:
                continue
            buffer, offset, type = self.views[ref.source]
            storage = self.storage[buffer]
            stored = storage.type if type.dtype is storage.type.dtype else type
            if (buffer, stored.dtype) not in numbers:
                numbers[buffer, stored.dtype] = len(slots)
                slots.append(Slot(buffer, stored, self._align(storage)))
            sources[ref.source] = Source(numbers[buffer, stored.dtype], offset, type)
        return slots, sources

    def _align(self, storage: _Storage) -> int:
        """Of a buffer's first byte: inputs and constants promise an element's, outputs and temporaries more."""
        written = storage.kind in (BufferKind.OUTPUT, BufferKind.TEMP)
        return max(OUTPUT_ALIGN if written else 1, storage.type.dtype.bytes, self.target.settings.buffer_align)

    def _backward(self, slots: Sequence[Slot]) -> bool:
        """Whether a kernel begins where the last one on its largest buffer ended: that part is in the device's cache still."""
        caches = self.target.machine.caches if self.target.settings.threads > 1 else ()
        large = [s for s in slots if caches and s.type.extent * s.type.dtype.bytes * CACHED >= caches[-1].bytes]
        if not large:
            return False
        largest = max(large, key=lambda s: (s.buffer in self.directions, s.type.extent * s.type.dtype.bytes))
        backward = not self.directions.get(largest.buffer, True)
        self.directions |= dict.fromkeys((s.buffer for s in large), backward)
        return backward

    def _lowered(
        self, kernel: stripe.Block, slots: Sequence[Slot], sources: Mapping[str, Source], backward: bool
    ) -> tuple[int, LoweredKernel]:
        key = _kernel_key(kernel, slots, sources), backward
        found = self.known.get(key)
        if found is None:
            name = self.names.fresh(kernel.name or "kernel")
            lowered = lower_kernel(kernel, name, slots, sources, self.target.settings, backward)
            found = self.known[key] = (len(self.kernels), lowered)
            if lowered.function.body.body:
                cost = traffic(kernel, slots, sources, lowered.params)
                function = lowered.function if self.target.codegen == "semtree" else None
                self.kernels.append(Kernel(name, kernel, function, lowered.groups, flops(kernel), cost))
        return found

    def _temporary(self, kernel: stripe.Block, dtype: DType, elements: int) -> str:
        """A device temporary of one launch."""
        name = f"{kernel.name}.tmp"
        number = 0
        while (unique := f"{name}{number}") in self.storage:
            number += 1
        self.storage[unique] = _Storage(unique, BufferKind.TEMP, stripe.TensorType.row_major(dtype, (elements,)))
        return unique

    # buffers and steps

    def finish(self) -> KernelList:
        """Number buffers, place temporaries and connect the steps."""
        order = self._ordered()
        touches = [self._touch(launch) for launch in self.launches]
        once, bound = self._once(touches)
        temps = [s for s in order if s.kind is BufferKind.TEMP]
        where, arenas = _placed(temps, self._lifetimes(temps, touches))
        infos = tuple(_info(s, where.get(s.number, 0)) for s in order)
        deps = dependencies(touches, overlaps(infos))
        number = count(-1, -1)
        steps = tuple(
            replace(self._step(launch, touch, number), deps=waits, once=n in once, bound=n in bound)
            for n, (launch, touch, waits) in enumerate(zip(self.launches, touches, deps, strict=True))
        )
        pairs = inherits(infos, steps, touches)
        listed = KernelList(tuple(self.kernels), infos, steps, self.target, self.program.constants, arenas, pairs)
        return listed.described(self.origins)

    def _step(self, launch: _Launch, touch: Touch, numbers: Iterator[int]) -> Step:
        """The step of a launch; where it sees windows, `numbers` has theirs, and it is that of a loop of one round."""
        names = [self.storage[b] for b in launch.buffers]
        written = launch.buffers[: launch.written]
        windows = {s.name: self._window(s, next(numbers), s.name in written) for s in names if s.is_window}
        buffers = tuple(windows[s.name].id if s.name in windows else s.number for s in names)
        copies = tuple((self.storage[a].number, self.storage[b].number) for a, b in launch.copies)
        step = Step(launch.kind, launch.kernel, buffers, ops=launch.ops, copies=copies)
        if not windows:
            return step
        behind = (*sorted(touch.writes), *sorted(touch.reads - touch.writes))
        return Step(StepKind.LOOP, -1, behind, ops=launch.ops, loop=Loop(1, tuple(windows.values()), (step,)))

    def _window(self, storage: _Storage, number: int, written: bool) -> Window:
        whole, start = storage.within or ("", 0)
        return Window(number, (), (self.storage[whole].number,), storage.type.nbytes, start, 0, written)

    def _lifetimes(self, temps: Sequence[_Storage], touches: Sequence[Touch]) -> dict[int, tuple[int, int]]:
        """The first and last step that touch each buffer, or a part of it."""
        found = _first_and_last(touches)
        for part in (s for s in temps if s.within is not None and s.number in found):
            whole = self.storage[part.within[0] if part.within else ""].number
            steps = [*found.get(whole, found[part.number]), *found[part.number]]
            found[whole] = min(steps), max(steps)
        return found

    def _once(self, touches: Sequence[Touch]) -> tuple[frozenset[int], frozenset[int]]:
        """The launches that depend on constants alone, and on bound inputs too; their results are in memory of their own."""
        sizes = {s.number: s.type.nbytes for s in self.storage.values()}
        divided = {name for s in self.storage.values() if s.within is not None for name in (s.name, s.within[0])}
        kinds = {s.number: s.kind for s in self.storage.values() if s.name not in divided}
        constants = {s.number for s in self.storage.values() if s.kind is BufferKind.CONST}
        bound = {self.storage[r.source].number for r in self.main.refs if r.const and r.source}
        once = fixed_steps(touches, constants, kinds, sizes) if constants else frozenset[int]()
        kept = fixed_steps(touches, constants | bound, kinds, sizes) - once if bound > constants else frozenset[int]()
        for storage in self.storage.values():
            if any(storage.number in touches[n].writes for n in once):
                storage.kind = BufferKind.KEPT
            elif any(storage.number in touches[n].writes for n in kept):
                storage.arena = 1
        return once, kept

    def _ordered(self) -> list[_Storage]:
        """Inputs and outputs in header order, constants, then the temporaries in use."""
        table = self.storage
        used = {b for launch in self.launches for b in launch.buffers}
        used |= {s.within[0] for s in table.values() if s.within is not None and s.name in used}
        names = [*self.program.inputs, *(o for o in self.program.outputs if o not in self.program.inputs)]
        names += [c.name for c in self.program.constants]
        names += [n for n, s in table.items() if s.kind is BufferKind.TEMP and n in used]
        for number, name in enumerate(names):
            table[name].number = number
        return [table[name] for name in names]

    def _behind(self, name: str) -> _Storage:
        """The buffer, or what a window is a part of."""
        storage = self.storage[name]
        return self.storage[storage.within[0]] if storage.within is not None and storage.is_window else storage

    def _touch(self, launch: _Launch) -> Touch:
        numbers = [self._behind(b).number for b in launch.buffers]
        return Touch(frozenset(numbers[i] for i in launch.read), frozenset(numbers[: launch.written]))


def _first_and_last(touches: Sequence[Touch]) -> dict[int, tuple[int, int]]:
    """The first and last step that touch each buffer."""
    found: dict[int, tuple[int, int]] = {}
    for number, touch in enumerate(touches):
        for buffer in touch.reads | touch.writes:
            found[buffer] = (found.get(buffer, (number, number))[0], number)
    return found


def _placed(
    temps: Sequence[_Storage], touched: Mapping[int, tuple[int, int]]
) -> tuple[dict[int, int], tuple[int, ...]]:
    """The offset of each temporary in its arena, and the arenas' bytes; what bound inputs decide is apart, and shares nothing."""
    where: dict[int, int] = {}
    arenas: list[int] = []
    for number in range(max((s.arena for s in temps), default=-1) + 1):
        mine = [s for s in temps if s.arena == number and s.within is None]
        always = (0, max((last for _, last in touched.values()), default=0))
        lifetimes = [Lifetime(s.type.nbytes, *(always if number else touched[s.number])) for s in mine]
        offsets, size = place(lifetimes)
        where |= {s.number: offset for s, offset in zip(mine, offsets, strict=True)}
        arenas.append(size)
    numbers = {s.name: s.number for s in temps}
    where |= {s.number: where[numbers[s.within[0]]] + s.within[1] for s in temps if s.within is not None}
    return where, tuple(arenas)


def _info(storage: _Storage, offset: int) -> BufferInfo:
    size = storage.type.nbytes
    type = storage.type
    return BufferInfo(storage.number, storage.name, storage.kind, type.sizes, type.dtype, size, storage.arena, offset)


def overlaps(infos: Sequence[BufferInfo]) -> list[frozenset[int]]:
    """For each buffer the buffers that share bytes with it, itself included."""
    shared: dict[int, set[int]] = {}
    for arena in {i.arena for i in infos}:
        temps = [i for i in infos if i.kind is BufferKind.TEMP and i.arena == arena]
        found = overlapping([(i.offset, i.offset + i.bytes) for i in temps])
        shared |= {i.id: {temps[n].id for n in others} for i, others in zip(temps, found, strict=True)}
    return [frozenset({info.id, *shared.get(info.id, ())}) for info in infos]


def _kernel_key(kernel: stripe.Block, slots: Sequence[Slot], sources: Mapping[str, Source]) -> object:
    """Equal for kernels that generate the same code: structure, and storage of their buffers in order."""
    refs = tuple((sources[r.source].slot, sources[r.source].offset.const) for r in kernel.refs if r.source)
    storage = tuple((s.type.dtype, s.type.sizes, s.type.strides, s.align) for s in slots)
    return structural_hash(kernel), refs, storage


SPACE = 8
"""Times as many bytes as it reads that a step may leave in memory for good."""
SMALL = 1 << 20
"""Bytes that any step may leave."""


def fixed_steps(
    steps: Sequence[Touch], given: Set[int], kinds: Mapping[int, BufferKind], sizes: Mapping[int, int]
) -> frozenset[int]:
    """Numbers of the steps whose operands, and theirs, are among the buffers `given`: they are run once.

    What they write are temporaries that no other step writes, of which `kinds` knows.
    """
    writers: defaultdict[int, set[int]] = defaultdict(set)
    for number, step in enumerate(steps):
        for buffer in step.writes:
            writers[buffer].add(number)
    found = {n for n, step in enumerate(steps) if step.reads and _is_worth(step, sizes)}

    def fixed(buffer: int) -> bool:
        return kinds.get(buffer) is BufferKind.TEMP and writers[buffer] <= found

    while True:
        kept = {
            n
            for n in found
            if all(fixed(b) for b in steps[n].writes) and all(b in given or fixed(b) for b in steps[n].reads)
        }
        if kept == found:
            return frozenset(kept)
        found = kept


def _is_worth(step: Touch, sizes: Mapping[int, int]) -> bool:
    return sum(sizes[b] for b in step.writes) <= max(SMALL, SPACE * sum(sizes[b] for b in step.reads))
