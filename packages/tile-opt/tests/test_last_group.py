"""What puts partial results together is done by the last group of those that made them: one kernel less, the same results."""

from __future__ import annotations

from math import prod

import pytest
import tile_lang
import tile_opt
from explain_support import GPU
from lowering_support import check, random_inputs
from tile_ir.diagnostics import Source
from tile_ir.dtype import DType
from tile_ir.frozen import replace
from tile_ir.machine import Launch
from tile_ir.program.nodes import Contraction, Poly, Program, TensorType
from tile_ir.semtree.nodes import LastGroup
from tile_ir.stripe.walk import blocks_in
from tile_ir.target import Target
from tile_opt.model.estimate import estimate
from tile_opt.plan.steps.groups.last_group import waits_for_all
from tile_opt.program import SplitReduction
from tile_opt.translate import to_stripe

PAIR = """function (X[C, N]) -> (R) {{
    P[c : C] = {0}(X[c, i]); R[] = {0}(P[c]);
}}"""
COLUMNS = "function (X[C, N, M]) -> (R) { P[c, j : C, M] = +(X[c, i, j]); R[j : M] = +(P[c, j]); }"
HIGHEST = COLUMNS.replace("+(", ">(")
RESULTS = "function (X[C, N]) -> (R, S) { P[c : C] = +(X[c, i]); T[] = +(P[c]); R = T / 2.0; S = exp(T * 0.01); }"
TEMPORARY = """function (X[C, N]) -> (R, Q) { P[c : C] = +(X[c, i]); R[] = +(P[c]); Q[c : C] = =(P[c]); }"""


def target(nodes: frozenset[str] = frozenset({"LastGroup"})) -> Target:
    machine = replace(GPU.machine, cores=1, launch=Launch(kernel=4e-6))
    return replace(GPU, settings=replace(GPU.settings, threads=32), machine=machine, nodes=GPU.nodes | nodes)


def bound(source: str, dtype: DType = DType.FLOAT32, **shapes: tuple[int, ...]) -> Program:
    function = tile_lang.parse(Source(source, "sample.tile"))
    return tile_lang.bind(function, {n: TensorType(dtype, s) for n, s in shapes.items()})


@pytest.mark.parametrize(
    ("source", "dtype", "shape"),
    [
        pytest.param(PAIR.format("+"), DType.FLOAT32, (9, 200), id="sum"),
        pytest.param(PAIR.format(">"), DType.FLOAT32, (64, 64), id="maximum"),
        pytest.param(PAIR.format("*"), DType.INT32, (9, 70), id="product of integers"),
        pytest.param(COLUMNS, DType.FLOAT32, (64, 50, 8), id="columns"),
        pytest.param(COLUMNS, DType.FLOAT32, (7, 90, 5), id="fewer cells than items"),
        pytest.param(HIGHEST, DType.FLOAT32, (32, 16, 160), id="a last group for each tile of columns"),
        pytest.param(HIGHEST, DType.FLOAT32, (32, 16, 151), id="ragged tiles"),
        pytest.param(RESULTS, DType.FLOAT32, (9, 200), id="two results"),
        pytest.param(TEMPORARY, DType.FLOAT32, (9, 200), id="partial results that others read"),
    ],
)
def test_one_kernel_has_the_results_of_two(source: str, dtype: DType, shape: tuple[int, ...]) -> None:
    program = bound(source, dtype, X=shape)
    compiled = tile_opt.compile(program, target())
    joined = [k for k in compiled.kernels.kernels if waits_for_all(k.stripe)]
    assert len(joined) == 1 and len(tile_opt.compile(program, target(frozenset())).kernels.kernels) > len(
        compiled.kernels.kernels
    )
    assert any(isinstance(s, LastGroup) for s in joined[0].function.body.body)  # type: ignore[union-attr]
    stripe = to_stripe(program)
    inputs = random_inputs(stripe)
    check(compiled.stripe, inputs, target(), reference=stripe)


def test_the_plan_of_each_part_is_told() -> None:
    compiled = tile_opt.compile(bound(PAIR.format("+"), X=(9, 200)), target())
    (kernel,) = compiled.kernels.kernels
    parts = {name: d.within for name, d in compiled.decisions.items()}
    assert sorted(parts.values()) == ["", kernel.stripe.name]
    again = tile_opt.compile(
        bound(PAIR.format("+"), X=(9, 200)), target(), plans={kernel.stripe.name: compiled.plans[kernel.stripe.name]}
    )
    assert again.stripe == compiled.stripe


def test_one_kernel_is_expected_to_save_a_launch() -> None:
    program = bound(PAIR.format("+"), X=(9, 200))
    machine = target()
    (one,) = tile_opt.compile(program, machine).kernels.kernels
    two = tile_opt.compile(program, target(frozenset())).kernels.kernels
    assert estimate(one.stripe, machine).seconds < sum(estimate(k.stripe, machine).seconds for k in two)


