"""Aggregate few columns several rows at a time: vectors along rows side by side are full, and none waits for the one before.

A column sum of 100000 rows of 2 adds a vector of two lanes 100000 times, each time to what it has just got. Partial
results of 64 neighbouring rows lie in memory as the rows do: one loop over 128 columns, whose few rows another
contraction adds up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from tile_ir.frozen import frozen
from tile_ir.names import claim
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import Contraction, Elementwise, Op, Program, TensorType

from tile_opt.analysis import FlatDomain, Sets
from tile_opt.program.base import Rewrite
from tile_opt.program.split_reduction import PARTIAL, Cut, covering, in_parts, partial_results

Steps = Mapping[str, int]
"""Elements between neighbouring iterations of each index."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a contraction, `width` neighbouring cells each, that are taken together as `cuts` say."""

    domain: FlatDomain
    width: int
    cuts: Mapping[str, Cut]


@frozen
class FewColumns(Rewrite):
    """Partial results side by side for contractions whose cells are runs of memory of at most half of `run` elements.

    At least `steps` iterations are left to aggregate over, and contractions of more than `most` such runs have enough
    to do without. So do those of what is computed beside something smaller, such as the distances from a mean: that does
    not lie as the rows do, which would then be no loop of their own length. What each cell aggregates depends on the cell in
    a cumulative sum, which one pass makes from row to row.
    """

    run: int = 128
    steps: int = 4
    most: int = 64

    def apply(self, program: Program) -> Program:
        uneven = beside_smaller(program)

        def split(op: Contraction, types: Mapping[str, TensorType], sets: Sets, taken: set[str]) -> Sequence[Op] | None:
            found = None if any(load.tensor in uneven for load in op.loads) else self.rows(op, types, sets)
            if found is None:
                return None
            at = len(op.type.shape)
            while at and prod(op.type.shape[at - 1 :]) <= found.width:
                at -= 1
            return partial_results(op, found.domain, found.cuts, claim(f"{op.name}_rows", taken), at)

        return in_parts(program, split)

    def rows(self, op: Contraction, types: Mapping[str, TensorType], sets: Sets) -> Rows | None:
        """What of a contraction is taken together; None where nothing is."""
        if op.agg is Aggregation.ASSIGN or not 0 < op.type.size <= self.most * self.run // 2 or op.result == PARTIAL:
            return None
        domain = covering(op, sets)
        if domain is None:
            return None
        columns, loads = _columns(op, domain), _steps(op, domain, types)
        unread = {n for n in columns if not any(load[n] for load in loads)}
        if any(unread.intersection(c.names) for c in domain.constraints):
            return None
        width = _along(columns, loads, domain)
        if not loads or not 1 < width <= self.run // 2 or op.type.size > self.most * width:
            return None
        cuts = self._cuts(loads, set(columns), width, domain)
        return Rows(domain, width, cuts) if cuts else None

    def _cuts(self, loads: list[Steps], columns: set[str], width: int, domain: FlatDomain) -> dict[str, Cut]:
        """Rows that are taken together, those farthest apart first; none where few are left."""
        found: dict[str, Cut] = {}
        run, extents = width, domain.extents
        while (index := _next(loads, run, columns | set(found))) is not None and 2 * run <= self.run:
            count = min(extents[index], self.run // run)
            found = {index: Cut.rounds(extents[index], count)} | found
            if count < extents[index]:
                break
            run *= count
        left = prod(r for n, r in extents.items() if n not in columns and n not in found)
        return found if left * prod(c.gone for c in found.values()) >= self.steps else {}


def beside_smaller(program: Program) -> set[str]:
    """What is computed element by element, one of its operands being repeated."""
    types, found = program.types(), set[str]()
    for op in program.ops:
        if isinstance(op, Elementwise):
            operands = [a for a in op.args if isinstance(a, str)]
            if any(a in found or 1 < types[a].size < op.type.size for a in operands):
                found.add(op.name)
    return found


def _columns(op: Contraction, domain: FlatDomain) -> Steps:
    """Steps of the indexes of the result, in the result."""
    steps, _ = domain.strides(domain.output, op.type.shape)
    return {name: step for name, step in zip(domain.names, steps, strict=True) if step}


def _steps(op: Contraction, domain: FlatDomain, types: Mapping[str, TensorType]) -> list[Steps]:
    """Steps of all indexes in every tensor that is read."""
    return [
        dict(zip(domain.names, domain.strides(access, types[load.tensor].shape)[0], strict=True))
        for load, access in zip(op.loads, domain.accesses, strict=True)
        if isinstance(load.tensor, str)
    ]


def _along(columns: Steps, loads: list[Steps], domain: FlatDomain) -> int:
    """Neighbouring cells of the result that lie side by side in all that is read, too."""
    run = 1
    for name, step in sorted(columns.items(), key=lambda c: c[1]):
        if step != run or any(load[name] != run for load in loads):
            break
        run *= domain.extents[name]
    return run


def _next(loads: list[Steps], run: int, taken: set[str]) -> str | None:
    """An index of the aggregation that goes on where a run of so many elements ends, in all that is read."""
    found = (n for n in (loads[0] if loads else ()) if n not in taken)
    return next((n for n in found if all(load[n] == run for load in loads)), None)
