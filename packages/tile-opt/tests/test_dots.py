"""Sums of products of short factors become dot products of words, and stay what they were."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tile_lang
from hypothesis import given, settings
from hypothesis import strategies as st
from tile_ir import numerics
from tile_ir.contents import Contents
from tile_ir.dots import DOTS, WORD
from tile_ir.dtype import DType, from_numpy
from tile_ir.machine import InstructionRate
from tile_ir.program.nodes import ConstantTensor, Contraction, Program, TensorType
from tile_ir.program.parser import parse_program
from tile_ir.program.printer import print_program
from tile_ir.semtree.interpret import launch
from tile_ir.semtree.nodes import Access, Block, Call, Const, For, Function, Load, Param, Store, Type, Var
from tile_ir.target import Target
from tile_lang.evaluate import evaluate
from tile_opt.compiler import compile as compiled
from tile_opt.program import DotProducts
from tile_opt.semtree import legalise, simplify

Array = Any
SMALL = (np.uint8, np.int8)
INTEGERS = [name for name, dot in DOTS.items() if dot.c is WORD]
BFLOAT16 = "dot2_bf16bf16"
MATMUL = "O[m, n : M, N] = +(Ai[m, k] * Bi[k, n]);"


def target(*dots: str) -> Target:
    cpu = Target.preset("cpu")
    return replace(cpu, nodes=cpu.nodes | set(dots))


def drawn(dtype: Any, shape: tuple[int, ...], seed: int) -> Array:
    """All extremes, and numbers between them."""
    info, draw = np.iinfo(dtype), np.random.default_rng(seed)
    values = draw.integers(info.min, info.max + 1, shape).astype(dtype)
    ends = draw.choice([info.min, info.max], shape)
    return np.where(draw.random(shape) < 0.3, ends, values).astype(dtype)


def bound(source: str, arrays: dict[str, Array], constants: tuple[str, ...] = ()) -> Program:
    """The program of a Tile function, some of whose inputs are constants."""
    shapes = {n: (a.shape, from_numpy(a.dtype)) for n, a in arrays.items()}
    program = tile_lang.bind(tile_lang.parse(source), {n: TensorType(d, s) for n, (s, d) in shapes.items()})
    fixed = tuple(
        ConstantTensor(n, TensorType(shapes[n][1], shapes[n][0]), Contents(arrays[n].tobytes())) for n in constants
    )
    inputs = tuple(p for p in program.inputs if p.name not in constants)
    return replace(program, inputs=inputs, ops=(*fixed, *program.ops))


def rewritten(program: Program, *dots: str, gain: float = float("inf")) -> Program:
    made = DotProducts(target=target(*dots), gain=gain).apply(program)
    assert parse_program(print_program(made)) == made
    return made


def words(program: Program) -> set[str]:
    """The dot products that contractions of a program are made of."""
    return {s.fn for op in program.ops if isinstance(op, Contraction) for s in op.body} & DOTS.keys()


def agree(source: str, arrays: dict[str, Array], *dots: str, constants: tuple[str, ...] = ()) -> Program:
    """The rewritten program, which gives what the original gives."""
    program = bound(source, arrays, constants)
    made = rewritten(program, *dots)
    given = {n: a for n, a in arrays.items() if n not in constants}
    for (name, want), got in zip(evaluate(program, given).items(), evaluate(made, given).values(), strict=True):
        np.testing.assert_array_equal(got, want, err_msg=name)
    return made


# --- the operations -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", INTEGERS)
def test_an_operation_is_the_sum_of_products_of_factors(name: str) -> None:
    dot, draw = DOTS[name], np.random.default_rng(1)
    a, b = (drawn(d.numpy, (50, dot.depth), k) for k, d in enumerate((dot.a, dot.b)))
    c = draw.integers(-(2**31), 2**31, 50).astype(np.int32)
    want = (c + (a.astype(np.int64) * b).sum(axis=1)).astype(np.int32)
    got = numerics.apply(name, [a.view(np.int32)[:, 0], b.view(np.int32)[:, 0], c], WORD)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("name", DOTS)
def test_targets_without_an_operation_compute_it_from_others(name: str, lanes: int) -> None:
    draw = np.random.default_rng(2)
    args = [draw.choice([0, 1, 0x7F, 0x80, 0xFF], (64, 4)).astype(np.uint8).view(np.int32)[:, 0] for _ in range(3)]
    dtypes = {"a": WORD, "b": WORD, "c": DOTS[name].c, "out": DOTS[name].c}
    args[2] = args[2].view(dtypes["c"].numpy)
    pointers, i = {n: Type(d, ptr=True) for n, d in dtypes.items()}, Var("i", Type(DType.INT64))
    loads = tuple(Load(Var(n, pointers[n]), i, Type(dtypes[n], lanes)) for n in "abc")
    store = Store(Var("out", pointers["out"]), i, Call(name, loads, Type(dtypes["out"], lanes)))
    body = For("i", Const(0, i.type), Const(64, i.type), lanes, Block((store,)))
    params = (
        Param("out", pointers["out"], Access.WRITE, elements=64),
        *(Param(n, pointers[n], elements=64) for n in "abc"),
    )
    function = Function("f", params, Block((body,)))
    vectors = frozenset({"Splat", "Extract", "Insert", "Shuffle", "Iota", "ReduceLanes", "Bitcast", "Fma"})
    legal = simplify(legalise(function, vectors))
    assert not any(n in str(legal) for n in DOTS)
    got = np.zeros(64, dtypes["out"].numpy)
    launch(legal, (1, 1, 1), [got, *args])
    np.testing.assert_array_equal(got, numerics.apply(name, args, dtypes["out"]))


def bfloat16_words(*pairs: tuple[float, float]) -> Array:
    """Words of two factors each."""
    return (np.array(pairs, np.float32).view(np.uint32) >> 16).astype(np.uint16).view(np.int32)[:, 0]


@pytest.mark.parametrize(
    ("a", "b", "c", "want"),
    [
        ((3, 5), (7, 11), 100, 176),
        ((1, -(2.0**30)), (1, 1), 2.0**30, 1),  # the last factor's product goes in first
        ((1, 1), (1, 2.0**30), 0, 2.0**30),
        ((2.0**-133, 0), (2.0**100, 0), 0, 0),  # subnormal factors, addends and sums are zeros
        ((0, 0), (1, 1), 2.0**-130, 0),
        ((2.0**-80, 0), (2.0**-60, 0), 0, 0),
        ((2.0**-80, 0), (2.0**-60, 0), 2.0**-126, 2.0**-126 + 2.0**-140),  # but products are exact
        ((np.inf, 1), (0, 1), 1, np.nan),
    ],
)
def test_products_of_bfloat16(a: Any, b: Any, c: float, want: float) -> None:
    total = np.array([c], np.float32)
    with np.errstate(invalid="ignore"):
        (got,) = numerics.apply(BFLOAT16, [bfloat16_words(a), bfloat16_words(b), total], DType.FLOAT32)
    np.testing.assert_array_equal(got, np.float32(want))


# --- programs -------------------------------------------------------------------------------------------

ZEROS = st.sampled_from(["", " - 128", " - 7", " + 1", " - 200"])


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(SMALL), st.sampled_from(SMALL), ZEROS, ZEROS,
    st.tuples(*[st.integers(1, 9)] * 3), st.sampled_from(INTEGERS), st.sampled_from([(), ("B",), ("A",)]),
)  # fmt: skip
def test_products_of_matrices(a: Any, b: Any, za: str, zb: str, sizes: Any, dot: str, constants: Any) -> None:
    m, k, n = sizes
    source = f"function (A[M, K], B[K, N]) -> (O) {{ Ai = as_int(A, 32){za}; Bi = as_int(B, 32){zb}; {MATMUL} }}"
    agree(source, {"A": drawn(a, (m, k), 0), "B": drawn(b, (k, n), 1)}, dot, constants=constants)


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(SMALL), st.sampled_from(SMALL), ZEROS, ZEROS, st.integers(1, 3), st.integers(1, 2),
    st.integers(1, 7), st.integers(0, 2), st.sampled_from(["NCHW", "NHWC"]), st.sampled_from(INTEGERS),
)  # fmt: skip
def test_convolutions(
    x: Any, w: Any, zx: str, zw: str, side: int, stride: int, channels: int, pad: int, layout: str, dot: str
) -> None:
    """Borders count nothing, whatever numbers are counted from."""
    rows = f"{stride}*y + i - {pad}, {stride}*z + j - {pad}"
    read = f"X[n, c, {rows}]" if layout == "NCHW" else f"X[n, {rows}, c]"
    out = (6 + 2 * pad - side) // stride + 1
    source = f"""function (A[{"N, C, H, W" if layout == "NCHW" else "N, H, W, C"}], B[O, C, I, J]) -> (R) {{
        X = as_int(A, 32){zx}; K = as_int(B, 32){zw};
        R[n, o, y, z : N, O, {out}, {out}] = +({read} * K[o, c, i, j]);
    }}"""
    shape = (2, channels, 6, 6) if layout == "NCHW" else (2, 6, 6, channels)
    made = agree(source, {"A": drawn(x, shape, 0), "B": drawn(w, (3, channels, side, side), 1)}, dot)
    assert words(made) == {dot} or channels == 1 or DOTS[dot].depth == 4


@pytest.mark.parametrize("dot", INTEGERS)
@pytest.mark.parametrize(
    ("source", "shapes"),
    [
        ("O[b, m, n : 2, 3, 5] = +(Ai[b, m, k] * Bi[b, k, n]);", ((2, 3, 8), (2, 8, 5))),
        ("O[m, n : 3, 5] = +(Ai[k, m] * Bi[n, k]);", ((7, 3), (5, 7))),
        ("O[m, n : 3, 5] = +(Ai[m, k, j] * Bi[j, k, n]);", ((3, 4, 2), (2, 4, 5))),
        ("O[g, m, n : 2, 3, 5] = +(Ai[m, 4*g + k] * Bi[g, k, n]), k < 4;", ((3, 8), (2, 4, 5))),
        ("O[m, 3*g + n : 3, 6] = +(Ai[m, 4*g + k] * Bi[3*g + n, k]), k < 4, n < 3;", ((3, 8), (6, 4))),
        ("O[m, n : 3, 5] = +(Ai[m, k, j] * Bi[k, n]);", ((3, 9, 2), (9, 5))),
        ("O[m, n : 3, 5] = +(Ai[m, k + 4] * Bi[k, n]);", ((3, 12), (8, 5))),
        ("O[m, n : 3, 5] = +(Ai[m, k] * Bi[k, n]), k < 6;", ((3, 12), (8, 5))),
        ("O[m, n : 3, 5] = +(Ai[m, k] * Bi[k, n]), m - n < 2;", ((3, 8), (8, 5))),
        ("O[m, n : 4, 6] = +(Ai[m, k] * Bi[k, n]);", ((3, 8), (8, 5))),
        ("O[m : 3] = +(Ai[m, k] * Bi[k]);", ((3, 9), (9,))),
        ("O[] = +(Ai[m, k] * Bi[k, m]);", ((3, 8), (8, 3))),
    ],
)
def test_other_sums(dot: str, source: str, shapes: Any) -> None:
    arrays = {"A": drawn(np.uint8, shapes[0], 0), "B": drawn(np.int8, shapes[1], 1)}
    given = ", ".join(f"{n}[{', '.join(f'{n}{d}' for d in range(a.ndim))}]" for n, a in arrays.items())
    agree(f"function ({given}) -> (O) {{ Ai = as_int(A, 32) - 3; Bi = as_int(B, 32) - 1; {source} }}", arrays, dot)


def test_zero_points_that_a_run_brings() -> None:
    source = f"""function (A[M, K], Z[], B[K, N], Y[N]) -> (O) {{
        Ai = as_int(A, 32) - as_int(Z, 32); Bi = as_int(B, 32) - as_int(Y, 32); {MATMUL} }}"""
    arrays = {
        "A": drawn(np.uint8, (5, 13), 0), "Z": np.array(77, np.uint8), "B": drawn(np.int8, (13, 6), 1),
        "Y": drawn(np.int8, (6,), 2),
    }  # fmt: skip
    for dot in INTEGERS:
        assert words(agree(source, arrays, dot)) == {dot}


# --- sums of floats ---------------------------------------------------------------------------------------

SCALED = f"""function (A[M, K], B[K, N], S[N], Z[N]) -> (O) {{
    Ai = (as_float(A, 32) - 120.0) * 0.37; Bi = (as_float(B, 32) - as_float(Z, 32)) * S; {MATMUL} }}"""


def test_scaled_integers_are_added_up_exactly() -> None:
    draw = np.random.default_rng(0)
    arrays = {
        "A": drawn(np.uint8, (5, 200), 0), "B": drawn(np.int8, (200, 6), 1),
        "S": draw.uniform(0.01, 2, 6).astype(np.float32), "Z": np.arange(6).astype(np.int8),
    }  # fmt: skip
    program = bound(SCALED, arrays, ("B", "S", "Z"))
    made = rewritten(program, "dot4_u8s8")
    assert words(made) == {"dot4_u8s8"}
    exact = (arrays["A"].astype(np.int64) - 120) @ (arrays["B"].astype(np.int64) - arrays["Z"])
    want = exact * (np.float32(0.37) * arrays["S"].astype(np.float64))
    (got,) = evaluate(made, {"A": arrays["A"]}).values()
    assert (np.abs(got - want) <= 4e-7 * np.abs(want)).all()


def test_quantised_layers_in_a_row() -> None:
    """What makes the small integers, and what becomes of the sum, has no part in it."""
    layer = (
        "Q{n} = as_uint(clamp(round_even({x} / 0.05) + 128, 0, 255), 8); F{n} = (as_float(Q{n}, 32) - 128.0) * 0.05;"
    )
    source = f"""function (A[M, K], B[K, N], C[N, L]) -> (R) {{
        {layer.format(n=1, x="A")} G = (as_float(B, 32) - 0.0) * 0.02; O[m, n : M, N] = +(F1[m, k] * G[k, n]);
        {layer.format(n=2, x="O")} H = as_float(C, 32) * 0.01; R[m, n : M, L] = +(F2[m, k] * H[k, n]); }}"""
    arrays = {"A": np.random.default_rng(0).standard_normal((7, 30)).astype(np.float32)}
    arrays |= {"B": drawn(np.int8, (30, 12), 1), "C": drawn(np.int8, (12, 5), 2)}
    program = bound(source, arrays, ("B", "C"))
    made = rewritten(program, "dot4_u8s8")
    assert sum(s.fn in DOTS for op in made.ops if isinstance(op, Contraction) for s in op.body) == 4
    (want,), (got,) = (evaluate(p, {"A": arrays["A"]}).values() for p in (program, made))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_scales_that_are_unknown_or_extreme_stay() -> None:
    arrays = {"A": drawn(np.uint8, (4, 8), 0), "B": drawn(np.int8, (8, 4), 1), "Z": np.zeros(4, np.int8)}
    for scale, constants in (
        (np.ones(4), ("B", "Z")),
        (np.full(4, np.inf), ("B", "S", "Z")),
        (np.full(4, 1e30), ("B", "S", "Z")),
    ):
        program = bound(
            SCALED, {"A": arrays["A"], "B": arrays["B"], "S": scale.astype(np.float32), "Z": arrays["Z"]}, constants
        )
        assert DotProducts(target=target(*DOTS), gain=np.inf).apply(program) is program


# --- sums of bfloat16 -------------------------------------------------------------------------------------

HALVES = "function (A[M, K], B[K, N]) -> (O) {{ {both} O[m, n : M, N] = +({a}[m, k] * {b}[k, n]); }}"
PLAIN, WIDE = (
    HALVES.format(both=both, a=a, b=b)
    for both, a, b in (("", "A", "B"), ("P = as_float(A, 32); Q = as_float(B, 32);", "P", "Q"))
)


@pytest.mark.parametrize("allowed", ["reduced_precision", "short_products"])
def test_sums_of_bfloat16_are_for_the_user_to_allow(allowed: str) -> None:
    cpu = target(*DOTS)
    arrays = dict.fromkeys("AB", np.ones((8, 8), pytest.importorskip("ml_dtypes").bfloat16))
    program, options = bound(PLAIN, arrays), replace(cpu.options, **{allowed: True})
    assert DotProducts(target=replace(cpu, options=options), gain=np.inf).apply(program) is not program


def reduced(program: Program, gain: float = np.inf, **machine: Any) -> Program:
    """Where the user allows reduced precision."""
    allowed = target(*DOTS)
    options = replace(allowed.options, reduced_precision=True)
    numbers = replace(allowed.machine, **machine)
    return DotProducts(target=replace(allowed, options=options, machine=numbers), gain=gain).apply(program)


@pytest.mark.parametrize("source", [PLAIN, WIDE])
@pytest.mark.parametrize("depth", [2, 7, 16])
def test_sums_of_bfloat16(source: str, depth: int) -> None:
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    draw = np.random.default_rng(depth)
    arrays = {n: draw.standard_normal(s).astype(bfloat16) for n, s in (("A", (5, depth)), ("B", (depth, 6)))}
    program = bound(source, arrays)
    assert rewritten(program, *DOTS) is program  # it is for the user to allow
    made = reduced(program)
    assert words(made) == {BFLOAT16}
    (want,), (got,) = (evaluate(p, arrays).values() for p in (program, made))
    assert got.dtype == want.dtype
    exact = np.abs(arrays["A"].astype(np.float64)) @ np.abs(arrays["B"].astype(np.float64))
    step = 2.0**-8 if want.dtype == bfloat16 else 2.0**-24 * (depth + 2)
    assert (np.abs(got.astype(np.float64) - want.astype(np.float64)) <= step * exact).all()


@pytest.mark.parametrize(
    "source",
    [
        "function (A[M, K], B[K, N], S[N]) -> (O) { Q = as_float(B, 32) * S; O[m, n : M, N] = +(A[m, k] * Q[k, n]); }",
        "function (A[M, K], B[K, N], S[N]) -> (O) { Q = A - S; O[m, n : M, N] = +(Q[m, k] * B[k, n]); }",
        "function (A[M, K], B[K, N], S[N]) -> (O) { O[m, n : M, N] = >(A[m, k] * B[k, n]); }",
    ],
)
def test_scaled_or_shifted_bfloat16_stay(source: str) -> None:
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    arrays = {"A": np.ones((8, 8), bfloat16), "B": np.ones((8, 8), bfloat16), "S": np.ones(8, np.float32)}
    made = reduced(bound(source, arrays))
    assert not words(made) or "S" in str(made.ops[0])


def test_nothing_that_is_no_number_is_multiplied_by_what_fills_a_word() -> None:
    """The last word of one factor would hold its neighbour's element, which may be infinite."""
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    source = "function (A[M, K], B[L, N]) -> (O) { O[m, n : 3, 5] = +(A[m, k] * B[k, n]), k < 7; }"
    arrays = {"A": np.ones((3, 8), bfloat16), "B": np.ones((7, 5), bfloat16)}
    assert not words(reduced(bound(source, arrays)))


