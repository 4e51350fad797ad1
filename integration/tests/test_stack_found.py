"""Cases that the farm found and made small, each of which some stage of the compiler once got wrong."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tile_hal
import tile_runtime as tile
from farm.judge import Trial, Verdict
from farm.machines import CPU
from farm.sample import Sample
from farm.ways import Way
from tile_ir.diagnostics import TilePlanError
from tile_ir.dtype import DType
from tile_ir.program.nodes import TensorType

CASES: dict[str, tuple[str, dict[str, TensorType], tuple[Way, ...], tuple[str, ...]]] = {}
"""By what was wrong: a program, the types of its inputs, the ways to try it, and what it is differentiated by."""


def case(what: str, source: str, *ways: Way, wrt: str = "", **types: str) -> None:
    """Types as in the farm's reports: ``float32[3, 4]``."""
    CASES[what] = source, {n: _type(t) for n, t in types.items()}, ways, tuple(wrt.split())


def _type(text: str) -> TensorType:
    name, _, sizes = text.partition("[")
    return TensorType(DType(name), tuple(int(s) for s in sizes.rstrip("]").split(",") if s.strip()))


def everywhere(machine: str, *passes: str) -> tuple[Way, ...]:
    """On the interpreters of Stripe and of semtree."""
    return tuple(Way(backend, machine, passes or None) for backend in ("stripe", "interp"))


