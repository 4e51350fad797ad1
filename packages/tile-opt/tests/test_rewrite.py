"""Program rewrites: the same outputs, fewer or more parallel operations."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import pytest
import tile_lang
from contraction_samples import contraction, p
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from program_samples import programs, random_inputs
from test_to_stripe_programs import assert_same
from tile_ir.contents import Contents
from tile_ir.dtype import DType
from tile_ir.kernels import BufferKind
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import ConstantTensor, Contraction, Elementwise, Literal, Op, Param, Program, TensorType
from tile_ir.stripe.interpret import run
from tile_ir.target import Target
from tile_lang.evaluate import evaluate
from tile_opt.lowering import lower
from tile_opt.lowering.arena import Touch
from tile_opt.lowering.program import fixed_steps
from tile_opt.program import (
    ConvertOnce,
    DropDead,
    Factorise,
    Prepack,
    Rewrite,
    SeparateWindows,
    ShareCommon,
    SplitReduction,
    Subsample,
    rewrite,
)
from tile_opt.program.strided_targets import StridedTargets
from tile_opt.translate import to_stripe

F = DType.FLOAT32
i, j = p(i=1), p(j=1)
TINY = SplitReduction(chunk_points=2, max_chunks=4)
EAGER = Factorise(gain=0, worth=0, searched=3)
SEPARATE = SeparateWindows(gain=0, ragged=0, worth=0)
NARROW = ConvertOnce(uses=1, least=0)
ALL: tuple[Rewrite, ...] = (
    StridedTargets(), ShareCommon(), DropDead(), EAGER, SEPARATE, Subsample(uses=1), Prepack(least=0), TINY, NARROW
)  # fmt: skip


def same_results(before: Program, after: Program) -> None:
    inputs = random_inputs(before)
    with np.errstate(all="ignore"):
        expected, found = evaluate(before, inputs), evaluate(after, inputs)
    for name, array in expected.items():
        assert_same(found[name], array)


@given(programs())
@settings(max_examples=60, suppress_health_check=list(HealthCheck))
def test_rewrites_keep_the_meaning(program: Program) -> None:
    same_results(program, rewrite(program, ALL))


@given(programs(most_ops=3))
@settings(max_examples=30, suppress_health_check=list(HealthCheck))
def test_rewritten_programs_translate(program: Program) -> None:
    after = rewrite(program, ALL)
    inputs = random_inputs(program)
    with np.errstate(all="ignore"):
        found, expected = run(to_stripe(after), inputs), evaluate(program, inputs)
    for name, array in expected.items():
        assert_same(found[name], array)


@st.composite
def products(draw: st.DrawFn) -> Program:
    """A sum of products of several factors, with formulas, repeated and unread indexes."""
    sizes = {n: draw(st.integers(1, 3)) for n in "ijkl"}
    dtype = draw(st.sampled_from([F, DType.INT8, DType.INT32, DType.FLOAT16, DType.BOOL]))
    names = st.lists(st.sampled_from("ijkl"), max_size=3)
    factors = [draw(names) for _ in range(draw(st.integers(3, 5)))]
    types = {f"A{k}": TensorType(dtype, tuple(sizes[n] for n in f)) for k, f in enumerate(factors)}
    output = draw(st.lists(st.sampled_from("ijkl"), max_size=2, unique=True))
    body = " * ".join(f"A{k}[{', '.join(f)}]" for k, f in enumerate(factors))
    target = f"O[{', '.join(output)} : {', '.join(str(sizes[n]) for n in output)}]" if output else "O[]"
    tied = draw(st.sampled_from(["", "", ", i + k < 3", ", j - l < 2"]))
    bounds = ", ".join(f"{n} < {size}" for n, size in sizes.items())
    text = f"function ({', '.join(types)}) -> (O) {{ {target} = +({body}), {bounds}{tied}; }}"
    return tile_lang.bind(tile_lang.parse(text), types)


@given(products())
@settings(max_examples=150, suppress_health_check=list(HealthCheck))
def test_products_of_several_factors_keep_their_sums(program: Program) -> None:
    after = rewrite(program, (EAGER,))
    same_results(program, after)
    inputs = random_inputs(program)
    assert_same(run(to_stripe(after), inputs)["O"], evaluate(program, inputs)["O"])


def test_matrices_are_multiplied_in_the_cheapest_order() -> None:
    types = {n: TensorType(F, s) for n, s in {"A": (100, 90), "B": (90, 80), "C": (80, 2), "D": (100,)}.items()}
    source = (
        "function (A[I, J], B[J, K], C[K, L], D[I]) -> (O) { O[i, l : I, L] = +(A[i, j] * B[j, k] * C[k, l] * D[i]); }"
    )
    program = rewrite(tile_lang.bind(tile_lang.parse(source), types))
    visited = [
        {c.formula.names[0]: c.size for c in op.constraints}
        for op in program.ops
        if isinstance(op, Contraction) and op.agg is Aggregation.SUM
    ]
    assert [sorted(sizes.values()) for sizes in visited][:2] == [[2, 80, 90], [2, 90, 100]]
    assert sum(prod(sizes.values()) for sizes in visited) < 33_000


def test_products_without_a_cheaper_order_stay() -> None:
    types = {n: TensorType(F, (100, 90)) for n in "ABC"}
    text = "function (A[I, J], B[I, J], C[I, J]) -> (O) { O[i : I] = +(A[i, j] * B[i, j] * C[i, j]); }"
    program = tile_lang.bind(tile_lang.parse(text), types)
    assert Factorise().apply(program) is program


@pytest.mark.parametrize(("a", "b", "c"), ["ijk", "kij", "jki"])
def test_a_third_factor_of_a_product_of_matrices_is_taken_before_it(a: str, b: str, c: str) -> None:
    """Whatever the indexes are called, what it is multiplied by lies as it did."""
    types = {"A": TensorType(F, (20, 60)), "B": TensorType(F, (30, 60)), "C": TensorType(F, (60,))}
    text = f"function (A[I, K], B[J, K], C[K]) -> (O) {{ O[{a}, {b} : I, J] = +(A[{a}, {c}] * B[{b}, {c}] * C[{c}]); }}"
    program = tile_lang.bind(tile_lang.parse(text), types)
    after = Factorise(spared=1 << 14).apply(program)
    assert [after.types()[op.name].shape for op in after.ops] == [(20, 60), (20, 30)]
    same_results(program, after)
    assert Factorise(spared=1 << 16).apply(program) is program, "too little for another kernel"


@pytest.mark.parametrize(
    ("statement", "apart"),
    [
        ("O[i, c : I, C] = +(A[i, j, c] * B[i, c]);", True),
        ("O[c, i : C, I] = +(A[i, j, c] * B[c, i]);", True),
        ("O[i : I] = +(A[i, j, c] * B[i, c]);", False),  # summed over what the other has, too, and small
        ("O[i, j : I, J] = +(A[i, j, c] * B[i, j]);", False),  # rows along memory
    ],
)
def test_what_is_constant_in_a_sum_over_few_columns_comes_after_it(statement: str, apart: bool) -> None:
    dims = {"I": 6, "J": 80, "C": 5}
    other = statement.split("B[")[1].split("]")[0].upper().split(", ")
    types = {"A": TensorType(F, (6, 80, 5)), "B": TensorType(F, tuple(dims[d] for d in other))}
    text = f"function (A[I, J, C], B[{', '.join(other)}]) -> (O) {{ {statement} }}"
    program = tile_lang.bind(tile_lang.parse(text), types)
    after = Factorise(columns=16, worth=0).apply(program)
    assert len(after.ops) == len(program.ops) + apart
    assert not apart or after.types()[after.ops[0].name].shape == (6, 5), "as the operand lies"
    same_results(program, after)
    assert Factorise(worth=0).apply(program) is program


def test_few_cells_of_a_large_factor_are_summed_before_the_other_comes() -> None:
    types = {"A": TensorType(F, (6, 5000, 5)), "B": TensorType(F, (6, 5))}
    text = "function (A[I, J, C], B[I, C]) -> (O) { O[i : I] = +(A[i, j, c] * B[i, c]); }"
    program = tile_lang.bind(tile_lang.parse(text), types)
    after = Factorise(columns=16).apply(program)
    assert after.types()[after.ops[0].name].shape == (6, 5)


STEPS = """function (X[M, N], Y[M, N], Z[M, K]) -> (O) {
    P[m, 2*n : M, 2*N] = =(X[m, n]); Q[m, 2*n + 1 : M, 2*N] = +(Y[m, n]); O = (P + Q) * Z;
}"""


def test_what_is_put_down_with_a_step_is_a_digit() -> None:
    """Elements of both are neighbours where they meet, and what they meet gets their shape."""
    types = {n: TensorType(F, s) for n, s in {"X": (3, 4), "Y": (3, 4), "Z": (3, 8)}.items()}
    before = tile_lang.bind(tile_lang.parse(STEPS), types)
    after = rewrite(before, (StridedTargets(), DropDead()))
    same_results(before, after)
    made = [op for op in after.ops if isinstance(op, Contraction | Elementwise)]
    assert len(made) == 4 and all(op.type.shape == (3, 4, 2) for op in made)


def test_what_a_step_leaves_may_be_there_already() -> None:
    types = {n: TensorType(F, (3, 4)) for n in "XY"}
    text = "function (X[M, N], Y[M, N]) -> (O) {{ P[{p} : {s}] = =(X[m, n]); O[{q} : {s}] = =(Y[m, n]) default P; }}"
    columns = text.format(p="m, 2*n", q="m, 2*n + 1", s="M, 2*N")
    before = tile_lang.bind(tile_lang.parse(columns), types)
    after = rewrite(before, (StridedTargets(rows=False), DropDead()))
    same_results(before, after)
    assert [op.type.shape for op in after.ops if isinstance(op, Contraction)] == [(3, 4, 2)] * 2
    rows = tile_lang.bind(tile_lang.parse(text.format(p="2*m, n", q="2*m + 1, n", s="2*M, N")), types)
    assert StridedTargets(rows=False).apply(rows) is rows


@pytest.mark.parametrize(
    "statement",
    [
        "O[2*n + 1 : 2*N + 1] = =(X[n]);",  # no whole steps
        "O[2*n + 3 : 2*N] = =(X[n]);",  # begins in the second one
        "O[2*n + k : 2*N] = =(X[n]), k < 2;",  # every cell
        "O[2*n, n : 2*N, N] = =(X[n]);",
        "O[2*n : 2*N] = +(X[n + k]), k < 3;",
    ],
)
def test_other_targets_stay(statement: str) -> None:
    text = f"function (X[N]) -> (O) {{ {statement} }}"
    program = tile_lang.bind(tile_lang.parse(text), {"X": TensorType(F, (4,))})
    assert StridedTargets().apply(program) is program


def elementwise(name: str, fn: str, *args: str | Literal) -> Elementwise:
    return Elementwise(name, TensorType(F, (4,)), fn, args)


def chain(*ops: Op, output: str) -> Program:
    return Program("chain", (Param("A", TensorType(F, (4,))),), ops, (("R", output),))


def test_equal_operations_are_computed_once() -> None:
    program = chain(
        elementwise("B", "exp", "A"), elementwise("C", "exp", "A"), elementwise("D", "add", "B", "C"), output="D"
    )
    after = ShareCommon().apply(program)
    assert [op.args for op in after.ops if isinstance(op, Elementwise)] == [("A",), ("B", "B")]
    same_results(program, after)


def test_zeros_of_either_sign_are_different() -> None:
    b = elementwise("B", "div", "A", Literal(0.0, F))
    c = elementwise("C", "div", "A", Literal(-0.0, F))
    program = chain(b, c, elementwise("D", "mul", "B", "C"), output="D")
    assert ShareCommon().apply(program) is program


def test_contractions_are_equal_up_to_index_names() -> None:
    first = contraction(([], []), ([i], [4]), name="B")
    second = contraction(([], []), ([p(z=1)], [4]), name="C")
    total = Elementwise("D", TensorType(F, ()), "add", ("B", "C"))
    after = ShareCommon().apply(chain(first, second, total, output="D"))
    assert len(after.ops) == 2


def test_copies_are_bypassed() -> None:
    program = chain(elementwise("B", "ident", "A"), elementwise("C", "neg", "B"), output="C")
    assert [op.args for op in ShareCommon().apply(program).ops if isinstance(op, Elementwise)] == [("A",)]
    assert ShareCommon(bypass_copies=False).apply(program) is program


def test_dead_operations_go() -> None:
    program = chain(elementwise("B", "exp", "A"), elementwise("C", "neg", "A"), output="C")
    after = DropDead().apply(program)
    assert [op.name for op in after.ops if isinstance(op, Elementwise)] == ["C"]
    assert DropDead().apply(after) is after


def reduction(agg: Aggregation, rows: int, columns: int, *, dtype: DType = F, keep: bool = False) -> Program:
    output = ([j], [columns]) if keep else ([], [])
    made = contraction(output, ([i, j], [rows, columns]), agg=agg, dtype=dtype)
    return Program("sum", (Param("A", TensorType(dtype, (rows, columns))),), (made,), (("O", "O"),))


@pytest.mark.parametrize("agg", [Aggregation.SUM, Aggregation.PROD, Aggregation.MAX, Aggregation.MIN])
@pytest.mark.parametrize("shape", [(8, 3), (7, 5), (13, 1), (3, 11)])
@pytest.mark.parametrize("keep", [False, True])
def test_split_reductions_agree(agg: Aggregation, shape: tuple[int, int], keep: bool) -> None:
    program = reduction(agg, *shape, keep=keep)
    after = TINY.apply(program)
    assert len(after.ops) == 2
    same_results(program, after)


def test_chunks_follow_the_outermost_index_and_sizes_only() -> None:
    partial, total = SplitReduction().apply(reduction(Aggregation.SUM, 4096, 4096)).ops
    assert isinstance(partial, Contraction) and isinstance(total, Contraction)
    assert partial.type.shape == (64,) and "i_chunk" in partial.indexes and len(partial.constraints) == 3
    assert total.type.shape == ()


def test_partial_sums_of_halves_stay_wide() -> None:
    program = reduction(Aggregation.SUM, 8, 8, dtype=DType.FLOAT16)
    (op,) = program.ops
    assert isinstance(op, Contraction)
    partial, total = TINY.apply(replace(program, ops=(replace(op, acc=F),))).ops
    assert isinstance(partial, Contraction) and isinstance(total, Contraction)
    assert partial.type.dtype is F and total.type.dtype is DType.FLOAT16 and total.acc is F


def test_what_is_not_split() -> None:
    large = SplitReduction(max_outputs=4, chunk_points=2)
    wide = reduction(Aggregation.SUM, 8, 8, keep=True)
    assert large.apply(wide) is wide
    program = reduction(Aggregation.SUM, 8, 8)
    assert SplitReduction().apply(program) is program
    triangle = contraction(([], []), ([i, j], [8, 8]), user=[(p(i=1, j=-1), 8)])
    program = replace(program, ops=(triangle,))
    assert TINY.apply(program) is program


def product(rows: str, columns: str, output: str, **sizes: int) -> Program:
    """A sum of products; operands and result are named by their indexes."""
    loads = [([p(**{n: 1}) for n in names], [sizes[n] for n in names]) for names in (rows, columns, output)]
    params = (Param(name, TensorType(F, tuple(s))) for name, (_, s) in zip("AB", loads[:2], strict=True))
    return Program("product", tuple(params), (contraction(loads[2], *loads[:2]),), (("O", "O"),))


@pytest.mark.parametrize(
    ("rows", "columns", "output", "sizes", "chunks"),
    [
        ("ki", "kj", "ij", {"k": 3643, "i": 56, "j": 72}, 4),
        ("ik", "jk", "ij", {"k": 4592, "i": 37, "j": 64}, 4),
        ("k", "kj", "j", {"k": 8192, "j": 277}, 8),
        ("k", "jk", "j", {"k": 8192, "j": 277}, 1),  # rows lie in memory: each processor takes some
        ("ki", "kj", "ij", {"k": 1024, "i": 128, "j": 128}, 1),  # partial results would be too many
        ("ik", "jk", "ij", {"k": 1024, "i": 8, "j": 1024}, 1),  # there are tiles enough
        ("zik", "zkj", "zij", {"z": 16, "k": 4096, "i": 16, "j": 16}, 1),  # there are enough products
    ],
)
def test_products_of_few_cells_are_cut_into_chunks_for_processors_to_share(
    rows: str, columns: str, output: str, sizes: dict[str, int], chunks: int
) -> None:
    first, *rest = SplitReduction().apply(product(rows, columns, output, **sizes)).ops
    assert isinstance(first, Contraction) and len(rest) == (chunks > 1)
    assert first.type.size == chunks * prod(sizes[n] for n in output)


def test_products_in_chunks_keep_the_meaning() -> None:
    program = product("ki", "kj", "ij", k=203, i=2, j=3)
    after = SplitReduction(max_outputs=1, product_points=40).apply(program)
    assert len(after.ops) == 2
    same_results(program, after)


def test_rewrites_are_values() -> None:
    kinds: list[Rewrite] = [SplitReduction(), ShareCommon(), DropDead()]
    assert SplitReduction() == kinds[0] and len(set(kinds)) == 3


def linear(last: str) -> Program:
    """``O[i, j] = +(A[i, k] * W[…])`` of a constant W, whose dimensions are j and k with `last` at the end."""
    forms = ([p(k=1), j], (3, 4)) if last == "j" else ([j, p(k=1)], (4, 3))
    op = contraction(([i, j], (5, 4)), ([i, p(k=1)], (5, 3)), forms, inputs=("A", "W"))
    weights = np.arange(12, dtype=np.float32).reshape(forms[1])
    constant = ConstantTensor("W", TensorType(F, weights.shape), Contents(weights.tobytes()))
    return Program("linear", (Param("A", TensorType(F, (5, 3))),), (constant, op), (("O", "O"),))


def test_constants_lie_along_the_lanes_of_the_result() -> None:
    """The copy depends on a constant alone: it is one step, and that is run once."""
    after = Prepack(least=0).apply(linear("k"))
    assert [type(op) for op in after.ops] == [ConstantTensor, Contraction, Contraction]
    assert after.types()["W_packed"].shape == (3, 4)
    same_results(linear("k"), after)
    assert Prepack(least=0).apply(linear("j")) == linear("j")


def test_steps_on_constants_alone_are_run_once() -> None:
    kernels = lower(to_stripe(Prepack(least=0).apply(linear("k"))), Target("test"))
    assert [step.once for step in kernels.steps] == [True, False]
    assert {b.name: b.kind for b in kernels.buffers if b.name.startswith("W")} == {
        "W": BufferKind.CONST, "W_packed": BufferKind.KEPT,
    }  # fmt: skip


TEMP, CONST, INPUT, OUTPUT = BufferKind.TEMP, BufferKind.CONST, BufferKind.INPUT, BufferKind.OUTPUT


@pytest.mark.parametrize(
    ("steps", "once"),
    [
        ([("C", "T"), ("T", "U"), ("UI", "O")], {0, 1}),
        ([("C", "T"), ("TI", "U"), ("C", "V"), ("UV", "O")], {0, 2}),
        ([("C", "O")], set[int]()),
        ([("C", "T"), ("I", "T"), ("T", "O")], set[int]()),
        ([("", "T"), ("T", "O")], set[int]()),
    ],
    ids=["a chain", "two of three", "not an output", "written again later", "nothing is read"],
)
def test_which_steps_depend_on_constants_alone(steps: list[tuple[str, str]], once: set[int]) -> None:
    numbers = {name: n for n, name in enumerate("CIOTUV")}
    kinds = dict(enumerate((CONST, INPUT, OUTPUT, TEMP, TEMP, TEMP)))
    touches = [Touch(frozenset(numbers[b] for b in r), frozenset(numbers[b] for b in w)) for r, w in steps]
    assert fixed_steps(touches, {numbers["C"]}, kinds, dict.fromkeys(kinds, 64)) == once


def test_large_results_of_small_constants_are_not_kept() -> None:
    touch = Touch(frozenset({0}), frozenset({1}))
    for size, once in ((1 << 20, {0}), (1 << 21, set[int]())):
        assert fixed_steps([touch], {0}, {0: CONST, 1: TEMP}, {0: 64, 1: size}) == once


# --- steps ------------------------------------------------------------------------------------------------


def strided(source: str, **shapes: tuple[int, ...]) -> Program:
    types = {name: TensorType(F, shape) for name, shape in shapes.items()}
    return tile_lang.bind(tile_lang.parse(source), types)


STRIDED = """function (X[C, H, W], K[O, C]) -> (Y) {
    Y[o, y, x : O, (H + 1) / 2, (W + 1) / 2] = +(X[c, 2 * y + k, 2 * x] * K[o, c]), k < 1;
}"""


def test_elements_that_are_read_with_a_step_are_copied_side_by_side() -> None:
    program = strided(STRIDED, X=(3, 7, 8), K=(5, 3))
    after = Subsample(uses=4).apply(program)
    copy, product = (op for op in after.ops if isinstance(op, Contraction))
    assert copy.type.shape == (3, 4, 4) and [str(f) for f in copy.loads[0].formulas] == ["i0", "2*i1", "2*i2"]
    assert {load.tensor for load in product.loads} == {copy.name, "K"}
    same_results(program, after)


def test_steps_along_a_sum_are_copied_side_by_side() -> None:
    """Rows of the other operand lie in the order of the sum, so that lanes can go along both."""
    program = strided(
        "function (A[M, N], V[K]) -> (O) { O[i : M] = +(A[i, j] * V[3*j + 1]), j < 6; }", A=(5, 7), V=(20,)
    )
    after = Subsample(uses=4).apply(program)
    copy, product = (op for op in after.ops if isinstance(op, Contraction))
    assert copy.type.shape == (6,) and [str(f) for f in copy.loads[0].formulas] == ["1 + 3*i0"]
    assert [str(f) for load in product.loads if load.tensor == copy.name for f in load.formulas] == ["j"]
    same_results(program, after)
    assert Subsample(uses=6).apply(program) is program


def test_steps_stay_where_elements_are_used_seldom_or_lie_outside() -> None:
    program = strided(STRIDED, X=(3, 7, 8), K=(5, 3))
    assert Subsample(uses=6).apply(program) is program
    beyond = strided(STRIDED.replace("2 * y + k", "2 * y + k - 1"), X=(3, 7, 8), K=(5, 3))
    assert Subsample(uses=4).apply(beyond) is beyond


def test_steps_stay_where_rows_fill_tiles_or_little_is_saved() -> None:
    program = strided(STRIDED, X=(3, 7, 8), K=(5, 3))
    assert Subsample(uses=4, least=240, tile=16).apply(program) is not program
    assert Subsample(uses=4, least=241).apply(program) is program
    assert Subsample(uses=4, tile=4).apply(program) is program
    rows = strided(STRIDED.replace("2 * x] *", "x] *").replace("(W + 1) / 2", "W"), X=(3, 7, 8), K=(5, 3))
    assert Subsample(uses=4, tile=16).apply(rows) is rows


def test_two_readers_share_a_copy() -> None:
    source = STRIDED.replace("-> (Y)", "-> (Y, Z)").replace(
        "k < 1;", "k < 1; Z[o, y, x : O, (H + 1) / 2, (W + 1) / 2] = +(X[c, 2 * y, 2 * x] * K[o, c]);"
    )
    program = strided(source, X=(3, 7, 8), K=(5, 3))
    after = Subsample(uses=4).apply(program)
    assert len(after.ops) == len(program.ops) + 1
    same_results(program, after)