def test_an_instruction_that_is_slow_is_not_taken() -> None:
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    large = bound(PLAIN, {"A": np.zeros((256, 256), bfloat16), "B": np.zeros((256, 256), bfloat16)})
    fma = Target.preset("cpu").machine.ports.fma
    assert words(reduced(large, 0.8, instructions=(InstructionRate(BFLOAT16, fma),)))
    assert reduced(large, 0.8, instructions=(InstructionRate(BFLOAT16, fma / 4),)) is large


# --- choices ----------------------------------------------------------------------------------------------


def plain(a: Any, b: Any, m: int, k: int, n: int) -> Program:
    source = f"function (A[M, K], B[K, N]) -> (O) {{ Ai = as_int(A, 32); Bi = as_int(B, 32); {MATMUL} }}"
    return bound(source, {"A": np.zeros((m, k), a), "B": np.zeros((k, n), b)})


def test_only_where_it_is_faster_and_there_is_an_instruction() -> None:
    large = plain(np.uint8, np.int8, 256, 256, 256)
    assert rewritten(large, gain=0.8) is large
    assert words(rewritten(large, *DOTS, gain=0.8)) == {"dot4_u8s8"}
    assert words(rewritten(large, "dot2_s16s16", gain=0.8)) == {"dot2_s16s16"}
    for m, k, n in ((8, 8, 8), (1, 512, 512), (512, 1, 512)):
        small = plain(np.uint8, np.int8, m, k, n)
        assert rewritten(small, *DOTS, gain=0.8) is small


