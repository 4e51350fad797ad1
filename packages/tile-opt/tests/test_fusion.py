"""What is fused, and what is inlined, by what it is forecast to cost."""

from __future__ import annotations

from cProfile import Profile
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest
import tile_lang
from explain_support import GPU
from lowering_support import random_inputs
from model_support import processor
from test_widen import CPU
from tile_ir.diagnostics import Source
from tile_ir.dtype import DType
from tile_ir.machine import Machine, Occupancy
from tile_ir.program.nodes import TensorType
from tile_ir.stripe import interpret
from tile_ir.stripe.nodes import Block, Direction, Program
from tile_ir.target import PassConfig
from tile_opt.blocks.tree import kernels_of, main_of
from tile_opt.kernel.view import KernelView, open_kernel
from tile_opt.model.fusion import forecast, sharing
from tile_opt.passes.choosing import Choice, Chosen
from tile_opt.passes.kernels import fuse
from tile_opt.passes.kernels.inline import Inline
from tile_opt.pipeline import optimize
from tile_opt.plan.steps.groups.carries import shareable
from tile_opt.translate import to_stripe


def fused(source: str, scans: bool = False, /, **shapes: tuple[int, ...]) -> Program:
    """After `merge`, on a processor; prefix aggregations are rewritten with `scans`."""
    passes = (*[PassConfig("scan")] * scans, *CPU.passes[:3])
    return optimize(translated(source, **shapes), CPU, passes=passes, verify=True)


def translated(source: str, **shapes: tuple[int, ...]) -> Program:
    """Before all passes."""
    types = {name: TensorType(DType.FLOAT32, shape) for name, shape in shapes.items()}
    return to_stripe(tile_lang.bind(tile_lang.parse(Source(source, "sample.tile")), types))


def views(program: Program) -> list[KernelView]:
    found = [open_kernel(k) for k in kernels_of(program) if isinstance(k, Block)]
    return [v for v in found if v is not None]


def test_a_result_wanted_transposed_leaves_the_contraction_its_lanes() -> None:
    text = (
        "function (A[M, K], B[K, N]) -> (C, D) { C[i, j : M, N] = +(A[i, k] * B[k, j]); D[j, i : N, M] = =(C[i, j]); }"
    )
    product, transposed = views(fused(text, A=(64, 48), B=(48, 80)))
    assert product.writes() == {"C"} and transposed.writes() == {"D"}


def test_a_product_shares_its_own_loops_and_no_digits_of_one_of_them_instead() -> None:
    """The copy has the digits of n as loops, and the product m and n: two each, and not the same two."""
    text = "function (X[I, H, E], G[K, M]) -> (C) { B = reshape(X, 50, 96); C[m, n : 64, 96] = +(G[k, m] * B[k, n]); }"
    *_, product = views(fused(text, X=(50, 3, 32), G=(50, 64)))
    assert prod(loop.range for loop in product.loops) == 64 * 96


@pytest.mark.parametrize(
    ("text", "kernels"),
    [
        ("T[k, o : K, O] = =(W[o, k]); Y[m, o : M, O] = +(X[m, k] * T[k, o]);", 1),
        ("T[k, o : K, O] = =(W[o, k]); Y[m, o : M, O] = +(X[m, k + j] * T[k, o]), j < 3;", 1),
        ("T[k, m : K, M] = =(X[m, k]); Y[m, o : M, O] = +(T[k + j, m] * W[o, k]), j < 3;", 2),  # windows overlap
        ("T[k, o : K, O] = =(W[o, k]); Y[k : K] = >(T[k, o]);", 1),  # wanted once
        ("V = exp(W); T[k, o : K, O] = =(V[o, k]); Y[m, o : M, O] = +(X[m, k] * T[k, o]);", 2),
    ],
)
def test_copies_in_another_order_move_into_products_that_take_tiles_of_them(text: str, kernels: int) -> None:
    types = {name: TensorType(DType.FLOAT32, shape) for name, shape in {"X": (20, 33), "W": (24, 33)}.items()}
    source = Source(f"function (X[M, K], W[O, K]) -> (Y) {{ {text} }}", "sample.tile")
    bound = tile_lang.bind(tile_lang.parse(source), types)
    passes = (PassConfig("inline", options={"copies": True}), PassConfig("fuse"), PassConfig("merge"))
    program = optimize(to_stripe(bound), CPU, passes=passes, verify=True)
    assert len(kernels_of(program)) == kernels


