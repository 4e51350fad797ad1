"""Loops written out, so that rounds are stages like any others; and a function applied to its own results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tile_ir.diagnostics import Diagnostic, TileTypeError
from tile_ir.frozen import frozen
from tile_ir.names import claim
from tile_ir.program.liveness import used_by
from tile_ir.program.nodes import Elementwise, Gather, Literal, Loop, Op, Param, Poly, Program, Reshape, TensorType
from tile_ir.program.rename import renamed, spliced
from tile_opt.regions.rules import refused

ROUNDS = 4096
"""More are refused: a stage per round would be planned."""


Carried = tuple[tuple[str, ...], ...]
"""The values before the first round of a loop, and after each."""


@frozen
class Unrolled:
    """A program without loops."""

    program: Program
    """Its last inputs are the stacks."""
    loops: tuple[Carried, ...]
    """The values that each loop, or the steps, begin with, and those that each round carries on, in order."""
    stacks: Mapping[str, tuple[str, ...]]
    """Of each array that holds a row of every round, these rows: values with a first axis of one cell."""


def unrolled(program: Program) -> Unrolled:
    """The program without loops."""
    text = _Text(set(program.types()))
    names: dict[str, str] = {}
    for op in program.ops:
        op = renamed(op, names)
        if isinstance(op, Loop):
            rounds = text.loop(op)
            text.loops.append((op.carries, *rounds))
            names |= zip(op.results, rounds[-1] if rounds else op.carries, strict=False)
        else:
            text.ops.append(op)
    outputs = tuple((public, names.get(value, value)) for public, value in program.outputs)
    return text.written(replace(program, outputs=outputs))


def repeated(program: Program, steps: int) -> Unrolled:
    """`steps` applications, each of whose outputs are, in order, the first inputs of the next.

    TileTypeError when an output has not the type of the input that it becomes.
    """
    _check_repeats(program)
    text = _Text(set(program.types()))
    carried = [p.name for p in program.inputs[: len(program.outputs)]]
    rounds = [tuple(carried)]
    for _ in range(steps):
        given = zip((p.name for p in program.inputs), carried, strict=False)
        carried = text.inlined(program, dict(given))
        rounds.append(tuple(carried))
    text.loops.append(tuple(rounds))
    outputs = tuple((public, value) for (public, _), value in zip(program.outputs, carried, strict=True))
    return text.written(replace(program, outputs=outputs))


def _check_repeats(program: Program) -> None:
    types = program.types()
    for n, (public, value) in enumerate(program.outputs):
        given = program.inputs[n] if n < len(program.inputs) else None
        if given is None or given.type != types[value]:
            into = "no input is left for it" if given is None else f"input {given.name!r} is {given.type}"
            message = (
                f"output {public!r} is {types[value]}, but {into}: steps give each output to the next step's inputs"
            )
            raise TileTypeError(
                Diagnostic("TILE-E560", message, hint="list the inputs that change first, in the order of the outputs")
            )


@dataclass(slots=True)
class _Text:
    """Operations without loops, as they are written down."""

    taken: set[str]
    ops: list[Op] = field(default_factory=list[Op])
    loops: list[Carried] = field(default_factory=list[Carried])
    stacks: dict[str, tuple[TensorType, tuple[str, ...]]] = field(
        default_factory=dict[str, tuple[TensorType, tuple[str, ...]]]
    )

    def written(self, program: Program) -> Unrolled:
        """`program` of these operations, with the stacks that something reads."""
        read = {name for op in self.ops for name in used_by(op)} | {value for _, value in program.outputs}
        stacks = {name: stack for name, stack in self.stacks.items() if name in read}
        inputs = (*program.inputs, *(Param(name, type) for name, (type, _) in stacks.items()))
        found = replace(program, inputs=inputs, ops=tuple(self.ops), gradients=())
        return Unrolled(found, tuple(self.loops), {name: rows for name, (_, rows) in stacks.items()})

    def inlined(self, body: Program, given: Mapping[str, str]) -> list[str]:
        """Add the operations of a body under fresh names, its inputs called as given; the names of its outputs."""
        names = dict(given)
        for op in body.ops:
            if isinstance(op, Loop):
                names |= {name: claim(name, self.taken) for name in op.results}
                loop = renamed(op, names)
                assert isinstance(loop, Loop)
                rounds = self.loop(loop)
                names |= zip(op.results, rounds[-1] if rounds else loop.carries, strict=False)
            else:
                self.ops += spliced((op,), names, self.taken)
        return [names[value] for _, value in body.outputs]

    def loop(self, loop: Loop) -> list[tuple[str, ...]]:
        """Write a loop out: the values that each round carries on. Its stacks have the names of the loop's results."""
        _check_loop(loop)
        carried, carries = list(loop.carries), len(loop.carries)
        rounds: list[tuple[str, ...]] = []
        rows: list[list[str]] = []
        for n in range(loop.count):
            row = loop.count - 1 - n if loop.reverse else n
            cut = [self._row(s, row, p.type) for s, p in zip(loop.slices, loop.body.inputs[carries:], strict=False)]
            given = zip((p.name for p in loop.body.inputs), (*carried, *cut, *loop.captured), strict=True)
            made = self.inlined(loop.body, dict(given))
            carried = made[:carries]
            rounds.append(tuple(carried))
            rows.append([self._lead(v, t) for v, t in zip(made[carries:], loop.types[carries:], strict=True)])
        for k, (name, type) in enumerate(zip(loop.results[carries:], loop.types[carries:], strict=True)):
            self._stack(name, type, [made[k] for made in (reversed(rows) if loop.reverse else rows)])
        return rounds

    def _stack(self, name: str, type: TensorType, rows: Sequence[str]) -> None:
        if rows:
            self.stacks[name] = (type, tuple(rows))
        else:
            self.ops.append(Elementwise(name, type, "ident", (Literal(0, type.dtype),)))

    def _row(self, name: str, row: int, type: TensorType) -> str:
        """One row of what is cut along its first axis."""
        line, made = claim(f"{name}_row", self.taken), claim(f"{name}_at", self.taken)
        subscripts = tuple(Poly.of({f"i{k}": 1}, 0 if k else row) for k in range(len(type.shape) + 1))
        self.ops.append(Gather(line, TensorType(type.dtype, (1, *type.shape)), name, subscripts))
        self.ops.append(Reshape(made, type, line))
        return made

    def _lead(self, value: str, stack: TensorType) -> str:
        """A row of a stack, as a stack of one row."""
        made = claim(f"{value}_row", self.taken)
        self.ops.append(Reshape(made, TensorType(stack.dtype, (1, *stack.shape[1:])), value))
        return made


def _check_loop(loop: Loop) -> None:
    if loop.count > ROUNDS:
        raise refused(f"a loop of {loop.count} rounds is more than the {ROUNDS} that are cut into tasks", loop.origin)
    if loop.slices and not loop.count:
        raise refused("a loop of no rounds over rows is not cut into tasks", loop.origin)
