"""Elements that a contraction reads with a step, side by side.

``Y[o, y, x] = +(X[c, 2*y, 2*x] * W[o, c])`` uses each element of X that it reads once for every o, and walks over those
that it does not read. A copy ``[c, y, x]`` costs little beside that, and rows of it are one piece of memory. So does one of
V in ``Y[i] = +(A[i, j] * V[3*j])``, whose sums then go along rows of both.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from math import prod

from tile_ir.frozen import frozen
from tile_ir.names import claim
from tile_ir.ops import Aggregation
from tile_ir.program.copies import copied
from tile_ir.program.nodes import Contraction, Op, Poly, Program, TensorLoad, TensorType, coordinates
from tile_ir.stripe.affine import names_in

from tile_opt.program.base import Rewrite, fixed_values, with_each
from tile_opt.program.factorise import own_ranges, result_ranges

Steps = tuple[tuple[int, int, int], ...]
"""For each dimension the first element, the step, and how many: ``(first, step, count)``."""


@frozen
class Subsample(Rewrite):
    """Give sums of products that use elements `uses` times and more, and read them with a step, copies of these.

    Only where all elements together are used `least` times, and, with `tile`, where neighbours in memory are skipped and
    what is used of a row fills no tiles of so many elements: side by side, rows make one.
    """

    uses: int = 16
    least: int = 0
    tile: int = 0
    whole: int = 0
    """Uses of all elements together from which it is done where neighbours in memory are read together, too."""

    def apply(self, program: Program) -> Program:
        types = program.types()
        return with_each(program, _Copies(self, types, fixed_values(program).keys(), set(types)).op)


class _Copies:
    """Contractions on copies of what they read, and the copies in front of the first of them."""

    def __init__(self, options: Subsample, types: dict[str, TensorType], fixed: Set[str], taken: set[str]) -> None:
        self.options = options
        self.types = types
        self.fixed = fixed
        self.taken = taken
        self.made: dict[tuple[str, Steps], str] = {}

    def op(self, op: Op) -> list[Op]:
        if not isinstance(op, Contraction) or op.agg is not Aggregation.SUM or len(op.loads) < 2:
            return [op]
        copies: list[Op] = []
        loads = tuple(self._load(op, load, copies) for load in op.loads)
        return [*copies, replace(op, loads=loads)] if loads != op.loads else [op]

    def _load(self, op: Contraction, load: TensorLoad, copies: list[Op]) -> TensorLoad:
        if not isinstance(load.tensor, str) or load.tensor in self.fixed:
            return load
        source, counts = self.types[load.tensor], own_ranges(op) | result_ranges(op)
        plain = [_walk(op, f, counts) for f in load.formulas]
        steps = tuple(
            (0, 1, size) if walk is None else (*walk[1:], counts[walk[0]])
            for walk, size in zip(plain, source.shape, strict=True)
        )
        inside = all(
            a >= 0 and a + step * (n - 1) < size for (a, step, n), size in zip(steps, source.shape, strict=True)
        )
        if not inside or not any(plain) or not self._pays(op, load, steps):
            return load
        if (load.tensor, steps) not in self.made:
            name = self.made[load.tensor, steps] = claim(f"{load.tensor}_stepped", self.taken)
            copies.append(_stepped(name, load.tensor, source, steps, op))
        pairs = zip(load.formulas, plain, strict=True)
        formulas = tuple(f if walk is None else Poly.of({walk[0]: 1}) for f, walk in pairs)
        return replace(load, tensor=self.made[load.tensor, steps], formulas=formulas)

    def _pays(self, op: Contraction, load: TensorLoad, steps: Steps) -> bool:
        """Many results along an index that does not move the load, and enough of them all."""
        moved = names_in(load.formulas)
        uses = max((count for name, count in result_ranges(op).items() if name not in moved), default=0)
        _, step, count = steps[-1]
        least = max(self.options.least, self.options.whole if step == 1 else 0)
        often = uses >= self.options.uses and uses * prod(count for _, _, count in steps) >= least
        return often and (not self.options.tile or (step > 1 and count % self.options.tile > 0))


def _walk(op: Contraction, formula: Poly, counts: dict[str, int]) -> tuple[str, int, int] | None:
    """(index, first, step) of a subscript that one index alone moves, by more than one; None for others."""
    single = {c.formula.index for c in op.constraints if c.size == 1}
    terms = [(n, c) for n, c in formula.terms if n not in single]
    if len(terms) != 1 or terms[0][0] not in counts:
        return None
    name, step = terms[0]
    whole = step.denominator == formula.const.denominator == 1
    return (name, int(formula.const), int(step)) if whole and step > 1 else None


def _stepped(name: str, source: str, type: TensorType, steps: Steps, reader: Contraction) -> Contraction:
    """``name[d, …] = =(source[first + step*d, …])``."""
    cells, shape = coordinates(len(steps)), tuple(count for _, _, count in steps)
    reads = tuple(c.scaled(step) + Poly.of({}, first) for c, (first, step, _) in zip(cells, steps, strict=True))
    text = f"{name}: {source} with steps {', '.join(str(step) for _, step, _ in steps)}"
    sizes = zip(cells, shape, strict=True)
    return copied(name, TensorType(type.dtype, shape), cells, source, reads, sizes, text=text, origin=reader.origin)