def test_parts_of_a_product_are_read_where_it_ends() -> None:
    """The bias is added once, beside the product; heads that a front end cuts out of the result are no copies."""
    cut = (f"{n}[h, s, d : 2, S, 16] = =(R[s, {k}, h, d]);" for k, n in enumerate("QK"))
    text = f"""function (X[S, I], W[I, J], B[J]) -> (Z) {{ P[s, j : S, J] = +(X[s, i] * W[i, j]); Y = P + B;
        R = reshape(Y, 20, 2, 2, 16); {" ".join(cut)} Z[h, s, t : 2, S, S] = +(Q[h, s, d] * K[h, t, d]); }}"""
    program = translated(text, X=(20, 33), W=(33, 64), B=(64,))
    passes = (PassConfig("inline"), PassConfig("fuse"), PassConfig("merge"))
    assert len(kernels_of(optimize(program, CPU, passes=passes, verify=True))) == 2


STEPPED = """function (X[N, C, H, W], K[O, C]) -> (Y) { T[n, c, h, w : N, C, H / 2, W / 2] = =(X[n, c, 2*h, 2*w]);
    Y[n, o, h, w : N, O, H / 2, W / 2] = +(T[n, c, h, w] * K[o, c]); }"""


@pytest.mark.parametrize(("row", "kernels"), [(28, 2), (30, 2), (32, 1), (64, 1), (9, 1)])
def test_copies_stay_where_they_make_one_row_of_those_that_fill_no_vectors(row: int, kernels: int) -> None:
    """A product of every second element of rows: its lanes go along all rows of the copy, or along one of what is copied.

    Those of very short rows go along another loop.
    """
    program = translated(STEPPED, X=(1, 64, 2 * row, 2 * row), K=(128, 64))
    passes = (PassConfig("inline", options={"copies": True}),)
    assert len(kernels_of(optimize(program, processor("zen4"), passes=passes, verify=True))) == kernels


def test_a_copy_with_long_rows_is_not_cut_into_tiles_of_short_ones() -> None:
    program = translated(STEPPED, X=(4, 256, 56, 56), K=(512, 256))
    passes = (PassConfig("inline", options={"copies": True}), PassConfig("fuse"), PassConfig("tile_pipelines"))
    assert len(kernels_of(optimize(program, processor("xeon", 2), passes=passes, verify=True))) == 2


@pytest.mark.parametrize(
    ("copied", "kernels"),
    [("W[b, n, k]", 1), ("W[n, b, k]", 1), ("W[k, n, b]", 2), ("W[n, k, b]", 2)],
    ids=["columns", "columns of batches", "batches inside", "batches inside, turned"],
)
def test_turned_rows_move_into_products_whose_tiles_they_are_a_side_of(copied: str, kernels: int) -> None:
    """What lies together is copied to local memory as well as the other order; along a batch it would be read apart."""
    sizes = {"b": 8, "k": 24, "n": 40}
    order = [n for n in copied if n in sizes]
    text = f"""function (A[B, M, K], W[{", ".join(n.upper() for n in order)}]) -> (C) {{
        T[b, k, n : B, K, N] = =({copied}); C[b, m, n : B, M, N] = +(A[b, m, k] * T[b, k, n]); }}"""
    types = {
        n: TensorType(DType.FLOAT32, s) for n, s in {"A": (8, 32, 24), "W": tuple(sizes[n] for n in order)}.items()
    }
    bound = tile_lang.bind(tile_lang.parse(Source(text, "sample.tile")), types)
    passes = (PassConfig("inline", options={"turns": True}), PassConfig("fuse"), PassConfig("merge"))
    assert len(kernels_of(optimize(to_stripe(bound), CPU, passes=passes, verify=True))) == kernels


