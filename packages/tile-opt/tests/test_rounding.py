"""Bounds on rounding errors: the depth of the actual tree of partial sums, what they are relative to, and why there is none."""

from __future__ import annotations

from dataclasses import replace

import pytest
from explain_support import CPU, GPU, MATMUL, SOFTMAX, compiled
from tile_ir.dtype import DType
from tile_ir.target import Options, Target
from tile_opt.explain import explain, explain_html, report
from tile_opt.rounding import Bound, Relation, error_bounds
from tile_opt.rounding import run as rounding
from tile_opt.rounding.bound import added, applied, converted, divided, multiplied

U = 2.0**-24
PLAIN = Target("plain")


def bound(body: str, target: Target = PLAIN, **shapes: tuple[int, ...]) -> Bound:
    header = ", ".join(f"{n}[{', '.join(f'{n}{d}' for d in range(len(s)))}]" for n, s in shapes.items())
    made = compiled(f"function ({header}) -> (R) {{ {body} }}", target, "sample", None, **shapes)
    return error_bounds(made.stripe, target)["R"]


SUM = "R[] = +(A[i]);"


def test_a_serial_sum_has_a_rounding_less_than_terms() -> None:
    found = bound(SUM, A=(1000,))
    assert (found.relation, found.roundoff) == (Relation.TERMS, 999 * U)
    assert found.factor == pytest.approx(999 * U / (1 - 999 * U))


def test_the_schedules_partial_sums_make_it_shallower() -> None:
    for target in (CPU, GPU):
        found = bound(SUM, target, A=(4096,))
        assert found.relation is Relation.TERMS
        assert 12 * U <= found.roundoff < 2200 * U
    threads = bound("R[j : 64] = +(A[j, i]);", GPU, A=(64, 4096))
    assert threads.roundoff < 200 * U


def test_products_are_rounded_once_more() -> None:
    assert bound("R[i, j : 7, 5] = +(A[i, k] * B[k, j]);", A=(7, 100), B=(100, 5)).roundoff == 100 * U


@pytest.mark.parametrize("target", [PLAIN, CPU, GPU])
def test_positive_terms_bound_the_result_itself(target: Target) -> None:
    made = compiled(SOFTMAX, target, A=(32, 256))
    found = error_bounds(made.stripe, target)["S"]
    assert found.relation is Relation.VALUE
    assert 100 * U < found.roundoff < 500 * U
    assert bound("R[] = +(A[i] * A[i]);", target, A=(64,)).relation is Relation.VALUE


BOUNDS = {
    "R = A;": (Relation.EXACT, 0.0),
    "R = A + A;": (Relation.VALUE, 1.0),
    "R = A + A * A;": (Relation.TERMS, 2.0),
    "R[i : 8] = >(A[i]);": (Relation.EXACT, 0.0),
    "R[i : 8] = =(A[i]);": (Relation.EXACT, 0.0),
    "R = A > 0 ? A : 0;": (Relation.EXACT, 0.0),
    "R = exp(A);": (Relation.VALUE, 6.0),
    "R = 1 / (1 + exp(-A));": (Relation.VALUE, 12.0),
    "R[] = *(A[i]);": (Relation.VALUE, 7.0),
    "R = sqrt(A * A);": (Relation.VALUE, 6.5),
}  # fmt: skip


@pytest.mark.parametrize("body", BOUNDS)
def test_operations_propagate(body: str) -> None:
    relation, roundings = BOUNDS[body]
    found = bound(body, A=(8,))
    assert (found.relation, round(found.roundoff / U, 3)) == (relation, roundings)


def test_maxima_by_comparison_keep_the_bound() -> None:
    for body in ("R = T > 0 ? T : 0;", "R = T <= 0 ? 0 : T;", "R = 0 < T ? T : 0;", "R = max(T, 0);"):
        found = bound(f"T = A + A * A; {body}", CPU, A=(8,))
        assert (found.relation, found.roundoff) == (Relation.TERMS, 2 * U), body


REASONS = {
    "R = log(A + A * A);": "log of a rounded value",
    "R = 1 / (A + A * A);": "cancellation",
    "T = A + A * A; R = T > 1 ? A : 0;": "a comparison of rounded values",
    "R = tanh(A + A * A);": "tanh of a sum with terms of both signs",
    "R = exp(exp(A + A * A));": "what an exponential is in",
    "R = as_int(A + A, 32);": "a whole number or truth value made of a rounded one",
    "I = as_int(A, 32); R = gather(A, I);": "subscripts that are data",
}


