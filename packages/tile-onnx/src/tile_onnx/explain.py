"""What a model becomes: its device programs, the host work between them, and how long kernels take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from tile_ir.frozen import frozen

from tile_onnx.segments import HostWork, Piece, Segment

if TYPE_CHECKING:
    from tile_runtime.evaluator import Evaluator
    from tile_runtime.lowered import Lowered

    from tile_onnx.feeds import Argument
    from tile_onnx.graph import Graph


@frozen
class KernelTime:
    """Seconds that a kernel takes in one run, all its launches together, and the nodes that it computes."""

    program: int
    kernel: str
    seconds: float
    nodes: tuple[str, ...]


def summary(
    inputs: Sequence[Argument], outputs: Sequence[Argument], opsets: Mapping[str, int], graph: Graph
) -> Iterator[str]:
    """Inputs, outputs, operator sets and how often each operator occurs."""
    versions = ", ".join(f"{d or 'ai.onnx'} {v}" for d, v in opsets.items())
    counts = Counter(n.op_type for n in graph.nodes)
    yield f"Operator sets: {versions}"
    yield from (f"Input {a.name!r}: {a}" for a in inputs)
    yield from (f"Output {a.name!r}: {a}" for a in outputs)
    yield f"{sum(counts.values())} nodes: " + ", ".join(f"{n} {op}" for op, n in counts.most_common())


def explained(pieces: Sequence[Piece], values: frozenset[str], evaluator: Evaluator, *, kernels: bool) -> Iterator[str]:
    """Programs and host work in the order in which they run."""
    if values:
        yield f"Values, a program for each: {', '.join(sorted(values))}"
    steps = [step for piece in pieces for step in piece.steps]
    for number, step in enumerate(steps, 1):
        yield from _segment(number, step, evaluator, kernels) if isinstance(step, Segment) else _work(number, step)
    if not steps:
        yield "Nothing is left to compute: the outputs are inputs, or known"
    if pieces[-1].asks:
        asked = ", ".join(sorted({a.name for a in pieces[-1].asks}))
        yield f"What follows depends on the numbers or the shape of {asked}; it is compiled when a run knows them"


def _segment(number: int, step: Segment, evaluator: Evaluator, kernels: bool) -> Iterator[str]:
    low = lowered(step, evaluator)
    takes, gives = ", ".join(step.inputs) or "nothing", ", ".join(step.outputs)
    launched = len(low.report().kernels)
    kernels_of = "1 kernel" if launched == 1 else f"{launched} kernels"
    yield f"{number}. A program of {kernels_of} on {evaluator.device.id}: from {takes} to {gives}"
    if kernels:
        yield low.explain()


def _work(number: int, step: HostWork) -> Iterator[str]:
    yield f"{number}. On the host: {step.label} gives {', '.join(step.outputs)}"


def lowered(step: Segment, evaluator: Evaluator) -> Lowered:
    """The stages of compiling a device program."""
    return evaluator.lower(step.program, *step.placeholders)


def kernel_times(pieces: Sequence[Piece], evaluator: Evaluator) -> list[KernelTime]:
    """Every kernel of the programs, the slowest first; measured apart from one another, on numbers of no meaning."""
    from tile_runtime.measuring.measure import kernel_seconds

    found: list[KernelTime] = []
    programs = [step for piece in pieces for step in piece.steps if isinstance(step, Segment)]
    for number, step in enumerate(programs, 1):
        low = lowered(step, evaluator)
        labels = {k.name: k.labels for k in low.report().kernels}
        seconds = kernel_seconds(low)
        found += [KernelTime(number, name, time, tuple(labels.get(name, ()))) for name, time in seconds.items()]
    return sorted(found, key=lambda t: -t.seconds)
