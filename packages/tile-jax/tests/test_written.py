"""Operations that JAX itself does not write, in MLIR's text, against NumPy; and modules that are refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tile_runtime as tile
from drawing import Array, array
from running import evaluator
from tile_ir.diagnostics import TileTypeError
from tile_jax.lowering import lowered

_ELEMENTS = {"float32": "f32", "int32": "i32", "int8": "i8", "uint32": "ui32", "uint64": "ui64", "bool": "i1"}


def typed(value: Array) -> str:
    """The MLIR type of an array."""
    return f"tensor<{'x'.join(map(str, (*value.shape, _ELEMENTS[value.dtype.name])))}>"


def run(operation: str, arguments: Sequence[Array], results: Sequence[str]) -> list[Array]:
    """One operation in the generic form, as a module of its own."""
    names = [f"%a{k}" for k in range(len(arguments))]
    header = ", ".join(f"{n}: {typed(a)}" for n, a in zip(names, arguments, strict=True))
    made = [f"%r#{k}" for k in range(len(results))] if len(results) > 1 else ["%r"]
    types, outs = ", ".join(map(typed, arguments)), ", ".join(results)
    left = f"%r:{len(results)}" if len(results) > 1 else "%r"
    call = operation.format(", ".join(names))
    text = f"module {{ func.func @main({header}) -> ({outs}) {{ {left} = {call} : ({types}) -> ({outs})\n return {', '.join(made)} : {outs} }} }}"
    own = evaluator("llvm")
    given = [tile.asarray(np.array(a, order="C"), own.device) for a in arguments]
    return [np.asarray(r.numpy()) for r in lowered(text.encode()).run([given], [own])[0]]


R = np.random.default_rng(5)
F = [array(R, "float32", s) for s in ((2, 3), (3, 4), (3,), (3,))]
I = array(R, "int32", (2, 3), -999, 999)  # noqa: E741
X, S, O, M, V = F[0], F[2], F[3], array(R, "float32", (3,)), array(R, "float32", (3,), 0.5, 2)  # noqa: E741
NORMAL = (X - M) / np.sqrt(V + 0.01)


def _trained() -> list[Array]:
    mean, var = X.mean(0), X.var(0)
    return [(X - mean) / np.sqrt(var + 0.01) * S + O, mean, var]


def _pulled() -> list[Array]:
    centred, root, own = X - M, np.sqrt(V + 0.01), np.array(X[::-1])
    slope = (own * centred).sum(0)
    return [S / root / 2 * (2 * own - own.sum(0) - centred * slope / root**2), slope / root, own.sum(0)]


NORMS = "epsilon = 0.01 : f32, feature_index = 1 : i64"
CASES: dict[str, tuple[str, tuple[Array, ...], Callable[[], list[Any]]]] = {
    "dot": ('"stablehlo.dot"({})', (X, F[1]), lambda: [X @ F[1]]),
    "einsum": ('"stablehlo.einsum"({}) {{einsum_config = "ij,jk->ki"}}', (X, F[1]), lambda: [(X @ F[1]).T]),
    "unary_einsum": ('"stablehlo.unary_einsum"({}) {{einsum_config = "ij->j"}}', (X,), lambda: [X.sum(0)]),
    "broadcast": ('"stablehlo.broadcast"({}) {{broadcast_sizes = array<i64: 2>}}', (S,), lambda: [np.stack([S, S])]),
    "batch_norm_inference": (f'"stablehlo.batch_norm_inference"({{}}) {{{{{NORMS}}}}}', (X, S, O, M, V), lambda: [NORMAL * S + O]),
    "batch_norm_training": (f'"stablehlo.batch_norm_training"({{}}) {{{{{NORMS}}}}}', (X, S, O), _trained),
    "batch_norm_grad": (f'"stablehlo.batch_norm_grad"({{}}) {{{{{NORMS}}}}}', (X, S, M, V, np.array(X[::-1])), _pulled),
    "torch_index_select": ('"stablehlo.torch_index_select"({}) {{dim = 1 : i64, batch_dims = 0 : i64}}',
                           (X, np.array([2, 0], np.int32)), lambda: [X[:, [2, 0]]]),
    "map": ('"stablehlo.map"({}) ({{ ^bb0(%x: tensor<f32>, %y: tensor<f32>): %m = stablehlo.multiply %x, %y : tensor<f32> '
            'stablehlo.return %m : tensor<f32> }}) {{dimensions = array<i64: 0, 1>}}', (X, X), lambda: [X * X]),
    "mulhi": ('"chlo.mulhi"({})', (I * 9999991, I * 7777777),
              lambda: [((I * 9999991).astype(np.int64) * (I * 7777777).astype(np.int64) >> 32).astype(np.int32)]),
    **{f"broadcast_{name}": (f'"chlo.broadcast_{name}"({{}})', (X, S), made) for name, made in {
        "add": lambda: [X + S], "subtract": lambda: [X - S], "multiply": lambda: [X * S], "divide": lambda: [X / S],
        "maximum": lambda: [np.maximum(X, S)], "minimum": lambda: [np.minimum(X, S)], "atan2": lambda: [np.arctan2(X, S)],
        "remainder": lambda: [np.fmod(X, S)],
    }.items()},
    "broadcast_power": ('"chlo.broadcast_power"({})', (V, X[0]), lambda: [V ** X[0]]),
    **{f"broadcast_{name}": (f'"chlo.broadcast_{name}"({{}})', (I, I[0]), made) for name, made in {
        "and": lambda: [I & I[0]], "or": lambda: [I | I[0]], "xor": lambda: [I ^ I[0]],
    }.items()},
    **{f"broadcast_{name}": (f'"chlo.broadcast_{name}"({{}})', (I, I[0] % 7), made) for name, made in {
        "shift_left": lambda: [I << I[0] % 7], "shift_right_arithmetic": lambda: [I >> I[0] % 7],
        "shift_right_logical": lambda: [(I.view(np.uint32) >> (I[0] % 7).astype(np.uint32)).view(np.int32)],
    }.items()},
    "broadcast_compare": ('"chlo.broadcast_compare"({}) {{comparison_direction = #chlo<comparison_direction LT>}}', (X, S),
                          lambda: [X < S]),
    "broadcast_select": ('"chlo.broadcast_select"({})', (X > 0, X, -X), lambda: [np.abs(X)]),
    "constant_like": ('"chlo.constant_like"({}) {{value = 2.5 : f32}}', (X,), lambda: [np.full_like(X, 2.5)]),
    "replica_id": ('"stablehlo.replica_id"({})', (), lambda: [np.uint32(0)]),
    "get_dimension_size": ('"stablehlo.get_dimension_size"({}) {{dimension = 1 : i64}}', (X,), lambda: [np.int32(3)]),
    "real": ('"stablehlo.real"({})', (X,), lambda: [X]),
    "imag": ('"stablehlo.imag"({})', (X,), lambda: [0 * X]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_an_operation_is_what_numpy_computes(name: str) -> None:
    operation, arguments, wanted = CASES[name]
    expected = [np.asarray(w) for w in wanted()]
    for got, want in zip(run(operation, arguments, [typed(w) for w in expected]), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_random_bits_follow_the_state() -> None:
    state = np.array([7, 3], np.uint64)
    text = '"stablehlo.rng_bit_generator"({}) {{rng_algorithm = #stablehlo<rng_algorithm DEFAULT>}}'
    after, bits = run(text, (state,), ["tensor<2xui64>", "tensor<5x3xui32>"])
    again, _ = run(text, (state,), ["tensor<2xui64>", "tensor<5x3xui32>"])
    assert after[0] == 7 and after[1] == 18 and np.array_equal(after, again)
    assert len(np.unique(bits)) == bits.size
    _, later = run(text, (after,), ["tensor<2xui64>", "tensor<5x3xui32>"])
    assert not np.intersect1d(bits, later).size


def test_numbers_drawn_without_a_state_lie_between_their_bounds() -> None:
    text = '"stablehlo.rng"({}) {{rng_distribution = #stablehlo<rng_distribution UNIFORM>}}'
    low, high = np.float32(2), np.float32(5)
    module = f"""module {{ func.func @main(%a: tensor<f32>, %b: tensor<f32>) -> tensor<100xf32> {{
      %s = stablehlo.constant dense<100> : tensor<1xi64>
      %r = {text.format("%a, %b, %s").replace("{{", "{").replace("}}", "}")} : (tensor<f32>, tensor<f32>, tensor<1xi64>) -> tensor<100xf32>
      return %r : tensor<100xf32> }} }}"""
    own = evaluator("llvm")
    (found,) = lowered(module.encode()).run([[tile.asarray(np.array(v), own.device) for v in (low, high)]], [own])[0]
    drawn = found.numpy()
    assert 2 <= drawn.min() < 2.3 and 4.7 < drawn.max() <= 5


def test_all_that_is_refused_is_named_at_once() -> None:
    module = """module { func.func @main(%a: tensor<3xf32>) -> tensor<3xf32> {
      %c = stablehlo.convert %a : (tensor<3xf32>) -> tensor<3xi4> loc("mine"("model.py":3:4))
      %r = stablehlo.convert %c : (tensor<3xi4>) -> tensor<3xf32>
      %q = stablehlo.custom_call @somewhere(%r) : (tensor<3xf32>) -> tensor<3xf32>
      %s = stablehlo.custom_call @elsewhere(%a) : (tensor<3xf32>) -> tensor<3xf32> loc("other"("model.py":7:1))
      return %s : tensor<3xf32> } }"""
    with pytest.raises(TileTypeError) as caught:
        lowered(module.encode())
    message = str(caught.value)
    assert [d.code for d in caught.value.diagnostics] == ["TILE-E956"] * 2
    assert (
        "stablehlo.convert (mine at model.py:3)" in message and "stablehlo.custom_call (other at model.py:7)" in message
    )
    assert "'elsewhere'" in message and "somewhere" not in message
