"""What is subtracted for safety alone has no derivative: nothing is computed for it, and the others are as they were."""

from __future__ import annotations

import numpy as np
import pytest
import tile_autodiff
from autodiff_support import bound, check, cotangents, floats, spread
from tile_ir.program.nodes import Contraction, Program

ROWS = "M[i, z : N, 1] = >(X[i, j]), z < 1; "
SUMS = "Z[i, z : N, 1] = +(E[i, j]), z < 1; "
FREE = {
    "softmax": f"function (X[N, L]) -> (O) {{ {ROWS} E = exp(X - M); {SUMS} O = E / Z; }}",
    "in contractions": """function (X[N, L]) -> (O) {
        M[i : N] = >(X[i, j]); W = -M; D[i, j : N, L] = =(X[i, j] + W[i]); E = exp(D);
        Z[i : N] = +(E[i, j]); S[i, j : N, L] = =(Z[i]); O = E / S; }""",
    "of columns": """function (X[N, L]) -> (O) {
        M[j : L] = >(X[i, j]); E = exp(X - M); Z[j : L] = +(E[i, j]); O = E / Z; }""",
    "weights of values": f"""function (X[N, L], V[L, D]) -> (O) {{ {ROWS} E = exp(X - M); {SUMS}
        U[i, d : N, D] = +(E[i, j] * V[j, d]); O = U / Z; }}""",
    "logarithm of sums": f"function (X[N, L]) -> (O) {{ {ROWS} E = exp(X - M); {SUMS} O = M + log(Z); }}",
    "a number for no element": f"""function (X[N, L]) -> (O) {{ {ROWS} C = M < -1e30 ? 0.0 : M; E = exp(X - C); {SUMS} O = E / Z; }}""",
    "masked afterwards": f"""function (X[N, L], B[N, L]) -> (O) {{ {ROWS} F = exp(X - M); E = B > -1.5 ? F : 0.0; {SUMS} O = E / Z; }}""",
    "below the smallest": """function (X[N, L]) -> (O) {
        M[i, z : N, 1] = <(X[i, j]), z < 1; E = exp(M - X); Z[i, z : N, 1] = +(E[i, j]), z < 1; O = E / Z; }""",
}
MOVED = {
    "no quotient": f"function (X[N, L]) -> (O) {{ {ROWS} O = exp(X - M); }}",
    "a quotient by the largest": f"function (X[N, L]) -> (O) {{ {ROWS} O = X / M; }}",
    "something added to the sums": f"function (X[N, L]) -> (O) {{ {ROWS} E = exp(X - M); {SUMS} O = E / (Z + 1.0); }}",
    "a result of its own": f"function (X[N, L]) -> (O, M) {{ {ROWS} E = exp(X - M); {SUMS} O = E / Z; }}",
    "other rows' sums": f"""function (X[N, L]) -> (O) {{ {ROWS} E = exp(X - M); {SUMS}
        R[N - 1 - i, z : N, 1] = +(Z[i, z]); O = E / R; }}""",
    "rows that some cells have none of": """function (X[N, L]) -> (O) {
        M[i : N] = >(X[i, j]); W = -M; D[i, j : N, L] = =(X[i, j] + W[i]), j - i < 2; E = exp(D); Z[i, z : N, 1] = +(E[i, j]), z < 1; O = E / Z; }""",
    "all rows' sum": f"function (X[N, L]) -> (O) {{ {ROWS} E = exp(X - M); S[] = +(E[i, j]); O = E / S; }}",
    "squares": f"function (X[N, L]) -> (O) {{ {ROWS} D = X - M; {ROWS.replace('M[', 'T[')} Q = D * D; O = Q; }}",
}


def gradient(source: str) -> Program:
    shapes = {"X": (3, 4), "V": (4, 2), "B": (3, 4)}
    inputs = {n: spread(*s) for n, s in shapes.items() if f"{n}[" in source.partition("->")[0]}
    program = bound(source, inputs)
    check(program, inputs)
    return tile_autodiff.gradient(program, floats(program))


def compares(program: Program) -> bool:
    """A gradient of a largest element asks which elements are equal to it."""
    return any(s.fn == "cmp_eq" for op in program.ops if isinstance(op, Contraction) for s in op.body)


@pytest.mark.parametrize("name", FREE)
def test_pivots_cost_no_gradient(name: str) -> None:
    assert not compares(gradient(FREE[name]))


@pytest.mark.parametrize("name", MOVED)
def test_what_results_depend_on_has_its_gradient(name: str) -> None:
    assert compares(gradient(MOVED[name]))


def test_a_custom_gradient_may_depend_on_a_pivot() -> None:
    from tile_ir.program.nodes import CustomGradient, Param

    inputs = {"X": spread(3, 4)}
    program = bound(FREE["softmax"], inputs)
    types = program.types()
    rule = CustomGradient(
        ("M",), ("Z",), Program("none", (Param("M", types["M"]), Param("Z", types["Z"]), Param("d_Z", types["Z"])), (), (("d_M", "d_Z"),))
    )  # fmt: skip
    assert compares(tile_autodiff.gradient(program, ["X"], rules=[rule]))


def test_second_derivatives_are_those_of_the_quotient() -> None:
    inputs = {"X": spread(2, 3)}
    first = tile_autodiff.gradient(bound(FREE["softmax"], inputs), ["X"])
    given = {**inputs, **cotangents(bound(FREE["softmax"], inputs))}
    check(first, {n: np.asarray(a, np.float64) for n, a in given.items()})
    assert not compares(tile_autodiff.gradient(first, ["X"]))
