"""Which loop of a processor's kernel runs across lanes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tile_lang
import tile_opt
from explain_support import compiled
from model_support import processor
from tile_ir.diagnostics import Source
from tile_ir.dtype import DType
from tile_ir.machine import VectorUnit
from tile_ir.program.nodes import TensorType
from tile_ir.stripe.interpret import run
from tile_ir.stripe.nodes import Bind
from tile_opt.compiled import Compiled

WEIGHTED = "function (X[C, D, A], Y[C, A]) -> (O) {{ O[{0} : {1}] = +(X[c, d, a] * Y[c, a]); }}"
FOUND = processor("zen4", 1)
PROCESSOR = replace(
    FOUND,
    machine=replace(FOUND.machine, vector=VectorUnit(32, 64)),
    settings=replace(FOUND.settings, masks=True),
)


def lanes(made: Compiled) -> list[str]:
    """The loops whose iterations are lanes in the kernel that sums, beside which others may turn an operand or the result."""
    (plan,) = (d.plan for d in made.decisions.values() if any(s.name == "acc" for s in d.view.stages))
    return [c.loop for level in plan.bound(Bind.VECTOR) for c in level.covers]


@pytest.mark.parametrize(("order", "a", "chosen"), [("ad", 20, "a"), ("da", 20, "a"), ("ad", 3, "d")])
def test_lanes_lie_side_by_side_in_operands_wherever_few_results_lie(order: str, a: int, chosen: str) -> None:
    """Each sum of many steps is stored once; while there are enough of them, whole lines of what is read matter more."""
    shapes = {"X": (16, 18, a), "Y": (16, a)}
    text = WEIGHTED.format(", ".join(order), ", ".join(order).upper())
    made = compiled(text, PROCESSOR, "sample", None, **shapes)
    assert lanes(made) == [chosen]
    rng = np.random.default_rng(0)
    inputs = {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    expected = np.einsum(f"cda,ca->{order}", *inputs.values())
    np.testing.assert_allclose(run(made.stripe, inputs)["O"], expected, rtol=1e-5, atol=1e-5)


def test_lanes_lie_side_by_side_in_the_largest_operand_where_they_do_in_no_loop_of_all() -> None:
    """Elements of the other, which each step reads again, come together from the nearest cache."""
    text = "function (X[C, D, A], Y[A, C]) -> (O) { O[a, d : A, D] = +(X[c, d, a] * Y[a, c]); }"
    made = compiled(text, PROCESSOR, "sample", None, X=(300, 40, 32), Y=(32, 300))
    assert lanes(made) == ["a"]


@pytest.mark.parametrize("cores", [2, 3, 8])
@pytest.mark.parametrize("columns", [2896, 5801, 11618, 16448, 46603])
def test_columns_are_shared_out_evenly_in_pieces_that_the_first_cache_holds(columns: int, cores: int) -> None:
    """Three pieces are as slow on two cores as four."""
    made = compiled("function (X[N, M]) -> (R) { R[j : M] = +(X[i, j]); }", processor("zen4", cores), X=(720, columns))
    (decision,) = made.decisions.values()
    (piece,) = (c.size for level in decision.plan.bound(Bind.GRID) for c in level.covers)
    pieces = -(-columns // piece)
    assert 4 * piece <= 16384
    assert -(-pieces // cores) * piece <= 1.1 * columns / cores + 64


@pytest.mark.parametrize(
    ("order", "outermost"), [("kjil", "j"), ("kijl", "k"), ("jikl", "j")], ids=["apart", "in turn", "whole rows"]
)
def test_loops_that_finish_short_runs_of_lines_are_inside_the_others(order: str, outermost: str) -> None:
    """Four floats are a part of a line: the loop that goes on there, in the operand or the result, is not outermost."""
    dimensions = ", ".join(order).upper()
    made = compiled(
        f"function (A[I, J, K, L]) -> (O) {{ O[{', '.join(order)} : {dimensions}] = =(A[i, j, k, l]); }}",
        processor("zen4"),
        A=(24, 25, 26, 4),
    )
    (decision,) = made.decisions.values()
    loops = [c.loop for level in decision.plan.levels for c in level.covers]
    assert loops[0] == outermost


@pytest.mark.parametrize(("width", "wanted"), [(9, 4), (10, 8), (17, 8), (8, 4)])
def test_lanes_without_masks_are_as_many_as_run_away_from_the_edges(width: int, wanted: int) -> None:
    """Those of a vector that an edge cuts run one by one."""
    text = "function (X[C, H, W], K[C]) -> (O) { O[c, y, x : C, H, W] = +(X[c, y + i - 1, x + j - 1] * K[c]), i < 3, j < 3; }"
    plain = replace(PROCESSOR, settings=replace(PROCESSOR.settings, masks=False, vector_bytes=32))
    made = compiled(text, plain, X=(6, width, width), K=(6,))
    plan = max(made.decisions.values(), key=lambda d: len(d.view.loops)).plan
    (level,) = plan.bound(Bind.VECTOR)
    assert level.lanes == wanted
    rng = np.random.default_rng(0)
    inputs = {"X": rng.standard_normal((6, width, width), np.float32), "K": np.ones(6, np.float32)}
    framed = np.pad(inputs["X"], ((0, 0), (1, 1), (1, 1)))
    expected = sum(framed[:, i : i + width, j : j + width] for i in range(3) for j in range(3))
    np.testing.assert_allclose(run(made.stripe, inputs)["O"], expected, rtol=1e-5, atol=1e-5)


WINDOWS = {
    "channels last": ("n, {s}*y + i, {s}*x + j, c", "n, y, x, c", (2, 19, 19, 48)),
    "channels first": ("n, c, {s}*y + i, {s}*x + j", "n, c, y, x", (2, 48, 19, 19)),
}


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("layout", WINDOWS)
def test_windows_that_overlap_are_met_as_their_operand_lies(layout: str, stride: int) -> None:
    """A loop along vectors around one from row to row would see all of an image again for each of its vectors."""
    read, written, shape = WINDOWS[layout]
    extents = {"n": 2, "c": 48, "y": 17 // stride, "x": 17 // stride}
    dimensions = ", ".join(str(extents[name]) for name in written.split(", "))
    text = f"function (D[N, A, B, C], K[I, J, G]) -> (R) {{ R[{written} : {dimensions}] = +(D[{read.format(s=stride)}] * K[i, j, c]); }}"
    made = compiled(text, FOUND, "sample", None, D=shape, K=(3, 3, 48))
    (decision,) = made.decisions.values()
    tiles = [c.loop for level in decision.plan.levels if level.bind is Bind.NONE for c in level.covers]
    shared = [i.name for i in decision.view.loops]
    assert [name for name in tiles if name in shared] == [name for name in shared if name in tiles]


MOVED = {
    "rows by number": ("function (T[N, W], I[K]) -> (O) { O = gather(T, I); }", {"T": (500, 300), "I": (70,)}),
    "rows by sums": (
        "function (T[N, W], I[K]) -> (O) { J = I + 1; O[k, w : K, W] = =(T[J[k], w]); }",
        {"T": (500, 300), "I": (70,)},
    ),
    "rows to places": (
        "function (U[K, W], I[K], T[N, W]) -> (O) { O[I[k], w : N, W] = =(U[k, w]) default T; }",
        {"U": (70, 300), "I": (70,), "T": (500, 300)},
    ),
    "a block": ("function (A[M, N]) -> (O) { O[m, n : M, 64] = =(A[m, n + 7]); }", {"A": (300, 200)}),
}


@pytest.mark.parametrize("dtype", ["int8", "float16", "bfloat16", "int32", "float64"])
@pytest.mark.parametrize("name", MOVED)
def test_vectors_of_what_is_moved_are_full(name: str, dtype: str) -> None:
    """Wider subscripts are one for each row, and floats of 16 bits that nobody computes with are not converted."""
    text, shapes = MOVED[name]
    types = {n: TensorType(DType.INT64 if n == "I" else DType(dtype), shape) for n, shape in shapes.items()}
    program = tile_lang.bind(tile_lang.parse(Source(text, "text.tile")), types)
    made = tile_opt.compile(program, FOUND)
    widths = {level.lanes for d in made.decisions.values() for level in d.plan.bound(Bind.VECTOR)}
    assert widths == {FOUND.settings.vector_bytes // DType(dtype).bytes}


def test_the_steps_of_a_sum_are_lanes_where_the_model_doubts_those_of_its_results() -> None:
    """Lanes that an edge cuts at each step would wait for one sum after the other."""
    text = "function (X[H, W]) -> (O) { O[h, k : H, 16] = +(X[h, x] * X[h, x+k]); }"
    machine = replace(FOUND, machine=PROCESSOR.machine, settings=replace(FOUND.settings, masks=False, vector_bytes=32))
    assert lanes(compiled(text, machine, "sample", None, X=(200, 500))) == ["x"]