case(
    "a kernel whose results only an empty tensor would have been made of",
    "function (E[J, L, K], F[I, K], G[I], X[P, Q]) -> (O) { S[k : 3] = +(E[j, l, k] * F[i, k] * G[i]);"
    " O[j, k, m + 1 : P, 3, 4] = =(X[i + j, k] * S[m]), m < 2; }",
    Way("llvm", form="composed"), *everywhere("rows"), *everywhere("small"),
    E="float32[2, 1, 3]", F="float32[5, 3]", G="float32[5]", X="float32[0, 1]",
)  # fmt: skip
case(
    "blocks of a transpose that fetches a few lines at a time are whole numbers of them",
    "function (D[A, B, C], N[C]) -> (X) { X[x, y, w : B, C, C] = =(D[w, x, y]); }",
    *everywhere("plain"),
    D="float32[8, 9, 8]", N="float32[8]",
)  # fmt: skip
case(
    "small kernels that are repeated for a reader without loops",
    "function (A[N]) -> (O) { O = argmax(A, 0); }",
    *everywhere("rows", "repeat_small"), *everywhere("groups", "repeat_small"),
    A="float32[2]",
)  # fmt: skip
case(
    "what data subscripts of a kernel's own buffer has as many subscripts as the buffer that each item has of it",
    "function (A[M, N], B[K], C[L]) -> (O) { O[i, B[0] : 32, 3] = +(A[i, 0]) default C; }",
    *everywhere("rows"),
    A="int32[32, 3]",
    B="int32[3]",
    C="int32[3]",
)
case(
    "data chooses nothing in a dimension of size 1, and a kept row of it grows one",
    "function (A[N, M], E[I, J]) -> (O) { X[x, w : 1, N] = =(A[w, x]); O[j : 8] = >(X[E[i, j], j]); }",
    *everywhere("rows"),
    A="int32[8, 1]",
    E="uint8[2, 8]",
)
case(
    "stages whose loops have one name and different ranges",
    "function (A[N], B[M]) -> (O) { O[i / 2, k, j / 2 : 16, 3, 16] = >(A[i] * B[j + 2 * k]), j < 31; }",
    *everywhere("masked", "schedule_kernels"), *everywhere("small", "schedule_kernels"), Way("llvm", "small", ("schedule_kernels",)),
    A="float32[31]", B="float32[31]",
)  # fmt: skip
case(
    "a prefix sum over rows that a constraint cuts",
    "function (A[M, K, N]) -> (O) { O[l, i, m, k : 1, M, N, K] = +(A[(i + j) / 2, 1, m]), j < 3; }",
    *everywhere("wide"), Way("llvm", "wide"), Way("llvm", form="called"),
    A="int32[3, 2, 3]",
)  # fmt: skip
case(
    "the last of a prefix sum on the diagonal of two dimensions",
    "function (A[L, M, N]) -> (O) { O[j : 2] = +(A[i, i, k]); }",
    *everywhere("small"), Way("llvm", "masked"), Way("llvm", form="called"),
    A="float32[2, 2, 2]", wrt="A",
)  # fmt: skip
case(
    "the gradient of a prefix sum fused with a gather, in groups without a loop along memory",
    "function (B, D[N], E[]) -> (X, Y) { A[0 : 1] = +(B[]); Y[x : N] = +(D[x - k]), k < N; X = scatter(Y, E, A); }",
    *everywhere("groups"), *everywhere("rows"),
    B="float32[]", D="float32[8]", E="int32[]", wrt="D",
)  # fmt: skip
case(
    "a sum of everything along no direction of memory",
    "function (A[L, M, N]) -> (O) { O[] = +(A[i + j, i, j] * A[i, i, k]); }",
    *everywhere("groups"), *everywhere("rows"), *everywhere("sixteen"),
    A="int32[33, 33, 1]",
)  # fmt: skip
case(
    "cells that an item keeps, of rows that whole vectors do not divide",
    "function (A, B[N]) -> (O) { O[i : N] = +(A[]); }",
    *everywhere("groups", "gpu_tile"),
    A="uint16[]", B="uint16[3]",
)  # fmt: skip
case(
    "one item writes a cell that all items gather from",
    "function (A[N], B[M]) -> (O, P) { P[0 : N] = +(A[0]); O = gather(P, B); }",
    *everywhere("sixteen"),
    A="int32[1]", B="int32[4]",
)  # fmt: skip
case(
    "partial results of cells that constraints keep out of the buffer",
    "function (A[N], B[M]) -> (O) { X = gather(A, B); O[x : 4] = +(X[2 * x + i - 1]), i < 3; }",
    *everywhere("rows"), *everywhere("groups"),
    A="float32[1]", B="int32[2]", wrt="A",
)  # fmt: skip
case(
    "a scalar factor of a tiled contraction",
    "function (A[K, L, M, N], X) -> (O) { O[i, l, m : L, L, M] = +(X[] * A[i, 1, l + m - 1, n]), k < 2; }",
    *everywhere("sixteen"),
    A="float32[3, 3, 3, 3]", X="float32[]",
)  # fmt: skip
case(
    "a kernel of nothing after a pass that made it",
    "function (A[N], B[N], C) -> (O) { X = A * B; O[l + 1, i, j : 18, N, 0] = <(C[i, j, k] == X[l]), j < 1; }",
    *everywhere("masked", *("tile_pipelines", "merge", "fuse", "scan", "accumulate", "inline", "schedule_kernels")),
    A="float32[16]", B="float32[16]", C="float32[16, 1, 2]",
)  # fmt: skip
case(
    "a gather from a sum of the same kernel",
    "function (A[M, N], B[K, L]) -> (X, Y) { X[0, y : 1, N] = +(A[x, y]); Y = gather(X, B); }",
    *everywhere("small"), *everywhere("rows"), Way("llvm", form="called"),
    A="float32[8, 1]", B="int32[8, 1]",
)  # fmt: skip
case(
    "more items for a column than a group has",
    "function (A[N, K, L, M]) -> (O) { X[i, 0 : M, 2] = +(A[i, 0, i, i]); O[x, w : 34, M] = +(X[w, x]); }",
    *everywhere("sixteen"),
    A="int8[2, 17, 2, 2]",
)  # fmt: skip
case(
    "a tiled contraction without results",
    """function (A[K], B[N], C[M, L], D[H, W]) -> (O) {
        X[j, 0 : 3, 1] = +(C[0, 0] * A[j + 2 * k]); Y = X;
        O[i / 2, k / 2, 0 : 2, N, 1] = +(D[i, 3 - j] * Y[l, 0]), k < 2, m < 0, n < 2; }""",
    *everywhere("groups"),
    A="float32[3]", B="float32[1]", C="float32[4, 4]", D="float32[3, 4]",
)  # fmt: skip
case(
    "an empty gradient in a composition with bound inputs",
    "function (A[], B[], D[N]) -> (X) { X[] = >(B[]); }",
    Way("llvm", form="composed"),
    A="float32[]", B="float32[]", D="float32[0]", wrt="D A B",
)  # fmt: skip
case(
    "partial results of another work group's cells",
    "function (A[N, K], B, C[N]) -> (O) { O[j + 1, i : N, 2] = >(A[i + 2 * j, k] == B[] ? C[i]), j < 1; }",
    *everywhere("few"), Way("llvm", "few"),
    A="float32[3, 11]", B="float32[]", C="float32[3]",
)  # fmt: skip
case(
    "partial results of another work group's rows, in a kernel that goes on with the sums",
    "function (A[M, N]) -> (O, P) { O[x, 0 : M, 1] = >(A[x, y]); P = A - O; }",
    *everywhere("masked", "ungroup", "fuse", "schedule_kernels"), *everywhere("small", "fuse", "schedule_kernels"),
    A="uint32[17, 3]",
)  # fmt: skip
case(
    "what one item makes for itself, beside what it makes for all",
    """function (A[L, M, N], B[H, I, J, K]) -> (O) {
        X[y, x, w : M, M, N] = =(A[w, x, y]); Y = ~(X * X);
        O[i, m, l, k : M, N, L, N] = +(X[i, (i + j) / 2, 2 - k] + Y[2 - m, m, i]), j < 1, n < 3, l - j < 3 default B; }""",
    *everywhere("rows"),
    A="int16[3, 3, 3]", B="int16[3, 3, 3, 3]",
)  # fmt: skip
case(
    "a table that one kernel reads a row of and gathers from",
    "function (A[M, N], B[]) -> (O) { X = gather(A, B); O[] = +(A[0, j] + X[1]); }",
    *everywhere("rows"), Way("llvm", form="called"),
    A="int32[1, 2]", B="int32[]",
)  # fmt: skip
case(
    "a program without kernels",
    "function (A[]) -> (O) { O[0 : 0] = +(A[]); }",
    Way("llvm", "own"),
    A="float32[]",
)
case(
    "results that two stages store, staged by the first",
    "function (A[N], B[M]) -> (P) { O[x : N] = +(A[x + i] * B[i]); P[i : N] = +(O[i]); }",
    *everywhere("groups"),
    A="float32[13]", B="float32[3]",
)  # fmt: skip
case(
    "items that share no loop of two stages that store to the same cells",
    "function (A[N], B[K, L, M, J]) -> (O) { O[n, k : J, 2] = +(A[0] * B[0, 0, m - 1, n]), 0 - n < 2; }",
    *everywhere("rows"),
    A="float32[8]", B="float32[1, 1, 8, 4]",
)  # fmt: skip
case(
    "a prefix sum over what its own kernel makes",
    """function (A[H, I, J, K], B[N, M], C[L]) -> (O) {
        X[0, 0, 0 : K, M, 5] = +(C[0]); O[l, i, k + 1 : 10, K, 4] = >(X[i, j + 2 * k, l]), j < 31, k < 2; }""",
    *everywhere("masked", "fuse", "scan"),
    A="float32[5, 11, 5, 1]", B="float32[5, 31]", C="float32[1]",
)  # fmt: skip
case(
    "partial results of a ragged tile are merged where the accumulator was started",
    "function (A[L, M, N]) -> (O) { O[i, 0 : N, 1] = +(A[i, j, k]); }",
    Way("interp", "wide", plans="plan kernel_0 {\n  grid i:3\n  grid\n  serial i:1 k:28\n  reduce k across lanes x3\n}\n"),
    A="float32[7, 7, 7]",
)  # fmt: skip
case(
    "a tile on the grid that is longer than its loop",
    "function (A[N, M, L]) -> (O) { O[j, 0 : L, 3] = +(A[i, j, j + l]); }",
    Way("stripe", "wide", plans="plan kernel_0 {\n  grid j:10\n  vector j:2 x2\n}\n"),
    A="float32[2, 2, 2]",
)
case(
    "what an item keeps of a row that its tiles do not divide",
    "function (A[N], B[M], C[K]) -> (P, S, O, R) { O = A * 0; X[0 : 66] = +(O[i]); P = abs(X); R = reshape(O, 33); S[x : N] = +(B[x + i - 1] * C[i]); }",
    Way("stripe", "groups", plans="plan kernel_0 {\n  group i0_3:27\n  unroll i0_3:18 i0_1:36\n}\n"),
    A="float32[33]", B="float32[33]", C="float32[2]",
)  # fmt: skip
case(
    "one lane of a vector that is made from a wider one",
    "function (A[N]) -> (O) { X[x : N] = *(A[x - k]), k < 15; O = as_uint(X, 16); }",
    Way("llvm", "masked", ("schedule_kernels", "fuse")),
    A="int64[31]",
)
case(
    "memory of the group and of the device behind one barrier",
    "function (A[N]) -> (O) { O[i, 2 * j : N, 26] = >(A[i]), j < 13; }",
    *everywhere("sixteen", "group_tile", "accumulate", "merge", "gpu_tile"),
    A="float64[11]",
)
case(
    "partial results of the rows of a last tile, in another group's rows",
    "function (C[A, L, K], D[L, K, M]) -> (O) { O[l, i, j : L, A, M] = +(C[i, l, k] * D[l, k, j]); }",
    *everywhere("small", "merge", "ungroup", "scan", "accumulate", "fuse", "schedule_kernels", "inline"),
    C="float64[31, 3, 31]", D="float64[3, 31, 1]",
)  # fmt: skip
case(
    "the largest element of all, by merges of one step",
    "function (A[L, M, N]) -> (O, P) { T = top_k(A, 1, 0); O = element(T, 0); P = element(T, 1); }",
    *everywhere("rows", "merge", "gpu_tile", "scan", "ungroup", "fuse", "accumulate", "stream"),
    *everywhere("rows"),
    *everywhere("small"),
    Way("llvm", "small"),
    A="float64[3, 2, 2]",
)
case(
    "what one item scatters for all, gathered at equal subscripts",
    "function (B[N], C[N], D[M]) -> (O) { O[C[i] : 8] = =(B[i]) default D; }",
    Way("interp", "rows"), Way("interp", "groups"), Way("interp", "sixteen"),
    wrt="B", B="float16[2]", C="int64[2]", D="float16[8]",
)  # fmt: skip
case(
    "partial results that tiles have beyond the end of a loop",
    "function (B[N, M], C[K, K]) -> (O) { O[x, y : N, 17] = >(B[2 * x + i - 1, 2 * y + j - 1] * C[i, j]); }",
    *everywhere("groups", "accumulate", "gpu_tile"),
    B="float64[1, 33]", C="float64[3, 3]",
)  # fmt: skip
case(
    "a cell that every iteration writes, read before the last of them has",
    "function (A[N], B[N]) -> (O) { O[B[i] : 1] = =(A[i]); }",
    *everywhere("small"), *everywhere("masked"), Way("llvm", "small"),
    wrt="A", A="float32[31]", B="uint8[31]",
)  # fmt: skip
case(
    "a remainder of a transposed copy that some iterations leave out, read beyond its operand",
    "function (A[M, N], B[K, L]) -> (O) { O[x, z : K, 4] = +(A[x, 2 * z + k - 1] * B[0, k]); }",
    Way("stripe", "wide"),
    A="bfloat16[3, 8]",
    B="bfloat16[3, 3]",
    wrt="A",
)
case(
    "a copy of a row whose masked last vector holds what nobody wrote",
    "function (A[M, N]) -> (O) { O[x, y : M, N] = <(A[x - k, y]); }",
    Way("interp", "masked", tuple(p for p in CPU if p != "scan")),
    A="float32[2, 3]",
    wrt="A",
)

