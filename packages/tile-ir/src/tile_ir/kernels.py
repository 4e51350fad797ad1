"""KernelList: what the compiler hands to a backend."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from enum import Enum

from tile_ir.diagnostics import Span, shown
from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.semtree.nodes import Function
from tile_ir.stripe.nodes import Block, ConstantBuffer
from tile_ir.target import Target

SLOW_FLOPS, SLOW_BYTES = 20e9, 10e9
"""One thread's pessimistic speed, a second."""
INLINE_SECONDS = 20e-6
"""Kernels that take one thread less, at that speed, run on the thread that calls them: handing over costs about as much."""
OUTPUT_ALIGN = 16
"""Bytes: kernels may assume that outputs start on a multiple of them, as NumPy's arrays do."""
STREAM_ALIGN = 64
"""Bytes: the alignment, a line's, that streaming stores state for buffers that start on a multiple of them. Nobody promises
that: a device looks at the address when the kernel is called."""


@frozen
class Kernel:
    """One kernel: the scheduled Stripe block and, where the target asks for it, its semtree function.

    The function's parameters are one pointer each, in the order of the `Step.buffers` that run it:
    outputs (and in-out buffers) first, then inputs. `groups` is the grid in work groups.
    """

    name: str
    stripe: Block
    function: Function | None
    groups: tuple[int, int, int]
    flops: int = 0
    """Arithmetic operations of one launch, without those that constraints exclude."""
    bytes: int = 0
    """Compulsory traffic of one launch: each distinct input and output byte once."""
    labels: tuple[str, ...] = field(default=(), compare=False)
    """What users call the applications that its launches compute; for people, code does not depend on them."""

    @property
    def estimated_seconds(self) -> float:
        """Rough time of one launch on one thread of a processor; 0 when the kernel does not say what it does."""
        return rough_seconds(self.flops, self.bytes)

    def __repr__(self) -> str:
        """One line, for prompts and debuggers: the scheduled block and the function are long."""
        return f"<Kernel {self.name!r}, groups {self.groups}, {self.flops} operations, {self.bytes} bytes>"

    @property
    def title(self) -> str:
        """The name in quotes, and what it is part of, for messages."""
        return f"kernel {self.name!r} ({listed(self.labels)})" if self.labels else f"kernel {self.name!r}"


def rough_seconds(flops: float, nbytes: float) -> float:
    """Time of so many operations and bytes at the pessimistic speed."""
    return max(flops / SLOW_FLOPS, nbytes / SLOW_BYTES)


def counted_steps(steps: Sequence[Step], times: int = 1) -> Iterator[tuple[Step, int]]:
    """The steps that are no loops, those inside of loops included, and how often a run starts each."""
    for step in steps:
        if step.loop is None:
            yield step, times
        else:
            yield from counted_steps(step.loop.steps, times * step.loop.count)


def flat_steps(steps: Sequence[Step]) -> Iterator[Step]:
    """The same, without the counts."""
    return (step for step, _ in counted_steps(steps))


def windows_in(steps: Sequence[Step]) -> Iterator[Window]:
    """The windows of all loops among the steps, and in these."""
    for step in steps:
        if step.loop is not None:
            yield from step.loop.windows
            yield from windows_in(step.loop.steps)


MOST_LISTED = 4


def listed(labels: Sequence[str], most: int = MOST_LISTED) -> str:
    """Labels in one line: the first `most`, and how many there are besides."""
    shorter = ", ".join(map(shown, labels[:most]))
    return f"{shorter} and {len(labels) - most} more" if len(labels) > most else shorter


class BufferKind(Enum):
    INPUT = "input"
    OUTPUT = "output"
    TEMP = "temp"
    KEPT = "kept"
    """Written by steps marked `once`, and by no others: the same bytes in every run, apart from all arenas."""
    CONST = "const"


@frozen
class BufferInfo:
    """A buffer a step may name. Temporaries live at `offset` of arena `arena` and may share bytes when never live at once."""

    id: int
    name: str
    kind: BufferKind
    shape: tuple[int, ...]
    dtype: DType
    bytes: int
    arena: int = 0
    offset: int = 0