@pytest.mark.parametrize(("a", "b"), [(np.int16, np.int16), (np.int16, np.uint8), (np.int8, np.int16)])
@pytest.mark.parametrize("zeros", [("", ""), (" - 3", " - 200")])
def test_factors_of_16_bits(a: Any, b: Any, zeros: tuple[str, str]) -> None:
    """Their sums wrap as int32 does."""
    za, zb = zeros
    source = f"function (A[M, K], B[K, N]) -> (O) {{ Ai = as_int(A, 32){za}; Bi = as_int(B, 32){zb}; {MATMUL} }}"
    assert words(agree(source, {"A": drawn(a, (5, 11), 0), "B": drawn(b, (11, 6), 1)}, *DOTS)) == {"dot2_s16s16"}


@pytest.mark.parametrize("zero", [" - 100", " + 32700", " - 32767"])
def test_differences_that_wrap_stay(zero: str) -> None:
    source = f"function (A[M, K], B[K, N]) -> (O) {{ D = as_int(A, 16){zero}; Ai = as_int(D, 32); Bi = as_int(B, 32); {MATMUL} }}"
    made = agree(source, {"A": drawn(np.uint8, (5, 8), 0), "B": drawn(np.int8, (8, 6), 1)}, "dot4_u8s8")
    assert bool(words(made)) == (zero != " + 32700")