ENDS = "P[m, n : M, N] = +(A[m, k] * B[k, n]); Q[m, n : M, N] = +(C[m, k] * D[k, n]);"


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("S = P + U; T = Q + V; R = relu(S + T);", 1),
        ("T = Q + V; S = P + U; R = relu(T + S);", 1),
        ("S = P + U; R = relu(S + S * V);", 2),  # nothing comes later
        ("S = exp(P + U); T = Q + V; R = S * T + P;", 0),  # something else reads the product
    ],
)
def test_the_last_step_of_a_product_stays_with_it_where_its_reader_waits_for_another(text: str, ends: int) -> None:
    """Both products then end in a sum of their own, as they do where nothing is added: kernels of one form."""
    names = f"function (A[M, K], B[K, N], C[M, K], D[K, N], U[N], V[N]) -> (R) {{ {ENDS} {text} }}"
    shapes = {"A": (20, 30), "B": (30, 40), "C": (20, 30), "D": (30, 40), "U": (40,), "V": (40,)}
    made = fused(names, **shapes)
    first, *_ = (v for v in views(made) if "A" in v.reads())
    assert ("U" in first.reads()) == bool(ends)
    assert ("R" in first.writes()) == (ends == 2)
    before, inputs = translated(names, **shapes), random_inputs(translated(names, **shapes))
    np.testing.assert_allclose(interpret.run(made, inputs)["R"], interpret.run(before, inputs)["R"], rtol=1e-5)


STEP = """L{n}[y, x : H, W] = =(U{n}[y, x - 1]); E{n}[y, x : H, W] = =(U{n}[y, x + 1]);
N{n}[y, x : H, W] = =(U{n}[y - 1, x]); S{n}[y, x : H, W] = =(U{n}[y + 1, x]);
U{m} = U{n} + 0.1 * (L{n} + E{n} + N{n} + S{n} - 4 * U{n});"""


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_steps_of_a_stencil_are_a_kernel_each(steps: int) -> None:
    """What a step shifts is read where the step before wrote it, never stored shifted."""
    body = " ".join(STEP.format(n=n, m=n + 1) for n in range(steps))
    program = fused(f"function (U0[H, W]) -> (U{steps}) {{ {body} }}", U0=(60, 70))
    assert len(views(program)) == steps
    temporaries = {r.into for r in main_of(program).refs if r.dir is Direction.ALLOC}
    assert temporaries == {f"U{n}" for n in range(1, steps)}


def test_math_functions_stay_out_of_loops_that_run_in_order() -> None:
    text = "function (A[N, M]) -> (R) { E = exp(A); C[n, m : N, M] = +(E[n, m - k]), k < M; R = C * 2; }"
    (kernel,) = views(fused(text, True, A=(500, 600)))
    assert [s.name for s in kernel.stages if s.loops] == ["exp", "scan"]


def test_a_forecast_counts_what_lanes_cannot_take() -> None:
    """A product takes longer when its result is stored a row apart; a copy takes longer beyond the caches."""
    near, far = "C[i, j : M, N] = +(A[i, k] * B[k, j]);", "C[j, i : N, M] = +(A[i, k] * B[k, j]);"
    sizes = {"A": (64, 64), "B": (64, 64)}
    (rows,), (columns,) = (views(fused(f"function (A[M, K], B[K, N]) -> (C) {{ {t} }}", **sizes)) for t in (near, far))
    assert forecast(rows, Machine()).seconds <= forecast(columns, Machine()).seconds
    small, large = (views(fused("function (A[N]) -> (R) { R = -A; }", A=(n,)))[0] for n in (1 << 12, 1 << 24))
    assert forecast(large, Machine()).memory > 2 * (1 << 12) * forecast(small, Machine()).memory


