"""What the steps of a kernel list read and write."""

from __future__ import annotations

from collections.abc import Sequence

from tile_ir.kernels import Kernel, Loop, Step, StepKind
from tile_ir.semtree.nodes import Access
from tile_ir.stripe.nodes import Direction


def accesses(kernels: Sequence[Kernel], step: Step) -> list[tuple[bool, bool]]:
    """For each buffer of a step whether it is read, and whether it is written."""
    match step.kind:
        case StepKind.KERNEL:
            return _of_kernel(kernels[step.kernel])
        case StepKind.FILL | StepKind.COPY:
            return [(False, True), *[(True, False)] * (len(step.buffers) - 1)]
        case StepKind.LOOP:
            assert step.loop is not None
            reads, writes = touched(kernels, step.loop)
            return [(b in reads, b in writes) for b in step.buffers]


def _of_kernel(kernel: Kernel) -> list[tuple[bool, bool]]:
    if kernel.function is not None:
        return [(p.access is not Access.WRITE, p.access is not Access.READ) for p in kernel.function.params]
    outer = [r.dir for r in kernel.stripe.refs if r.dir is not Direction.ALLOC]
    written = sum(d is not Direction.IN for d in outer)
    return [(True, True)] * written + [(True, False)] * (len(outer) - written)


def touched(kernels: Sequence[Kernel], loop: Loop) -> tuple[frozenset[int], frozenset[int]]:
    """The buffers, and windows of outer loops, that a loop reads and that it writes."""
    behind = {w.id: frozenset((*w.first, *w.cycle)) for w in loop.windows}
    reads: set[int] = set()
    writes: set[int] = set()
    for step in loop.steps:
        for buffer, (read, write) in zip(step.buffers, accesses(kernels, step), strict=True):
            found = behind.get(buffer, frozenset((buffer,)))
            reads |= found if read else frozenset()
            writes |= found if write else frozenset()
    return frozenset(reads), frozenset(writes)