case(
    "partial results of points at which nothing runs, added beyond the accumulator",
    "function (A[M, N]) -> (O) { O[x, y : 4, M] = +(A[2*x + i - 1, y]), i < 3; }",
    Way("stripe", "few"),
    A="float16[8, 8]",
    wrt="A",
)
case(
    "a kernel that touches no memory has no largest operand",
    "function (A[M, N], B[K, L], C[J]) -> (P, Q, R) { R[i, j : M, N] = =(A[i, j]), j - i < 3; X[j, i : 1, 4] = =(B[j + 2, i]), j < 0;"
    " Q[j, i : 1, 4] = =(B[j, i]), j < 1 default X; P = clamp(X, -1, C); }",
    *everywhere("sixteen"),
    wrt="B",
    A="float32[4, 1]",
    B="float32[4, 4]",
    C="float32[4]",
)
case(
    "lanes that step over the padding of rows of one element load one by one: nothing ever writes what is between",
    "function (A[L, M, N]) -> (X) { X = index(A, 2) < 1 ? A : 1; }",
    Way("interp", "few", plans="plan kernel_2 {\n  serial i1:113\n    stage A in L2 by group pad 1\n  vector i1:13 x2\n}\n"),
    A="float32[3, 3, 1]",
)  # fmt: skip
case(
    "a part of a concatenation and the whole are the same cells: what reads the whole waits for rows, not for columns",
    "function (A[N, M]) -> (O) { B = A < abs(A); C[j, i : M, N] = =(B[i, j]); D[i, j : 2 * N, M] = =(C[i, j]);"
    " E[i + N, j : 2 * N, M] = =(B[i, j]) default D; O = ~E; }",
    Way("llvm"), *everywhere("small"),
    A="float32[4, 4]",
)  # fmt: skip