def test_groups_of_a_tile_meet() -> None:
    """Each tile of columns has a count of its own, and as many groups as there are chunks."""
    (kernel,) = tile_opt.compile(bound(COLUMNS, X=(32, 16, 160)), target()).kernels.kernels
    assert kernel.function is not None
    (last,) = (s for s in kernel.function.body.body if isinstance(s, LastGroup))
    tiles = prod(i.range for i in kernel.stripe.indexes)
    assert tiles > 1 and tiles * last.count == prod(kernel.groups)


def test_a_kernel_has_one_last_group() -> None:
    """What reads what a last group made waits for it in a kernel of its own."""
    program = bound("function (X) -> (O) { O = element(top_k(X, 100, 1), 1); }", DType.UINT8, X=(2, 500))
    machine = target()
    few = replace(machine, settings=replace(machine.settings, threads=16))
    kernels = [k.stripe for k in tile_opt.compile(program, few).kernels.kernels]
    assert any(waits_for_all(k) for k in kernels)
    assert not any(waits_for_all(inner) for k in kernels for inner in blocks_in(k) if inner is not k)


def test_what_is_long_stays_a_kernel_of_its_own() -> None:
    compiled = tile_opt.compile(bound(PAIR.format("+"), X=(1 << 16, 8)), target())
    assert not any(waits_for_all(k.stripe) for k in compiled.kernels.kernels)


@pytest.mark.parametrize("joined", [False, True])
def test_fewer_numbers_are_cut_where_it_costs_no_kernel(joined: bool) -> None:
    """One group for each stretch of columns took 23 µs for 15 MB on an H200, where 10 of 132 cores had one."""
    program = bound("function (X[N, M]) -> (R) { R[j : M] = +(X[i, j]); }", X=(11968, 313))
    assert len(SplitReduction(units=132, joined=joined).apply(program).ops) == 1 + joined


@pytest.mark.parametrize(("shape", "parts"), [((7001, 6003), 2), ((3840, 7200), 1), ((20000, 200000), 1)], ids=str)
def test_long_columns_in_few_groups_are_cut(shape: tuple[int, int], parts: int) -> None:
    """Those of 9000 x 4000 float64 took 88 µs on an H200 in 250 groups, 74 in 945."""
    program = bound("function (X[N, M]) -> (R) { R[j : M] = +(X[i, j]); }", X=shape)
    assert len(SplitReduction(units=132, joined=True).apply(program).ops) == parts


def test_chunks_of_a_sum_of_products_are_no_windows() -> None:
    """A loop over chunks and one within them meet each element once: nothing of it is kept for neighbours."""
    text = "function (A[M, N], B[M, N]) -> (O) { P = A * B; O[j : N] = +(P[i, j]); }"
    joining = GPU.resolved(cores=132)
    made = tile_opt.compile(
        bound(text, A=(20000, 2048), B=(20000, 2048)), replace(joining, nodes=joining.nodes | {"LastGroup"})
    )
    assert "share a column" in next(iter(made.decisions.values())).plan.reason


def test_sums_of_columns_beside_those_of_rows_are_no_part_of_what_reads_both() -> None:
    """A vector along the rows makes no walk along memory of columns: they would be read again in few groups."""
    text = """function (X[M, N]) -> (R) { S[i, z : M, 1] = +(X[i, j]), z < 1; T[z, j : 1, N] = +(X[i, j]), z < 1;
    R = X - S - T; }"""
    joining = GPU.resolved(cores=132)
    made = tile_opt.compile(bound(text, X=(7001, 6003)), replace(joining, nodes=joining.nodes | {"LastGroup"}))
    last = [k.stripe for k in made.kernels.kernels][-1]
    assert not any(r.into == "T_partial" for b in blocks_in(last) for r in b.refs)


@pytest.mark.parametrize("shape", [(72, 2, 160, 2333), (11, 32, 163, 1024)], ids=str)
def test_chunks_along_memory_are_runs_of_neighbours(shape: tuple[int, ...]) -> None:
    """Chunks of six neighbours made 13 groups of a sum of 215 MB, which took 322 µs on an H200."""
    program = bound("function (X[A, B, C, D]) -> (R) { R[] = +(X[i, j, k, l]); }", X=shape)
    first = SplitReduction(units=132).apply(program).ops[0]
    assert isinstance(first, Contraction) and first.type.size >= 264
    assert any(c.formula == Poly.of({"l": 1}) and c.size == shape[-1] for c in first.constraints)


@pytest.mark.parametrize(("larger", "parts"), [("V[h, t, d]", 2), ("V[h, d, t]", 1)])
def test_what_most_is_read_of_says_how_groups_share_a_product(larger: str, parts: int) -> None:
    """Weights lie along the sum, and values across it: eight groups of columns would leave others idle; of rows there are enough."""
    order = "H, T, D" if parts == 2 else "H, D, T"
    text = f"function (Y[H, T], V[{order}]) -> (O) {{ O[h, d : H, D] = +(Y[h, t] * {larger}); }}"
    sizes = {"H": 4, "T": 20000, "D": 64}
    program = bound(text, Y=(4, 20000), V=tuple(sizes[n] for n in order.split(", ")))
    assert len(SplitReduction(units=132).apply(program).ops) == parts
