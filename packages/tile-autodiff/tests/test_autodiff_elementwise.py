"""The table of rules against central differences, and the operations that are not contractions."""

from __future__ import annotations

import numpy as np
import pytest
import tile_autodiff
import tile_lang
from autodiff_support import Array, bound, check, check_source, cotangents, spread
from tile_autodiff import rules
from tile_ir.ops import ROUNDINGS
from tile_ir.program.nodes import Contraction, Elementwise
from tile_lang.examples import TUTORIAL, Example

POSITIVE = {"log", "sqrt", "recip"}
UNIT = {"asin", "acos", "atanh"}
UNARY = [
    *("exp", "log", "sqrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "recip"),
    *("expm1", "asinh", "atanh", "erf", "erfc", "sigmoid", "silu", "softplus", "gelu", "log1p", "acosh"),
    *(*sorted(ROUNDINGS), "abs", "relu", "sign", "ident", "neg"),
]
SMOOTH = UNARY[: UNARY.index("acosh") + 1]
AB = {"A": (3, 4), "B": (4,)}


def _inputs(positive: bool = False) -> dict[str, Array]:
    found = {n: spread(*s) for n, s in AB.items()}
    return {n: np.abs(a) + 0.1 for n, a in found.items()} if positive else found


def test_no_function_is_missing_from_the_table() -> None:
    assert rules.missing() == []


@pytest.mark.parametrize("name", sorted(rules.RULES))
def test_every_rule_says_where_it_holds_and_whence_it_comes(name: str) -> None:
    rule = rules.RULES[name]
    assert rule.domain and rule.source


def _within(fn: str) -> Array:
    """Arguments in the function's domain."""
    a = spread(3, 4)
    a = np.abs(a) if fn in POSITIVE else a / 2.5 if fn in UNIT | {"tan"} else a
    return np.abs(a) + 1.1 if fn == "acosh" else np.abs(a) - 0.5 if fn == "log1p" else a


@pytest.mark.parametrize("fn", UNARY)
def test_functions_of_one_argument(fn: str) -> None:
    check_source(f"function (A) -> (O) {{ O = {fn}(A); }}", {"A": _within(fn)}, tolerance=2e-6)


@pytest.mark.parametrize("fn", [f"{name}(A)" for name in SMOOTH] + ["atan2(A, B)", "fmod(A, B)", "mod(A, B)"])
def test_second_derivatives(fn: str) -> None:
    inputs = {"A": _within(fn.partition("(")[0]), **({"B": spread(4) + 3.0} if "B" in fn else {})}
    first = tile_autodiff.gradient(bound(f"function ({', '.join(inputs)}) -> (O) {{ O = {fn}; }}", inputs), ["A"])
    check(first, {**inputs, "d_O": np.ones_like(inputs["A"])}, ["A"], tolerance=2e-5)


@pytest.mark.parametrize(
    "expression",
    [
        "A + B", "A - B", "A * B", "A / B", "max(A, B)", "min(A, B)", "-A * A", "2 * A - B / 3 + 1 / A", "A",
        "A < B ? A * A : B", "A > 0 ? A : 0.5", "cond(A == B, A, B)", "B - A * (A < B ? 1.0 : A)", "as_float(A, 64) * B",
        "max(A, 0.25)", "min(0.25, A * B)", "A * A + A * A", "(A < B) == (A < 0) ? A : B", "simple_reduce(A, 4) * B",
        "atan2(A, B)", "fmod(A, B)", "mod(A, B)", "mod(A, -B)", "clamp(A, -0.3, B)", "where(A > B, A * A, B)",
    ],
)  # fmt: skip
def test_operators_with_broadcasting(expression: str) -> None:
    names = "A, B" if "B" in expression else "A"
    inputs = {n: a for n, a in _inputs().items() if n in names}
    check_source(f"function ({names}) -> (O) {{ O = {expression}; }}", inputs, tolerance=2e-6)


def test_pow_of_tensors() -> None:
    check_source("function (A, B) -> (O) { O = pow(A, B); }", _inputs(positive=True))


@pytest.mark.parametrize("exponent", ["0", "1", "2", "3", "-1", "-2", "0.5"])
def test_pow_with_constant_exponent(exponent: str) -> None:
    a = np.abs(spread(7)) if exponent == "0.5" else spread(7)
    check_source(f"function (A) -> (O) {{ O = pow(A, {exponent}); }}", {"A": a}, tolerance=1e-5)


def test_pow_of_negative_bases_with_a_tensor_of_whole_exponents() -> None:
    inputs = {"A": spread(5), "B": np.array([2.0, 3.0, -1.0, 0.0, 1.0])}
    check_source("function (A, B) -> (O) { O = pow(A, B); }", inputs, ["A"], 1e-5)


def _slope(expression: str, value: float, **more: float) -> dict[str, float]:
    inputs = {n: np.array(v) for n, v in {"A": value, **more}.items()}
    program = bound(f"function ({', '.join(inputs)}) -> (O) {{ O = {expression}; }}", inputs)
    gradient = tile_autodiff.gradient(program, list(inputs))
    seed = np.array(2.0).astype(gradient.inputs[-1].type.dtype.numpy)
    return {n: float(v) for n, v in tile_lang.evaluate(gradient, {**inputs, "d_O": seed}).items()}


@pytest.mark.parametrize(
    ("expression", "value", "slope"),
    [
        ("relu(A)", 0.0, 0.0),
        ("relu(A)", np.nan, 0.0),
        ("abs(A)", 0.0, 0.0),
        ("max(A, 1.5)", 1.5, 1.0),
        ("min(A, 1.5)", 1.5, 1.0),
        ("max(A, A)", 1.5, 2.0),
        ("max(A, 1.5)", np.nan, 0.0),
        ("pow(A, 2)", 0.0, 0.0),
        ("pow(A, 0)", 0.0, 0.0),
        ("stop_gradient(A) * A", 3.0, 6.0),
        ("reverse_grad(A, 0.5)", 3.0, -1.0),
        ("A > 0 ? log(A) : 0.0", -1.0, 0.0),
        ("as_float(as_int(A, 32), 64)", 1.5, 0.0),
        ("A < 2 ? 1.0 : 0.0", 1.5, 0.0),
        ("clamp(A, 1.5, 2)", 1.5, 2.0),
        ("clamp(A, 1, 1.5)", 1.5, 2.0),
        ("clamp(A, 0, 1)", 1.5, 0.0),
        ("sign(A)", 0.0, 0.0),
        ("atan2(A, 0)", 0.0, 0.0),
        ("softplus(A)", 800.0, 2.0),
        ("softplus(A)", -800.0, 0.0),
        ("silu(A)", -800.0, 0.0),
        ("gelu(A)", -800.0, 0.0),
        ("gelu(A)", 1e200, 2.0),
        ("A > 0 ? A : -inf", -1.0, 0.0),
    ],
)
def test_values_by_convention(expression: str, value: float, slope: float) -> None:
    assert _slope(expression, value)["d_A"] == slope


def test_pow_at_zero() -> None:
    assert _slope("pow(A, B)", 0.0, B=0.0) == {"d_A": 0.0, "d_B": 0.0}
    assert _slope("pow(A, B)", 0.0, B=1.0) == {"d_A": 2.0, "d_B": 0.0}
    assert np.isnan(_slope("pow(A, B)", -2.0, B=2.0)["d_B"])


def test_casts_between_floats() -> None:
    inputs = {"A": spread(4).astype(np.float32)}
    program = bound("function (A) -> (O) { O = as_float(A, 64) * 3; }", inputs)
    got = tile_lang.evaluate(tile_autodiff.gradient(program, ["A"]), {**inputs, "d_O": np.ones(4)})["d_A"]
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, np.full(4, 3, np.float32))


