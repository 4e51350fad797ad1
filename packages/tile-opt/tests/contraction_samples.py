"""Contractions built by hand for the tests of analysis and translation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product
from math import ceil, floor, prod

from hypothesis import strategies as st
from tile_ir.dtype import DType
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import (
    Constraint,
    Contraction,
    Poly,
    ScalarStatement,
    TensorLoad,
    TensorType,
)
from tile_opt.analysis.linear import Basis, inverse
from tile_opt.analysis.reduce import row_of

Access = tuple[Sequence[Poly], Sequence[int]]


def p(const: int | Fraction = 0, **terms: int | Fraction) -> Poly:
    """``p(1, x=2)`` is 1 + 2*x."""
    return Poly.of(terms, const)


def contraction(
    output: Access,
    *loads: Access,
    user: Sequence[tuple[Poly, int]] = (),
    agg: Aggregation = Aggregation.SUM,
    dtype: DType = DType.FLOAT32,
    comb: str = "mul",
    name: str = "O",
    inputs: Sequence[str] = "ABC",
    no_defract: bool = False,
    default: str | None = None,
) -> Contraction:
    """``O[output] = agg(A[…] comb B[…]), user``; the loads are named A, B, C."""
    constraints = [Constraint(f, s) for forms, sizes in (output, *loads) for f, s in zip(forms, sizes, strict=True)]
    constraints += [Constraint(f, s) for f, s in user]
    body: tuple[ScalarStatement, ...] = ()
    result = "$0"
    for k in range(1, len(loads)):
        body += (ScalarStatement(f"$r{k}", comb, (result, f"${k}"), dtype),)
        result = f"$r{k}"
    return Contraction(
        name,
        TensorType(dtype, tuple(output[1])),
        agg,
        tuple(sorted({n for c in constraints for n in c.formula.names})),
        tuple(output[0]),
        tuple(constraints),
        tuple(TensorLoad(f"${k}", inputs[k], tuple(forms)) for k, (forms, _) in enumerate(loads)),
        body,
        result,
        dtype,
        default,
        no_defract,
    )


def valid_tuples(c: Contraction, most: int = 20_000) -> Iterator[dict[str, int]] | None:
    """Every valid tuple by trial, or None when there are too many to try; the domain must be bounded."""
    basis, sizes = Basis(len(c.indexes)), []
    for constraint in c.constraints:
        if basis.add(row_of(constraint.formula, c.indexes)):
            sizes.append((-constraint.formula.const, constraint.size - 1 - constraint.formula.const))
    box: list[range] = []
    for row in inverse(basis.rows):
        ends = [sorted((factor * low, factor * high)) for factor, (low, high) in zip(row, sizes, strict=True)]
        box.append(range(floor(sum(e[0] for e in ends)), ceil(sum(e[1] for e in ends)) + 1))
    if prod(map(len, box)) > most:
        return None
    points = (dict(zip(c.indexes, point, strict=True)) for point in product(*box))
    return (point for point in points if _valid(c, point))


def _valid(c: Contraction, point: dict[str, int]) -> bool:
    values = ((k.formula.evaluate(point), k.size) for k in c.constraints)
    return all(value.denominator == 1 and 0 <= value < size for value, size in values)


_COEFFICIENTS = st.sampled_from(
    [Fraction(v) for v in (["1", "1", "1", "1", "-1", "2", "2", "3", "-2", "1/2", "1/2", "1/3", "-1/2", "2/3"])]
)
_SIZES = st.sampled_from([6, 5, 7, 4, 6, 5, 3, 2, 7, 4, 3, 2, 1, 0])
_CONSTANTS = st.sampled_from([Fraction(v) for v in ["0", "0", "0", "0", "1", "-1", "2", "-3", "5", "1/2", "-1/3"]])


@st.composite
def forms(draw: st.DrawFn, names: Sequence[str]) -> Poly:
    used = draw(st.sampled_from([names[a : a + n] for a in range(len(names)) for n in (1, 1, 2)] + [names[::2], ()]))
    terms = {name: draw(_COEFFICIENTS) for name in used}
    return Poly.of(terms, draw(_CONSTANTS) if terms else draw(st.integers(0, 1)))


@st.composite
def accesses(draw: st.DrawFn, names: Sequence[str]) -> Access:
    rank = draw(st.sampled_from([1, 1, 2, 2, 2, 0]))
    return [draw(forms(names)) for _ in range(rank)], [draw(_SIZES) for _ in range(rank)]


@st.composite
def contractions(draw: st.DrawFn, aggs: Sequence[Aggregation] = tuple(Aggregation)) -> Contraction:
    """Random contractions of up to three indexes; many are unbounded or empty."""
    names = ["i", "j", "k"][: draw(st.integers(1, 3))]
    loads = [draw(accesses(names)) for _ in range(draw(st.integers(1, 2)))]
    user = draw(st.lists(st.tuples(forms(names), st.integers(1, 6)), max_size=1))
    user = [(_whole(f), s) for f, s in user if f.terms]
    made = contraction(
        draw(accesses(names)), *loads, user=user, agg=draw(st.sampled_from(aggs)), no_defract=draw(st.booleans())
    )
    return replace(made, indexes=tuple(sorted({*made.indexes})))


def _whole(form: Poly) -> Poly:
    return Poly.of({n: ceil(c) or 1 for n, c in form.terms}, ceil(form.const))
