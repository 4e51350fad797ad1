"""Windows in registers: every plan of the space keeps the meaning, whatever the sizes; constraints still add nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from math import prod
from typing import Any

import numpy as np
import pytest
import tile_lang
from explain_support import FRONT, GPU
from hypothesis import given, settings
from hypothesis import strategies as st
from lowering_support import execute, random_inputs
from tile_ir.diagnostics import Source
from tile_ir.dtype import DType
from tile_ir.program.nodes import TensorType
from tile_ir.stripe import interpret
from tile_ir.stripe.nodes import Bind, Block, Program
from tile_ir.stripe.walk import blocks_in
from tile_ir.target import PassConfig
from tile_opt.blocks.tree import kernels_of
from tile_opt.kernel.view import KernelView, open_kernel
from tile_opt.lower_kernels import lower_kernels
from tile_opt.model.conditions import Conditions
from tile_opt.model.contraction import contraction
from tile_opt.passes.kernels.group_tile import GroupTile
from tile_opt.pipeline import optimize
from tile_opt.plan.check import PlanCheck
from tile_opt.plan.plan import Edge, Plan
from tile_opt.plan.space.gpu.tiles import along_rows, ranked
from tile_opt.plan.space.gpu.windows import WindowSpace, window_plan
from tile_opt.translate import to_stripe

Shapes = Mapping[str, tuple[int, ...]]
PASSES = (*FRONT[:3], PassConfig("ungroup"), FRONT[3])
TARGET = GPU.resolved(cores=132)
DEPTHWISE = "function (D[N, X, Y, C], K[I, J, C]) -> (R) { R[n, x, y, c : N, X, Y, C] = +(D[n, x+i-1, y+j-1, c] * K[i, j, c]); }"
ROWS = "function (D[N, X], K[I]) -> (R) { R[n, x : N, X] = +(D[n, x+i-4] * K[i]); }"
FIRST = "function (D[N, C, X, Y], K[C, I, J]) -> (R) { R[n, c, x, y : N, C, X, Y] = +(D[n, c, x+i-1, y+j-1] * K[c, i, j]); }"
GROUPED = """function (D[N, C, X, Y], K[O, E, I, J]) -> (R) {
    R[n, 7*g + o, x, y : N, O, X, Y] = +(D[n, 6*g + e, x+i-1, y+j-1] * K[7*g + o, e, i, j]), g < 32, o < 7;
}"""
FEW = "function (D[N, C, X, Y], K[O, C, I, J]) -> (R) { R[n, o, x, y : N, O, X, Y] = +(D[n, c, x+i-1, y+j-1] * K[o, c, i, j]); }"


@dataclass(frozen=True, slots=True)
class Case:
    """A convolution of images as long as they are wide."""

    source: str
    shapes: Shapes
    dtype: DType = DType.FLOAT32


@st.composite
def convolutions(draw: st.DrawFn) -> Case:
    """Depthwise, grouped, or of few channels; strided or dilated; channels first or last; any sizes."""
    groups, inside, outside = draw(st.sampled_from([(1, 1, 5), (1, 3, 4), (3, 1, 1), (4, 1, 1), (2, 2, 3), (9, 2, 4)]))
    size, batch = draw(st.integers(4, 9)), draw(st.integers(1, 2))
    window, stride, dilation = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(1, 2))
    pad, last = dilation * (window - 1) // 2, draw(st.booleans())
    out = (size + 2 * pad - dilation * (window - 1) - 1) // stride + 1
    x, y = (f"{stride}*{a} + {dilation}*{b} - {pad}" for a, b in ("xi", "yj"))

    def data(n: str, a: str, b: str, c: str) -> str:
        return f"{n}, {a}, {b}, {c}" if last else f"{n}, {c}, {a}, {b}"

    weights = "i, j, c, {}*g + o" if last else "{}*g + o, c, i, j"
    source = (
        f"function (D[{data('N', 'X', 'Y', 'C')}], K[{'I, J, E, O' if last else 'O, E, I, J'}]) -> (R) {{"
        f" R[{data('n', 'x', 'y', f'{outside}*g + o')} : {data('N', str(out), str(out), 'O')}] ="
        f" +(D[{data('n', x, y, f'{inside}*g + c')}] * K[{weights.format(outside)}]),"
        f" g < {groups}, c < {inside}, o < {outside}; }}"
    )
    image = (batch, size, size, groups * inside) if last else (batch, groups * inside, size, size)
    kernel = (window, window, inside, groups * outside) if last else (groups * outside, inside, window, window)
    return Case(source, {"D": image, "K": kernel}, draw(st.sampled_from([DType.FLOAT32, DType.FLOAT16])))


def front(case: Case) -> Program:
    types = {n: TensorType(case.dtype, s) for n, s in case.shapes.items()}
    bound = tile_lang.bind(tile_lang.parse(Source(case.source, "sample.tile")), types, name="sample")
    return optimize(to_stripe(bound), TARGET, passes=PASSES)


def contracted(program: Program) -> KernelView:
    """The only kernel."""
    (kernel,) = [k for k in kernels_of(program) if isinstance(k, Block)]
    view = open_kernel(kernel)
    assert view is not None
    return view


def plans(view: KernelView) -> list[Plan]:
    work = contraction(view)
    assert work is not None
    space = WindowSpace(work, TARGET)
    return [window_plan(space, found) for found in space.best()]


def wide_plans(view: KernelView) -> list[Plan]:
    """Those whose windows slide along rows in memory."""
    return [plan() for _, plan in along_rows(view, TARGET)]


def agree(program: Program, plan: Plan, dtype: DType = DType.FLOAT32) -> None:
    """The kernels find what the unscheduled program means."""
    inputs = random_inputs(program)
    want = interpret.run(program, inputs)["R"].astype(np.float64)
    made = GroupTile().schedule(program, TARGET, {contracted(program).name: plan}).program
    share = 3e-5 if dtype is DType.FLOAT32 else 4e-3
    got = execute(lower_kernels(made, TARGET, verify=True), inputs)
    np.testing.assert_allclose(got["R"].astype(np.float64), want, rtol=share, atol=share * np.abs(want).max())


@settings(max_examples=12, deadline=None)
@given(convolutions(), st.integers(0, 11))
def test_plans_keep_the_meaning_of_random_convolutions(case: Case, number: int) -> None:
    program = front(case)
    view = contracted(program)
    if contraction(view) is None:
        return
    found = [*plans(view)[:6], *wide_plans(view)[:6]]
    plan = found[number % len(found)]
    PlanCheck(view, plan, TARGET, {}).before()
    agree(program, plan, case.dtype)


@pytest.mark.parametrize("last", [False, True])
def test_what_lies_outside_an_image_adds_nothing(last: bool) -> None:
    """Not even infinity times what is loaded in its place."""
    shapes = {"D": (1, 5, 6, 4), "K": (3, 3, 4)} if last else {"D": (1, 4, 5, 8), "K": (4, 3, 3)}
    program = front(Case(DEPTHWISE if last else FIRST, shapes))
    inputs: dict[str, Any] = random_inputs(program)
    inputs["K"][...] = 0
    inputs["K"][(0, 0, slice(None)) if last else (slice(None), 0, 0)] = np.inf
    inputs["D"][...] = np.abs(inputs["D"]) + 1
    view = contracted(program)
    for plan in (*plans(view)[:3], *wide_plans(view)[:2]):
        made = GroupTile().schedule(program, TARGET, {view.name: plan}).program
        got = execute(lower_kernels(made, TARGET), inputs)["R"]
        np.testing.assert_array_equal(got, interpret.run(program, inputs)["R"])
        assert not np.isnan(got).any() and (got == 0).any()


@pytest.mark.parametrize(("source", "near"), [(DEPTHWISE, "c"), (FIRST, "y"), (FEW, "y")])
def test_neighbouring_items_write_neighbouring_results(source: str, near: str) -> None:
    sizes = {"c": (4, 32, 32, 41), "y": (4, 37, 32, 33)}
    kernel = {DEPTHWISE: (3, 3, 41), FIRST: (37, 3, 3), FEW: (50, 37, 3, 3)}
    few = {"D": (4, 3, 32, 33), "K": (50, 3, 3, 3)}
    view = contracted(front(Case(source, few if source == FEW else {"D": sizes[near], "K": kernel[source]})))
    for plan in islice(plans(view), 4):
        (items,) = plan.bound(Bind.GROUP)
        assert items.covers[-1].loop == near and items.covers[-1].size == 1
        assert prod(c.size for c in items.covers) > 1, "an item keeps several cells where a window slides"


@pytest.mark.parametrize(
    ("source", "shapes"),
    [(ROWS, {"D": (3, 24), "K": (9,)}), (FIRST, {"D": (2, 3, 4, 16), "K": (3, 3, 3)})],
    ids=["rows", "images"],
)
def test_windows_along_rows_are_whole_vectors(source: str, shapes: Shapes) -> None:
    """Those around them are loaded, and the cells are stored, side by side; odd rows have no such plans."""
    program = front(Case(source, shapes))
    view = contracted(program)
    near = view.loops[-1].name
    wide = wide_plans(view)
    assert wide, "neighbouring cells of an item share a window"
    for plan in wide[:2]:
        agree(program, plan)
        (kernel,) = kernels_of(GroupTile().schedule(program, TARGET, {view.name: plan}).program)
        assert isinstance(kernel, Block)
        vectors = {i.name for b in blocks_in(kernel) for i in b.indexes if i.bind is Bind.VECTOR}
        assert any(name.startswith("D_window") for name in vectors) and f"{near}_i" in vectors
    odd = contracted(front(Case(source, {**shapes, "D": (*shapes["D"][:-1], shapes["D"][-1] + 1)})))
    assert not wide_plans(odd)


@pytest.mark.parametrize(
    ("source", "shapes", "taken"),
    [(ROWS, {"D": (4096, 4096), "K": (31,)}, True), (GROUPED, {"D": (16, 192, 48, 48), "K": (224, 6, 3, 3)}, False)],
    ids=["rows", "grouped"],
)
def test_windows_along_rows_are_taken_where_estimates_agree(source: str, shapes: Shapes, taken: bool) -> None:
    """The space takes them for faster in both cases."""
    view = contracted(front(Case(source, shapes)))
    assert along_rows(view, TARGET)[0][0] < ranked(view, TARGET)[0][0]
    made = GroupTile().choose(view, TARGET)
    assert made is not None
    assert (dict(made[0].edges).get(view.loops[-1].name) is Edge.PEEL) == taken


COLUMNS = "function (D[X, N], K[I]) -> (R) { R[x, n : X, N] = +(D[x+i-4, n] * K[i]); }"


@pytest.mark.parametrize(
    ("source", "data", "taps", "deep"),
    [(ROWS, (1, 120), 101, 28), (ROWS, (1, 80), 64, 32), (COLUMNS, (100, 1), 97, 28)],
    ids=["some left", "none left", "columns"],
)
def test_windows_too_long_for_straight_code_are_taken_in_steps(
    source: str, data: tuple[int, ...], taps: int, deep: int
) -> None:
    """An item loads what a step touches once, and what steps leave of the window in the same way."""
    program = front(Case(source, {"D": data, "K": (taps,)}))
    view = contracted(program)
    near = [p for p in (*wide_plans(view), *plans(view)) if any(v.covers[-1].size == deep for v in p.bound(Bind.NONE))]
    agree(program, near[0])


@pytest.mark.parametrize("agg", ["+", ">"])
def test_windows_of_one_operand_that_overlap_are_kept_in_registers(agg: str) -> None:
    """Neighbouring cells use what an item has loaded."""
    source = f"function (D[X, Y]) -> (R) {{ R[x, y : X, Y] = {agg}(D[x+i-1, y+j-1]), i < 3, j < 3; }}"
    program = front(Case(source, {"D": (9, 8)}))
    view = contracted(program)
    for _, plan in (*ranked(view, TARGET)[:1], *along_rows(view, TARGET)[:1]):
        agree(program, plan())


@pytest.mark.parametrize("shape", [(96,), (5, 24)])
def test_long_windows_of_one_operand_along_memory_are_kept_too(shape: tuple[int, ...]) -> None:
    """Though nothing but neighbours in memory share them."""
    lead, sizes = ("x, ", "X, Y") if len(shape) > 1 else ("", "Y")
    for taps, taken in ((7, False), (15, True)):
        source = f"function (D[{sizes}]) -> (R) {{ R[{lead}y : {sizes}] = +(D[{lead}y + i - 3]), i < {taps}; }}"
        program = front(Case(source, {"D": shape}))
        found = ranked(contracted(program), TARGET)
        assert bool(found) == taken
        for _, plan in found[:1]:
            agree(program, plan())


@pytest.mark.parametrize(
    "own", ["X / 2, Y / 2] = +(D[2*x+i, 2*y+j]), i < 3, j < 3", "X, Y] = +(D[x, y+j-1000]), j < 2001"]
)
def test_windows_of_one_operand_that_no_item_keeps_are_left_to_others(own: str) -> None:
    """They overlap little, or are too long."""
    view = contracted(front(Case(f"function (D[X, Y]) -> (R) {{ R[x, y : {own}; }}", {"D": (402, 4096)})))
    assert not ranked(view, TARGET)


def test_long_reductions_are_left_to_tiles_in_local_memory() -> None:
    shapes = {"D": (4, 64, 16, 16), "K": (64, 64, 3, 3)}
    assert not plans(contracted(front(Case(FEW, shapes))))


def test_cells_beyond_an_image_have_all_of_their_taps_outside() -> None:
    """The last of ten items along 107 rows has none of them, so that all items ask at all taps."""
    case = Case(FEW, {"D": (2, 64, 107, 107), "K": (53, 64, 3, 3)})
    work = contraction(contracted(front(case)))
    assert work is not None
    conditions = Conditions(work)
    assert conditions.asked("y", 12, 24) == 1
    assert conditions.asked("y", 12, 107) < 0.1