@pytest.mark.parametrize("what", CASES)
def test_what_was_found_stays_mended(what: str) -> None:
    source, types, ways, wrt = CASES[what]
    for data in range(3):
        trial = Trial(Sample(source, types, data, order=1 if wrt else 0, wrt=wrt))
        for way in ways:
            assert trial.check(way) is Verdict.SAME, way


@pytest.mark.diagonal(4)
@pytest.mark.parametrize("dtype", list(DType))
@pytest.mark.parametrize("descending", [0, 1])
def test_order_with_ties_zeros_of_both_signs_and_values_that_are_no_numbers(dtype: DType, descending: int) -> None:
    source = f"function (A[M, N]) -> (O, P) {{ O = argsort(A, 1, {descending}); P = sort(A, 1, {descending}); }}"
    sample = Sample(source, {"A": TensorType(dtype, (3, 13))}, special=True)
    if dtype.is_float:
        sample.inputs["A"][:, ::4] *= -1
    wide = sample.inputs["A"].astype(np.float64 if dtype.is_float else object)
    order = [_in_order(row.tolist(), bool(descending)) for row in wide]
    assert sample.expected["O"].tolist() == order
    trial = Trial(sample)
    for way in (Way("interp", "rows"), Way("llvm", "wide")):
        assert trial.check(way) is Verdict.SAME, way