def test_items_read_backwards_as_they_read_forwards() -> None:
    """The sectors that a sub-group reads together have no direction; elements that lie apart ask for more of them."""
    text = "function (A[M, N]) -> (R) {{ R[i, j : M, 1000] = =(A[i, {}]), j < 1000; }}"
    forward, backward, apart = (
        forecast(
            sharing(views(translated(text.format(place), A=(1000, 8000)))[0]), Machine(occupancy=Occupancy())
        ).arithmetic
        for place in ("j", "999 - j", "8 * j")
    )
    assert forward == backward < apart


def test_columns_are_as_dear_as_the_vectors_that_they_fill_and_as_few_of_them_wait() -> None:
    """A vector's worth of columns waits at every row for the row before; eight rows of them, side by side, do not."""
    text = "function (A[M, R, N]) -> (S) { S[r, j : R, N] = +(A[i, r, j]); }"
    lanes = Machine().vector.bytes // 4
    one, many = (
        forecast(views(fused(text, A=(1 << 13, rows, n)))[0], Machine()).arithmetic
        for rows, n in ((1, lanes), (8, lanes // 4))
    )
    assert many < 1.5 * one, "twice as many elements"


def test_loops_of_one_iteration_make_no_run_of_columns_longer() -> None:
    """Tiles leave loops of one iteration, whose steps in memory go on where a row of columns ends."""
    (view,) = views(translated("function (A[M, N]) -> (R) { R = A + 1; }", A=(8, 2)))
    (stage,) = view.stages
    rows, columns = stage.loops
    tile, whole = (
        replace(view, loops=(replace(rows, range=n), columns), stages=(replace(stage, loops=()),)) for n in (1, 8)
    )
    assert forecast(tile, Machine()).arithmetic < forecast(whole, Machine()).arithmetic


def test_cores_share_vectors_and_not_their_lanes() -> None:
    """Sums of as many columns as one vector has lanes are one core's; of twice as many, two's."""
    lanes = Machine().vector.bytes // 4
    for columns, times in ((lanes, 1), (2 * lanes, 2)):
        (sums,) = views(fused("function (A[M, N]) -> (S) { S[j : N] = +(A[i, j]); }", A=(4096, columns)))
        one, two = (forecast(sums, replace(Machine(), cores=n)).arithmetic for n in (1, 2))
        assert one == pytest.approx(times * two)


def test_what_follows_a_scan_is_done_as_it_goes() -> None:
    """An elementwise operation on the cells of a scan joins its loop instead of walking the cells again."""
    text = "function (A[N, M]) -> (R) { C[n, m : N, M] = +(A[n - k, m]), k < N; R = C * 2; }"
    (kernel,) = views(fused(text, True, A=(50, 60)))
    assert [s.name for s in kernel.stages if s.loops] == ["scan"] and kernel.writes() == {"R"}


LOGARITHMS = """function (X[N, M]) -> (O) {
    L[n : N] = >(X[n, m]);
    R = reshape(L, N, 1);
    O = log(cumsum(exp(X - R), 1)) + R;
}"""


def test_a_scan_that_items_share_is_apart_from_what_its_rows_wait_for() -> None:
    """Beside the largest of a row one item would walk the row; what is done to the cells stays with the scan."""
    passes = (PassConfig("scan"), *GPU.passes)
    made = optimize(translated(LOGARITHMS, X=(300, 4096)), GPU.resolved(cores=132), passes=passes[:4], verify=True)
    largest, sums = views(made)
    assert largest.writes() == {"L"} and sums.writes() == {"O"} and shareable(sums) is not None


GROUPED = (
    "function (D[N, C], K[E, O]) -> (R) {{ S[n, {0}*g + o : N, O] = +(D[n, {0}*g + c] * K[c, {0}*g + o]),"
    " g < {1}, c < {0}, o < {0}; R = (S > 0 ? S : 0); }}"
)


@pytest.mark.parametrize(("inside", "groups"), [(4, 8), (8, 4), (5, 7), (7, 5)])
def test_groups_and_members_are_shared_with_loops_over_both(inside: int, groups: int) -> None:
    """Whatever digits the analysis finds, the kernel that fills cells and the one that reads them are the same kernel."""
    channels = inside * groups
    shapes = {"D": (6, channels), "K": (inside, channels)}
    program = fused(GROUPED.format(inside, groups), False, **shapes)
    (view,) = views(program)
    inputs = random_inputs(program)
    groups_of = inputs["D"].reshape(6, groups, inside), inputs["K"].reshape(inside, groups, inside)
    want = np.maximum(np.einsum("ngc,cgo->ngo", *groups_of).reshape(6, channels), 0)
    np.testing.assert_allclose(interpret.run(program, inputs)["R"], want, rtol=1e-5, atol=1e-5)
    assert prod(i.range for i in view.loops) == 6 * channels


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("D = A - U; Q = D * D; S[i : M] = +(Q[i, j]); V[j : N] = +(D[i, j]); Y = D * A;", False),
        ("D = exp(sin(A - U)); Q = D * D; S[i : M] = +(Q[i, j]); V[j : N] = +(D[i, j]); Y = D * A;", True),
        ("D = A - U; S[i, k : M, K] = +(D[i, j] * B[j, k]); V[j : N] = +(D[i, j]); Y = D * A;", True),
    ],
    ids=["a difference", "math functions", "a factor of a product"],
)
def test_what_kernels_apart_read_is_computed_by_each_where_that_is_cheap(text: str, kept: bool) -> None:
    """Kernels that keep no row in a cache hand it on through memory, or compute it again; by its cost, and in no product."""
    source = f"function (A[M, N], U[N], B[N, K]) -> (S, V, Y) {{ {text} }}"
    before = translated(source, A=(20, 100), U=(100,), B=(100, 20))
    apart = (PassConfig("inline"), PassConfig("fuse", options={"max_stages": 1}))
    far = replace(CPU, machine=replace(Machine(), caches=()))
    stored = optimize(before, far, passes=apart, verify=True)
    made = optimize(before, far, passes=(*apart, PassConfig("recompute")), verify=True)
    assert "D" in names_of(stored) and ("D" in names_of(made)) == kept
    inputs = random_inputs(before)
    found, want = interpret.run(made, inputs), interpret.run(before, inputs)
    for name in ("S", "V", "Y"):
        np.testing.assert_allclose(found[name], want[name], rtol=1e-4, atol=1e-4)


