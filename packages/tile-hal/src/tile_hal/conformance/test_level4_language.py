"""Level 4: the language. The tutorial, builtins and random programs, against the reference evaluator."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, note, seed, settings
from hypothesis import strategies as st
from tile_ir.dtype import DType
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import TensorType
from tile_lang import evaluate
from tile_lang.examples import TUTORIAL, Example

from tile_hal.conformance import strategies, tolerance
from tile_hal.conformance.kernels import assert_same, need
from tile_hal.conformance.programs import bind, check_case, fill, run
from tile_hal.interfaces import Device

F32, I32, U32 = DType.FLOAT32, DType.INT32, DType.UINT32


def compare(
    device: Device, source: str, types: dict[str, TensorType], inputs: dict[str, np.ndarray] | None = None
) -> None:
    """Bit for bit; for programs that are exact on the given (or exact random) data."""
    program = bind(source, types)
    inputs = inputs or {n: fill(t, strategies.Data.EXACT, k) for k, (n, t) in enumerate(types.items())}
    expected, actual = evaluate(program, inputs), run(device, program, inputs)
    assert list(actual) == list(expected)
    for name, wanted in expected.items():
        assert actual[name].dtype == wanted.dtype and actual[name].shape == wanted.shape
        assert_same(actual[name].reshape(-1), wanted.reshape(-1), name)


def t(dtype: DType, *shape: int) -> TensorType:
    return TensorType(dtype, shape)


CONV = """function (D[N, X, Y, CI], K[I, J, CO, CI]) -> (R) {
    O[n, x, y, co : N, X, Y, CO] = +(D[n, x+i-1, y+j-1, ci] * K[i, j, co, ci]);
    R = (O > 0 ? O : 0);
}"""
PROGRAMS: dict[str, tuple[str, dict[str, TensorType]]] = {
    "conv_relu": (CONV, {"D": t(F32, 2, 7, 6, 3), "K": t(F32, 3, 3, 5, 3)}),
    "matmul": ("function (A[M, L], B[L, N]) -> (C) { C[i, j : M, N] = +(A[i, k] * B[k, j]); }",
               {"A": t(F32, 13, 17), "B": t(F32, 17, 11)}),
    "assign_by_coordinate": ("function (A[N]) -> (O) { O[2*i : 2*N] = =(A[i]); }", {"A": t(I32, 5)}),
    "skipping_maximum": ("function (A[N, M]) -> (O) { O[2*n : N] = >(A[2*n, m]); }", {"A": t(I32, 7, 3)}),
    "global_maximum": ("function (A[N]) -> (O) { O[n : N/2] = >(A[2*n + i]), i < 2; }", {"A": t(I32, 9)}),
    "cumulative_sum": ("function (A[N]) -> (O) { O[n : N] = +(A[n - k]), k < N; }", {"A": t(F32, 19)}),
    "unconstrained_pool": ("function (A[N]) -> (O) { O[n : N/2] = >(A[2*n + i - j]), i < 2, j < 2; }", {"A": t(F32, 12)}),
    "empty_domain": ("function (A[N]) -> (O) { O[i : 4] = +(A[i]), i + 50 < 3; }", {"A": t(F32, 9)}),
    "nothing_in": ("function (A[N, M]) -> (O) { O[n : N] = +(A[n, m]); }", {"A": t(F32, 5, 0)}),
    "nothing_out": ("function (A[N, M]) -> (O) { O[n : N] = +(A[n, m]); }", {"A": t(F32, 0, 5)}),
    "scalar": ("function (A[]) -> (B) { B = A * 2 + 1; }", {"A": t(F32)}),
    "full_sum": ("function (A[N, M]) -> (O) { O[] = +(A[n, m]); }", {"A": t(I32, 11, 7)}),
    "input_is_output": ("function (A[N]) -> (B, C) { B = A; C = A + A; }", {"A": t(F32, 9)}),
    "two_outputs_of_one_value": ("function (A[N]) -> (B, C) { B = A * 3; C = B; }", {"A": t(F32, 9)}),
    "index_and_reshape": ("function (A[N, M]) -> (O) { O = reshape(A * 10 + index(A, 0) + index(A, 1), M, N); }",
                          {"A": t(I32, 3, 5)}),
    "gather": ("function (D[N, M], I[K]) -> (O) { O = gather(D, I); }", {"D": t(F32, 4, 3), "I": t(I32, 9)}),
    "scatter": ("function (E[K, M], I[K], V[N]) -> (O) { O = scatter(E, I, V); }",
                {"E": t(F32, 9, 3), "I": t(I32, 9), "V": t(F32, 4)}),
    "gather_along_an_axis": ("function (D[N, M, L], I[J, K]) -> (O) { O = gather(D, I, 1); }",
                             {"D": t(F32, 2, 5, 3), "I": t(I32, 2, 3)}),
    "gather_by_element": ("function (D[N, M], I[N, K]) -> (O) { O[n, k : N, K] = =(D[n, I[n, k]]); }",
                          {"D": t(F32, 4, 5), "I": t(I32, 4, 7)}),
    "gather_by_two_indices": ("function (D[N, M, L], I[K, J]) -> (O) { O[k : K] = +(D[I[k, 0], I[k, 1], l]); }",
                              {"D": t(F32, 4, 5, 3), "I": t(I32, 6, 2)}),
    "scatter_of_the_largest": ("function (E[K, M], I[K]) -> (O) { O[I[k], m : 4, M] = >(E[k, m]); }",
                               {"E": t(F32, 9, 3), "I": t(I32, 9)}),
    "scatter_products": ("function (E[K, M], I[K]) -> (O) { O[I[k], m : 4, M] = *(E[k, m]); }",
                         {"E": t(I32, 9, 3), "I": t(I32, 9)}),
    "scatter_over_a_default": ("function (E[N, K], I[N, K], D[N, M]) -> (O)"
                               " { O[n, I[n, k] : N, M] = =(E[n, k]) default D; }",
                               {"E": t(F32, 3, 9), "I": t(I32, 3, 9), "D": t(F32, 3, 6)}),
    "argmax_and_argmin": ("function (A[N, M]) -> (O, P) { O = argmax(A, 1); P = argmin(A, 0); }", {"A": t(F32, 5, 9)}),
    "running_totals": ("function (A[N, M]) -> (O, P, Q) { O = cumsum(A, 1); P = cummax(A, 0); Q = cummin(A, 1); }",
                       {"A": t(I32, 5, 9)}),
    "sorted": ("function (A[N, M]) -> (O, P) { O = sort(A, 1); P = argsort(A, 0, 1); }", {"A": t(F32, 5, 70)}),
    "the_largest_few": ("function (A[N, M]) -> (O, P) { T = top_k(A, 3, 1); O = element(T, 0); P = element(T, 1); }",
                        {"A": t(I32, 4, 37)}),
    "searched": ("function (A[N], V[K]) -> (O) { S = sort(A, 0); O = searchsorted(S, V); }",
                 {"A": t(F32, 20), "V": t(F32, 9)}),
    "one_hot": ("function (I[N], A[M, K]) -> (O) { H = one_hot(I, M); O[n, k : N, K] = +(H[n, m] * A[m, k]); }",
                {"I": t(I32, 9), "A": t(F32, 4, 3)}),
    "three_factors": ("function (A[I, J], B[J, K], C[K, L]) -> (O) { O[i, l : I, L] = +(A[i, j] * B[j, k] * C[k, l]); }",
                      {"A": t(F32, 20, 16), "B": t(F32, 16, 16), "C": t(F32, 16, 20)}),
    "empty_maximum": ("function (A[N, M]) -> (O) { L = lowest(A); O[n : N] = >(A[n, m]) default L; }",
                      {"A": t(F32, 5, 0)}),
    "transposed_convolution": ("function (I[N], K[M]) -> (O) { O[x : 5] = +(I[(x - k + 1)/2] * K[k]); }",
                               {"I": t(F32, 3), "K": t(F32, 3)}),
    "three_matmuls": ("function (A[N, N]) -> (D) {\n B[i, j : N, N] = +(A[i, k] * A[k, j]);\n"
                      " C[i, j : N, N] = +(B[i, k] * A[j, k]); D = C - B; }", {"A": t(F32, 6, 6)}),
    "conditional_body": ("function (A[N], B[M], C[M]) -> (O) { O[n : N] = +(A[n] == B[m] ? C[m]); }",
                         {"A": t(I32, 9), "B": t(I32, 7), "C": t(F32, 7)}),
    "matmul_with_remainders": ("function (A[M, L], B[L, N]) -> (C) { C[i, j : M, N] = +(A[i, k] * B[k, j]); }",
                               {"A": t(F32, 21, 37), "B": t(F32, 37, 53)}),
    "conv_relu_with_remainders": (CONV, {"D": t(F32, 1, 9, 11, 5), "K": t(F32, 3, 3, 19, 5)}),
    "row_sums": ("function (A[N, M]) -> (O) { O[n : N] = +(A[n, m]); }", {"A": t(F32, 5, 1003)}),
    "column_sums": ("function (A[N, M]) -> (O) { O[m : M] = +(A[n, m]); }", {"A": t(F32, 1003, 5)}),
    "row_maxima_of_bytes": ("function (A[N, M]) -> (O) { O[n : N] = >(A[n, m]); }", {"A": t(DType.INT8, 5, 1003)}),
    "transpose": ("function (A[N, M]) -> (O) { O[m, n : M, N] = =(A[n, m]); }", {"A": t(F32, 33, 47)}),
    "flip": ("function (A[N, M]) -> (O) { O[n, m : N, M] = =(A[N - 1 - n, M - 1 - m]); }", {"A": t(F32, 7, 65)}),
    "long_chain": ("function (A[N], B[N]) -> (O) {\n C = A + B; D = C * A; E = max(D, B); F = (E > 2 ? C : D);\n"
                   " G = F - E; O = relu(G * 0.5 + A); }", {"A": t(F32, 1003), "B": t(F32, 1003)}),
    "broadcast_bias": ("function (A[N, M], B[M], C[N, O1]) -> (O) { O = (A + B) * C; }",
                       {"A": t(F32, 17, 33), "B": t(F32, 33), "C": t(F32, 17, 1)}),
}  # fmt: skip
"""Programs that are exact on small whole numbers, by name."""


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_program(tile_device: Device, name: str) -> None:
    source, types = PROGRAMS[name]
    need(tile_device, *(type_.dtype for type_ in types.values()))
    compare(tile_device, source, types)


@pytest.mark.parametrize("dtype", list(DType))
def test_matmul_of_every_dtype(tile_device: Device, dtype: DType) -> None:
    need(tile_device, dtype)
    compare(tile_device, PROGRAMS["matmul"][0], {"A": t(dtype, 5, 7), "B": t(dtype, 7, 3)})


@pytest.mark.parametrize("agg", list(Aggregation), ids=lambda a: a.name.lower())
@pytest.mark.parametrize("dtype", list(DType))
def test_aggregation_with_cells_left_out(tile_device: Device, dtype: DType, agg: Aggregation) -> None:
    """A cell without a valid tuple holds 0 whatever the aggregation; extreme values are ordinary."""
    need(tile_device, dtype)
    reduced = "" if agg is Aggregation.ASSIGN else ", j"
    shape = (6,) if agg is Aggregation.ASSIGN else (6, 3)
    source = (
        f"function (A[{', '.join('NM'[: len(shape)])}]) -> (O) {{ O[2*i + 1 : 15] = {agg.symbol}(A[i{reduced}]); }}"
    )
    types = {"A": t(dtype, *shape)}
    data = fill(types["A"], strategies.Data.SIGNS, 1)
    if agg in (Aggregation.MAX, Aggregation.MIN) and dtype is not DType.BOOL:
        data[2] = dtype.numpy.type(dtype.min_value)
        data[3] = dtype.numpy.type(dtype.max_value)
    compare(tile_device, source, types, {"A": data})


def test_softmax(tile_device: Device) -> None:
    """Within the bounds of its functions: exp, a sum and a division."""
    source = """function (X[N, M]) -> (S) {
        A[n, 0 : N, 1] = >(X[n, m]);
        E = exp(X - A);
        T[n, 0 : N, 1] = +(E[n, m]);
        S = E / T;
    }"""
    data = np.random.default_rng(0).normal(0, 4, (9, 33)).astype(np.float32)
    program = bind(source, {"X": t(F32, 9, 33)})
    got, wanted = run(tile_device, program, {"X": data})["S"], evaluate(program, {"X": data})["S"]
    # 3 ULP of exp, 33 roundings of the sum, 2.5 ULP of the division.
    assert np.all(np.abs(got - wanted) <= (3 + 3 + 33 + 3) * 2.0**-23 * wanted)


@pytest.mark.parametrize("name", ["full_sum", "column_sums", "matmul_with_remainders"])
def test_the_same_bits_every_time(tile_device: Device, name: str) -> None:
    """Sums of real numbers depend on their order; on one device that order is always the same."""
    source, _ = PROGRAMS[name]
    rank_two = {"A": t(F32, 71 if "B[" in source else 301, 37), "B": t(F32, 37, 5)}
    types = {n: rank_two[n] for n in rank_two if f"{n}[" in source.splitlines()[0].partition("->")[0]}
    program = bind(source, types)
    inputs = {n: fill(type_, strategies.Data.REAL, 3) for n, type_ in types.items()}
    first, *others = (run(tile_device, program, inputs) for _ in range(3))
    for other in others:
        assert all(first[n].tobytes() == other[n].tobytes() for n in first)


def test_random_numbers_are_the_same_everywhere(tile_device: Device) -> None:
    need(tile_device, U32)
    source = "function (S[A, B]) -> (V, T) { P = prng_step(S, 50, 60); V = prng_value(P); T = prng_state(P); }"
    state = np.random.default_rng(0).integers(16, 1 << 32, (3, 2048), dtype=np.uint32)
    compare(tile_device, source, {"S": t(U32, 3, 2048)}, {"S": state})


@pytest.mark.parametrize("example", TUTORIAL, ids=[e.name for e in TUTORIAL])
def test_tutorial(tile_device: Device, example: Example) -> None:
    """Every example of the tutorial, as written, gives the mathematically right answer."""
    program = bind(example.source, {name: t(F32, *shape) for name, shape in example.shapes.items()})
    for number in range(2):
        inputs = example.inputs(number)
        actual = run(tile_device, program, inputs)
        for name, wanted in example.expected(inputs).items():
            assert actual[name].shape == wanted.shape
            tolerance.assert_close(actual[name], wanted, tolerance.tutorial_bound(wanted), name)


# --- random programs -----------------------------------------------------------------------------------


def dtypes(device: Device) -> list[DType]:
    return [d for d in DType if d in device.capabilities.dtypes]


def explore(
    device: Device, examples: tuple[int, int | None], share: float, cases: st.SearchStrategy[strategies.Case]
) -> None:
    """Run a share of the examples; deterministic, so that a failure is the same tomorrow."""
    count, number = examples
    budget = settings(
        max_examples=max(1, int(count * share)), deadline=None, derandomize=number is None, database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
    )  # fmt: skip

    @given(cases)
    def check(case: strategies.Case) -> None:
        note(str(case))
        check_case(device, case)

    budget(check if number is None else seed(number)(check))()


def test_random_contractions(tile_device: Device, tile_examples: tuple[int, int | None]) -> None:
    explore(tile_device, tile_examples, 4, strategies.contractions(dtypes(tile_device)))


def test_random_elementwise(tile_device: Device, tile_examples: tuple[int, int | None]) -> None:
    explore(tile_device, tile_examples, 1, strategies.elementwise(dtypes(tile_device)))


@pytest.mark.parametrize("dtype", list(DType))
def test_random_programs_of_one_dtype(tile_device: Device, tile_examples: tuple[int, int | None], dtype: DType) -> None:
    need(tile_device, dtype)
    explore(tile_device, tile_examples, 0.5, strategies.contractions([dtype]))