def _in_order(row: list[float], descending: bool) -> list[int]:
    """Places in order: what is no number is larger than all numbers, and what is equal stays where it is."""
    keys = [(math.isnan(x), 0 if math.isnan(x) else x) for x in row]
    return sorted(range(len(row)), key=lambda k: keys[k], reverse=descending)


def test_places_that_change_between_two_points_leave_the_derivative_open() -> None:
    types = {"A": _type("float32[14, 31]")}
    sample = Sample("function (A[M, N]) -> (O) { O = sort(A, 1); }", types, 54371274, order=2, wrt=("A",))
    assert Trial(sample).check(Way("differences")) is Verdict.OPEN


def test_a_machine_without_a_node_that_the_program_asks_for_refuses_it() -> None:
    trial = Trial(Sample("function (A[N]) -> (O, P) { O = bits_as_uint(A); P = A + A; }", {"A": _type("int16[31]")}))
    assert trial.check(Way("stripe", "rows")) is Verdict.REFUSED
    assert trial.check(Way("stripe", "small")) is Verdict.SAME


@pytest.mark.parametrize("levels", ["unroll x:1\n  vector x:1 x2", "vector x:11 x4"])
def test_a_plan_may_not_take_lanes_of_an_ordered_loop(levels: str) -> None:
    text = f"plan kernel_0 {{\n  {levels}\n}}\n"
    sample = Sample("function (A[N]) -> (O) { O[x : N] = >(A[x + k]), k < N; }", {"A": _type("float32[11]")})
    assert Trial(sample).check(Way("stripe", "small", plans=text)) is Verdict.REFUSED