class StepKind(Enum):
    KERNEL = "kernel"
    FILL = "fill"
    """Set every byte of `buffers[0]` to zero."""
    COPY = "copy"
    """Copy `buffers[1]` to `buffers[0]`."""
    LOOP = "loop"
    """Run the steps of `Step.loop` again and again; `buffers` are all that it touches outside, those that it writes first."""


@frozen
class Step:
    """One launch; `deps` are numbers of earlier steps that must have finished.

    A kernel may read the bytes of an input or a constant as another dtype than the buffer's: narrow numbers as words.
    """

    kind: StepKind
    kernel: int = -1
    buffers: tuple[int, ...] = ()
    deps: tuple[int, ...] = ()
    once: bool = False
    """It depends on constants alone, so that one run serves all: its results are in KEPT buffers. Running it again is right."""
    bound: bool = False
    """It depends on bound inputs and constants alone, and on one input at least: its results, in buffers that no other step
    writes, stay right until such an input is written to. Running it again is right."""
    ops: tuple[int, ...] = field(default=(), compare=False)
    """Numbers of the operations of the program, as it was given to the compiler, that it computes, as far as that is known."""
    loop: Loop | None = None
    """What is repeated, in a step of that kind."""
    copies: tuple[tuple[int, int], ...] = ()
    """(to, from), where all that it does is to copy cells of buffers to the same cells of others."""


@frozen
class Window:
    """A buffer that is other memory in each round of a loop.

    In round t it is ``first[t]``, and once those are used up, ``cycle[t % len(cycle)]``: all of it, or with a `stride`
    the `bytes` bytes from byte ``start + t * stride`` on.
    """

    id: int
    """What the loop's steps call it; no buffer of the list and no other window has this number."""
    first: tuple[int, ...]
    cycle: tuple[int, ...]
    bytes: int
    start: int = 0
    stride: int = 0
    written: bool = False
    """The loop's steps write it; no window is both written and read before."""

    def at(self, round: int) -> tuple[int, int]:
        """The buffer, or window of an outer loop, that it is in a round, and the byte where it begins there."""
        if round < len(self.first):
            return self.first[round], 0
        return self.cycle[round % len(self.cycle)], self.start + round * self.stride


@frozen
class Loop:
    """Steps that run `count` times; those of a round start when the round before it is over.

    The `deps` of a step are numbers of earlier steps among `steps`.
    """

    count: int
    windows: tuple[Window, ...]
    steps: tuple[Step, ...]


@frozen
class KernelList:
    """Distinct kernels, the buffers they touch and the steps that run them, for one target."""

    kernels: tuple[Kernel, ...]
    buffers: tuple[BufferInfo, ...]
    steps: tuple[Step, ...]
    target: Target
    constants: tuple[ConstantBuffer, ...] = ()
    arenas: tuple[int, ...] = field(default=())
    """Bytes of each arena of temporaries."""
    inherits: tuple[tuple[int, int], ...] = ()
    """(output, input) that may be one and the same memory (`tile_ir.inherited`): up to the last step that reads the input, all
    that writes the output copies the same cells of that."""

    def __repr__(self) -> str:
        """One line, whatever the program: what it would take to build it again is in the fields."""
        names = listed([k.name for k in self.kernels])
        return f"<KernelList for {self.target.name}: {names or 'no kernel'}; {len(self.steps)} steps, {len(self.buffers)} buffers>"

    def described(self, origins: Mapping[int, Span]) -> KernelList:
        """The same, with the labels of its kernels: `origins` says where operations of the program come from, by number."""
        labels: dict[int, dict[str, None]] = {}
        for step in flat_steps(self.steps):
            labels.setdefault(step.kernel, {}).update(dict.fromkeys(labels_of(step, origins)))
        if not any(labels.values()):
            return self
        kernels = (replace(k, labels=tuple(labels.get(n, ()))) for n, k in enumerate(self.kernels))
        return replace(self, kernels=tuple(kernels))


def labels_of(step: Step, origins: Mapping[int, Span]) -> tuple[str, ...]:
    """The labels of the operations that a step computes, each once."""
    found = (origins[op].label for op in step.ops if op in origins)
    return tuple(dict.fromkeys(label for label in found if label))
