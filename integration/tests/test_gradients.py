"""Gradients through the whole stack: every device against the reference evaluator, and against PyTorch's autograd."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tile_autodiff
import tile_hal
import tile_lang
import tile_runtime as tile
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from tile_hal.conformance import strategies
from tile_hal.conformance.programs import fill
from tile_hal.conformance.strategies import Data
from tile_ir.dtype import DType, from_numpy
from tile_ir.program.nodes import TensorType
from tile_lang.examples import TUTORIAL, Example

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]
DEVICES = [d for d in tile_hal.devices() if d.capabilities.executes and not d.id.startswith("interp")]
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
FAST = pytest.mark.parametrize("fast", DEVICES, ids=[d.id for d in DEVICES])
"""Compiling devices: the interpreter takes long for convolutions."""


def random_inputs(shapes: Mapping[str, tuple[int, ...]], seed: int = 0) -> Arrays:
    """float32 numbers between -2 and 2, all different."""
    rng = np.random.default_rng([seed, len(shapes)])
    found: Arrays = {}
    for name, shape in shapes.items():
        count = int(np.prod(shape))
        values = rng.permutation(np.linspace(-2, 2, max(count, 2))[:count]) + rng.uniform(0, 1, count) / max(count, 2)
        found[name] = values.reshape(shape).astype(np.float32)
    return found


def close(actual: Array, expected: Array, tolerance: float = 2e-5, what: str = "") -> None:
    """Within `tolerance` of the largest element: sums of float32 in another order."""
    scale = max(1.0, float(np.max(np.abs(expected), initial=0)))
    assert actual.shape == expected.shape and actual.dtype == expected.dtype, what
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance * scale, err_msg=what)


# --- every device against the reference evaluator --------------------------------------------------

AGGREGATIONS = "+*><"
BODIES = {
    "one": "A[2*i + j]",
    "product": "A[2*i + j] * B[j]",
    "sum": "A[2*i + j] + B[j]",
    "three factors": "A[2*i + j] * B[j] * C[i]",
    "conditional": "A[2*i + j] == B[j] ? C[i]",
}
SIZES = {"A": (9,), "B": (3,), "C": (4,), "D": (5,)}
OTHERS: dict[str, tuple[str, dict[str, tuple[int, ...]]]] = {
    "assignment": ("function (A[N], D[M]) -> (O) { O[2*i : M] = =(A[i]) default D; }", {"A": (2,), "D": (5,)}),
    "functions": ("function (A, B) -> (O) { O = sigmoid(A) * tanh(B) + pow(A, 3) / (2 + sin(B)) - abs(A); }", {"A": (3, 5), "B": (5,)}),
    "reshape": ("function (A, B) -> (O) { O = reshape(A, 2, 6) * B; }", {"A": (3, 4), "B": (6,)}),
    "gather": ("function (A, B) -> (O) { G = gather(A, as_int(B, 32)); O = G * G; }", {"A": (4, 3), "B": (5,)}),
    "scatter": ("function (A, B, C) -> (O) { S = scatter(A, as_int(B, 32), C); O = S * S; }", {"A": (5, 3), "B": (5,), "C": (4,)}),
    "sort": ("function (A) -> (O) { S = sort(A, 1); O = S * S * S; }", {"A": (4, 5)}),
    "the largest few": ("function (A) -> (O) { T = element(top_k(A, 2, 0), 0); O = T * T; }", {"A": (5, 3)}),
    "running totals": ("function (A) -> (O) { O = cumsum(A, 0) * cummax(A, 1) + cumprod(A, 1) + cummin(A, 0); }", {"A": (4, 5)}),
    "products of three": (
        "function (A[I, J], B[J, K], C[K, L]) -> (O) { O[i, l : I, L] = +(A[i, j] * B[j, k] * C[k, l]); }",
        {"A": (9, 8), "B": (8, 10), "C": (10, 9)},
    ),
    "gather along an axis": ("function (A, B) -> (O) { G = gather(A, as_int(abs(B) * 2, 32), 1); O = G * G; }", {"A": (4, 3), "B": (5,)}),
    "gather by two indices": (
        "function (A[N, M, L], B[K]) -> (O) "
        "{ I = as_int(abs(B) * 2, 32); O[k, l : K, L] = +(A[I[k], I[k], l] * A[I[k], 1, l]); }",
        {"A": (4, 3, 2), "B": (5,)},
    ),
    **{
        f"scatter by {agg}": (
            "function (A[K, M], B[K], C[N, M]) -> (O) "
            f"{{ I = as_int(abs(B) * 2, 32); S[I[k], m : N, M] = {agg}(A[k, m]) default C; O = S * S; }}",
            {"A": (5, 3), "B": (5,), "C": (4, 3)},
        )
        for agg in "+*><="
    },
    "softmax": ("function (A[N, M]) -> (O) { O = builtin_softmax(A, N, M); }", {"A": (4, 7)}),
    "strided": (
        "function (I[N, H, W, CI], K[KH, KW, CI, CO]) -> (O) "
        "{ O[n, y, x, co: N, H/3, W/3, CO] = +(I[n, 3*y + 2*j, 3*x + 2*i, ci] * K[j, i, ci, co]); }",
        {"I": (2, 9, 12, 3), "K": (2, 2, 3, 4)},
    ),
    "pool": ("function (I[H, W]) -> (O) { O[y, x : H/2, W/2] = >(I[2*y + i, 2*x + j]), i < 3, j < 3; }", {"I": (9, 7)}),
}  # fmt: skip
for _agg in AGGREGATIONS:
    for _name, _body in BODIES.items():
        for _default in ("", " default D"):
            _used = {n: s for n, s in SIZES.items() if f"{n}[" in _body or f"default {n}" in _default}
            _header = ", ".join(f"{n}[N{n}]" for n in _used)
            _key = f"{_agg}_{_name}{'_default' if _default else ''}"
            OTHERS[_key] = (
                f"function ({_header}) -> (O) {{ O[i : 5] = {_agg}({_body}), j < 3, i < 3{_default}; }}",
                _used,
            )


def on_evaluator(function: tile.Function, wrt: Sequence[str], values: Arrays, order: int = 1) -> list[Array]:
    """Gradients by the reference evaluator, with every operation in float64 to judge by."""
    types = {n: TensorType(from_numpy(a.dtype), a.shape) for n, a in values.items()}
    program = function.bind({n: types[n] for n in function.inputs})
    for _ in range(order):
        program = tile_autodiff.gradient(program, wrt)
    results = tile_lang.evaluate(program, {p.name: values[p.name] for p in program.inputs})
    return [results[public] for public, _ in program.outputs]


def with_cotangents(function: Any, inputs: Arrays) -> Arrays:
    shapes = tile.eval_shape(function, **inputs)
    shapes = [shapes] if len(function.outputs) == 1 else list(shapes)
    rng = np.random.default_rng(9)
    seeds = {
        f"d_{o}": rng.uniform(-1, 1, s.shape).astype(s.dtype.numpy)
        for o, s in zip(function.outputs, shapes, strict=True)
    }
    return {**inputs, **seeds}


def compare_with_evaluator(device: Any, source: str, inputs: Arrays, tolerance: float = 2e-5) -> None:
    function = tile.Function(source)
    values = with_cotangents(function, inputs)
    wrt = function.inputs
    actual = tile.vjp(function, wrt)(device=device, **values)
    actual = actual if isinstance(actual, tuple) else (actual,)
    for name, got, want in zip(wrt, actual, on_evaluator(function, wrt, values), strict=True):
        close(got, want, tolerance, f"d_{name} of {source}")


@pytest.mark.diagonal(4)
@pytest.mark.parametrize("name", OTHERS)
def test_gradients_of_every_operation(device: Any, name: str) -> None:
    source, shapes = OTHERS[name]
    inputs = random_inputs(shapes)
    if "conditional" in name:
        inputs["B"][:] = inputs["A"][[0, 3, 6]]
    compare_with_evaluator(device, source, inputs)


@pytest.mark.diagonal(4)
@pytest.mark.parametrize("example", TUTORIAL, ids=[e.name for e in TUTORIAL])
def test_gradients_of_the_tutorial(device: Any, example: Example) -> None:
    if any(s in example.name for s in ("equality", "less")):
        pytest.skip("the output is bool: the gradient is zero by definition")
    compare_with_evaluator(device, example.source, example.inputs(), 5e-5)


def test_ties_zeros_and_nan(device: Any) -> None:
    top = tile.vjp(tile.Function("function (A[N, M]) -> (O) { O[i : N] = >(A[i, j]); }"), "A")
    a = np.array([[1, 3, 3], [np.nan, 1, 2]], np.float32)
    np.testing.assert_array_equal(top(a, np.ones(2, np.float32), device=device), [[0, 0.5, 0.5], [0, 0, 0]])
    product = tile.vjp(tile.Function("function (A[N, M]) -> (O) { O[i : N] = *(A[i, j]); }"), "A")
    a = np.array([[2, 0, 5], [0, 7, 0], [2, 4, 8]], np.float32)
    got = product(a, np.ones(3, np.float32), device=device)
    np.testing.assert_array_equal(got, [[0, 10, 0], [0, 0, 0], [32, 16, 8]])


@pytest.mark.diagonal(2)
@pytest.mark.parametrize("agg", "+*><=")
def test_second_derivatives_of_scatters(device: Any, agg: str) -> None:
    text = f"{{ I = as_int(abs(B) * 2, 32); S[I[k], m : N, M] = {agg}(A[k, m]) default C; O = S * S * S; }}"
    function = tile.Function(f"function (A[K, M], B[K], C[N, M]) -> (O) {text}")
    inputs = random_inputs({"A": (5, 3), "B": (5,), "C": (4, 3)})
    first = tile.vjp(function, ("A", "C"))
    values = with_cotangents(first, with_cotangents(function, inputs))
    second = tile.vjp(first, ("A", "C"))(device=device, **values)
    for got, want in zip(second, on_evaluator(function, ("A", "C"), values, 2), strict=True):
        close(got, want)


def test_gradient_of_gradient(device: Any) -> None:
    function = tile.Function("function (A[N, M], B) -> (O) { O = builtin_softmax(A * tanh(B), N, M); }")
    inputs = random_inputs({"A": (3, 4), "B": (4,)})
    first = tile.vjp(function, ("A", "B"))
    values = with_cotangents(first, with_cotangents(function, inputs))
    second = tile.vjp(first, ("A", "B"))(device=device, **values)
    for got, want in zip(second, on_evaluator(function, ("A", "B"), values, 2), strict=True):
        close(got, want)


# --- random programs -----------------------------------------------------------------------------------

TOLERANCES = {DType.FLOAT64: 1e-9, DType.FLOAT32: 1e-5, DType.FLOAT16: 4e-3}


@settings(max_examples=25, suppress_health_check=list(HealthCheck), phases=PHASES)
@given(case=st.sampled_from(list(TOLERANCES)).flatmap(lambda d: strategies.contractions([d])), data=st.data())
def test_gradients_of_random_contractions(device: Any, case: strategies.Case, data: st.DataObject) -> None:
    """Strides, flips, fractions, constraints, every aggregation and body, on whole numbers: many ties and zeros."""
    names = tuple(n for n, t in case.inputs.items() if t.dtype.is_float)
    # PoCL 3.1 crashes in vstore_half16_rte of a constant at the remainder of a row.
    half = any(t.dtype is DType.FLOAT16 for t in case.inputs.values())
    assume(names and not (half and device.id.startswith("opencl")))
    wrt = tuple(data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True)))
    inputs = {n: fill(t, Data.EXACT, case.seed + k) for k, (n, t) in enumerate(case.inputs.items())}
    function = tile.Function(case.source)
    values = with_cotangents(function, inputs)
    actual = tile.vjp(function, wrt)(device=device, **values)
    actual = actual if isinstance(actual, tuple) else (actual,)
    for name, got, want in zip(wrt, actual, on_evaluator(function, wrt, values), strict=True):
        assert got.shape == want.shape and got.dtype == want.dtype
        tolerance = TOLERANCES[from_numpy(want.dtype)]
        got, want = got.astype(np.float64), want.astype(np.float64)
        scale = np.max(np.abs(want[np.isfinite(want)]), initial=1)
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * scale, err_msg=f"d_{name} of {case}")


# --- PyTorch -----------------------------------------------------------------------------------------

TorchFunction = Callable[..., Any]


def against_torch(
    device: Any, source: str, inputs: Arrays, reference: TorchFunction, wrt: Sequence[str], tolerance: float = 2e-5
) -> None:
    torch = pytest.importorskip("torch")
    function = tile.Function(source)
    values = with_cotangents(function, inputs)
    tensors = {n: torch.tensor(a, requires_grad=n in wrt) for n, a in inputs.items()}
    output = reference(torch, **tensors)
    close(function(device=device, **inputs), output.detach().numpy(), tolerance, "forward")
    output.backward(torch.tensor(values[f"d_{function.outputs[0]}"]))
    actual = tile.vjp(function, tuple(wrt))(device=device, **values)
    actual = actual if isinstance(actual, tuple) else (actual,)
    for name, got in zip(wrt, actual, strict=True):
        close(got, tensors[name].grad.numpy(), tolerance, f"d_{name}")


CONVOLUTIONS = {
    "plain": (
        "O[n, co, y, x : N, CO, H - KH + 1, W - KW + 1] = +(I[n, ci, y + i, x + j] * K[co, ci, i, j]);", {}, (3, 3)),
    "padded": ("O[n, co, y, x : N, CO, H, W] = +(I[n, ci, y + i - 1, x + j - 1] * K[co, ci, i, j]);", {"padding": 1}, (3, 3)),
    "strided": (
        "O[n, co, y, x : N, CO, (H + 1) / 2, (W + 1) / 2] = +(I[n, ci, 2*y + i - 1, 2*x + j - 1] * K[co, ci, i, j]);",
        {"padding": 1, "stride": 2}, (3, 3)),
    "dilated": (
        "O[n, co, y, x : N, CO, H - 2 * (KH - 1), W - 3 * (KW - 1)] = +(I[n, ci, y + 2*i, x + 3*j] * K[co, ci, i, j]);",
        {"dilation": (2, 3)}, (3, 2)),
    "strided_dilated": (
        "O[n, co, y, x : N, CO, (H - 3) / 2 + 1, (W - 3) / 2 + 1] = +(I[n, ci, 2*y + 2*i, 2*x + 2*j] * K[co, ci, i, j]);",
        {"dilation": 2, "stride": 2}, (2, 2)),
}  # fmt: skip


@FAST
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolution_like_torch(fast: Any, name: str) -> None:
    statement, options, kernel = CONVOLUTIONS[name]
    source = f"function (I[N, CI, H, W], K[CO, C2, KH, KW]) -> (O) {{ {statement} }}"
    inputs = random_inputs({"I": (2, 3, 9, 10), "K": (4, 3, *kernel)})
    against_torch(fast, source, inputs, lambda t, I, K: t.nn.functional.conv2d(I, K, **options), ("I", "K"))  # noqa: E741


@FAST
def test_grouped_convolution_like_torch(fast: Any) -> None:
    source = """function (I[N, CI, H, W], K[CO, CG, KH, KW]) -> (O) {
        G = reshape(I, N, 2, CG, H, W); L = reshape(K, 2, CO / 2, CG, KH, KW);
        P[n, g, co, y, x : N, 2, CO / 2, H - KH + 1, W - KW + 1] = +(G[n, g, ci, y + i, x + j] * L[g, co, ci, i, j]);
        O = reshape(P, N, CO, H - KH + 1, W - KW + 1);
    }"""
    inputs = random_inputs({"I": (2, 6, 7, 8), "K": (4, 3, 3, 3)})
    against_torch(fast, source, inputs, lambda t, I, K: t.nn.functional.conv2d(I, K, groups=2), ("I", "K"))  # noqa: E741


@FAST
def test_transposed_convolution_like_torch(fast: Any) -> None:
    source = """function (I[N, CI, H, W], K[C2, CO, KH, KW]) -> (O) {
        O[n, co, 2*y + i - 1, 2*x + j - 1 : N, CO, 2 * H - 1, 2 * W - 1] = +(I[n, ci, y, x] * K[ci, co, i, j]);
    }"""
    inputs = random_inputs({"I": (2, 3, 5, 6), "K": (3, 4, 3, 3)})

    def reference(t: Any, I: Any, K: Any) -> Any:  # noqa: E741
        return t.nn.functional.conv_transpose2d(I, K, stride=2, padding=1)

    against_torch(fast, source, inputs, reference, ("I", "K"))


POOLS: dict[str, tuple[str, TorchFunction]] = {
    "max": (
        "function (I[N, C, H, W]) -> (O) { O[n, c, y, x : N, C, H/2, W/2] = >(I[n, c, 2*y + i, 2*x + j]), i < 2, j < 2; }",
        lambda t, I: t.nn.functional.max_pool2d(I, 2),  # noqa: E741
    ),
    "max_overlapping": (
        "function (I[N, C, H, W]) -> (O) "
        "{ O[n, c, y, x : N, C, (H + 1)/2, (W + 1)/2] = >(I[n, c, 2*y + i - 1, 2*x + j - 1]), i < 3, j < 3; }",
        lambda t, I: t.nn.functional.max_pool2d(I, 3, 2, 1),  # noqa: E741
    ),
    "average": (
        "function (I[N, C, H, W]) -> (O) "
        "{ S[n, c, y, x : N, C, H/2, W/2] = +(I[n, c, 2*y + i, 2*x + j]), i < 2, j < 2; O = S / 4; }",
        lambda t, I: t.nn.functional.avg_pool2d(I, 2),  # noqa: E741
    ),
}


@FAST
@pytest.mark.parametrize("name", POOLS)
def test_pooling_like_torch(fast: Any, name: str) -> None:
    source, reference = POOLS[name]
    against_torch(fast, source, random_inputs({"I": (2, 3, 9, 8)}), reference, ("I",))


@FAST
def test_batch_norm_like_torch(fast: Any) -> None:
    source = """function (X[N, C, H, W], G[C], B[C]) -> (O) {
        S[c : C] = +(X[n, c, y, x]);
        D = X - reshape(S / (N * H * W), C, 1, 1);
        Q = D * D;
        V[c : C] = +(Q[n, c, y, x]);
        R = G / sqrt(V / (N * H * W) + 0.00001);
        O = D * reshape(R, C, 1, 1) + reshape(B, C, 1, 1);
    }"""
    inputs = random_inputs({"X": (4, 3, 5, 6), "G": (3,), "B": (3,)})

    def reference(t: Any, X: Any, G: Any, B: Any) -> Any:
        return t.nn.functional.batch_norm(X, None, None, G, B, training=True, eps=1e-5)

    against_torch(fast, source, inputs, reference, ("X", "G", "B"), 5e-5)


@FAST
def test_layer_norm_like_torch(fast: Any) -> None:
    source = """function (X[N, M], G[M], B[M]) -> (O) {
        S[i, 0 : N, 1] = +(X[i, j]);
        D = X - S / M;
        Q = D * D;
        V[i, 0 : N, 1] = +(Q[i, j]);
        O = D / sqrt(V / M + 0.00001) * G + B;
    }"""
    inputs = random_inputs({"X": (6, 32), "G": (32,), "B": (32,)})

    def reference(t: Any, X: Any, G: Any, B: Any) -> Any:
        return t.nn.functional.layer_norm(X, (32,), G, B, eps=1e-5)

    against_torch(fast, source, inputs, reference, ("X", "G", "B"), 5e-5)


@FAST
def test_softmax_cross_entropy_like_torch(fast: Any) -> None:
    source = """function (X[N, M], T[N]) -> (O) {
        L = builtin_logsoftmax(X, N, M);
        P = index(L, 1) == reshape(T, N, 1) ? L : 0;
        S[] = +(P[i, j]);
        O = -S / N;
    }"""
    inputs = {**random_inputs({"X": (8, 10)}), "T": np.arange(8, dtype=np.int32)}

    def reference(t: Any, X: Any, T: Any) -> Any:
        return t.nn.functional.cross_entropy(X, T.long())

    against_torch(fast, source, inputs, reference, ("X",))


@FAST
def test_attention_like_torch(fast: Any) -> None:
    source = """function (Q[B, N, D], K[B, M, D], V[B, M, E]) -> (O) {
        S[b, i, j : B, N, M] = +(Q[b, i, d] * K[b, j, d]);
        T = S / sqrt(as_float(D, 32));
        X[b, i, 0 : B, N, 1] = >(T[b, i, j]);
        P = exp(T - X);
        Z[b, i, 0 : B, N, 1] = +(P[b, i, j]);
        A = P / Z;
        O[b, i, e : B, N, E] = +(A[b, i, j] * V[b, j, e]);
    }"""
    inputs = random_inputs({"Q": (2, 5, 8), "K": (2, 7, 8), "V": (2, 7, 6)})

    def reference(t: Any, Q: Any, K: Any, V: Any) -> Any:
        return t.nn.functional.scaled_dot_product_attention(Q, K, V)

    against_torch(fast, source, inputs, reference, ("Q", "K", "V"))


@FAST
def test_embedding_like_torch(fast: Any) -> None:
    source = "function (W, I) -> (O) { O = gather(W, I); }"
    inputs = {**random_inputs({"W": (10, 6)}), "I": np.array([[3, 3, 0], [9, 3, 1]], np.int32)}

    def reference(t: Any, W: Any, I: Any) -> Any:  # noqa: E741
        return t.nn.functional.embedding(I.long(), W)

    against_torch(fast, source, inputs, reference, ("W",))


# --- training --------------------------------------------------------------------------------------


@FAST
def test_the_digits_network_learns(fast: Any, tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    import train_digits

    assert train_digits.main(["--device", fast.id, "--epochs", "12", "--output", str(tmp_path)]) == 0


def test_training_steps_agree_between_devices() -> None:
    """One step on two compiling devices changes the weights alike."""
    import train_digits

    rng = np.random.default_rng(2)
    images = rng.uniform(0, 1, (train_digits.BATCH, 8, 8, 1)).astype(np.float32)
    labels = rng.integers(0, 10, train_digits.BATCH).astype(np.int32)
    found: list[list[Array]] = []
    for device in DEVICES[:2]:
        trainer = train_digits.Trainer(device)
        before = [w.numpy() for w in trainer.weights]
        list(trainer.epoch(images, labels, 0.1, np.arange(train_digits.BATCH)))
        found.append([w.numpy() for w in trainer.weights])
        assert all(np.any(a != b) for a, b in zip(before, found[-1], strict=True))
    for other in found[1:]:
        for got, want in zip(other, found[0], strict=True):
            close(got, want)
