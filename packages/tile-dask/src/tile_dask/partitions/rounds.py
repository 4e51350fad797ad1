"""Stages of many equal rounds: one loop in a frame around the boxes of all of them, in the place of a kernel for each round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tile_ir.program.liveness import defined_by
from tile_ir.program.nodes import Op, Param, Program, TensorType
from tile_ir.program.rename import renamed
from tile_opt.regions.operations import rule_of
from tile_opt.regions.region import Walker

from tile_dask.partitions.frames import Rounds

if TYPE_CHECKING:
    from tile_opt.analysis import Sets

    from tile_dask.partitions.speeds import Speed
    from tile_dask.partitions.unroll import Carried


class Values(Protocol):
    """A program's values, and how some are computed from others."""

    speed: Speed
    loops: tuple[Carried, ...]
    splits: dict[str, dict[str, tuple[int, ...]]]
    makers: dict[str, Op]
    types: dict[str, TensorType]
    sets: Sets

    def between(self, name: str, arrays: frozenset[str]) -> Program: ...


class _Round(NamedTuple):
    """What gives one of the values that a round hands on."""

    program: Program
    """Named by what is read and by order: equal for equal rounds."""
    values: tuple[str, ...]
    """What its operations compute, as they are called in the whole program."""


class Looped(NamedTuple):
    """The rounds of a stage."""

    reads: tuple[str, ...]
    values: tuple[str, ...]
    key: object
    """Equal where the same is computed of other arrays."""
    rounds: Rounds


def looped(name: str, arrays: frozenset[str], stages: Values) -> Looped | None:
    """The rounds that give `name`, where they are many and equal; None where they are not."""
    found = _span(name, arrays, stages.loops, stages.speed.written)
    if found is None or name in stages.splits:
        return None
    outer = arrays.difference(*found[1:])
    rounds = [_round(before, after, outer, stages) for before, after in pairwise(found)]
    if rounds[0] is None or any(r is None or [p.program for p in r] != [p.program for p in rounds[0]] for r in rounds):
        return None
    walkers = [_walker(part.program, stages.sets) for part in rounds[0]]
    types = [stages.types[value] for value in found[0]]
    captured = [p.name for part in rounds[0] for p in part.program.inputs[len(types) :]]
    values = [value for r in rounds for part in r or () for value in part.values]
    result = found[-1].index(name)
    key = (tuple(part.program for part in rounds[0]), len(rounds), result)
    return Looped((*found[0], *captured), tuple(values), key, Rounds(walkers, types, len(rounds), result))


def _span(name: str, arrays: frozenset[str], loops: Sequence[Carried], few: int) -> Carried | None:
    """The values handed on from the last round that gives arrays to the one that gives `name`, more than a few rounds later."""
    for loop in loops:
        for last, values in enumerate(loop):
            if name in values:
                first = next((n for n in range(last - 1, -1, -1) if arrays.issuperset(loop[n])), last)
                return loop[first : last + 1] if last - first > few else None
    return None


def _round(before: Sequence[str], after: Sequence[str], arrays: frozenset[str], stages: Values) -> list[_Round] | None:
    """What gives each value of a round from those of the round before and from arrays; None where one is handed on unchanged."""
    if len({*before}) != len(before) or not all(value in stages.makers for value in after):
        return None
    given = arrays.union(before)
    return [_plain(stages.between(value, given - {value}), before, stages.types) for value in after]


def _plain(program: Program, before: Sequence[str], types: Mapping[str, TensorType]) -> _Round:
    """The program with names that are the same in each round; its first inputs are what the round before gave."""
    names = {name: f"before {n}" for n, name in enumerate(before)}
    captured = [p for p in program.inputs if p.name not in names]
    values = tuple(v for op in program.ops for v in defined_by(op))
    inputs = (*(Param(names[name], types[name]) for name in before), *captured)
    names |= {value: f"value {n}" for n, value in enumerate(values)}
    ((_, result),) = program.outputs
    ops = tuple(renamed(op, names) for op in program.ops)
    return _Round(Program("round", inputs, ops, (("R", names[result]),)), values)


def _walker(program: Program, sets: Sets) -> Walker:
    types = program.types()
    return Walker(program, tuple(rule_of(op, types, sets) for op in program.ops))
