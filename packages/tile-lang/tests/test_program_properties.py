"""Properties on random programs: the text form round-trips, and contractions equal trial of every tuple."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
import tile_lang
from bind_support import program
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from strategies_program import Sample, contractions, programs
from tile_ir import numerics
from tile_ir.diagnostics import TileError, TileSyntaxError
from tile_ir.dtype import DType
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import Constraint, Contraction, Literal, Poly, Program
from tile_lang.domain import tuples, undetermined
from tile_lang.examples import TUTORIAL

BOX = range(-4, 9)
"""Holds every value that the strategy's explicit bounds leave for an index."""


def bound(sample: Sample) -> Program:
    return program(sample.source, sample.types)


def arrays(sample: Sample, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {n: rng.integers(0, 4, t.shape).astype(t.dtype.numpy) for n, t in sample.types.items()}


@settings(max_examples=80)
@given(st.one_of(contractions(), programs()))
def test_text_round_trips(sample: Sample) -> None:
    try:
        value = bound(sample)
    except TileError:
        assume(False)
        raise
    text = tile_lang.print_program(value)
    again = tile_lang.parse_program(text)
    assert again == value
    assert tile_lang.print_program(again) == text


@settings(max_examples=60)
@given(contractions(), st.integers(0, 99))
def test_contraction_equals_trial_of_every_tuple(sample: Sample, seed: int) -> None:
    value = bound(sample)
    (op,) = value.ops
    assert isinstance(op, Contraction)
    inputs = arrays(sample, seed)
    np.testing.assert_array_equal(tile_lang.evaluate(value, inputs)["O"], by_trial(op, inputs))


def by_trial(op: Contraction, inputs: dict[str, Any]) -> Any:
    """The contraction's definition, tuple by tuple."""
    cells: dict[tuple[int, ...], Any] = {}
    for point in product(BOX, repeat=len(op.indexes)):
        at = dict(zip(op.indexes, point, strict=True))
        if not all(valid(c, at) for c in op.constraints):
            continue
        contribution = body(op, inputs, at)
        cell = tuple(int(f.evaluate(at)) for f in op.output)
        if cell in cells:
            name = op.agg.op
            cells[cell] = numerics.apply(name, [cells[cell], contribution], op.acc)
        else:
            cells[cell] = contribution
    out = np.zeros(op.type.shape, op.type.dtype.numpy)
    for cell, total in cells.items():
        out[cell] = numerics.cast_array(total, op.type.dtype)
    return out


def valid(c: Constraint, at: dict[str, int]) -> bool:
    value = c.formula.evaluate(at)
    return value.denominator == 1 and 0 <= value < c.size


def body(op: Contraction, inputs: dict[str, Any], at: dict[str, int]) -> Any:
    local: dict[str, Any] = {}
    for load in op.loads:
        assert isinstance(load.tensor, str)
        local[load.dst] = inputs[load.tensor][tuple(int(f.evaluate(at)) for f in load.formulas)]
    for s in op.body:
        args = [numerics.cast_array(a.value, a.dtype) if isinstance(a, Literal) else local[a] for a in s.args]
        local[s.dst] = numerics.apply(s.fn, args, s.dtype)
    assert isinstance(op.result, str)
    return numerics.cast_array(local[op.result], op.acc)


@settings(max_examples=100)
@given(st.data())
def test_tuples_are_exactly_the_valid_ones(data: st.DataObject) -> None:
    indexes = ("i", "j", "k")[: data.draw(st.integers(0, 3))]
    coefficient = st.fractions(min_value=-2, max_value=2, max_denominator=3)
    forms = [Poly.of({n: data.draw(coefficient) for n in indexes}, data.draw(coefficient)) for _ in range(4)]
    constraints = [Constraint(f, data.draw(st.integers(0, 6))) for f in forms]
    constraints += [Constraint(Poly.of({n: 1}, 2), 5) for n in indexes]
    found = tuples(constraints, indexes)
    want = [
        p
        for p in product(range(-3, 4), repeat=len(indexes))
        if all(valid(c, dict(zip(indexes, p, strict=True))) for c in constraints)
    ]
    assert [tuple(int(x) for x in row) for row in found] == want


def test_coupled_indexes_are_bounded_only_together() -> None:
    i, j = Poly.of({"i": 1}), Poly.of({"j": 1})
    coupled = [Constraint(i + j, 4), Constraint(i + j.scaled(-1), 3)]
    assert undetermined(coupled, ("i", "j")) == []
    assert [tuple(map(int, row)) for row in tuples(coupled, ("i", "j"))] == [
        (0, 0),
        (1, -1),
        (1, 0),
        (1, 1),
        (2, 0),
        (2, 1),
    ]
    assert undetermined(coupled[:1], ("i", "j")) == ["i", "j"]
    assert undetermined([*coupled[:1], Constraint(Poly.of({"k": 1}), 2)], ("i", "j", "k")) == ["i", "j"]


def test_huge_coefficients_do_not_overflow() -> None:
    huge = Constraint(Poly.of({"i": 10**18, "j": -(10**18)}, 3), 10)
    found = tuples([huge, Constraint(Poly.of({"i": 1}), 3), Constraint(Poly.of({"j": 1}), 3)], ("i", "j"))
    assert [tuple(map(int, row)) for row in found] == [(0, 0), (1, 1), (2, 2)]


@pytest.mark.parametrize("example", TUTORIAL, ids=lambda e: e.name)
def test_tutorial_text_round_trips(example: Any) -> None:
    value = program(
        example.source, " ".join(f"{n}=float32[{','.join(map(str, s))}]" for n, s in example.shapes.items())
    )
    assert tile_lang.parse_program(tile_lang.print_program(value)) == value


def test_polynomials_print_constants_first() -> None:
    x, i = Poly.of({"x": 1}), Poly.of({"i": 1})
    assert str(x.scaled(3) + i.scaled(-1) + Poly(const=Fraction(4))) == "4 - i + 3*x"
    assert str((x + Poly(const=Fraction(-1))).scaled(Fraction(1, 3))) == "-1/3 + 1/3*x"
    assert (
        str((x.scaled(Fraction(1, 3)) + i.scaled(-1)).scaled(Fraction(1, 5)) + Poly(const=Fraction(4)))
        == "4 - 1/5*i + 1/15*x"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("program", "expected name, found the end"),
        ("program p () -> () { X: float31[] = exp(A); }", "expected a dtype, found float31"),
        ("program p () -> () { X[i : 3]: int8 = /(A: int8) over [i] where i < 3 { }; }", "expected an aggregation"),
        ('program p () -> () { X: int8[2] = constant("xyz"); }', "expected hexadecimal digits"),
        ("program p (A: int8[2] -> () {}", "expected ,, found ->"),
        ("program p () -> () {} ?", "unexpected character"),
    ],
)
def test_bad_text_is_refused_with_a_position(text: str, message: str) -> None:
    with pytest.raises(TileSyntaxError, match="TILE-E150") as caught:
        tile_lang.parse_program(text)
    assert message in str(caught.value)
    assert caught.value.diagnostics[0].span is not None


def test_identity_is_not_a_value_of_the_result() -> None:
    assert Aggregation.MAX.identity(DType.INT8) == -128
    value = program("O[i : 2] = >(A[i, j]);", "A=int8[1,0]")
    np.testing.assert_array_equal(tile_lang.evaluate(value, {"A": np.zeros((1, 0), np.int8)})["O"], [0, 0])
