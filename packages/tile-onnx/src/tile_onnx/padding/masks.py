"""Contractions of padded values: the same contributions to cells inside, or neutral ones besides."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import Constraint, Contraction, Literal, ScalarStatement

from tile_onnx.padding.bounds import inside, span
from tile_onnx.padding.needs import Mask, Needs, Refused
from tile_onnx.padding.pair import Pair
from tile_onnx.padding.rules import demand, same

ENUMERATED = 10**6
"""Index tuples that are tried one by one to see whether every cell has a contribution."""


def contraction(pair: Pair, number: int, ours: Contraction, theirs: Contraction) -> None:
    """The index tuples that give cells inside are those of the smaller program; further ones are masked."""
    demand(theirs, _kind(ours) == _kind(theirs) and len(ours.constraints) == len(theirs.constraints))
    regions = inside(ours, ours.type.shape), inside(theirs, ours.type.shape)
    constraints = list(zip(ours.constraints, theirs.constraints, strict=True))
    formulas = [*((a.formula, b.formula) for a, b in constraints), *zip(ours.output, theirs.output, strict=True)]
    formulas += [f for a, b in zip(ours.loads, theirs.loads, strict=True) for f in zip(a.formulas, b.formulas, strict=True)]  # fmt: skip
    same(theirs, formulas, *regions)
    for mine, other in constraints:
        if mine.size > other.size:
            raise Refused(theirs, f"{other.formula} has fewer values for the larger size")
        if mine.size < other.size and span(other.formula, regions[1])[1] >= mine.size:
            pair.needs |= Needs(frozenset(_masks(pair, number, ours, theirs, other)))


def _kind(op: Contraction) -> tuple[object, ...]:
    loads = tuple((load.dst, load.tensor, len(load.formulas)) for load in op.loads)
    return (op.agg, op.indexes, loads, op.body, op.result, op.acc, op.default, op.no_defract, len(op.output))


def _masks(pair: Pair, number: int, small: Contraction, op: Contraction, broken: Constraint) -> Iterator[Mask]:
    """What makes contributions neutral whose `broken` formula lies behind the end."""
    found = [
        (k, axis) for k, load in enumerate(op.loads) if isinstance(load.tensor, str)
        for axis, formula in enumerate(load.formulas)
        if formula == broken.formula and pair.large[load.tensor].shape[axis] == broken.size and pair.padded(load.tensor, axis)
    ]  # fmt: skip
    where = f"{broken.formula} runs over the padded axis"
    if not found:
        raise Refused(op, f"{where}, and nothing that it reads ends there")
    neutral = op.agg.identity(op.acc)
    if op.agg is Aggregation.ASSIGN:
        raise Refused(op, f"{where}, and each cell takes one value")
    if op.agg is Aggregation.SUM:
        if not _vanishes(pair, op, {op.loads[k].dst for k, _ in found}):
            raise Refused(op, f"{where}, and what it adds there is not known to be zero")
    elif op.result != op.loads[found[0][0]].dst or op.default is not None or not _reached(small, broken):
        raise Refused(op, f"{where}, and nothing neutral could stand there")
    for k, axis in found:
        tensor = op.loads[k].tensor
        assert isinstance(tensor, str)
        yield Mask(number, k, tensor, axis, neutral)


def _vanishes(pair: Pair, op: Contraction, zeros: set[str]) -> bool:
    """Whether the body is zero where the loads `zeros` are, whatever the others hold (a zero times infinity is none)."""
    finite = {load.dst for load in op.loads if isinstance(load.tensor, str) and pair.fixed.finite(load.tensor)}
    known = set(zeros)
    for statement in op.body:
        if _is_zero(statement, known, finite):
            known.add(statement.dst)
    return op.result in known


def _is_zero(statement: ScalarStatement, zeros: set[str], finite: set[str]) -> bool:
    are = [a in zeros for a in statement.args]
    match statement.fn:
        case "mul" if any(are):
            return not statement.dtype.is_float or all(
                zero or a in finite or isinstance(a, Literal) for a, zero in zip(statement.args, are, strict=True)
            )
        case "add" | "sub" | "neg" | "ident" | "cast" | "abs" | "max" | "min":
            return all(are)
        case _:
            return False


def _reached(op: Contraction, broken: Constraint) -> bool:
    """Whether each place of the smaller program that the formula has a part in gets a contribution of its own."""
    names, shares = set(broken.formula.names), list[Constraint]()
    while more := [c for c in op.constraints if c not in shares and names & set(c.formula.names)]:
        shares += more
        names |= {n for c in more for n in c.formula.names}
    bounds = inside(op, op.type.shape)
    sizes = {n: (int(bounds[n][0]), int(bounds[n][1])) for n in sorted(names) if not any(map(_endless, bounds[n]))}
    if len(sizes) != len(names) or prod(b - a + 1 for a, b in sizes.values()) > ENUMERATED:
        return False
    grid = dict(zip(sizes, np.meshgrid(*(np.arange(a, b + 1) for a, b in sizes.values()), indexing="ij"), strict=True))
    valid = np.ones([b - a + 1 for a, b in sizes.values()], bool)
    for c in shares:
        value = sum((float(f) * grid[n] for n, f in c.formula.terms), np.asarray(float(c.formula.const)))
        valid &= (value >= 0) & (value < c.size)
    return _every_place(op, sizes, valid)


def _endless(bound: object) -> bool:
    return isinstance(bound, float)


def _every_place(op: Contraction, sizes: dict[str, tuple[int, int]], valid: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> bool:  # fmt: skip
    """Whether some tuple is valid for every value of the variables that are subscripts of the output."""
    outputs = {p.names[0]: n for p, n in zip(op.output, op.type.shape, strict=True) if len(p.names) == 1 and p.const == 0 and p.coefficient(p.names[0]) == 1}  # fmt: skip
    if any(sizes.keys() & set(p.names) and not (len(p.names) == 1 and p.names[0] in outputs) for p in op.output):
        return False
    if any(sizes[n] != (0, size - 1) for n, size in outputs.items() if n in sizes):
        return False
    inner = tuple(k for k, n in enumerate(sizes) if n not in outputs)
    return bool(valid.any(inner).all())
