"""Higher order: gradients of gradients, Jacobian- and Hessian-vector products, custom gradients, random programs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tile_autodiff
import tile_lang
from autodiff_support import Arrays, bound, check, cotangents, differences, spread
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tile_ir.diagnostics import TileTypeError
from tile_ir.program.nodes import CustomGradient, Param, Program

FUNCTIONS = {
    "matmul": ("function (A[N, K], B[K, M]) -> (O) { O[i, j : N, M] = +(A[i, k] * B[k, j]); }", {"A": (3, 2), "B": (2, 3)}),
    "softmax": ("function (A[N, M], B) -> (O) { O = builtin_softmax(A * B, N, M); }", {"A": (2, 3), "B": (3,)}),
    "pool": ("function (A[N], B) -> (O) { C = A * A * B; O[i : N / 2] = >(C[2*i + j]), j < 2; }", {"A": (6,), "B": (6,)}),
    "product": ("function (A[N, M], B) -> (O) { O[i : N] = *(A[i, j] + B[j]); }", {"A": (2, 3), "B": (3,)}),
    "functions": ("function (A, B) -> (O, P) { O = sin(A) * exp(B) / A; P = tanh(A * B) + sigmoid(B); }", {"A": (2, 3), "B": (3,)}),
    "rows": ("function (A, B) -> (O) { I = as_int(3 * B, 32); O = gather(A * A * A, I); }", {"A": (4, 2), "B": (3,)}),
    "default": ("function (A[N], B[M]) -> (O) { D = B * B; O[2*i : M] = +(A[i] * A[i]) default D; }", {"A": (2,), "B": (5,)}),
    "conditional": ("function (A[N], B[N]) -> (O) { C = B * B; O[i : N] = +(A[i] == A[j] ? C[j]); }", {"A": (4,), "B": (4,)}),
}  # fmt: skip
NAMES = ["A", "B"]


def _case(name: str) -> tuple[Program, Arrays]:
    source, shapes = FUNCTIONS[name]
    inputs = {n: spread(*s) for n, s in shapes.items()}
    return bound(source, inputs), inputs


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradient_of_gradient(name: str) -> None:
    program, inputs = _case(name)
    # A moved A of a conditional body is equal to nothing: its gradient there is 0 by definition.
    names = ["B"] if name == "conditional" else NAMES
    gradient = tile_autodiff.gradient(program, names)
    check(gradient, {**inputs, **cotangents(program)}, [*names, *(f"d_{p}" for p, _ in program.outputs)], 2e-5)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_jvp_and_vjp_agree(name: str) -> None:
    program, inputs = _case(name)
    weights = cotangents(program)
    rng = np.random.default_rng(5)
    tangents = {f"t_{n}": rng.uniform(-1, 1, inputs[n].shape) for n in NAMES}
    pushed = tile_lang.evaluate(tile_autodiff.jvp(program, NAMES), {**inputs, **tangents})
    pulled = tile_lang.evaluate(tile_autodiff.gradient(program, NAMES), {**inputs, **weights})
    left = sum(float(np.sum(pushed[f"t_{p}"] * weights[f"d_{p}"])) for p, _ in program.outputs)
    right = sum(float(np.sum(pulled[f"d_{n}"] * tangents[f"t_{n}"])) for n in NAMES)
    np.testing.assert_allclose(left, right, rtol=1e-10)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_jvp_against_differences(name: str) -> None:
    program, inputs = _case(name)
    tangent = np.random.default_rng(5).uniform(-1, 1, inputs["B"].shape)
    pushed = tile_lang.evaluate(tile_autodiff.jvp(program, ["B"]), {**inputs, "t_B": tangent})
    step = 1e-6
    up, down = (tile_lang.evaluate(program, {**inputs, "B": inputs["B"] + s * tangent}) for s in (step, -step))
    for public, _ in program.outputs:
        np.testing.assert_allclose(
            pushed[f"t_{public}"], (up[public] - down[public]) / (2 * step), rtol=1e-5, atol=1e-6
        )


def test_jvp_does_not_ask_for_cotangents() -> None:
    program, _ = _case("functions")
    pushed = tile_autodiff.jvp(program, ["A"])
    assert [p.name for p in pushed.inputs] == ["A", "B", "t_A"]
    assert [o for o, _ in pushed.outputs] == ["t_O", "t_P"]


def test_jvp_of_integer_outputs_is_zero() -> None:
    program = bound("function (A) -> (I, O) { I = as_int(A, 32); O = A; }", {"A": spread(3)})
    got = tile_lang.evaluate(tile_autodiff.jvp(program, ["A"]), {"A": spread(3), "t_A": np.arange(3.0)})
    assert got["t_I"].dtype == np.int32 and not got["t_I"].any()
    np.testing.assert_array_equal(got["t_O"], np.arange(3.0))


@pytest.mark.parametrize("name", ["matmul", "softmax", "product", "functions"])
def test_hessian_vector_product(name: str) -> None:
    program, inputs = _case(name)
    weights = cotangents(program)
    tangents = {f"t_{n}": np.random.default_rng(5).uniform(-1, 1, inputs[n].shape) for n in NAMES}
    got = tile_lang.evaluate(tile_autodiff.hessian_vector_product(program, NAMES), {**inputs, **weights, **tangents})
    gradient = tile_autodiff.gradient(program, NAMES)
    step = 1e-5
    ends = [
        tile_lang.evaluate(gradient, {**{n: inputs[n] + s * tangents[f"t_{n}"] for n in NAMES}, **weights})
        for s in (step, -step)
    ]
    for n in NAMES:
        want = (ends[0][f"d_{n}"] - ends[1][f"d_{n}"]) / (2 * step)
        np.testing.assert_allclose(got[f"h_{n}"], want, rtol=1e-4, atol=1e-5)


def test_tangents_must_not_have_the_names_of_inputs() -> None:
    program = bound(
        "function (A, t_A) -> (O) { O = A * t_A; }".replace("t_A", "#t_A"), {"A": spread(3), "t_A": spread(3)}
    )
    with pytest.raises(TileTypeError, match="TILE-E803"):
        tile_autodiff.jvp(program, ["A"])


# --- custom gradients --------------------------------------------------------------------------------


def _with_rule(backward: str) -> tuple[Program, CustomGradient]:
    program = bound(
        "function (A, B) -> (O) { X = A * B; Y = round(X) + X - X; O = Y * Y; }", {"A": spread(4), "B": spread(4)}
    )
    y = next(op.name for op in program.ops if op.name == "Y")  # pyright: ignore
    inputs = {n: spread(4) for n in ("X", "Y", "DY")}
    return program, CustomGradient(("X",), (y,), bound(backward, inputs))


def test_a_custom_rule_replaces_the_derivative_of_its_part() -> None:
    program, rule = _with_rule("function (X, Y, DY) -> (DX) { DX = DY * 10 + 0 * X * Y; }")
    inputs = {"A": spread(4), "B": spread(4)}
    gradient = tile_autodiff.gradient(program, ["A"], rules=[rule])
    got = tile_lang.evaluate(gradient, {**inputs, "d_O": np.ones(4)})["d_A"]
    np.testing.assert_allclose(got, 2 * np.round(inputs["A"] * inputs["B"]) * 10 * inputs["B"])


def test_a_custom_rule_of_the_wrong_type_is_an_error() -> None:
    program, rule = _with_rule("function (X, Y, DY) -> (DX) { DX[] = +(DY[i]); X1 = X; Y1 = Y; }")
    with pytest.raises(TileTypeError, match="TILE-E804"):
        tile_autodiff.gradient(program, ["A"], rules=[rule])
    short = replace(rule, backward=replace(rule.backward, inputs=rule.backward.inputs[:2]))
    with pytest.raises(TileTypeError, match="TILE-E804"):
        tile_autodiff.gradient(program, ["A"], rules=[short])


# --- random programs -----------------------------------------------------------------------------------

SMOOTH = (
    "{a} + {b}", "{a} * {b}", "{a} - {b} * 0.5", "{a} / (1 + {b} * {b})", "sin({a})", "exp(-{a} * {a})", "tanh({a})",
    "sigmoid({a})", "sqrt(1 + {a} * {a})", "{a} < {b} ? {b} : {a} * 2", "max({a}, {b})", "abs({a})", "pow({a}, 3) / 10",
    "relu({a})", "stop_gradient({a}) + {b}", "reshape(reshape({a}, 6), 2, 3)", "gather({a}, I)", "scatter({a}, I, {b})",
)  # fmt: skip
CONTRACTED = (
    "{v}[i, j : 2, 3] = +({a}[i, k] * Q[k, j]);",
    "{v}[i, j : 2, 3] = +({a}[i, j - k]), k < 2;",
    "{v}[i, j : 2, 3] = >({a}[i, j + k] + {b}[i, k]), k < 2;",
    "{v}[i, j : 2, 3] = <({a}[k, j]), i - k < 2;",
    "{v}[i, j : 2, 3] = *({a}[i, k]), j - k < 2;",
    "{v}[i, 2*j : 2, 3] = +({a}[i, j]) default {b};",
    "{v}[1 - i, j : 2, 3] = =({a}[i, j]);",
    "{v}[i, j : 2, 3] = +({a}[k, j]);",
)


@st.composite
def sources(draw: st.DrawFn) -> str:
    """A function of A, B [2, 3], Q [3, 3] and rows I [2] with up to six statements."""
    names, lines = ["A", "B"], []
    for k in range(draw(st.integers(1, 6))):
        picked = {key: draw(st.sampled_from(names)) for key in "ab"}
        pattern = draw(st.sampled_from(SMOOTH + CONTRACTED))
        lines.append(
            pattern.format(v=f"V{k}", **picked) if pattern in CONTRACTED else f"V{k} = {pattern.format(**picked)};"
        )
        names.append(f"V{k}")
    outputs = [names[-1], *draw(st.lists(st.sampled_from(names[2:]), max_size=1))]
    return f"function (A, B, Q, I) -> ({', '.join(dict.fromkeys(outputs))}) {{ {' '.join(lines)} }}"


def _smooth_here(program: Program, inputs: Arrays, weights: Arrays, name: str) -> bool:
    """Whether one-sided slopes agree (central differences mean nothing at a kink)."""
    rng = np.random.default_rng(1)
    direction = rng.uniform(-1, 1, inputs[name].shape)
    base, slopes = inputs[name], []
    for sign in (1, -1):
        moved = {**inputs, name: base + sign * 1e-6 * direction}
        values = [tile_lang.evaluate(program, x) for x in (moved, inputs)]
        total = sum(float(np.sum((values[0][p] - values[1][p]) * weights[f"d_{p}"])) for p, _ in program.outputs)
        slopes.append(sign * total / 1e-6)
    return bool(np.isclose(slopes[0], slopes[1], rtol=1e-3, atol=1e-3))


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(source=sources(), seed=st.integers(0, 1000))
def test_random_programs(source: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    inputs = {"A": rng.uniform(-1, 1, (2, 3)), "B": rng.uniform(-1, 1, (2, 3)), "Q": rng.uniform(-1, 1, (3, 3))}
    inputs["I"] = np.array([1, 0], np.int32)
    program = bound(source, inputs)
    weights = cotangents(program)
    got = tile_lang.evaluate(tile_autodiff.gradient(program, ["A", "B", "Q"]), {**inputs, **weights})
    for name in ("A", "B", "Q"):
        if "stop_gradient" not in source and _smooth_here(program, inputs, weights, name):
            want = differences(program, inputs, weights, name)
            np.testing.assert_allclose(got[f"d_{name}"], want, rtol=1e-4, atol=1e-4, err_msg=source)
        assert np.isfinite(got[f"d_{name}"]).all()


@settings(max_examples=30, suppress_health_check=list(HealthCheck))
@given(source=sources(), seed=st.integers(0, 1000))
def test_random_programs_pushed_and_pulled(source: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    shapes = {"A": (2, 3), "B": (2, 3), "Q": (3, 3)}
    inputs = {n: rng.uniform(-1, 1, s) for n, s in shapes.items()} | {"I": np.array([1, 0], np.int32)}
    program = bound(source, inputs)
    weights, tangents = cotangents(program), {f"t_{n}": rng.uniform(-1, 1, s) for n, s in shapes.items()}
    pushed = tile_lang.evaluate(tile_autodiff.jvp(program, list(shapes)), {**inputs, **tangents})
    pulled = tile_lang.evaluate(tile_autodiff.gradient(program, list(shapes)), {**inputs, **weights})
    left = sum(float(np.sum(pushed[f"t_{p}"] * weights[f"d_{p}"])) for p, _ in program.outputs)
    right = sum(float(np.sum(pulled[f"d_{n}"] * tangents[f"t_{n}"])) for n in shapes)
    np.testing.assert_allclose(left, right, rtol=1e-8, atol=1e-9)


def test_gradients_have_a_text_form() -> None:
    program, _ = _case("pool")
    gradient = tile_autodiff.gradient(program, NAMES)
    assert tile_lang.parse_program(tile_lang.print_program(gradient)).inputs[-1] == Param(
        "d_O", gradient.inputs[-1].type
    )


def _carrying_rule() -> tuple[Program, Arrays]:
    program, rule = _with_rule("function (X, Y, DY) -> (DX) { DX = DY * X; Y1 = Y; }")
    return replace(program, gradients=(rule,)), {"A": spread(4), "B": spread(4)}


def test_programs_carry_their_rules_into_gradients_of_gradients() -> None:
    program, inputs = _carrying_rule()
    first = tile_autodiff.gradient(program, ["A"])
    assert first.gradients == program.gradients
    seeds = {"d_O": np.ones(4), "d_d_A": np.ones(4)}
    got = tile_lang.evaluate(tile_autodiff.gradient(first, ["A"]), {**inputs, **seeds})["d_A"]
    x, b = inputs["A"] * inputs["B"], inputs["B"]
    # dA = 2 Y X B with dY = X dX.
    np.testing.assert_allclose(got, 2 * b * b * (np.round(x) + x * x), rtol=1e-12)


def test_rules_have_a_text_form() -> None:
    program, _ = _carrying_rule()
    text = tile_lang.print_program(program)
    assert "gradient of (Y) by (X) program" in text
    again = tile_lang.parse_program(text)
    assert tile_lang.print_program(again) == text and again.gradients[0].outputs == ("Y",)


def test_rules_about_inputs_are_errors() -> None:
    program, inputs = _carrying_rule()
    rule = replace(program.gradients[0], outputs=("A",))
    with pytest.raises(TileTypeError, match="TILE-E804"):
        tile_autodiff.gradient(bound("function (A) -> (O) { O = A; }", {"A": inputs["A"]}), ["A"], rules=[rule])