@pytest.mark.parametrize("body", REASONS)
def test_where_there_is_no_bound_the_reason_is_given(body: str) -> None:
    found = bound(body, A=(8,))
    assert found.factor is None
    assert REASONS[body] in found.reason


def test_an_exponential_of_a_sum_has_a_bound_that_grows_with_its_terms() -> None:
    found = bound("R = exp(A + A * A);", A=(8,))
    assert (found.relation, found.roundoff, found.factor) == (Relation.VALUE, 6 * U, None)
    assert found.exponent == pytest.approx(2 * U, rel=1e-5) and found.factor_for(10.0) == pytest.approx(
        26 * U, rel=1e-5
    )
    assert found.factor_for(1e9) == float("inf")
    twice = bound("R = exp(A + A * A) / exp(A - A * A);", A=(8,))
    assert twice.exponent == pytest.approx(4 * U, rel=1e-5)


def test_a_logarithm_of_a_rounded_value_has_its_error_and_a_part_of_itself() -> None:
    found = bound("R = log(A * A);", A=(8,))
    assert found.relation is Relation.TERMS and U < found.roundoff < 10 * U


ATTENTION = """T[i, 0 : 6, 1] = >(S[i, j]); E = exp(S - T); Z[i, 0 : 6, 1] = +(E[i, j]); O[i, d : 6, 4] = +(E[i, j] * V[j, d]); R = O / Z;"""


def test_attention_has_a_bound() -> None:
    found = bound(f"S[i, j : 6, 16] = +(Q[i, d] * K[j, d]); {ATTENTION}", Q=(6, 3), K=(16, 3), V=(16, 4))
    assert found.relation is Relation.TERMS and 0 < found.exponent < 20 * U and found.roundoff < 60 * U


def test_fast_math_has_no_stated_accuracy() -> None:
    fast = replace(PLAIN, options=Options(fast_math=True))
    assert "fast_math" in bound("R = A + A;", fast, A=(8,)).reason
    assert bound("R = A;", fast, A=(8,)).relation is Relation.EXACT


def test_narrow_dtypes_round_more() -> None:
    wide = Bound(Relation.TERMS, 10 * U)
    assert converted(wide, DType.FLOAT32, DType.FLOAT16).roundoff == 10 * U + 2.0**-11
    assert converted(wide, DType.FLOAT16, DType.FLOAT32) == wide
    assert added((Bound(), Bound()), 1, DType.BFLOAT16).roundoff == 2.0**-8
    assert multiplied((wide, wide), DType.FLOAT64).roundoff == 20 * U + 2.0**-53
    assert divided(Bound(), Bound(), DType.FLOAT32).roundoff == 5 * U
    assert applied("tanh", Bound(Relation.VALUE, 3 * U), DType.FLOAT32).roundoff == 13 * U


def test_so_many_roundings_that_nothing_is_certain() -> None:
    assert added((Bound(Relation.TERMS, 0.3),), 1000, DType.FLOAT16).factor is None


def test_what_takes_too_long_has_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounding, "OPERATIONS", 20)
    monkeypatch.setenv("TILE_ANALYSIS_SECONDS", "0")
    assert "not analysed within 0 seconds" in bound(SUM, A=(1000,)).reason


def test_hard_programs_are_analysed_by_the_process_with_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounding, "OPERATIONS", 20)
    monkeypatch.setenv("TILE_ANALYSIS_SECONDS", "60")
    assert bound(SUM, A=(1000,)).roundoff == 999 * U


def test_reports_have_the_bounds() -> None:
    made = compiled(MATMUL, CPU, A=(8, 32), B=(32, 8))
    (error,) = report(made).errors
    assert error.text.startswith("|error| <= 1.91e-06 × C of absolute values")
    assert f"Rounding errors:\n  C  {error.text}" in explain(made)
    assert "Rounding errors" in explain_html(made)
    (entry,) = report(made).to_dict()["errors"]
    assert {name: entry[name] for name in ("output", "relation", "factor", "reason", "text")} == {
        "output": "C", "relation": "terms", "factor": error.factor, "reason": "", "text": error.text,
    }  # fmt: skip


def test_powers_of_rounded_values_have_a_bound() -> None:
    """Those that are roots, too, which choose by an infinity."""
    for exponent in (0.5, -0.5, 1.5, -1.5, 3):
        found = bound(f"R = pow(A / B, {exponent});", A=(4,), B=(4,))
        assert found.relation is Relation.VALUE, exponent
        assert 0 < found.roundoff < 40 * U