def test_nothing_is_added_outside_where_signs_fit() -> None:
    def extra(a: Any, b: Any, *dots: str) -> int:
        return len(rewritten(plain(a, b, 64, 64, 64), *dots).ops) - len(plain(a, b, 64, 64, 64).ops)

    assert extra(np.uint8, np.int8, "dot4_u8s8") == extra(np.int8, np.uint8, "dot4_u8s8") == 2
    assert extra(np.int8, np.int8, "dot4_u8s8", "dot4_s8s8") == 2
    assert extra(np.int8, np.int8, "dot4_u8s8") > 2
    assert extra(np.int8, np.int8, "dot2_s16s16") == 2


@pytest.mark.parametrize("nodes", [frozenset({"dot4_u8s8"}), frozenset[str]()])
def test_kernels_compute_it_with_the_instruction_and_without(nodes: frozenset[str]) -> None:
    """The schedule is made of words; where the target takes the instruction, kernels call it."""
    program = rewritten(plain(np.int8, np.int8, 9, 21, 18), "dot4_u8s8")
    cpu = Target.preset("cpu")
    kernels = compiled(program, replace(cpu, nodes=cpu.nodes | nodes), verify=True).kernels
    assert any("dot4_u8s8" in str(k.function) for k in kernels.kernels) == bool(nodes)