def names_of(program: Program) -> set[str]:
    return {r.into for r in main_of(program).refs}


COLUMNS = """function (A[M, N]) -> (S) { H[z, j : 1, N] = >(A[i, j]), z < 1; D = A - H;
S[z, j : 1, N] = +(D[i, j]), z < 1; }"""


@pytest.mark.parametrize(
    ("columns", "share", "together"),
    [(700, 4, True), (700, 1 / 4, False), (704, 1 / 4, True)],
    ids=["near", "far", "lines"],
)
def test_statistics_of_columns_are_apart_where_strips_of_them_share_lines_of_memory(
    columns: int, share: float, together: bool
) -> None:
    """One kernel takes all stages for a vector of columns: of rows that begin between lines it fetches each line twice."""
    last = replace(Machine().caches[-1], bytes=int(share * 400 * columns * 4))
    small = replace(CPU, machine=replace(Machine(), caches=(*Machine().caches[:-1], last)))
    passes = (PassConfig("inline"), PassConfig("fuse"))
    made = optimize(translated(COLUMNS, A=(400, columns)), small, passes=passes, verify=True)
    assert (len(views(made)) == 1) == together


@pytest.mark.parametrize(
    ("rows", "inner", "together"),
    [(4096, 2, False), (64, 2, True), (4096, 16, True)],
    ids=["pieces", "near", "lines"],
)
def test_statistics_around_a_short_axis_are_apart_where_each_takes_pieces_of_far_lines(
    rows: int, inner: int, together: bool
) -> None:
    """One kernel takes all stages for one place on the axis between: the rest of each line it fetches is its neighbours'."""
    source = """function (A[M, N, L]) -> (S) { H[x, j, z : 1, N, 1] = +(A[i, j, k]), x < 1, z < 1; D = A - H;
    S[x, j, z : 1, N, 1] = +(D[i, j, k]), x < 1, z < 1; }"""
    passes = (PassConfig("inline"), PassConfig("fuse"))
    made = optimize(translated(source, A=(rows, 32, inner)), processor("zen4"), passes=passes, verify=True)
    assert (len(views(made)) == 1) == together