# --- other operations ----------------------------------------------------------------------------


def test_reshape() -> None:
    check_source("function (A, B) -> (O) { O = reshape(A, 2, 6) * B; }", {"A": spread(3, 4), "B": spread(6)})


@pytest.mark.parametrize("indices", [[0, 2, 2], [[-7, 1], [9, 1]]])
def test_gather_adds_up_repeated_and_clamped_rows(indices: list[int]) -> None:
    inputs = {"D": spread(4, 3), "I": np.array(indices, np.int32)}
    check_source("function (D, I) -> (O) { G = gather(D, I); O = G * G; }", inputs)


def test_scatter() -> None:
    inputs = {"E": spread(4, 3), "I": np.array([2, 0, 2, 77], np.int32), "V": spread(5)}
    check_source("function (E, I, V) -> (O) { S = scatter(E, I, V); O = S * S; }", inputs)


@pytest.mark.parametrize("default", ["", " default D"])
@pytest.mark.parametrize("target", ["I[i], j", "j, I[i]", "I[i], K[i, j]"])
@pytest.mark.parametrize("agg", "=+*><")
def test_values_that_fall_on_one_cell_share_what_the_aggregation_passes_on(agg: str, target: str, default: str) -> None:
    """Of assigned values only the last one counts; subscripts beyond the ends are clamped."""
    inputs = {
        "V": spread(4, 4), "I": np.array([2, 0, 2, 77], np.int32), "K": np.array([[0, 1, 0, 3]] * 4, np.int64), "D": spread(4, 4),
    }  # fmt: skip
    inputs = {n: a for n, a in inputs.items() if n not in "KD" or f"{n}[" in target or n in default}
    check_source(f"function ({', '.join(inputs)}) -> (O) {{ O[{target} : 4, 4] = {agg}(V[i, j]){default}; }}", inputs)