REFUSED = {
    "have an order: unroll no more": (
        "function (A[N]) -> (O) { O[x : N] = +(A[x - k]), k < N; }", "float32[8]", "kernel_0", "unroll x:2",
    ),
    "not all stages have 'i0'": (
        "function (A[N, N]) -> (O) { O[l, j, k, i : 2, N, N, N] = =(A[0, i + 2 * k] == A[k, i] ? A[2 * i + l, k]); }",
        "float32[1, 1]", "kernel_0", "grid i0:1",
    ),
    "two that run at once would write the same cells": (
        "function (A[N, N]) -> (O) { O[x, w : N, N] = =(A[w, x]); }", "float32[7, 7]", "kernel_0",
        "grid w:2\n  serial\n  vector x:2 w:1 x4\n  edge x pad\n  edge w overlap",
    ),
    "each would meet what another one stores": (
        "function (A[N, N]) -> (O) { O[2 * j, 2 - i : 6, N] = =(A[i, j] + A[i, i]); }", "float32[3, 3]", "kernel_0_0",
        "group i0:2 i1:2\n  serial i1:2",
    ),
    "32 iterations of 'y' are no multiple of 21": (
        "function (A[N, N]) -> (O) { O[y, z : N, N] = <(A[y, z + k - 1]), k < 2; }", "int32[32, 32]", "kernel_0",
        "group y:21\n  stage O in REG as [y]\n  reduce k across serial x3",
    ),
    "16 iterations of 'y' are no multiple of 6": (
        "function (A[N, N]) -> (O) { O[y, z : N, N] = +(A[y, z + k - 1]), k < 2; }", "int32[32, 32]", "kernel_0",
        "grid y:16\n  group y:6\n  reduce k across serial",
    ),
}  # fmt: skip
"""What is said of a plan that items or groups cannot share: a program, its input, the kernel, and levels."""


@pytest.mark.parametrize("said", REFUSED)
def test_a_plan_that_items_or_groups_cannot_share_is_refused(said: str) -> None:
    source, type, kernel, levels = REFUSED[said]
    trial = Trial(Sample(source, {"A": _type(type)}))
    way = Way("stripe", "groups", plans=f"plan {kernel} {{\n  {levels}\n}}\n")
    with pytest.raises(TilePlanError, match=said):
        trial.compiled(way, tile_hal.device("interp"))


@pytest.mark.parametrize("name", ["max", "min"])
@pytest.mark.parametrize("shape", [(1, 4096), (7, 1000), (1000, 7)], ids=str)
def test_extremes_of_numbers_that_zero_is_beyond(device: tile_hal.Device, name: str, shape: tuple[int, int]) -> None:
    """Partial results start at what changes nothing, which zero does here."""
    numbers = (1 + np.arange(shape[0] * shape[1], dtype=np.int32) % 97).reshape(shape) * (-1 if name == "max" else 1)
    sign = ">" if name == "max" else "<"
    extremes = tile.Function(
        f"function (A[M, N]) -> (R, C) {{ R[i : M] = {sign}(A[i, j]); C[j : N] = {sign}(A[i, j]); }}"
    )
    found = tile.Evaluator(device)(extremes, numbers)
    for axis, result in zip((1, 0), found, strict=True):
        np.testing.assert_array_equal(result, getattr(numbers, name)(axis))