@pytest.mark.parametrize(
    ("read", "loops"), [("A[i + 2, j]", 1), ("A[i + 2, j] + B[i, j]", 1), ("A[i, j] + A[i + 2, j]", 2)]
)
def test_whole_rows_from_any_one_on_are_one_loop(read: str, loops: int) -> None:
    """As the operands of concatenations are. Those of a stencil, which are read from several rows on, stay rows."""
    [kernel] = views(fused(f"function (A[N, M], B[L, M]) -> (O) {{ O[i, j : L, M] = =({read}); }}", A=(8, 5), B=(6, 5)))
    assert len(kernel.ranges) == loops


@pytest.mark.parametrize(
    ("value", "stays"),
    [("index(X, 1)", False), ("sin(index(X, 0)) + cos(index(X, 1))", True)],
    ids=["indexes", "their sines"],
)
def test_values_of_indexes_alone_are_stored_only_where_that_takes_less(value: str, stays: bool) -> None:
    """Each is wanted for up to nine windows, which a place in memory is read for, too."""
    source = f"""function (X[N, M], Y[K, L]) -> (P) {{ R = {value};
        P[y, x : K, L] = >(X[2*y + i, 2*x + j] == Y[y, x] ? R[2*y + i, 2*x + j]), i < 3, j < 3; }}"""
    choices = Inline().choose(translated(source, X=(64, 96), Y=(30, 40)), processor("zen4")).choices
    assert [c.chosen is Chosen.STORED for c in choices if c.producer == "R"] == [stays]


@pytest.mark.parametrize("steps", [4, 12])
def test_a_scalar_is_not_put_together_with_each_stage_of_a_growing_kernel_that_reads_it(steps: int) -> None:
    """They have no loop in common, which is seen of each of them alone."""
    text = "".join(f"B{k + 1} = tanh(B{k}) * S; " for k in range(steps))
    source = f"function (A[N], X) -> (B{steps}) {{ S = exp(X); B0 = A + 1; {text}}}"
    program, profile = translated(source, A=(4096,), X=()), Profile()
    found = profile.runcall(optimize, program, CPU, passes=[PassConfig("fuse")])
    assert len(views(found)) == 2
    tries = [e.callcount for e in profile.getstats() if getattr(e.code, "co_name", "") == "localised"]
    assert sum(tries) <= 2


@pytest.mark.parametrize(
    "step", ["H{0} = tanh(P{0}) + H{1};", "M{0}[m : 8] = >(P{0}[m, n]); H{0} = P{0} / reshape(M{0}, 8, 1);"]
)
def test_steps_that_are_alike_are_weighed_once(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is chosen for more of them is what was chosen for the first ones."""
    weighed: list[int] = []
    real = fuse._Groups._weighed  # pyright: ignore[reportPrivateUsage]

    def counted(*given: Any) -> Choice:
        weighed[-1] += 1
        return real(*given)

    monkeypatch.setattr(fuse._Groups, "_weighed", counted)  # pyright: ignore[reportPrivateUsage]
    stages: list[int] = []
    for steps in (6, 12):
        lines = (f"P{t}[m, n : 8, 8] = +(H{t - 1}[m, k] * W[k, n]); {step.format(t, t - 1)}" for t in range(1, steps))
        weighed.append(0)
        made = views(
            fused(f"function (H0[M, K], W[K, N]) -> (H{steps - 1}) {{ {' '.join(lines)} }}", H0=(8, 8), W=(8, 8))
        )
        stages.append(sum(len(view.stages) for view in made))
    assert weighed[0] == weighed[1] and stages[1] * 5 == stages[0] * 11
