"""Rows of which a sum sees a part, as masks of what weighs: causal attention and windows that are written as constraints.

``O[s, d] = +(E[s, t] / Z[s] * V[t, d]), s - t < S`` with ``E = exp(X - M)`` and M the largest X of the same part of the row
is the sum over all of the row where X is -inf outside of the part: what weighs nothing adds nothing, but to values that are
no numbers. That is the form in which kernels over rows know which pieces nobody sees. Products that are 0 outside of the part,
as gradients have them, need not be so where such weights are all that they are multiplied with.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import inf

from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.names import claim
from tile_ir.ops import Aggregation
from tile_ir.program.liveness import used_by
from tile_ir.program.nodes import (
    Constraint,
    Contraction,
    Elementwise,
    IndexOf,
    Literal,
    Op,
    Operand,
    Poly,
    Program,
    TensorLoad,
    TensorType,
)
from tile_ir.stripe.affine import Affine
from tile_ir.target import Options

from tile_opt.analysis import affine
from tile_opt.program.base import Rewrite
from tile_opt.program.cascade import Groups

Seen = frozenset[tuple[Affine, int]]
"""Forms over the dimensions of scores, ``d0, d1, …``, each of which is at least 0 and below its bound where sums look."""


@frozen
class MaskedRows(Rewrite):
    """Such sums of rows of more than `kept` elements that a product computes, where rounding of products is allowed; 0 leaves all."""

    kept: int = 0
    options: Options = Options()

    def apply(self, program: Program) -> Program:
        firsts = [op for op in program.ops if isinstance(op, Contraction) and op.agg is Aggregation.MAX]
        for first in firsts if self.kept else ():
            program = _masked(program, first, self) or program
        return program


def _masked(program: Program, first: Contraction, options: MaskedRows) -> Program | None:
    """The program with a mask in place of constraints of a maximum and of what is below it; None where it has none, or must keep them."""
    scores = next((load for load in first.loads if isinstance(load.tensor, str)), None)
    if len(first.loads) != 1 or scores is None:
        return None
    seen, types = _seen(first.constraints, scores.formulas), program.types()
    type = types[str(scores.tensor)]
    if not seen or not _is_plain(seen) or _may_be_empty(first, scores, seen, type.shape):
        return None
    rows = _Rows(program, str(scores.tensor), type.shape, first, seen)
    read = {load.tensor for op in rows.bound for load in op.loads if isinstance(load.tensor, str)}
    if not rows.may_be_masked() or not all(options.options.rounds(types[name].dtype) for name in read):
        return None
    made = _with_mask(program, rows, seen, type)
    return made if first.name in Groups(made, options.kept, rounded=True).by_row() else None


@dataclass(frozen=True)
class _Rows:
    """Who looks at scores, and at what is made of them element by element."""

    program: Program
    scores: str
    shape: tuple[int, ...]
    first: Contraction
    seen: Seen

    @cached_property
    def made(self) -> dict[str, Elementwise]:
        """What has an element for each score, of others."""
        ops = self.program.ops
        return {op.name: op for op in ops if isinstance(op, Elementwise) and op.type.shape == self.shape}

    @cached_property
    def parts(self) -> dict[str, Contraction]:
        """What has an element for each score, and is 0 where sums do not look."""
        sums = (op for op in self.program.ops if isinstance(op, Contraction) and op.agg is Aggregation.SUM)
        alike = (op for op in sums if op.type.shape == self.shape and op.default is None)
        return {op.name: op for op in alike if _seen(op.constraints, op.output) == self.seen}

    @cached_property
    def own(self) -> frozenset[str]:
        """Scores, these parts, and what is made of them."""
        found = {self.scores, *self.parts}
        for name, op in self.made.items():
            if not found.isdisjoint(op.args):
                found.add(name)
        return frozenset(found)

    @cached_property
    def sinks(self) -> tuple[Op, ...]:
        """What else looks at these."""
        known = self.own & self.made.keys()
        ops = (op for op in self.program.ops if not self.own.isdisjoint(used_by(op)) and op is not self.first)
        return tuple(op for op in ops if not (isinstance(op, Elementwise) and op.name in known))

    @property
    def bound(self) -> tuple[Contraction, ...]:
        """Sums whose constraints a mask takes the place of."""
        return *self.parts.values(), *(
            op for op in self.sinks if isinstance(op, Contraction) and any(map(_ties, op.constraints))
        )

    def may_be_masked(self) -> bool:
        """All that looks at them adds up nothing outside of what is seen, neither now nor where scores are -inf there."""
        told = not self.own.isdisjoint(value for _, value in self.program.outputs)
        return bool(self.sinks) and not told and all(map(self._adds_nothing, self.sinks))

    def _adds_nothing(self, op: Op) -> bool:
        if not isinstance(op, Contraction) or op.agg is not Aggregation.SUM or op.name in self.parts or op.default:
            return False
        mine = [load for load in op.loads if load.tensor in self.own]
        alike = all(_seen(op.constraints, load.formulas) == self.seen for load in mine)
        free = not any(map(_ties, op.constraints))
        return self._sums_nothing(op, self._is_weight) and (alike or (free and self._sums_nothing(op, self._is_part)))

    def _sums_nothing(self, op: Contraction, nothing: Callable[[Operand], bool]) -> bool:
        """What it adds up is 0 wherever elements that are `nothing` are."""
        made = {load.dst: nothing(load.tensor) for load in op.loads}
        for s in op.body:
            made[s.dst] = _is_nothing(s.fn, [isinstance(a, str) and made[a] for a in s.args])
        return isinstance(op.result, str) and made[op.result]

    def _is_part(self, value: Operand) -> bool:
        """It is 0 outside of what is seen."""
        return value in self._zeros

    def _is_weight(self, value: Operand) -> bool:
        """It is 0 where scores are -inf."""
        return value in self._weights

    @cached_property
    def _zeros(self) -> frozenset[str]:
        return self._nothing(self.parts, lambda _: False)

    @cached_property
    def _weights(self) -> frozenset[str]:
        return self._nothing((), lambda op: op.fn == "exp" and self._is_below(op.args[0]))

    def _nothing(self, known: Iterable[str], first: Callable[[Elementwise], bool]) -> frozenset[str]:
        """What is 0 where all `known` is, and what is `first` made."""
        found = {*known}
        for name, op in self.made.items():
            if first(op) or _is_nothing(op.fn, [a in found for a in op.args]):
                found.add(name)
        return frozenset(found)

    def _is_below(self, value: Operand) -> bool:
        """It is -inf where scores are."""
        op = self.made.get(value) if isinstance(value, str) else None
        return value == self.scores or (op is not None and op.fn in ("sub", "cast") and self._is_below(op.args[0]))


def _is_nothing(fn: str, args: Sequence[bool]) -> bool:
    """The result is 0 where those of the arguments are, as far as all others are numbers."""
    match fn:
        case "mul":
            return any(args)
        case "div" | "neg" | "cast" | "ident":
            return args[0]
        case "add" | "sub":
            return all(args)
        case _:
            return False


def _seen(constraints: Iterable[Constraint], subscripts: Sequence[Poly]) -> Seen:
    """The constraints that tie indexes, by the dimensions that these subscript."""
    dims = {name: Affine.var(f"d{d}") for d, f in enumerate(subscripts) if (name := f.index) is not None}
    tied = [c for c in constraints if _ties(c)]
    if not all({*c.formula.names} <= dims.keys() and c.formula.is_integral for c in tied):
        return frozenset()
    return frozenset((affine(c.formula).substitute(dims), c.size) for c in tied)


def _is_plain(seen: Seen) -> bool:
    """Differences of two dimensions, as comparisons have them."""
    return all(sorted(c for _, c in form.terms) == [-1, 1] for form, _ in seen)


def _may_be_empty(first: Contraction, scores: TensorLoad, seen: Seen, shape: tuple[int, ...]) -> bool:
    """There may be rows of which nothing is seen: of these the largest element is 0, and not -inf."""
    rows = {f.index for f in first.output}
    reduced = [(d, f.index) for d, f in enumerate(scores.formulas) if f.index not in rows]
    if len(reduced) != 1:
        return True
    ((row, index),) = reduced
    name = f"d{row}"
    if not all(form.coefficient(name) for form, _ in seen) or _is_cut(first.constraints, index, shape[row]):
        return True
    ends = {n: (0, size - 1) for n, size in ((f"d{d}", s) for d, s in enumerate(shape))}
    least, most = [Affine()], [Affine((), shape[row] - 1)]
    for form, size in seen:
        rest = form - Affine.var(name, form.coefficient(name))
        up = form.coefficient(name) > 0
        least.append(rest * -1 if up else rest - (size - 1))
        most.append(rest * -1 + (size - 1) if up else rest)
    return any((high - low).bounds(ends)[0] < 0 for low, high in product(least, most))


def _is_cut(constraints: Iterable[Constraint], index: str | None, size: int) -> bool:
    """Some constraint on the index alone leaves out some of so many values."""
    alone = [c for c in constraints if c.formula.names == (index,)]
    ends = ((*affine(c.formula).bounds({str(index): (0, size - 1)}), c) for c in alone)
    return any(low < 0 or high >= c.size or not c.formula.is_integral for low, high, c in ends)


def _with_mask(program: Program, rows: _Rows, seen: Seen, type: TensorType) -> Program:
    bound = {op.name for op in rows.bound} | {rows.first.name}
    masking = _Masking(program, rows, seen, type)
    ops: list[Op] = []
    for op in program.ops:
        match op:
            case Contraction() if op.name in bound or rows.scores in used_by(op):
                op = masking.unbound(op)
            case Elementwise() if rows.scores in op.args:
                op = replace(op, args=tuple(masking.name if a == rows.scores else a for a in op.args))
            case _:
                pass
        ops.append(op)
        if rows.scores in _results(op):
            ops += masking.ops
    return replace(program, ops=tuple(ops))


def _results(op: Op) -> Collection[str]:
    return (op.name,) if isinstance(op, Elementwise | Contraction) else ()


class _Masking:
    """The masked scores, and the operations that make them."""

    def __init__(self, program: Program, rows: _Rows, seen: Seen, type: TensorType) -> None:
        self.rows, self.type = rows, type
        self.taken = {*program.types()}
        self.ops: list[Op] = []
        self.indexes: dict[str, str] = {}
        bounds = {f"d{d}": (0, size - 1) for d, size in enumerate(type.shape)}
        inside = [self._at_least(form) for form in _limits(seen, bounds)]
        mask: str | Literal = inside[0] if inside else Literal(True, DType.BOOL)
        for other in inside[1:]:
            mask = self._made("bit_and", (mask, other), DType.BOOL)
        self.name = self._made("cond", (mask, rows.scores, Literal(-inf, type.dtype)), type.dtype)

    def unbound(self, op: Contraction) -> Contraction:
        """The contraction over all of its rows, of masked scores."""
        name = self.rows.scores
        loads = tuple(replace(load, tensor=self.name) if load.tensor == name else load for load in op.loads)
        return replace(op, loads=loads, constraints=tuple(c for c in op.constraints if not _ties(c)))

    def _at_least(self, form: Affine) -> str:
        """Where a difference of two dimensions is at least 0."""
        (above,) = (n for n, c in form.terms if c > 0)
        (below,) = (n for n, c in form.terms if c < 0)
        high = self._index(above)
        moved = self._made("add", (high, Literal(form.const, DType.INT32)), DType.INT32) if form.const else high
        return self._made("cmp_ge", (moved, self._index(below)), DType.BOOL)

    def _index(self, dim: str) -> str:
        if dim not in self.indexes:
            name = claim(f"{self.rows.scores}_{dim}", self.taken)
            self.ops.append(IndexOf(name, replace(self.type, dtype=DType.INT32), int(dim[1:])))
            self.indexes[dim] = name
        return self.indexes[dim]

    def _made(self, fn: str, args: tuple[str | Literal, ...], dtype: DType) -> str:
        name = claim(f"{self.rows.scores}_seen", self.taken)
        self.ops.append(Elementwise(name, replace(self.type, dtype=dtype), fn, args))
        return name


def _ties(constraint: Constraint) -> bool:
    return len(constraint.formula.terms) > 1


def _limits(seen: Seen, bounds: Mapping[str, tuple[int, int]]) -> Iterator[Affine]:
    """What must be at least 0, as far as it is not so everywhere."""
    for form, size in sorted(seen, key=str):
        yield from (f for f in (form, form * -1 + (size - 1)) if f.bounds(bounds)[0] < 0)
