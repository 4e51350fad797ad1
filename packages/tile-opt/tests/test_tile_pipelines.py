"""Chains of sliding boxes as one kernel: the same results for whatever the steps are, and boxes that stay in a cache."""

from __future__ import annotations

from collections.abc import Sequence
from cProfile import Profile
from dataclasses import replace
from itertools import pairwise
from math import prod

import pytest
import tile_lang
from explain_support import NODES, compiled
from hypothesis import given, settings
from hypothesis import strategies as st
from model_support import processor
from test_widen import agree
from tile_ir.diagnostics import Source
from tile_ir.dtype import DType
from tile_ir.machine import Bandwidths, Cache, Machine, Memory
from tile_ir.program.nodes import TensorType
from tile_ir.stripe.nodes import Bind, Block, Direction, Program, Refinement
from tile_ir.stripe.walk import blocks_in
from tile_ir.target import HardwareSettings, PassConfig, Target
from tile_opt.blocks.buffers import in_the_way
from tile_opt.blocks.tree import kernels_of
from tile_opt.kernel.pipeline import Pipeline, close_scoped
from tile_opt.kernel.view import KernelView
from tile_opt.passes import scheduling
from tile_opt.passes.choosing import Chosen
from tile_opt.passes.kernels.tile_pipelines import MARGIN, ROOMY, SHOWING, Chains, TilePipelines, Timed
from tile_opt.pipeline import optimize, schedule
from tile_opt.plan.space.cpu.plans import plans
from tile_opt.plan.space.cpu.tiles import fastest_cycles
from tile_opt.translate import to_stripe

SLOW = Machine(
    caches=(Cache(1, 256, 4), Cache(2, 2048, 8)),
    memory=Memory(one_core=Bandwidths(0.01, 0.01, 0.01), all_cores=Bandwidths(0.01, 0.01, 0.01)),
)
"""Memory so slow and caches so small that tiles pay, and are small."""
PASSES = tuple(
    map(PassConfig, ("inline", "fuse", "tile_pipelines", "merge", "accumulate", "stream", "schedule_kernels"))
)
TINY = Target(
    "tiny", HardwareSettings(registers=16, vector_bytes=16, cores=1), machine=SLOW, nodes=NODES, passes=PASSES
)


def stripe(source: str, **shapes: tuple[int, ...]) -> Program:
    types = {name: TensorType(DType.FLOAT32, shape) for name, shape in shapes.items()}
    return to_stripe(tile_lang.bind(tile_lang.parse(Source(source, "sample.tile")), types))


def pipelines(program: Program) -> list[Block]:
    """Kernels over tiles, with boxes."""
    kernels = [k for k in kernels_of(program) if isinstance(k, Block)]
    return [k for k in kernels if any(r.dir is Direction.ALLOC and prod(r.type.sizes) > 1 for r in k.refs)]


BLUR = """function (A[H, W], K[T]) -> (C) {
    B[y, x : H, W] = +(A[y, x + t - 2] * K[t]); C[y, x : H, W] = +(B[y + t - 2, x] * K[t]);
}"""


def test_a_blur_is_one_kernel_with_boxes_that_stay_in_the_second_cache() -> None:
    program = agree(stripe(BLUR, A=(40, 21), K=(5,)), TINY)
    (kernel,) = pipelines(program)
    (box,) = [r for r in kernel.refs if r.dir is Direction.ALLOC]
    assert kernel.refs[0].type.sizes == (40, 21)
    assert box.into == "B" and box.type.sizes[1] == 21 and prod(box.type.sizes) * 4 <= SLOW.caches[1].bytes // 2


ROWS = """function (A[M, N]) -> (Y) {
    H[i, y : M, 1] = >(A[i, j]), y < 1; E = exp(A - H); S[i, y : M, 1] = <(E[i, j]), y < 1; Y = E - S;
}"""


@pytest.mark.parametrize("cores", [1, 2])
def test_rows_that_the_second_cache_does_not_hold_stay_in_a_core_s_part_of_the_last_one(cores: int) -> None:
    last = Cache(3, 1 << 16, 8, shared=cores)
    machine = replace(SLOW, caches=(*SLOW.caches, last), cores=cores)
    program = agree(stripe(ROWS, A=(12, 700)), replace(TINY, machine=machine))
    (box,) = (r for k in pipelines(program) for r in k.refs if r.into == "E")
    assert SLOW.caches[1].bytes // 2 < 700 * 4 <= prod(box.type.sizes) * 4 <= last.bytes // 4 // cores


