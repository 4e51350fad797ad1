"""Shifts, paddings and concatenations: contractions that reduce nothing share all loops with what reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise, product
from math import prod
from typing import Any

import numpy as np
import pytest
import tile_lang
from explain_support import CPU, FRONT, GPU
from hypothesis import given, settings
from hypothesis import strategies as st
from lowering_support import check
from tensor_support import TENSOR
from tile_ir.diagnostics import Source
from tile_ir.dtype import DType
from tile_ir.program.nodes import TensorType
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Bind, Block
from tile_ir.stripe.nodes import Program as Stripe
from tile_ir.stripe.walk import blocks_in
from tile_ir.target import Target
from tile_opt.blocks.tree import kernels_of
from tile_opt.kernel.segments import decided
from tile_opt.kernel.view import open_kernel
from tile_opt.kernel.widen import widen
from tile_opt.pipeline import optimize
from tile_opt.translate import to_stripe

LAPLACE = """function (A[H, W]) -> (R) {
    U[i, j : H, W] = +(A[i - 1, j]); D[i, j : H, W] = +(A[i + 1, j]);
    L[i, j : H, W] = +(A[i, j - 1]); E[i, j : H, W] = +(A[i, j + 1]);
    R = U + D + L + E - 4 * A;
}"""
CONCAT = "function (A[H, W], B[H, W]) -> (R) { X[i, j : 2 * H, W] = +(A[i, j]); Y[i + H, j : 2 * H, W] = +(B[i, j]); R = X + Y; }"
BESIDE = "function (A[H, W], B[H, W]) -> (R) { X[i, j : H, 2 * W] = +(A[i, j]); Y[i, j + W : H, 2 * W] = +(B[i, j]); R = X + Y; }"
LARGEST = "function (A[H, W]) -> (R) { U[i, j : H, W] = >(A[i - 1, j]); L[i, j : H, W] = >(A[i, j - 1]); R = U + L; }"
PADDED = "function (A[H, W]) -> (R) { R[i + 2, j + 3 : H + 4, W + 6] = =(A[i, j]); }"
FIRST_ROW = "function (A[H, W]) -> (R) { F[0, j : H, W] = =(A[0, j]); U[i + 1, j : H, W] = =(A[i, j]); R = A - F - U; }"
FIRST_COLUMN = (
    "function (A[H, W]) -> (R) { F[i, 0 : H, W] = =(A[i, 0]); U[i, j + 1 : H, W] = =(A[i, j]); R = A - F - U; }"
)
ONE_KERNEL = {
    "first row": FIRST_ROW,
    "first column": FIRST_COLUMN,
    "laplace": LAPLACE,
    "rows after rows": CONCAT,
    "columns beside columns": BESIDE,
    "largest": LARGEST,
    "padded": PADDED,
}


def program(source: str, rows: int, columns: int) -> Stripe:
    function = tile_lang.parse(Source(source, "sample.tile"))
    types = {i.name.id: TensorType(DType.FLOAT32, (rows, columns)) for i in function.inputs}
    return to_stripe(tile_lang.bind(function, types))


def inputs_of(stripe: Stripe) -> Mapping[str, Any]:
    rng = np.random.default_rng(0)
    # Whole numbers, so that sums of every order are equal.
    return {n: rng.integers(-9, 9, stripe.entry.ref(n).type.sizes).astype(np.float32) for n in stripe.inputs}


def agree(stripe: Stripe, target: Target) -> Stripe:
    """The kernels of the scheduled program give what the given one gives."""
    scheduled = optimize(stripe, target, verify=True)
    check(scheduled, inputs_of(stripe), target, exact=True, reference=stripe)
    return scheduled


def small(target: Target) -> Target:
    """Groups and vectors so small that every tensor has several."""
    return replace(target, settings=replace(target.settings, threads=16, vector_bytes=16))


# --- fusing ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [CPU, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize("name", ONE_KERNEL)
def test_what_reduces_nothing_becomes_one_kernel_without_temporaries(name: str, target: Target) -> None:
    scheduled = agree(program(ONE_KERNEL[name], 17, 23), small(target))
    (kernel,) = kernels_of(scheduled)
    assert isinstance(kernel, Block)
    assert {r.into for r in kernel.refs if r.source} == {"A", "R"} | ({"B"} if "B[" in ONE_KERNEL[name] else set())


SEVERAL = {
    "outputs are stored": (
        """function (A[H, W]) -> (U, R) {
            U[i, j : H, W] = +(A[i - 1, j]); L[i, j : H, W] = +(A[i, j - 1]); R = U + L;
        }""", 1,
    ),
    "neighbours on both sides are stored first": (
        """function (A[H, W]) -> (R) {
            U[i, j : H, W] = +(A[i - 1, j]); S[i, j : H, W] = +(U[i + 1, j - 1]); T[i, j : H, W] = +(U[i - 1, j]); R = S + T + A;
        }""", 2,
    ),
    "a product with its tail and what is repeated beside it": (
        """function (A[H, W], B[H, W]) -> (R) {
            S[i : H] = +(A[i, j]); P[i, j : H, W] = +(A[i, k] * B[k, j]); T[i, j : H, W] = +(S[i]); R = P + T;
        }""", 2,
    ),
    "no guards beside a product": (
        """function (A[H, W], B[H, W]) -> (R) {
            P[i, j : H, W] = +(A[i, k] * B[k, j]); U[i, j : H, W] = +(A[i - 1, j]); R = P + U;
        }""", 2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SEVERAL)
def test_kernels_join_where_nothing_is_in_the_way(name: str) -> None:
    source, kernels = SEVERAL[name]
    scheduled = agree(program(source, 40, 40), small(CPU))
    assert sum("pack" not in k.tags for k in kernels_of(scheduled)) == kernels


@pytest.mark.parametrize("target", [small(CPU), GPU, TENSOR], ids=["cpu", "gpu", "tensor"])
def test_what_stands_beside_a_product_is_read_where_it_exists(target: Target) -> None:
    """Groups of 40 rows and columns go over the end."""
    source = """function (A[H, W], B[H, W]) -> (R) {
        P[i, j : H, W] = +(A[i, k] * B[j, k]); T[i, j : H, W] = +(B[i, j]); R = P + 2 * T;
    }"""
    (kernel,) = (k for k in kernels_of(agree(program(source, 40, 40), target)) if "pack" not in k.tags)
    assert isinstance(kernel, Block)


def test_sums_that_fill_a_part_keep_their_loops() -> None:
    """A guard in their inner loops would cost more than starting the rest of the output apart."""
    source = "function (A[H, W]) -> (R) { R[i + 1, j : H + 1, W] = +(A[i, k] * A[k, j]); }"
    for kernel in kernels_of(optimize(program(source, 64, 64), CPU, passes=FRONT)):
        view = open_kernel(kernel) if isinstance(kernel, Block) else None
        assert view is not None and not any(s.constraints for s in view.stages)


LARGEST_OF_ROW = "X[i, 0 : H, 1] = >(B[i, j]); R = B - X;"
ROWS = {
    "the row above": "U[i, j : H, W] = +(A[i - 1, j]); B = A - U;",
    "the column before": "U[i, j : H, W] = +(A[i, j - 1]); B = A - U;",
    "both": "U[i, j : H, W] = +(A[i - 1, j]); V[i, j : H, W] = +(A[i, j + 2]); B = U - V;",
}


@pytest.mark.parametrize("target", [CPU, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize("name", ROWS)
def test_shifts_join_the_reduction_of_their_rows(name: str, target: Target) -> None:
    """On GPUs the items of a group still share rows; on CPUs loops that are not shared run where they ran before."""
    source = f"function (A[H, W]) -> (R) {{ {ROWS[name]} {LARGEST_OF_ROW} }}"
    scheduled = agree(program(source, 9, 300), target)
    (kernel,) = kernels_of(scheduled)
    assert isinstance(kernel, Block)
    if target is GPU:
        items = {
            i.name: i.range for b in blocks_in(kernel) for i in b.indexes if i.bind is Bind.GROUP and i.value is None
        }
        assert prod(i.range for i in kernel.indexes) * prod(items.values()) >= 9 * 16, "many items for each row"
    else:
        (front,) = kernels_of(optimize(program(source, 9, 300), target, passes=FRONT))
        view = open_kernel(front) if isinstance(front, Block) else None
        assert view is not None
        assert not any(set(c.names) & set(s.loop_names) for s in view.stages for c in s.constraints)


CELLS = {
    "a column everywhere": "function (A[H, W], B[H, W]) -> (R) { T[i, j : H, W] = +(A[i, 0]); R = T + B; }",
    "a column of a row that items share": "function (A[H, W], B[H, W]) -> (R) { S = A + B; T[i, j : H, W] = +(S[i, 0]); R = S - T - B; }",
    "one cell": "function (A[H, W], B[H, W]) -> (R) { T[i, 0 : H, W] = +(A[i, 0]); R = T + B; }",
    "a part of the diagonal": "function (A[H, W], B[H, W]) -> (R) { T[i, j : H, W] = +(B[i, j]), i - j < 4; S = A - T; R = T + B + S; }",
    "an output that neighbours read": """function (A[H, W], B[H, W]) -> (S, R) {
        S = A - B; T[i, j : H, W] = =(S[i, j + 8]); U[i, j : H, W] = >(A[i - 3, j + 8]); R = T + S + U;
    }""",
    "a row that exists under a constraint": """function (A[H, W], B[H, W]) -> (R) {
        T[i, j : H, W] = +(A[i - 1, j]); U[i, j : H, W] = +(A[i - 1, j] * B[i, j]); X[i, 0 : H, 1] = >(B[i, j]); R = T + U - X;
    }""",
}  # fmt: skip


@pytest.mark.diagonal(2)
@pytest.mark.parametrize(("rows", "columns"), [(1, 33), (4, 64), (17, 40)])
@pytest.mark.parametrize("name", CELLS)
def test_items_of_a_row_read_what_they_wrote(name: str, rows: int, columns: int) -> None:
    for target in (GPU, small(GPU)):
        agree(program(CELLS[name], rows, columns), target)


# --- widening --------------------------------------------------------------------------------------


def test_a_stage_runs_over_the_whole_buffer_under_constraints() -> None:
    (kernel,) = kernels_of(program(LAPLACE.replace("R = U", "R = 0 * U"), 10, 23))[:1]
    assert isinstance(kernel, Block)
    view = open_kernel(kernel)
    assert view is not None
    first, second = widen(view).stages
    assert first == view.stages[0]
    assert [i.range for i in second.loops] == [10, 23] and [i.range for i in view.stages[1].loops] == [9, 23]
    (row,) = (i.name for i in second.loops if i.range == 10)
    assert second.constraints == (Affine.var(row) + -1,)
    assert next(u for u in second.uses if u.writes).forms[0] == Affine.var(row)


def test_reductions_and_given_loops_only() -> None:
    (kernel,) = kernels_of(program("function (A[H, W]) -> (R) { R[i + 1 : H + 1] = +(A[i, j]); }", 4, 5))
    view = open_kernel(kernel) if isinstance(kernel, Block) else None
    assert view is not None and widen(view) is view
    (kernel,) = kernels_of(program(PADDED, 4, 5))
    view = open_kernel(kernel) if isinstance(kernel, Block) else None
    assert view is not None
    rows, columns = view.stages[-1].loops
    assert [i.range for i in widen(view, {columns.name}).stages[-1].loops] == [rows.range, columns.range + 6]


# --- pieces of a loop ------------------------------------------------------------------------------

EXTENTS = {"x": 20, "y": 3}
CONSTRAINTS = st.lists(
    st.builds(lambda a, b, c: Affine.of({"x": a, "y": b}, c), st.sampled_from([-2, -1, 1, 2]), st.integers(-2, 2), st.integers(-25, 25)),
    max_size=4,
)  # fmt: skip


@settings(max_examples=300)
@given(CONSTRAINTS)
def test_pieces_cover_a_loop_and_decide_its_constraints(constraints: list[Affine]) -> None:
    pieces = decided("x", tuple(constraints), EXTENTS)
    assert [x for start, stop, _ in pieces for x in range(start, stop)] == list(range(20))
    for start, stop, edge in pieces:
        for c in constraints if not edge else ():
            held = {c.evaluate({"x": x, "y": y}) >= 0 for x, y in product(range(start, stop), range(3))}
            assert len(held) == 1
    assert not any(a[2] and b[2] for a, b in pairwise(pieces))


def test_constraints_on_one_loop_leave_no_edge() -> None:
    left, right = Affine.var("x", -1) + 7, Affine.var("x") + -8
    assert decided("x", (left, right), {"x": 20}) == ((0, 8, False), (8, 20, False))


# --- results ---------------------------------------------------------------------------------------


@st.composite
def stencils(draw: st.DrawFn) -> str:
    """Up to four shifted, padded or cut views of earlier tensors, and sums of them."""
    names, lines = ["A", "B"], list[str]()
    for k in range(draw(st.integers(2, 6))):
        one, other = draw(st.sampled_from(names)), draw(st.sampled_from(names))
        if draw(st.booleans()):
            lines.append(f"T{k} = {one} {draw(st.sampled_from('+-*'))} {other};")
        else:
            i, j = (draw(st.integers(-3, 3)) for _ in "ij")
            agg = draw(st.sampled_from("++>="))
            inside = f"{one}[i + {i}, j + {j}]" if agg != "=" else f"{one}[i, j + {j}]"
            inside = draw(st.sampled_from([inside, inside, f"{one}[i, 0]"]))
            out = f"i, j + {j}" if agg == "=" and draw(st.booleans()) else "i, j"
            lines.append(f"T{k}[{out} : H, W] = {agg}({inside});")
        names.append(f"T{k}")
    end = f"R = {names[-1]} + {names[-2]};"
    if draw(st.booleans()):
        end = f"X[i, 0 : H, 1] = >({names[-1]}[i, j]); R = {names[-2]} - X;"
    outputs = draw(st.sampled_from(["R", "T0, R"]))
    return f"function (A[H, W], B[H, W]) -> ({outputs}) {{ {' '.join(lines)} {end} }}"


@settings(max_examples=40)
@given(stencils(), st.sampled_from([CPU, GPU]), st.integers(1, 9), st.integers(1, 40))
def test_random_stencils_keep_their_meaning(source: str, target: Target, rows: int, columns: int) -> None:
    agree(program(source, rows, columns), small(target))


@st.composite
def products(draw: st.DrawFn) -> str:
    """A product with shifted, repeated and plain tensors in any order beside it, and their sum."""
    sums = [
        "+(A[i + 1, j]);",
        "+(B[i, j - 2]);",
        "+(A[i, j]);",
        "+(B[j, i]);",
        "+(S[i]);",
        "+(S[j]);",
        "+(A[i, j]), i < 5;",
    ]
    names = [f"T{k}" for k in range(draw(st.integers(1, 3)))]
    lines = [f"{name}[i, j : H, W] = {draw(st.sampled_from(sums))}" for name in names]
    lines = draw(st.permutations([*lines, "P[i, j : H, W] = +(A[i, k] * B[k, j]);"]))
    return f"function (A[H, W], B[H, W]) -> (R) {{ S[i : H] = +(A[i, j]); {' '.join(lines)} R = P + {' - '.join(names)}; }}"


@settings(max_examples=12)
@given(products(), st.sampled_from([small(CPU), small(GPU), TENSOR]), st.integers(8, 24))
def test_random_products_keep_their_meaning(source: str, target: Target, side: int) -> None:
    agree(program(source, side, side), target)
