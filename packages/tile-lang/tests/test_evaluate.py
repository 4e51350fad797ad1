"""The language's meaning on the reference evaluator."""

from __future__ import annotations

import numpy as np
import pytest
import tile_lang
from bind_support import program, run
from tile_ir.diagnostics import TileTypeError
from tile_ir.dtype import DType
from tile_ir.program.nodes import TensorType


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def test_fractional_index_skips_odd_cells() -> None:
    np.testing.assert_array_equal(run("O[x:6] = +(I[(x-1)/2]);", I=floats(1, 2, 3)), [0, 1, 0, 2, 0, 3])


def test_strided_convolution_transposed() -> None:
    i, k = floats(1, 2, 3), floats(10, 20, 30)
    want = [
        sum(i[(x - q + 1) // 2] * k[q] for q in range(3) if (x - q + 1) % 2 == 0 and 0 <= (x - q + 1) // 2 < 3)
        for x in range(5)
    ]
    np.testing.assert_array_equal(run("O[x:5] = +(I[(x-k+1)/2]*K[k]);", I=i, K=k), want)


def test_reshape_by_contractions_copies_rows() -> None:
    i = np.arange(12, dtype=np.float32).reshape(4, 3)
    result = run("function (I) -> (O) { F[3*j+k:12] = >(I[j,k]); O[p,q:6,2] = >(F[2*p+q]); }", I=i)
    np.testing.assert_array_equal(result, i.reshape(6, 2))


def test_assignment_checks_that_cells_are_written_once() -> None:
    a = np.arange(5, dtype=np.float32)
    np.testing.assert_array_equal(run("O[i,j:5,5] = =(A[i,k]*B[k,j]);", A=a[:, None], B=a[None]), np.outer(a, a))
    with pytest.raises(TileTypeError, match=r"'=' assigns O\[0, 0\] 5 times"):
        run("O[i,j:1,1] = =(A[i,k]*B[k,j]);", A=a[None], B=a[:, None])


@pytest.mark.parametrize("agg", "+*><=")
def test_cells_never_written_hold_zero(agg: str) -> None:
    np.testing.assert_array_equal(run(f"O[2*i:5] = {agg}(A[i]);", A=floats(-3, -4, -5)), [-3, 0, -4, 0, -5])


@pytest.mark.parametrize("agg", "+*><=")
def test_empty_domains_give_zeros(agg: str) -> None:
    np.testing.assert_array_equal(run(f"O[i:2] = {agg}(A[i+4]);", A=floats(1, 2, 3)), [0, 0])
    np.testing.assert_array_equal(run(f"O[2*i:3] = {agg}(A[4*i]), i-100 < 50;", A=floats(1, 2, 3)), [0, 0, 0])
    np.testing.assert_array_equal(run(f"O[i:3] = {agg}(A[j,i]);", A=np.zeros((0, 3), np.float32)), [0, 0, 0])


def test_default_fills_what_is_not_written() -> None:
    result = run("O[2*i:5] = +(A[i]) default D;", A=floats(1, 2), D=floats(9, 8, 7, 6, 5))
    np.testing.assert_array_equal(result, [1, 8, 2, 6, 5])
    np.testing.assert_array_equal(
        run(
            "D = 7; O[2*i:4] = +(A[i]) default D;".replace("D = 7", "Seven = 7 ").replace("default D", "default Seven"),
            A=floats(1, 2),
        ),
        [1, 7, 2, 7],
    )


def test_failed_comparison_contributes_zero() -> None:
    a, c = floats(1, 2, 3), floats(-5, -6, -7)
    for agg, want in {"+": -6.0, ">": 0.0, "<": -6.0, "*": 0.0}.items():
        assert run(f"O[] = {agg}(A[i] == B[] ? C[i]);", A=a, B=np.float32(2), C=c) == want
    assert run("O[] = +(A[i] == B[j] ? C[i]);", A=a, B=floats(3, 1), C=c) == -12


def test_index_only_in_a_constraint_repeats_the_contribution() -> None:
    np.testing.assert_array_equal(run("O[i:2] = +(A[i]), j < 3;", A=floats(1, 2)), [3, 6])
    np.testing.assert_array_equal(run("O[i:3] = +(A[i]), i - j < 1, j < 2;", A=floats(1, 2, 4)), [1, 2, 0])


def test_user_constraints_may_be_fractional() -> None:
    np.testing.assert_array_equal(run("O[i:6] = +(A[i]), i/2 < 2;", A=floats(1, 1, 1, 1, 1, 1)), [1, 1, 1, 1, 0, 0])


def test_extremes_and_nan_are_ordinary_values() -> None:
    assert run("O[] = >(A[i]);", A=np.array([-128, -128], np.int8)) == -128
    assert run("O[] = >(A[i]);", A=floats(-np.inf)) == -np.inf
    assert np.isnan(run("O[] = >(A[i]);", A=floats(1, np.nan, 3)))
    assert np.isnan(run("O[] = <(A[i]);", A=floats(1, np.nan, 3)))
    assert np.isnan(run("O = max(A, 1);", A=floats(np.nan)))


def test_sums_of_half_accumulate_in_single() -> None:
    x = np.full(4096, 1.0, np.float16)
    assert run("O[] = +(A[i]);", A=x) == 4096
    assert run("O[] = +(A[i]);", A=np.full(300, 1, np.int8)) == 300 - 256


def test_scalars_and_dimensions_in_a_body() -> None:
    a = floats(1, 2, 3)
    np.testing.assert_array_equal(run("function (A[N]) -> (O) { O[i:N] = +(A[i] * N[]); }", A=a), 3 * a)
    np.testing.assert_array_equal(
        run("function (A[N], S[]) -> (O) { O[i:N] = +(A[i] + S[]); }", A=a, S=np.float32(5)), a + 5
    )
    np.testing.assert_array_equal(run("function (S[]) -> (O) { O[i:4] = +(S[]); }", S=np.float32(5)), [5] * 4)


def test_one_tensor_twice() -> None:
    a = floats(1, 2, 3)
    np.testing.assert_array_equal(run("O[i,j:3,3] = +(A[i]*A[j]);", A=a), np.outer(a, a))


def test_total_integer_arithmetic() -> None:
    a, b = np.array([7, -7, 5, -128], np.int8), np.array([2, 2, 0, -1], np.int8)
    np.testing.assert_array_equal(run("O = A / B;", A=a, B=b), [3, -3, 0, -128])
    np.testing.assert_array_equal(run("O = A << 9;", A=a), [0, 0, 0, 0])
    np.testing.assert_array_equal(run("O = A >> 200;", A=a), [0, -1, 0, -1])
    np.testing.assert_array_equal(run("O = A << B;", A=a, B=np.array([-1, 1, 8, 7], np.int64)), [0, -14, 0, 0])
    np.testing.assert_array_equal(run("O = as_int(A, 8);", A=floats(300, -300, np.nan, 1.9)), [127, -128, 0, 1])


def test_constant_condition_picks_a_side() -> None:
    a = floats(1, 2, 3)
    np.testing.assert_array_equal(run("function (A[N]) -> (O) { O = N > 2 ? A : A * 2; }", A=a), a)
    assert not program("function (A[N]) -> (O) { O = N > 2 ? A : A * 2; }", "A=float32[3]").ops


def test_argmax_by_index() -> None:
    a = floats(1, 9, 3)
    source = "function (A[N]) -> (O) { M[] = >(A[i]); X = index(A, 0); W = A == M ? X : 0; O[] = >(W[i]); }"
    assert run(source, A=a) == 1


def test_a_dimension_may_be_called_like_an_input() -> None:
    source = """function (X[N, W], W[W]) -> (O, P, Q, R) {
        O[n, i : N, W] = +(X[n, i] * W[W - 1 - i]), i < W;
        P = X * W;
        Q = reshape(X + W, W, N);
        R[i : W + 1] = =(W[i]);
    }"""
    x, w = np.arange(6, dtype=np.float32).reshape(2, 3), floats(2, 3, 5)
    types = {"X": TensorType(DType.FLOAT32, (2, 3)), "W": TensorType(DType.FLOAT32, (3,))}
    found = tile_lang.evaluate(tile_lang.bind(tile_lang.parse(source), types), {"X": x, "W": w})
    np.testing.assert_array_equal(found["O"], x * w[::-1])
    np.testing.assert_array_equal(found["P"], x * w)
    np.testing.assert_array_equal(found["Q"], (x + w).reshape(3, 2))
    np.testing.assert_array_equal(found["R"], [2, 3, 5, 0])


def test_gather_and_scatter_clamp() -> None:
    d = np.arange(6, dtype=np.float32).reshape(3, 2)
    i = np.array([-5, 0, 2, 99], np.int32)
    np.testing.assert_array_equal(run("O = gather(D, I);", D=d, I=i), d[[0, 0, 2, 2]])
    e = np.arange(8, dtype=np.float32).reshape(4, 2)
    np.testing.assert_array_equal(run("O = scatter(E, I, V);", E=e, I=i, V=d), [[2, 4], [0, 0], [10, 12]])
    unsigned = np.array([2**63], np.uint64)
    np.testing.assert_array_equal(run("O = gather(D, I);", D=d, I=unsigned), d[[2]])


def test_softmax_and_its_logarithm() -> None:
    a = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)
    power = np.exp(a - a.max(1, keepdims=True))
    soft = power / power.sum(1, keepdims=True)
    np.testing.assert_allclose(run("O = builtin_softmax(A, 3, 5);", A=a), soft, rtol=1e-6)
    np.testing.assert_allclose(run("O = builtin_logsoftmax(A, 3, 5);", A=a), np.log(soft), rtol=1e-5)


def test_binary_crossentropy() -> None:
    x, t = floats(0.25, 0.5, 0.9), floats(0, 1, 0.5)
    want = -t * np.log(x) - (1 - t) * np.log(1 - x)
    np.testing.assert_allclose(run("O = builtin_binary_crossentropy(X, T, 1);", X=x, T=t), want, rtol=1e-6)


def test_gradient_markers_are_identities() -> None:
    a = floats(1, -2)
    np.testing.assert_array_equal(run("O = reverse_grad(A, 3);", A=a), a)
    np.testing.assert_array_equal(run("O = stop_gradient(A);", A=a), a)
    np.testing.assert_array_equal(run("O = relu(A);", A=floats(1, -2, np.nan)), [1, 0, np.nan])


def test_random_numbers_follow_the_recurrence() -> None:
    seed = np.stack([np.arange(2048) + k for k in (1, 7, 15)]).astype(np.uint32)
    source = "function (S) -> (V, N) { T = prng_step(S, 3, 1000); V = prng_value(T); N = prng_state(T); }"
    bound = program(source, "S=uint32[3,2048]")
    found = tile_lang.evaluate(bound, {"S": seed})
    state = [[int(k) for k in row] for row in seed]
    mask, drawn = 0xFFFFFFFF, []
    for e in range(3000):
        parts = []
        for row, keep, up, left, right in (
            (0, 0xFFFFFFFE, 12, 13, 19),
            (1, 0xFFFFFFF8, 4, 2, 25),
            (2, 0xFFFFFFF0, 17, 3, 11),
        ):
            s = state[row][e % 2048]
            s = ((s & keep) << up & mask) ^ (((s << left & mask) ^ s) >> right)
            state[row][e % 2048] = s
            parts.append(s)
        drawn.append(np.float32(parts[0] ^ parts[1] ^ parts[2]) / np.float32(4294967296.0))
    np.testing.assert_array_equal(found["V"].reshape(-1), drawn)
    np.testing.assert_array_equal(found["N"], state)
    assert len(program("function (S) -> (V) { T = prng_step(S, 3); V = prng_value(T); }", "S=uint32[3,2048]").ops) == 1


def test_zero_dimensional_and_empty_tensors() -> None:
    assert run("O = A * 2;", A=np.float32(4)) == 8
    assert run("O[] = +(A[i]);", A=np.zeros(0, np.float32)) == 0
    assert run("O = A + 1;", A=np.zeros((0, 3), np.float32)).shape == (0, 3)
    assert run("O[i:0] = +(A[i]);", A=np.zeros(3, np.float32)).shape == (0,)


def test_shape_is_a_value() -> None:
    np.testing.assert_array_equal(run("O = shape(A) * 2;", A=np.zeros((3, 5), np.float32)), [6, 10])


def test_bfloat16_rounds_every_named_value() -> None:
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    a = np.array([1.0078125, 3.0], bfloat16)
    result = run("O = A * A + 1;", A=a)
    assert result.dtype == bfloat16
    wide = a.astype(np.float32)
    np.testing.assert_array_equal(result, ((wide * wide).astype(bfloat16).astype(np.float32) + 1).astype(bfloat16))
    assert run("O[] = >(A[i]);", A=a) == 3