def test_parts_have_plans_of_their_own() -> None:
    decisions = schedule(stripe(BLUR, A=(40, 21), K=(5,)), TINY).decisions
    assert {name: d.within for name, d in decisions.items()} == dict.fromkeys(
        ("kernel_0", "kernel_1"), "kernel_0_to_kernel_1"
    )
    assert not any("grid" in str(level.bind) for d in decisions.values() for level in d.plan.levels)


POOLED = """function (H[N, T, K], V[K], X[N, T, C]) -> (Y) {
    Z[n, t : N, T] = +(H[n, t, k] * V[k]); M[n, i : N, 1] = >(Z[n, t]); E = exp(Z - M);
    S[n, i : N, 1] = +(E[n, t]); W = X * reshape(E / S, N, T, 1); Y[n, c : N, C] = +(W[n, t, c]);
}"""


def test_no_plan_of_a_part_has_work_groups() -> None:
    """The tiles of the pipeline are the groups: a part's outermost loop is bound to the grid already."""
    target = replace(TINY, settings=replace(TINY.settings, cores=2))
    decisions = schedule(stripe(POOLED, H=(2, 32, 8), V=(8,), X=(2, 32, 136)), target).decisions
    assert "rows of the operand in sequence" in {d.plan.reason for d in decisions.values()}
    for view in (d.view for d in decisions.values() if d.view.loops):
        part = replace(view, loops=(replace(view.loops[0], bind=Bind.GRID), *view.loops[1:]))
        assert not any(level.bind is Bind.GRID for plan in plans(part, target) for level in plan.levels)


KEPT = {
    "a result that is wanted itself": BLUR.replace("-> (C)", "-> (B, C)"),
    "a result that is wanted whole": BLUR.replace("B[y + t - 2, x]", "B[t, x]"),
    "a result that is reversed": BLUR.replace("B[y + t - 2, x]", "B[H - 1 - y + t, x]"),
}


@pytest.mark.parametrize("name", KEPT)
def test_kernels_stay_apart(name: str) -> None:
    assert not pipelines(agree(stripe(KEPT[name], A=(40, 21), K=(5,)), TINY))


def test_kernels_stay_apart_where_memory_is_fast() -> None:
    fast = replace(
        SLOW, memory=Memory(one_core=Bandwidths(999, 999, 999)), caches=(Cache(1, 256, 4), Cache(2, 2048, 8))
    )
    assert not pipelines(optimize(stripe(BLUR, A=(400, 300), K=(5,)), replace(TINY, machine=fast)))


def test_no_kernel_moves_past_one_that_touches_a_part_of_the_same_buffer() -> None:
    _, second = kernels_of(
        stripe("function (A[N]) -> (C) { B[i : N] = +(A[i + j]), j < 2; C[i : N] = +(B[i + j]), j < 2; }", A=(9,))
    )
    assert in_the_way([second], set(), {"B"}, {}) and not in_the_way([second], set(), {"P"}, {})
    assert in_the_way([second], set(), {"P"}, {"P": "B"}) and in_the_way([second], set(), {"B"}, {"P": "B"})
    assert in_the_way([second], {"P"}, set(), {"P": "C"}) and not in_the_way([second], {"P"}, set(), {"P": "B"})


def test_choices_carry_both_times() -> None:
    """Fusing lost the accumulators of one pass, so there was no forecast of that; tiles were expected to pay."""
    choices = schedule(stripe(BLUR, A=(40, 21), K=(5,)), TINY).choices
    fused, tiled = [c for c in choices if (c.producer, c.consumer) == ("B", "C")]
    assert fused.chosen is Chosen.APART and fused.reason and fused.together is None
    assert tiled.chosen is Chosen.TILED and tiled.together is not None and tiled.apart is not None
    assert tiled.together < tiled.apart


def test_layers_that_are_alike_are_weighed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    weighed: list[str] = []

    def counted(view: KernelView, target: Target) -> float | None:
        weighed.append(view.name)
        return fastest_cycles(view, target)

    monkeypatch.setattr("tile_opt.passes.kernels.tile_pipelines.fastest_cycles", counted)

    def times(layers: int) -> int:
        names = ["A", *(f"X{k}" for k in range(layers - 1)), "Y"]
        steps = pairwise(names)
        body = " ".join(f"{to}[y, x : H, W] = +({of}[y, t] * K[t, x]);" for of, to in steps)
        weighed.clear()
        schedule(stripe(f"function (A[H, W], K[W, W]) -> (Y) {{ {body} }}", A=(40, 24), K=(24, 24)), TINY)
        return len(weighed)

    assert times(12) == times(9) > 0


