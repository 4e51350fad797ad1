"""Loops written out, so that rounds are stages like any others; and a function applied to its own results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tile_ir.diagnostics import Diagnostic, TileTypeError
from tile_ir.names import claim
from tile_ir.program.nodes import Gather, Loop, Op, Poly, Program, Reshape, TensorType
from tile_ir.program.rename import renamed, spliced

from tile_opt.partition.rules import refused

ROUNDS = 4096
"""More are refused: a stage per round would be planned."""


def unrolled(program: Program) -> tuple[Program, tuple[tuple[str, ...], ...]]:
    """The program without loops, and the values that each round carries on, in order."""
    ops: list[Op] = []
    rounds: list[tuple[str, ...]] = []
    taken = set(program.types())
    renames: dict[str, str] = {}
    for op in program.ops:
        op = renamed(op, renames)
        if isinstance(op, Loop):
            _write_out(op, ops, rounds, renames, taken)
        else:
            ops.append(op)
    outputs = tuple((public, renames.get(value, value)) for public, value in program.outputs)
    return replace(program, ops=tuple(ops), outputs=outputs), tuple(rounds)


def repeated(program: Program, steps: int) -> tuple[Program, tuple[tuple[str, ...], ...]]:
    """`steps` applications, each of whose outputs are, in order, the first inputs of the next.

    TileTypeError when an output has not the type of the input that it becomes.
    """
    _check_repeats(program)
    ops: list[Op] = []
    rounds: list[tuple[str, ...]] = []
    taken = set(program.types())
    carried = [p.name for p in program.inputs[: len(program.outputs)]]
    rest = {p.name: p.name for p in program.inputs[len(carried) :]}
    once, _ = unrolled(program)
    for _ in range(steps):
        carried = _inlined(once, carried, rest, ops, taken)
        rounds.append(tuple(carried))
    outputs = tuple((public, value) for (public, _), value in zip(program.outputs, carried, strict=True))
    return replace(program, ops=tuple(ops), outputs=outputs, gradients=()), tuple(rounds)


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


def _write_out(
    loop: Loop, ops: list[Op], rounds: list[tuple[str, ...]], renames: dict[str, str], taken: set[str]
) -> None:
    body, carries = loop.body, len(loop.carries)
    if loop.count > ROUNDS:
        raise refused(f"a loop of {loop.count} rounds is more than the {ROUNDS} that are cut into tasks", loop.origin)
    if len(body.outputs) > carries:
        hint = "let the loop carry what the next round needs, and call it once for each result that is wanted"
        raise refused("a loop that stacks a result of every round is not cut into tasks", loop.origin, hint)
    if loop.slices and not loop.count:
        raise refused("a loop of no rounds over rows is not cut into tasks", loop.origin)
    carried = list(loop.carries)
    names = [p.name for p in body.inputs]
    once, _ = unrolled(body)
    for n in range(loop.count):
        row = loop.count - 1 - n if loop.reverse else n
        cut = [_row(s, row, body.inputs[carries + k].type, ops, taken) for k, s in enumerate(loop.slices)]
        given = dict(zip(names, [*carried, *cut, *loop.captured], strict=True))
        carried = _inlined(once, carried, given, ops, taken)
        rounds.append(tuple(carried))
    renames.update(zip(loop.results, carried, strict=True))


def _row(name: str, row: int, type: TensorType, ops: list[Op], taken: set[str]) -> str:
    """One row of what is cut along its first axis."""
    line, made = claim(f"{name}_row", taken), claim(f"{name}_at", taken)
    subscripts = tuple(Poly.of({f"i{k}": 1}, 0 if k else row) for k in range(len(type.shape) + 1))
    ops.append(Gather(line, TensorType(type.dtype, (1, *type.shape)), name, subscripts))
    ops.append(Reshape(made, type, line))
    return made


def _inlined(body: Program, carried: Sequence[str], given: dict[str, str], ops: list[Op], taken: set[str]) -> list[str]:
    """Add the operations of a body without loops under fresh names; the names of its outputs."""
    names = {p.name: v for p, v in zip(body.inputs, carried, strict=False)} | given
    ops += spliced(body.ops, names, taken)
    return [names[value] for _, value in body.outputs]
