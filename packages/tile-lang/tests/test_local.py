"""Functions that a text defines in front of its own: calls are bound where they stand, and leave nothing behind."""

from __future__ import annotations

import numpy as np
import pytest
import tile_lang
from bind_support import program, result_type, types_of
from tile_ir.diagnostics import TileError
from tile_lang import Limits, evaluate, parse, parse_program, print_program

MOMENTS = """
function between(X, Low, High) -> (Y) { Y = X < Low ? Low : (X > High ? High : X); }
function half(N) -> (H) { H = (N + 1) / 2; }
function moments(X[N, M]) -> (Mean, Square) {
    S[n : N] = +(X[n, m]);
    Mean = S / M;
    Q = between(X, 0, 4) * X;
    Square[n : N] = +(Q[n, m]);
}
function (A[N, M]) -> (B, C, D) {
    Mean, Square = moments(A);
    B = between(Mean, 1, 2) + Square;
    C[n, m : half(N), M] = >(A[2*n + k, m]), k < half(3);
    F[n, m : N, M] = =(A[N - 1 - n, m]);
    D = element(moments(F), 0) - Square;
}
"""


def test_calls_mean_what_the_statements_mean() -> None:
    bound = program(MOMENTS, "A=float32[4,6]")
    a = np.arange(24, dtype=np.float32).reshape(4, 6) / 4
    found = evaluate(bound, {"A": a})
    square = (np.clip(a, 0, 4) * a).sum(1)
    np.testing.assert_allclose(found["B"], np.clip(a.mean(1), 1, 2) + square)
    np.testing.assert_array_equal(found["C"], a[1::2])
    np.testing.assert_allclose(found["D"], a[::-1].mean(1) - square)
    assert print_program(parse_program(print_program(bound))) == print_program(bound)


def test_arguments_stay_what_they_are() -> None:
    """A literal is still of the tensor's type, and a tensor without dimensions is no constant."""
    scaled = (
        "function scaled(X, K[]) -> (Y) { Y = X * K; } function (A, B) -> (O) { O = scaled(A, 2); P = scaled(A, B); }"
    )
    assert result_type(scaled, "A=float16[3] B=float32[]") == "float16[3]"
    assert result_type(
        scaled.replace("-> (O) { O", "-> (O) { Q").replace("P =", "O ="), "A=float16[3] B=float32[]"
    ) == ("float32[3]")


def test_a_function_of_the_text_hides_a_built_in_one() -> None:
    source = "function relu(X) -> (Y) { Y = X + 1; } function (A) -> (O) { O = relu(A); }"
    assert evaluate(program(source, "A=int32[1]"), {"A": np.array([-5], np.int32)})["O"] == -4


def test_names_of_values_differ_between_calls() -> None:
    calls = "".join(f"O{k} = f(A); " for k in range(40))
    total = " + ".join(f"O{k}" for k in range(40))
    bound = program(
        f"function f(X) -> (Y) {{ Z = X * X; Y = Z + X; }} function (A) -> (O) {{ {calls} O = {total}; }}", "A=int32[]"
    )
    assert evaluate(bound, {"A": np.array(3, np.int32)})["O"] == 480


@pytest.mark.parametrize("argument", ["A", "1"])
def test_functions_that_double_their_calls_end(argument: str) -> None:
    ladder = "".join(f"function f{k}(X) -> (Y) {{ Y = f{k - 1}(X) + f{k - 1}(X); }}\n" for k in range(1, 30))
    source = f"function f0(X) -> (Y) {{ Y = X + 1; }}\n{ladder}function (A) -> (O) {{ O = f29({argument}) * A; }}"
    with pytest.raises(TileError, match="max_calls is 200"):
        tile_lang.bind(parse(source), types_of("A=int32[]"), Limits(max_calls=200))


def test_functions_that_call_one_another_too_deep() -> None:
    ladder = "".join(f"function f{k}(X) -> (Y) {{ Y = f{k - 1}(X); }}\n" for k in range(1, 40))
    with pytest.raises(TileError, match="max_depth is 32"):
        program(f"function f0(X) -> (Y) {{ Y = X; }}\n{ladder}function (A) -> (O) {{ O = f39(A); }}", "A=int32[]")
