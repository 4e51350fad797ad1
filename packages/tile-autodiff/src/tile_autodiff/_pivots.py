"""Pivots: values that are subtracted for safety alone, so that no result depends on them, and no derivative is theirs.

Softmax takes exponentials below the largest element of a row, and divides by their sum: whatever is subtracted, the quotient
is the same. Seen as a function of such a pivot p, every value between is ``x * exp(scale * p) + shift * p`` for some x that p
does not move. That follows from the operations one by one (`_RULES`), and where all results have scale and shift 0, the
derivative by p is 0: nothing is computed for it, and nothing of what a gradient of a maximum would ask for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction

from tile_ir.frozen import frozen
from tile_ir.ops import Aggregation
from tile_ir.program.liveness import defined_by, used_by
from tile_ir.program.nodes import Contraction, CustomGradient, Elementwise, Literal, Op, Operand, Program, TensorType

_EXTREMES = (Aggregation.MAX, Aggregation.MIN)
_SHIFTED = (Aggregation.ASSIGN, *_EXTREMES)
"""Aggregations that commute with adding the same to all elements."""
_SCALED = (Aggregation.SUM, *_SHIFTED)
"""And with a positive factor of all elements."""


@frozen
class _Form:
    """``x * exp(scale * p) + shift * p``, where one of both is 0."""

    scale: Fraction = Fraction(0)
    shift: Fraction = Fraction(0)


_STILL = _Form()
"""What the pivot does not move."""
_PIVOT = _Form(shift=Fraction(1))

Scalar = _Form | Literal


@frozen
class _Moved:
    """A tensor that the pivot moves, and the dimensions by which the pivot's own are subscripted."""

    form: _Form
    rows: tuple[int, ...]


def pivots(program: Program, results: Sequence[str], rules: Sequence[CustomGradient]) -> frozenset[str]:
    """The values of `program` on which `results` do not depend, although they are computed with them."""
    types, ends = program.types(), {*results, *(n for rule in rules for n in (*rule.inputs, *rule.outputs))}
    found = ((name, place) for name, place in _candidates(program, types) if name not in ends)
    return frozenset(name for name, place in found if _Walk(types, name, ends).cancels(program.ops[place + 1 :]))


def _candidates(program: Program, types: Mapping[str, TensorType]) -> Iterator[tuple[str, int]]:
    """Largest and smallest elements, and what is made of them alone, element by element, with their places."""
    extremes: set[str] = set()
    for place, op in enumerate(program.ops):
        match op:
            case Contraction(agg=agg) if agg in _EXTREMES and op.type.dtype.is_float:
                pass
            case Elementwise() if op.type.dtype.is_float and any(
                a in extremes and types[a].shape == op.type.shape for a in op.args if isinstance(a, str)
            ):
                pass
            case _:
                continue
        extremes.add(op.name)
        yield op.name, place


class _Walk:
    """How a pivot moves what is computed after it."""

    def __init__(self, types: Mapping[str, TensorType], pivot: str, ends: set[str]) -> None:
        self.types, self.ends = types, ends
        self.sizes = types[pivot].shape
        rows = tuple(d for d, size in enumerate(self.sizes) if size != 1)
        self.moved = {pivot: _Moved(_PIVOT, rows)}

    def cancels(self, ops: Sequence[Op]) -> bool:
        """No result is moved."""
        for op in ops:
            if self.moved.keys().isdisjoint(used_by(op)):
                continue
            made = self._made(op)
            if made is None or (made.form != _STILL and not self.ends.isdisjoint(defined_by(op))):
                return False
            if made.form != _STILL:
                self.moved[defined_by(op)[0]] = made
        return True

    def _made(self, op: Op) -> _Moved | None:
        """None where nothing is known."""
        match op:
            case Elementwise():
                return self._elementwise(op)
            case Contraction() if op.default not in self.moved:
                return self._contraction(op)
            case _:
                return None

    def _elementwise(self, op: Elementwise) -> _Moved | None:
        rank = len(op.type.shape)
        rows = {self._stretched(a, rank) for a in op.args if isinstance(a, str) and a in self.moved}
        form = _applied(op.fn, [self._scalar(a) for a in op.args], op.type.dtype.is_float)
        return _Moved(form, rows.pop()) if form is not None and len(rows) == 1 else None

    def _stretched(self, name: str, rank: int) -> tuple[int, ...]:
        """The pivot's dimensions in a result of this rank that the value is broadcast to."""
        return tuple(d + rank - len(self.types[name].shape) for d in self.moved[name].rows)

    def _scalar(self, operand: Operand) -> Scalar:
        if isinstance(operand, Literal):
            return operand
        return self.moved[operand].form if operand in self.moved else _STILL

    def _contraction(self, op: Contraction) -> _Moved | None:
        """What is moved by the same row of the pivot at every point of a cell."""
        loads = [(load, self.moved[t]) for load in op.loads if isinstance(t := load.tensor, str) and t in self.moved]
        rows = {tuple(load.formulas[d] for d in moved.rows) for load, moved in loads}
        form = self._aggregated(op)
        (at, *others) = rows
        if form is None or others or any(f.index is None or f not in op.output for f in at):
            return None
        return _Moved(form, tuple(op.output.index(f) for f in at))

    def _aggregated(self, op: Contraction) -> _Form | None:
        """Cells that nobody writes are 0: that has any scale, but no shift."""
        known: dict[str, Scalar | None] = {load.dst: self._scalar(load.tensor) for load in op.loads}
        for s in op.body:
            args = [known[a] if isinstance(a, str) else a for a in s.args]
            given = [a for a in args if a is not None]
            known[s.dst] = _applied(s.fn, given, s.dtype.is_float) if len(given) == len(args) else None
        found = known[op.result] if isinstance(op.result, str) else op.result
        if not isinstance(found, _Form) or found == _STILL:
            return found if isinstance(found, _Form) else None
        commutes = op.agg in (_SHIFTED if found.shift else _SCALED)
        return found if commutes and (not found.shift or _writes_all(op)) else None