ATTENTION = """function (Q[H, S, D], K[H, T, D], V[H, T, D]) -> (O) {
    P[h, s, t : H, S, T] = +(Q[h, s, d] * K[h, t, d]); M[h, s, z : H, S, 1] = >(P[h, s, t]), z < 1; E = relu(P - M + 2);
    Z[h, s, z : H, S, 1] = +(E[h, s, t]), z < 1; Y = E * Z; O[h, s, d : H, S, D] = +(Y[h, s, t] * V[h, t, d]);
}"""
ROOM = Machine(caches=(Cache(1, 1024, 4), Cache(2, 1 << 14, 8)), memory=SLOW.memory)
NARROW = replace(ROOM, caches=(Cache(1, 1024, 4), Cache(2, 1 << 12, 8)))
SHAPES = {"Q": (2, 48, 8), "K": (2, 40, 8), "V": (2, 40, 8)}


def test_chains_that_are_alike_are_put_together_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not once for each kernel that joins: only the first chain is weighed as it grows."""
    built: list[int] = []
    fastest = Chains._fastest  # pyright: ignore[reportPrivateUsage]

    def counted(self: Chains, members: Sequence[int]) -> Timed | None:
        built.append(len(members))
        return fastest(self, members)

    monkeypatch.setattr(Chains, "_fastest", counted)

    def made(layers: int) -> tuple[int, int]:
        names = ["A", *(f"X{k}" for k in range(layers - 1)), "Y"]
        body = " ".join(f"{to}[y, x : H, W] = +({of}[y, t] * K[t, x]);" for of, to in pairwise(names))
        built.clear()
        found = schedule(stripe(f"function (A[H, W], K[W, W]) -> (Y) {{ {body} }}", A=(40, 24), K=(24, 24)), TINY)
        return len(pipelines(found.program)), len(built)

    (few, first), (many, all_) = made(16), made(32)
    assert many - few >= 2 and max(built) > 2
    assert all_ - first <= many - few


@pytest.mark.parametrize(("cores", "queries", "ahead"), [(1, 77, False), (2, 48, True)])
def test_products_are_parts_so_that_attention_is_one_kernel_without_a_matrix_of_scores(
    cores: int, queries: int, ahead: bool
) -> None:
    """Keys are put in the order in which tiles of queries read them: each head's by its tiles' groups, where that takes less memory."""
    target = replace(TINY, machine=NARROW, settings=replace(TINY.settings, cores=cores))
    program = agree(stripe(ATTENTION, **{**SHAPES, "Q": (2, queries, 8)}), target)
    *before, kernel = (k for k in kernels_of(program) if isinstance(k, Block))
    boxes = {r.into: r.type for k in blocks_in(kernel) for r in k.refs if r.dir is Direction.ALLOC}
    assert boxes.keys() >= {"P", "Y"} and all(boxes[b].sizes[1] < queries for b in "PY")
    assert ("kernel_0_panels" in (k.name for k in before)) is ahead
    assert ("K_panels" in boxes) is not ahead and all(prod(t.sizes) < 640 for b, t in boxes.items() if "panels" in b)
    scores = 2 * queries * 40
    assert all(prod(r.type.sizes) < scores for k in kernels_of(program) if isinstance(k, Block) for r in k.refs)


def test_scores_beyond_the_second_cache_stay_in_tiles_and_are_divided_when_sums_are_complete() -> None:
    """A matrix of scores that the last cache would hold is no faster to hand on, says the model, and no slower."""
    target = replace(processor("xeon", 2), passes=PASSES)
    source = ATTENTION.replace("relu(P - M + 2)", "exp(P - M)").replace("E * Z", "E / Z")
    program = compiled(source, target, Q=(8, 512, 64), K=(8, 512, 64), V=(8, 512, 64)).stripe
    *_, kernel = (k for k in kernels_of(program) if isinstance(k, Block))
    assert all(prod(r.type.sizes) < 8 * 512 * 512 for k in kernels_of(program) if isinstance(k, Block) for r in k.refs)
    dividing = (b for b in blocks_in(kernel) if any("div" in str(s) for s in b.body if not isinstance(s, Block)))
    assert {r.into for b in dividing for r in b.refs if r.dir is Direction.OUT} == {"O"}


@pytest.mark.parametrize(("rows", "margin"), [(10, MARGIN), (40, SHOWING), (1000, ROOMY)])
def test_forecasts_decide_less_the_farther_away_kernels_exchange(rows: int, margin: float) -> None:
    target = replace(TINY, machine=replace(SLOW, caches=(*SLOW.caches, Cache(3, 1 << 16, 8))))
    front = optimize(stripe(BLUR, A=(rows, 21), K=(5,)), target, passes=PASSES[:2])
    found = Chains(TilePipelines(), target, front)
    (producer,) = (k for k, view in enumerate(found.views) if view is not None and "B" in view.writes())
    assert found._margin(producer) == margin  # pyright: ignore[reportPrivateUsage]


def test_parts_that_put_the_same_operand_in_order_have_a_copy_each() -> None:
    source = """function (A[N, K], W[K, K]) -> (C) {
        B[n, m : N, K] = +(A[n, k] * W[m, k]); R = relu(B); C[n, m : N, K] = +(R[n, k] * W[m, k]);
    }"""
    program = agree(stripe(source, A=(96, 24), W=(24, 24)), replace(TINY, machine=NARROW))
    kernels = [k for k in kernels_of(program) if isinstance(k, Block)]
    assert len({r.source for r in kernels[-1].refs if "panels" in r.source}) == 2


def test_a_part_writes_what_others_want_too_where_each_tile_writes_cells_of_its_own() -> None:
    source = ATTENTION.replace("-> (O)", "-> (O, M, Z)")
    program = agree(stripe(source, **SHAPES), replace(TINY, machine=ROOM))
    (kernel,) = (k for k in kernels_of(program) if isinstance(k, Block) and "_to_" in k.name)
    written = {r.source for r in kernel.refs if r.dir in (Direction.OUT, Direction.INOUT)}
    assert written >= {"M", "Z"} and "P" in {r.into for r in kernel.refs if r.dir is Direction.ALLOC}


def test_rows_of_a_producer_that_no_tile_asks_for_are_written_all_the_same() -> None:
    """What is kept of it is written whole, so it stays a kernel of its own."""
    source = """function (A[N, M]) -> (C, S) {
        B = A * 2; S[n, z : N, 1] = +(B[n, m]), z < 1; D = B - S; C[n, m : 20, M] = +(D[n + t, m]), t < 3;
    }"""
    agree(stripe(source, A=(40, 12)), TINY)


def test_products_of_which_tiles_would_compute_rows_twice_stay_apart() -> None:
    source = """function (A[N, K], W[K, M], F[T]) -> (C) {
        B[n, m : N, M] = +(A[n, k] * W[k, m]); C[n, m : N, M] = +(B[n + t - 1, m] * F[t]);
    }"""
    program, target = stripe(source, A=(40, 12), W=(12, 20), F=(3,)), replace(TINY, machine=ROOM)
    agree(program, target)
    assert not any(d.within for d in schedule(program, target).decisions.values())


# --- random programs ---------------------------------------------------------------------------------


@st.composite
def chains(draw: st.DrawFn) -> tuple[str, tuple[int, ...]]:
    """Some steps over a grid of two or three dimensions: windows of any reach, strides, and elementwise operations."""
    rank = draw(st.integers(2, 3))
    shape = tuple(draw(st.lists(st.integers(3, 20 if rank == 2 else 7), min_size=rank, max_size=rank)))
    sizes, names, lines = list(shape), ["A"], list[str]()
    for step in range(draw(st.integers(2, 4))):
        made = f"V{step}"
        lines.append(draw(st.sampled_from((_window, _shifts, _elementwise)))(draw, made, names, sizes))
        names = [made] if draw(st.booleans()) else [*names[-1:], made]
        if "/*shrunk*/" in lines[-1]:
            names = [made]
    return f"function (A) -> ({names[-1]}) {{ {' '.join(lines)} }}".replace("/*shrunk*/", ""), shape


def _window(draw: st.DrawFn, made: str, names: list[str], sizes: list[int]) -> str:
    """An aggregation over a box, perhaps with a stride."""
    source, axes = names[-1], [f"i{d}" for d in range(len(sizes))]
    reach = [draw(st.integers(1, 4)) for _ in sizes]
    origin = [draw(st.integers(-2, 1)) for _ in sizes]
    stride = [draw(st.sampled_from((1, 1, 1, 2))) for _ in sizes]
    old = tuple(sizes)
    sizes[:] = [-(-n // s) for n, s in zip(sizes, stride, strict=True)]
    reads = ", ".join(f"{s}*{a} + {a}w + {o}" for s, a, o in zip(stride, axes, origin, strict=True))
    limits = ", ".join(f"{a}w < {r}" for a, r in zip(axes, reach, strict=True))
    agg = draw(st.sampled_from("+><"))
    shrunk = "/*shrunk*/" if tuple(sizes) != old else ""
    return f"{shrunk}{made}[{', '.join(axes)} : {', '.join(map(str, sizes))}] = {agg}({source}[{reads}]), {limits};"


def _shifts(draw: st.DrawFn, made: str, names: list[str], sizes: list[int]) -> str:
    """The sum of some neighbours, each moved by a contraction of its own."""
    source, lines = names[-1], list[str]()
    axes = [f"i{d}" for d in range(len(sizes))]
    for n in range(draw(st.integers(1, 3))):
        moves = [draw(st.integers(-2, 2)) for _ in sizes]
        reads = ", ".join(f"{a} + {m}" for a, m in zip(axes, moves, strict=True))
        lines.append(f"{made}_{n}[{', '.join(axes)} : {', '.join(map(str, sizes))}] = +({source}[{reads}]);")
    total = " + ".join(f"{made}_{n}" for n in range(len(lines)))
    return f"{' '.join(lines)} {made} = {source} - ({total});"


def _elementwise(draw: st.DrawFn, made: str, names: list[str], sizes: list[int]) -> str:
    other = names[draw(st.integers(0, len(names) - 1))]
    return f"{made} = {names[-1]} {draw(st.sampled_from('+-'))} {other} * 2;"


@settings(max_examples=30)
@given(chains())
def test_random_chains_keep_their_results(sample: tuple[str, tuple[int, ...]]) -> None:
    source, shape = sample
    agree(stripe(source, A=shape), TINY)


@st.composite
def products(draw: st.DrawFn) -> tuple[str, dict[str, tuple[int, ...]]]:
    """Products of rows one after the other, perhaps in groups, with something of each row in between."""
    rows, groups = draw(st.integers(2, 14)), draw(st.integers(1, 2))
    wide, shapes, lines = [draw(st.integers(1, 9))], dict[str, tuple[int, ...]](), list[str]()
    shapes["A"], name = (groups, rows, wide[0]), "A"
    for step in range(draw(st.integers(2, 3))):
        wide.append(draw(st.integers(1, 9)))
        turned = draw(st.booleans())
        shapes[f"W{step}"] = (groups, *(wide[:-3:-1] if turned else wide[-2:]))
        at = "m, k" if turned else "k, m"
        lines.append(f"P{step}[g, n, m : {groups}, {rows}, {wide[-1]}] = +({name}[g, n, k] * W{step}[g, {at}]);")
        lines.append(f"M{step}[g, n, z : {groups}, {rows}, 1] = >(P{step}[g, n, m]), z < 1;")
        lines.append(
            f"R{step} = {draw(st.sampled_from(('relu(P#)', 'P# - M#', 'P# * 2 + M#'))).replace('#', str(step))};"
        )
        name = f"R{step}"
    inputs = ", ".join(f"{n}[{', '.join(f'{n}{d}' for d in range(3))}]" for n in shapes)
    return f"function ({inputs}) -> ({name}) {{ {' '.join(lines)} }}", shapes


@settings(max_examples=6)
@given(products())
def test_random_products_keep_their_results(sample: tuple[str, dict[str, tuple[int, ...]]]) -> None:
    source, shapes = sample
    agree(stripe(source, **shapes), replace(TINY, machine=ROOM))


def test_copies_may_be_made_anew_for_every_tile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two copies may each leave out a loop that the other has."""
    made: list[int] = []

    def anew(pipeline: Pipeline, copies: Sequence[Block], panels: Sequence[Refinement], groups: int) -> Block:
        own = ([i for i in c.indexes if i.bind is not Bind.GRID] for c in copies)
        all_ = [replace(c, indexes=(*pipeline.loops, *i)) for c, i in zip(copies, own, strict=True)]
        made.append(len(all_))
        return close_scoped(pipeline, all_, panels, groups)

    monkeypatch.setattr(scheduling, "close_scoped", anew)
    agree(stripe(ATTENTION, **{**SHAPES, "Q": (2, 77, 8)}), replace(TINY, machine=NARROW))
    assert made == [2]


def test_what_nothing_can_join_is_not_weighed() -> None:
    """A product alone has no tiles looked for but its plan's own."""
    text = "function (A[M, K], B[K, N]) -> (C) { C[m, n : M, N] = +(A[m, k] * B[k, n]); }"
    program, profile = stripe(text, A=(64, 96), B=(96, 64)), Profile()
    profile.runcall(optimize, program, TINY)
    assert "fastest_cycles" not in {getattr(e.code, "co_name", "") for e in profile.getstats()}
