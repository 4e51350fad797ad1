"""Kernel lists for backends that run Stripe themselves: one kernel, the scheduled main block of the program.

Its swaps between kernels and its placed temporaries are part of the schedule, so it is not taken apart. The
kernel's buffers are the views of main in order, those that it writes first.
"""

from __future__ import annotations

from math import prod

from tile_ir.kernels import BufferInfo, BufferKind, Kernel, KernelList, Step, StepKind
from tile_ir.stripe.nodes import Block, Direction, Program, Refinement
from tile_ir.stripe.walk import spans_in
from tile_ir.target import Target

from tile_opt.lowering.body import LoweringError
from tile_opt.lowering.cost import flops


def lower_whole(program: Program, target: Target) -> KernelList:
    """The kernel list of one kernel that runs all of `program`."""
    (main,) = program.entry.body
    if not isinstance(main, Block):
        raise LoweringError("the entry block must hold the main block")
    allocations = {r.into: r for r in program.entry.refs}
    constants = [c.name for c in program.constants]
    names = [*program.inputs, *(o for o in program.outputs if o not in program.inputs), *constants]
    numbers = {name: k for k, name in enumerate(names)}
    buffers = tuple(_info(numbers[n], allocations[n], _kind(n, program)) for n in names)
    outer = [r for r in main.refs if r.dir is not Direction.ALLOC]
    ordered = [r for r in outer if r.dir is not Direction.IN] + [r for r in outer if r.dir is Direction.IN]
    for ref in outer:
        if ref.source not in numbers:
            raise LoweringError(f"main sees {ref.source!r}, which is neither input, output nor constant")
    kernel = Kernel(
        program.entry.comment or "program", main, None, (1, 1, 1), flops(main), sum(b.bytes for b in buffers)
    )
    computed = {span.op: span for span in spans_in(main) if span.op >= 0}
    step = Step(StepKind.KERNEL, 0, tuple(numbers[r.source] for r in ordered), ops=tuple(sorted(computed)))
    steps = (step,) if main.body else ()
    return KernelList((kernel,), buffers, steps, target, program.constants).described(computed)


def _kind(name: str, program: Program) -> BufferKind:
    if name in program.outputs:
        return BufferKind.OUTPUT
    return BufferKind.INPUT if name in program.inputs else BufferKind.CONST


def _info(number: int, ref: Refinement, kind: BufferKind) -> BufferInfo:
    size = prod(ref.type.sizes) * ref.type.dtype.bytes
    return BufferInfo(number, ref.into, kind, ref.type.sizes, ref.type.dtype, size)