def test_random_numbers_and_coordinates_are_constants() -> None:
    state = np.random.default_rng(0).integers(1 << 20, 1 << 31, (3, 2048)).astype(np.uint32)
    source = """function (A, S) -> (O, Next) {
        T = prng_step(S, 3, 4); Next = prng_state(T); O = A * prng_value(T) + A * index(A, 1);
    }"""
    check_source(source, {"A": spread(3, 4), "S": state})


def test_normalisations_and_losses() -> None:
    inputs = {"A": spread(3, 4), "B": np.abs(spread(3, 4)) / 2.5}
    check_source("function (A[N, M]) -> (O) { O = builtin_softmax(A, N, M); }", {"A": inputs["A"]})
    check_source("function (A[N, M]) -> (O) { O = builtin_logsoftmax(A, N, M); }", {"A": inputs["A"]})
    source = "function (A, B) -> (O) { O = builtin_binary_crossentropy(B, sigmoid(A), 1); }"
    check_source(source, inputs, tolerance=1e-5)


@pytest.mark.parametrize("example", TUTORIAL, ids=lambda e: e.name)
def test_tutorial(example: Example) -> None:
    inputs = {n: spread(*s) for n, s in example.shapes.items()}
    if example.positive:
        inputs = {n: np.abs(a) + 0.1 for n, a in inputs.items()}
    check_source(example.source, inputs, tolerance=5e-6)


# --- structure of the result -----------------------------------------------------------------------


def test_a_name_that_no_output_depends_on_gets_zeros() -> None:
    inputs = {"A": spread(3), "B": spread(2, 2)}
    result = check_source("function (A, B) -> (O) { O = A * A; }", inputs)
    np.testing.assert_array_equal(result["d_B"], np.zeros((2, 2)))


def test_gradients_that_are_not_asked_for_are_never_computed() -> None:
    inputs = {"A": spread(3, 4), "B": spread(4, 5)}
    program = bound("function (A[N, K], B[K, M]) -> (O) { O[i, j : N, M] = +(A[i, k] * B[k, j]); }", inputs)
    assert len(tile_autodiff.gradient(program, ["A"]).ops) == 1
    assert len(tile_autodiff.gradient(program, ["A", "B"]).ops) == 2


def test_fan_out_is_summed_once_and_broadcasts_are_undone_once() -> None:
    inputs = {"A": spread(3, 4), "B": spread(4)}
    program = bound("function (A, B) -> (O) { O = sin(A + B) * (A - B) / B; }", inputs)
    gradient = tile_autodiff.gradient(program, ["B"])
    assert sum(isinstance(op, Contraction) for op in gradient.ops) == 1
    check(program, inputs)


def test_common_subexpressions_are_shared() -> None:
    program = bound("function (A, B) -> (O, P) { O = exp(A) / B; P = exp(A); }", _inputs())
    gradient = tile_autodiff.gradient(program, ["A", "B"])
    assert sum(isinstance(op, Elementwise) and op.fn == "exp" for op in gradient.ops) == 1


def test_symbolic_zeros_stay_symbolic() -> None:
    program = bound("function (A) -> (O) { O = floor(A) * 2 + (A < 1 ? 1.0 : 2.0); }", {"A": spread(4)})
    assert len(tile_autodiff.gradient(program, ["A"]).ops) == 1


def test_outputs_that_are_inputs_or_integers() -> None:
    inputs = {"A": spread(3), "B": spread(3)}
    check_source("function (A, B) -> (A, O, I) { O = A * B; I = as_int(A, 32); }", inputs)


def test_two_outputs_add_up() -> None:
    check_source("function (A) -> (O, P, O2) { O = A * A; P = sin(A) + O; O2 = O; }", {"A": spread(5)})


def test_long_programs_need_no_stack() -> None:
    lines = " ".join(f"V{k + 1} = V{k} * 1.001 + A;" for k in range(3000))
    program = bound(f"function (A) -> (O) {{ V0 = A; {lines} O = V3000; }}", {"A": spread(2)})
    gradient = tile_autodiff.gradient(program, ["A"])
    weights = cotangents(program)
    got = tile_lang.evaluate(gradient, {"A": spread(2), **weights})["d_A"]
    factor = sum(1.001**k for k in range(3000)) + 1.001**3000
    np.testing.assert_allclose(got, weights["d_O"] * factor, rtol=1e-9)