def _writes_all(op: Contraction) -> bool:
    """Every cell, by an index of its own for each dimension: nothing but ranges is asked of indexes."""
    sizes: dict[str | None, int] = {}
    for c in op.constraints:
        sizes[c.formula.index] = min(c.size, sizes.get(c.formula.index, c.size))
    cells = [(f.index, n) for f, n in zip(op.output, op.type.shape, strict=True) if f.terms or n > 1]
    names = [name for name, _ in cells]
    return None not in {*sizes, *names} and len({*names}) == len(names) and all(sizes[n] >= size for n, size in cells)


# --- scalars -----------------------------------------------------------------------------------------------


def _applied(fn: str, args: Sequence[Scalar], is_float: bool) -> _Form | None:
    """The form of a scalar operation's result; None for one that is of no form."""
    if all(a == _STILL or isinstance(a, Literal) for a in args):
        return _STILL
    rule = _RULES.get(fn)
    return rule(args) if rule is not None and is_float else None


def _form(scalar: Scalar) -> _Form:
    return _STILL if isinstance(scalar, Literal) else scalar


def _sum(args: Sequence[Scalar], sign: int) -> _Form | None:
    """Shifts add up; what is multiplied by something has to be multiplied by the same."""
    a, b = map(_form, args)
    if not (a.scale or b.scale):
        return _Form(shift=a.shift + sign * b.shift)
    return _alike(args)


def _alike(args: Sequence[Scalar]) -> _Form | None:
    """The form that all have: of any scale is 0."""
    forms = {a for a in args if isinstance(a, _Form)}
    found = forms.pop() if len(forms) == 1 else None
    fixed = [a for a in args if isinstance(a, Literal)]
    return found if found and all(a.value == 0 and not found.shift for a in fixed) else None


def _product(args: Sequence[Scalar], sign: int) -> _Form | None:
    """Scales add up; a shift may be multiplied by a number."""
    a, b = map(_form, args)
    if not (a.shift or b.shift):
        return _Form(scale=a.scale + sign * b.scale)
    return None


def _exp(args: Sequence[Scalar]) -> _Form | None:
    (a,) = map(_form, args)
    return None if a.scale else _Form(scale=a.shift)


def _log(args: Sequence[Scalar]) -> _Form | None:
    (a,) = map(_form, args)
    return None if a.shift else _Form(shift=a.scale)


def _neg(args: Sequence[Scalar]) -> _Form | None:
    (a,) = map(_form, args)
    return _Form(a.scale, -a.shift)


def _same(args: Sequence[Scalar]) -> _Form | None:
    return _form(args[0])


def _chosen(args: Sequence[Scalar]) -> _Form | None:
    return _alike(args[1:]) if _form(args[0]) == _STILL else None


_RULES: Mapping[str, Callable[[Sequence[Scalar]], _Form | None]] = {
    "add": lambda args: _sum(args, 1),
    "sub": lambda args: _sum(args, -1),
    "mul": lambda args: _product(args, 1),
    "div": lambda args: _product(args, -1),
    "exp": _exp,
    "log": _log,
    "neg": _neg,
    "cast": _same,
    "ident": _same,
    "cond": _chosen,
    "max": _alike,
    "min": _alike,
}
"""What an operation makes of its operands' forms; the others make nothing known."""
