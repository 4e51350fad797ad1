"""Program to unscheduled Stripe: one kernel block per operation, in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tile_ir.deadline import check
from tile_ir.diagnostics import Diagnostic, TileTypeError
from tile_ir.program.liveness import defined_by
from tile_ir.program.nodes import (
    Argsort,
    ConstantTensor,
    Contraction,
    Elementwise,
    Gather,
    IndexOf,
    Prng,
    Reshape,
    Scatter,
)
from tile_ir.program.nodes import Program as TileProgram
from tile_ir.stripe.nodes import Block, ConstantBuffer, Direction, Program, Refinement
from tile_ir.target import Target

from tile_opt.blocks.buffers import drop_unread_kernels
from tile_opt.translate.argsort import argsort
from tile_opt.translate.build import whole
from tile_opt.translate.context import Context
from tile_opt.translate.contraction import contraction
from tile_opt.translate.elementwise import copy, elementwise, index_of
from tile_opt.translate.gather import gather
from tile_opt.translate.prng import prng
from tile_opt.translate.reshape import reshape
from tile_opt.translate.scatter import scatter

_TRANSLATE: dict[type, Callable[[Context, Any], None]] = {
    Contraction: contraction,
    Elementwise: elementwise,
    IndexOf: index_of,
    Reshape: reshape,
    Gather: gather,
    Scatter: scatter,
    Argsort: argsort,
    Prng: prng,
    ConstantTensor: lambda context, op: None,  # nothing to run: `to_stripe` lists the buffer
}

ANY = Target("any")
"""A target with nothing but what all have."""


def to_stripe(program: TileProgram, target: Target = ANY, first: int = 0) -> Program:
    """The unscheduled Stripe program of a bound program; `target` decides where an operation has several algorithms.

    `inputs` and `outputs` of the result correspond to the program's by position; an output called like an input,
    and what is no plain name, gets another. Kernels are numbered from `first` on. Raises TileTypeError for an unbounded index or a repeated ``=``, TileLimitError when a
    domain is too complicated to analyse; type errors of all operations are collected.
    """
    context = Context.of(program, target, first)
    problems: list[Diagnostic] = []
    for op in program.ops:
        check("translating", defined_by(op)[0], op.origin)
        try:
            _TRANSLATE[type(op)](context, op)
        except TileTypeError as error:
            problems += error.diagnostics
    if problems:
        raise TileTypeError(problems)
    for output, value in context.copies:
        copy(context, output, value)
    return _assemble(context)


def _assemble(context: Context) -> Program:
    inputs = tuple(context.buffers[p.name] for p in context.program.inputs)
    constants = tuple(
        ConstantBuffer(context.buffers[op.name], context.tensors[context.buffers[op.name]], op.contents)
        for op in context.program.ops
        if isinstance(op, ConstantTensor)
    )
    fixed = {c.name for c in constants}
    bound = {context.buffers[p.name] for p in context.program.inputs if p.bound}
    outer: list[Refinement] = []
    inner: list[Refinement] = []
    for name, type_ in context.tensors.items():
        zero = whole(type_)
        if name in context.views:
            source = context.views[name]
            inner.append(Refinement(Direction.IN, name, source, zero, type_, const=source in fixed or source in bound))
            continue
        if name in inputs or name in fixed or name in context.outputs:
            tag = frozenset(("const",) if name in fixed else ("user",))
            outer.append(Refinement(Direction.ALLOC, name, "", zero, type_, const=name in fixed, tags=tag))
            direction = Direction.OUT if name in context.outputs else Direction.IN
            inner.append(Refinement(direction, name, name, zero, type_, const=name in fixed or name in bound))
        else:
            inner.append(Refinement(Direction.ALLOC, name, "", zero, type_, tags=frozenset(("tmp",))))
    main = Block("main", refs=tuple(inner), body=tuple(context.kernels), tags=frozenset(("main",)))
    entry = Block(
        "program", refs=tuple(outer), body=(main,), tags=frozenset(("program",)), comment=context.program.name
    )
    return drop_unread_kernels(Program(entry, constants, inputs, tuple(context.outputs)))
