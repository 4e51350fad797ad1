"""Loops that save what they carry every so many rounds: blocks of rounds as loops of their own, inside of a loop over blocks.

The gradient of such a loop saves what each block began with, and its rounds backwards compute a block again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tile_ir.names import claim
from tile_ir.program.copies import copied
from tile_ir.program.nodes import (
    Contraction,
    Gather,
    Loop,
    Op,
    Param,
    Poly,
    Program,
    Reshape,
    TensorType,
    coordinates,
    results_of,
)


def in_blocks(program: Program) -> Program:
    """The program with loops that have checkpoints as loops over blocks, and one over what is left."""
    if not any(isinstance(op, Loop) and 0 < op.checkpoint < op.count for op in program.ops):
        return program
    types, ops = program.types(), list[Op]()
    for op in program.ops:
        split = isinstance(op, Loop) and 0 < op.checkpoint < op.count
        ops += _Blocks(op, types, set(types)).made() if isinstance(op, Loop) and split else [op]
        if split:
            types.update(pair for made in ops for pair in results_of(made))
    return replace(program, ops=tuple(ops))


@dataclass(slots=True)
class _Blocks:
    """One loop, of `blocks` blocks and a rest."""

    op: Loop
    types: dict[str, TensorType]
    taken: set[str]

    def made(self) -> list[Op]:
        op, ops = self.op, list[Op]()
        size = op.checkpoint
        blocks, rest = divmod(op.count, size)
        # The rounds of the blocks come first: in a loop backwards these are the last rows.
        first = rest if op.reverse else 0
        blocked = [self._cut(ops, name, first, blocks * size, (blocks, size)) for name in op.slices]
        left = (
            [self._cut(ops, name, 0 if op.reverse else blocks * size, rest, (rest,)) for name in op.slices]
            if rest
            else []
        )
        carried = len(op.carries)
        names = op.results if not rest else tuple(claim(n, self.taken) for n in op.results)
        outer = self._over_blocks(blocks, size, tuple(blocked), names)
        flat = [claim(n, self.taken) for n in names[carried:]]
        outer = replace(outer, results=(*names[:carried], *flat))
        ops.append(outer)
        shapes = [TensorType(t.dtype, (blocks * size, *t.shape[1:])) for t in op.types[carried:]]
        ops += [Reshape(n, t, f) for n, t, f in zip(names[carried:], shapes, flat, strict=True)]
        if rest:
            ops += self._rest(outer, tuple(left), rest, first, names[carried:])
        return ops

    def _over_blocks(self, blocks: int, size: int, slices: tuple[str, ...], results: tuple[str, ...]) -> Loop:
        op, carried = self.op, len(self.op.carries)
        params = list(op.body.inputs)
        for k in range(carried, carried + len(op.slices)):
            params[k] = Param(params[k].name, TensorType(params[k].type.dtype, (size, *params[k].type.shape)))
        names = tuple(p.name for p in params)
        ends = (carried, carried + len(op.slices))
        taken = set(names)
        inner_results = tuple(claim(f"B{k}", taken) for k in range(len(op.results)))
        rows = tuple(TensorType(t.dtype, (size, *t.shape[1:])) for t in op.types[carried:])
        inner = replace(
            op, results=inner_results, types=(*op.types[:carried], *rows), count=size, carries=names[: ends[0]],
            slices=names[ends[0] : ends[1]], captured=names[ends[1] :], checkpoint=0,
        )  # fmt: skip
        outputs = tuple((f"B{k}", name) for k, name in enumerate(inner_results))
        body = Program(f"{op.body.name}_block", tuple(params), (inner,), outputs)
        stacks = tuple(TensorType(t.dtype, (blocks, size, *t.shape[1:])) for t in op.types[carried:])
        return replace(
            op,
            results=results,
            types=(*op.types[:carried], *stacks),
            body=body,
            count=blocks,
            slices=slices,
            checkpoint=0,
        )

    def _rest(self, outer: Loop, slices: tuple[str, ...], rest: int, first: int, stacks: tuple[str, ...]) -> list[Op]:
        """The rounds behind the last block, and what the two loops stacked as one."""
        op, carried = self.op, len(self.op.carries)
        few = tuple(claim(n, self.taken) for n in op.results[carried:])
        rows = tuple(TensorType(t.dtype, (rest, *t.shape[1:])) for t in op.types[carried:])
        last = replace(
            op, results=(*op.results[:carried], *few), types=(*op.types[:carried], *rows), count=rest,
            carries=outer.results[:carried], slices=slices, checkpoint=0,
        )  # fmt: skip
        ops: list[Op] = [last]
        for name, type_, many, less in zip(op.results[carried:], op.types[carried:], stacks, few, strict=True):
            count, part = type_.shape[0] - rest, claim(name, self.taken)
            ops.append(_placed(part, type_, many, first, count, None))
            ops.append(_placed(name, type_, less, 0 if op.reverse else count, rest, part))
        return ops

    def _cut(self, ops: list[Op], name: str, first: int, count: int, shape: tuple[int, ...]) -> str:
        """Rows of a tensor, in this shape."""
        whole = self.types[name]
        row = whole.shape[1:]
        if count != whole.shape[0]:
            cut = claim(f"{name}_part", self.taken)
            i0, *others = coordinates(len(whole.shape))
            ops.append(Gather(cut, TensorType(whole.dtype, (count, *row)), name, (i0 + Poly.of({}, first), *others)))
            name = cut
        if len(shape) > 1:
            made = claim(f"{name}_blocks", self.taken)
            ops.append(Reshape(made, TensorType(whole.dtype, (*shape, *row)), name))
            name = made
        return name


def _placed(name: str, type_: TensorType, rows: str, first: int, count: int, default: str | None) -> Contraction:
    """`rows` from row `first` of a tensor on, above `default` or zeros."""
    forms = coordinates(len(type_.shape))
    output = (forms[0] + Poly.of({}, first), *forms[1:])
    sizes = [*zip(output, type_.shape, strict=True), *zip(forms, (count, *type_.shape[1:]), strict=True)]
    return copied(name, type_, output, rows, forms, sizes, default=default)
