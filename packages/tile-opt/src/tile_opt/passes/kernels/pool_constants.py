"""pool_constants: many kernels that differ in constants alone become one, which reads them from memory.

A generated program may scale, shift or clamp thousands of tensors by numbers of their own. Each number would make a
kernel of its own, with a schedule and machine code of its own; a number that is read costs one load beside them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from tile_ir.contents import Contents
from tile_ir.dtype import DType
from tile_ir.names import claim
from tile_ir.stripe.hashing import hash_without_constants
from tile_ir.stripe.nodes import (
    Block,
    Const,
    ConstantBuffer,
    Direction,
    Load,
    Op,
    Program,
    Refinement,
    Statement,
    TensorType,
)
from tile_ir.stripe.walk import blocks_in
from tile_ir.target import Target

from tile_opt.blocks.tree import main_of
from tile_opt.passes.base import Pass

Key = tuple[DType, str]
"""A constant by what it is: 0.0 and -0.0 are two, and not-a-number is itself."""


@dataclass(frozen=True)
class PoolConstants(Pass):
    """From `least` kernels that would differ on, constants that are not the same in all of them are read from buffers."""

    least: int = 64

    def apply(self, program: Program, target: Target) -> Program:
        kernels = list(main_of(program).body)
        pool = _Pool({r.into for r in (*program.entry.refs, *main_of(program).refs)})
        for family in _families(kernels, self.least):
            varying = _varying([_constants(kernel) for _, kernel in family])
            for number, kernel in family:
                kernels[number] = _reading(kernel, varying, pool)
        return _with_buffers(program, tuple(kernels), pool)


@dataclass(slots=True)
class _Pool:
    """The buffers of constants, one for each value."""

    taken: set[str]
    buffers: dict[Key, ConstantBuffer] = field(default_factory=dict[Key, ConstantBuffer])

    def buffer(self, constant: Const) -> ConstantBuffer:
        key = _key(constant)
        if key not in self.buffers:
            name = claim(f"constant_{len(self.buffers)}", self.taken)
            array = np.asarray(constant.value).astype(constant.dtype.numpy)
            data = Contents(array.astype(array.dtype.newbyteorder("<")).tobytes())
            self.buffers[key] = ConstantBuffer(name, _cell(constant.dtype), data)
        return self.buffers[key]


def _cell(dtype: DType) -> TensorType:
    return TensorType.row_major(dtype, ())


def _key(constant: Const) -> Key:
    return constant.dtype, repr(constant.value)


def _constants(kernel: Block) -> tuple[Const, ...]:
    """All constants of a kernel, those of outer blocks first."""
    return tuple(s for block in blocks_in(kernel) for s in block.body if isinstance(s, Const))


# --- families ------------------------------------------------------------------------------------


def _families(kernels: Sequence[Statement], least: int) -> Iterator[list[tuple[int, Block]]]:
    """Kernels with their numbers that are equal but for constants, where those make `least` kernels of them or more.

    The hash is taken only of kernels that look alike: most programs have few.
    """
    for alike in _grouped(enumerate(kernels), _look, least):
        yield from _grouped(alike, hash_without_constants, least)


def _grouped(
    kernels: Iterable[tuple[int, Statement]], key: Callable[[Block], Hashable], least: int
) -> list[list[tuple[int, Block]]]:
    groups: dict[Hashable, list[tuple[int, Block]]] = defaultdict(list)
    for number, kernel in kernels:
        if isinstance(kernel, Block):
            groups[key(kernel)].append((number, kernel))
    return [g for g in groups.values() if len(g) >= least and _values(g) >= least]


def _values(group: list[tuple[int, Block]]) -> int:
    """How many kernels the constants make of them."""
    return len({tuple(map(_key, _constants(kernel))) for _, kernel in group})


def _look(kernel: Block) -> Hashable:
    """Equal for kernels that may be equal but for constants; quick to tell."""
    return tuple(
        (tuple(i.range for i in block.indexes), tuple(s.name if isinstance(s, Op) else type(s) for s in block.body))
        for block in blocks_in(kernel)
    )


def _varying(constants: Sequence[tuple[Const, ...]]) -> tuple[bool, ...]:
    """Which constants are not the same in all kernels."""
    return tuple(len(set(map(_key, column))) > 1 for column in zip(*constants, strict=True))


# --- rewriting -----------------------------------------------------------------------------------


def _reading(kernel: Block, varying: Sequence[bool], pool: _Pool) -> Block:
    """The kernel with its varying constants read from buffers of main."""
    taken = {r.into for block in blocks_in(kernel) for r in block.refs}
    constants = _constants(kernel)
    names = [claim(f"constant{n}", taken) if varies else None for n, varies in enumerate(varying)]
    sources = {name: pool.buffer(c).name for name, c in zip(names, constants, strict=True) if name is not None}
    read, _ = _loading(kernel, iter(names))
    return replace(read, refs=tuple(replace(r, source=sources.get(r.into, r.source)) for r in read.refs))


def _loading(block: Block, names: Iterator[str | None]) -> tuple[Block, list[Refinement]]:
    """The block with its next constants loaded from views with these names, and the views, as its parent needs them too."""
    views: list[Refinement] = []
    body: list[Statement] = []
    for statement in block.body:
        if isinstance(statement, Const) and (name := next(names)) is not None:
            views.append(Refinement(Direction.IN, name, name, (), _cell(statement.dtype)))
            statement = Load(statement.dst, name, deps=statement.deps, origin=statement.origin)
        body.append(statement)
    for number, statement in enumerate(body):
        if isinstance(statement, Block):
            body[number], inner = _loading(statement, names)
            views += inner
    return replace(block, refs=(*block.refs, *views), body=tuple(body)), views


def _with_buffers(program: Program, kernels: tuple[Statement, ...], pool: _Pool) -> Program:
    """`program` with these kernels and what they read."""
    if not pool.buffers:
        return program
    new = tuple(pool.buffers.values())
    const = frozenset(("const",))
    outer = tuple(Refinement(Direction.ALLOC, c.name, "", (), c.type, const=True, tags=const) for c in new)
    inner = tuple(Refinement(Direction.IN, c.name, c.name, (), c.type, const=True) for c in new)
    main = main_of(program)
    main = replace(main, refs=main.refs + inner, body=kernels)
    entry = replace(program.entry, refs=program.entry.refs + outer, body=(main,))
    return replace(program, entry=entry, constants=program.constants + new)
