"""C99 text means what `tile_ir.numerics` and the semtree interpreter say, bit for bit.

These tests need a C compiler called ``cc`` (or what $CC names) and are skipped where there is none.
"""

from __future__ import annotations

import ctypes
import os
import random
import shutil
import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from tile_ir import numerics
from tile_ir.dtype import DType
from tile_ir.emit import c99, c99_prelude
from tile_ir.kernels import Kernel
from tile_ir.ops import OPS, ROUNDINGS, Signature
from tile_ir.semtree import launch, parse_function
from tile_ir.semtree import nodes as s
from tile_ir.semtree.errors import SemtreeError
from tile_ir.stripe.nodes import Block

CC = os.environ.get("CC") or "cc"
needs_cc = pytest.mark.skipif(shutil.which(CC) is None, reason=f"needs a C compiler, and there is no {CC!r}")
pytest.importorskip("ml_dtypes", reason="needs tile-ir[bfloat16]")
COUNT = 192
FLOATS = [d for d in DType if d.is_float]
WHOLE = [d for d in DType if not d.is_float]
I32 = s.Type(DType.INT32)
ULP = {"pow": 16, "tan": 5, "atan": 5, "tanh": 5, "atanh": 5, "erf": 16, "erfc": 16, "atan2": 6}
"""Allowed distance of a function of float32 or float64 that is not 4; OpenCL's full profile."""


def pointer(dtype: DType) -> s.Type:
    return s.Type(dtype, space=s.Space.GLOBAL, ptr=True)


def elementwise(value, out: DType, inputs: list[DType]) -> s.Function:
    """``out[i] = value(a0[i], a1[i], …)``."""
    params = [s.Param("out", pointer(out), s.Access.WRITE, elements=COUNT)]
    params += [s.Param(f"a{n}", pointer(d), elements=COUNT) for n, d in enumerate(inputs)]
    i = s.Var("i", I32)
    loads = [s.Load(s.Var(f"a{n}", pointer(d)), i, s.Type(d)) for n, d in enumerate(inputs)]
    body = s.Block((s.Store(s.Var("out", pointer(out)), i, value(*loads)),))
    return s.Function("f", tuple(params), s.Block((s.For("i", s.Const(0, I32), s.Const(COUNT, I32), 1, body),)))


def compiled(functions: list[s.Function], folder: Path, *flags: str):
    """The entries of all functions, in order."""
    made = c99.source([Kernel(f.name, Block(f.name), f, (1, 1, 1)) for f in functions])
    text, library = folder / "kernels.c", folder / "kernels.so"
    text.write_text(made)
    base = ["-std=c99", "-O1", "-ffp-contract=off", "-shared", "-fPIC"]
    done = subprocess.run([CC, *base, *flags, "-o", library, text, "-lm"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:3000]
    loaded = ctypes.CDLL(str(library))
    return [getattr(loaded, f"run_{n}") for n in range(len(functions))]


def run(entry, arrays) -> None:
    entry((ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays)))


def same(got, wanted) -> np.ndarray:
    """Where two arrays agree in every bit; NaN is like NaN, and zero like zero."""
    wide = [a.astype(np.float32) if a.dtype.name == "bfloat16" else a for a in (got, wanted)]
    with np.errstate(invalid="ignore"):
        return (wide[0] == wide[1]) | ((wide[0] != wide[0]) & (wide[1] != wide[1]))


@cache
def edges(dtype: DType) -> np.ndarray:
    if dtype is DType.BOOL:
        return np.array([False, True])
    if not dtype.is_float:
        low, high = int(dtype.min_value), int(dtype.max_value)
        return np.array([low, low + 1, 0, 1, 2, 7, high - 1, high, *([-1, -2] if low else [])], dtype.numpy)
    limits = [0.0, 2.0**-24, 2.0**-14, 1e-40, 0.49999997, 0.5, 1.0, 1.5, 2.5, 127.5, 255.0, 65519.0, 65520.0, 2.0**31]
    whole = [*limits, 2.0**63, 2.0**64, 3.4e38, np.inf, np.nan]
    with np.errstate(all="ignore"):
        return np.array([sign * v for v in whole for sign in (1, -1)]).astype(dtype.numpy)


def values(dtype: DType, seed: int, others: int = 1) -> np.ndarray:
    """Edges, each many times where `others` operands have theirs, and bit patterns of every kind but signalling NaN."""
    pool, rng = edges(dtype), np.random.default_rng(seed)
    if dtype is DType.BOOL:
        return rng.integers(0, 2, COUNT).astype(bool)
    bits = rng.integers(0, 256, COUNT * dtype.bytes, dtype=np.uint8).view(dtype.numpy)
    with np.errstate(invalid="ignore"):
        bits = np.where(bits == bits, bits, pool[-1])
    picked = rng.choice(len(pool), COUNT)
    return np.where(rng.random(COUNT) < (0.7 if others > 1 else 0.3), pool[picked], bits)


def operations() -> list[tuple[str, list[DType], DType]]:
    """(operation, dtypes of operands, of the result) for all that semtree may say."""
    found = []
    for name, op in OPS.items():
        match op.signature:
            case Signature.SAME:
                found += [(name, [d] * op.arity, d) for d in DType if name != "ident"]
            case Signature.BITS:
                found += [(name, [d] * op.arity, d) for d in WHOLE]
            case Signature.SHIFT:
                found += [(name, [d, c], d) for d in WHOLE for c in WHOLE if c is not DType.BOOL]
            case Signature.COMPARE:
                found += [(name, [d, d], DType.BOOL) for d in DType]
            case Signature.SELECT:
                found += [(name, [DType.BOOL, d, d], d) for d in DType]
            case Signature.CAST:
                found += [(name, [a], b) for a in DType for b in DType if a is not b]
            case Signature.BITCAST:
                numbers = [d for d in DType if d is not DType.BOOL]
                found += [(name, [a], b) for a in numbers for b in numbers if a is not b and a.bits == b.bits]
            case Signature.MATH:
                found += [(name, [d] * op.arity, d) for d in FLOATS]
    return found


def node(name: str, out: DType):
    """What builds the operation's node from its operands."""
    t = s.Type(out)
    match OPS[name].signature, OPS[name].arity:
        case Signature.COMPARE, _:
            return lambda a, b: s.Compare(name, a, b, t)
        case Signature.SELECT, _:
            return lambda c, a, b: s.Select(c, a, b, t)
        case Signature.CAST, _:
            return lambda a: s.Cast(a, t)
        case Signature.BITCAST, _:
            return lambda a: s.Bitcast(a, t)
        case Signature.MATH, _:
            return lambda *args: s.Call(name, args, t)
        case _, 1:
            return lambda a: s.Unary(name, a, t)
        case _:
            return lambda a, b: s.Binary(name, a, b, t)


@needs_cc
def test_every_operation_and_dtype(tmp_path):
    cases = operations()
    entries = compiled(
        [elementwise(node(name, out), out, dtypes) for name, dtypes, out in cases], tmp_path, "-Wall", "-Werror"
    )
    wrong = []
    for (name, dtypes, out), entry in zip(cases, entries, strict=True):
        args = [values(d, n, len(dtypes)) for n, d in enumerate(dtypes)]
        got, wanted = np.zeros(COUNT, out.numpy), numerics.apply(name, args, out)
        run(entry, [got, *args])
        close = same(got, wanted) | near(name, got, wanted, out)
        wrong += [(name, dtypes, out, [a[i] for a in args], got[i], wanted[i]) for i in np.flatnonzero(~close)[:1]]
    assert not wrong, "\n".join(map(str, wrong))


def near(name: str, got, wanted, dtype: DType) -> np.ndarray:
    """Where functions that C rounds in its own way are near enough; all others are exact."""
    exact = OPS[name].signature is not Signature.MATH or name in {*ROUNDINGS, "sqrt", "recip", "fmod"}
    if exact:
        return np.zeros(COUNT, bool)
    steps = 1 if dtype.bits == 16 else ULP.get(name, 4) + 4 * (dtype is DType.FLOAT64)  # NumPy has steps of its own
    bits = [a.view(f"i{dtype.bytes}").astype(np.float64) for a in (got, wanted)]
    return np.abs(bits[0] - bits[1]) <= steps


def test_the_operations_cover_the_table():
    named = {(name, dtypes[0].kind) for name, dtypes, _ in operations()} | {("mod", d.kind) for d in WHOLE}
    assert set(c99_prelude.OPERATIONS) <= named


@needs_cc
def test_modulus_is_floored_and_total(tmp_path):
    for number, dtype in enumerate((DType.INT32, DType.INT64)):
        function = elementwise(lambda a, b: s.Binary("mod", a, b, a.type), dtype, [dtype, dtype])
        (tmp_path / f"{number}").mkdir()
        (entry,) = compiled([function], tmp_path / f"{number}")
        args = [values(dtype, 1, 2), values(dtype, 2, 2)]
        got, wanted = np.zeros(COUNT, dtype.numpy), np.zeros(COUNT, dtype.numpy)
        run(entry, [got, *args])
        launch(function, (1, 1, 1), [wanted, *args])
        assert got.tolist() == wanted.tolist()


# --- nested expressions --------------------------------------------------------------------------


def random_expression(rng: random.Random, dtype: DType, loads: dict[DType, s.Expr], depth: int) -> s.Expr:
    """A tree of exact operations whose value has `dtype`; its leaves are loads, literals and limits."""
    t = s.Type(dtype)

    def part(of: DType = dtype) -> s.Expr:
        return random_expression(rng, of, loads, depth - 1)

    if depth == 0 or rng.random() < 0.1:
        literal = s.Const(rng.choice(edges(dtype)[np.isfinite(edges(dtype))].tolist()), t)
        return rng.choice([loads[dtype], loads[dtype], literal, s.Limit(rng.choice(["min", "max"]), t)])
    other = rng.choice(list(loads))
    choices = [
        lambda: s.Binary(rng.choice(["add", "sub", "mul", "max", "min", "div"]), part(), part(), t),
        lambda: s.Select(part(DType.BOOL), part(), part(), t),
        lambda: s.Cast(part(other), t),
        lambda: s.Unary(rng.choice(["neg", "abs"]), part(), t),
    ]
    if not dtype.is_float:
        count = rng.choice([d for d in loads if d.is_integer])
        choices += [
            lambda: s.Unary("bit_not", part(), t),
            lambda: s.Binary(rng.choice(["bit_and", "bit_or", "bit_xor"]), part(), part(), t),
            lambda: s.Binary(rng.choice(["bit_left", "bit_right"]), part(), part(count), t),
        ]
    if dtype is DType.BOOL:
        choices.append(lambda: s.Compare(rng.choice(["cmp_lt", "cmp_eq", "cmp_ge"]), part(other), part(other), t))
    return rng.choice(choices)()


@needs_cc
def test_nested_expressions_keep_their_types(tmp_path):
    """What C would promote to int, leave undefined or fold otherwise, in hundreds of random trees without a Let."""
    rng, dtypes = random.Random(5), list(DType)
    outs = [rng.choice(dtypes) for _ in range(120)]

    def tree(out: DType) -> s.Function:
        return elementwise(
            lambda *loads: random_expression(rng, out, dict(zip(dtypes, loads, strict=True)), 4), out, dtypes
        )

    functions = [tree(out) for out in outs]
    args = [values(d, n) for n, d in enumerate(dtypes)]
    for number, (function, entry) in enumerate(zip(functions, compiled(functions, tmp_path), strict=True)):
        got, wanted = np.zeros(COUNT, outs[number].numpy), np.zeros(COUNT, outs[number].numpy)
        run(entry, [got, *args])
        launch(function, (1, 1, 1), [wanted, *args])
        bad = np.flatnonzero(~same(got, wanted))
        assert not len(bad), (number, outs[number], bad[:3], got[bad[:3]], wanted[bad[:3]])


# --- text ------------------------------------------------------------------------------------------


def text_of(body: str, params: str = "write global float32* out", groups=(1, 1, 1), **more) -> str:
    function = parse_function(f"function f({params}) group(1, 1, 1) {{ {body} }}")
    return c99.source([Kernel("f", Block("f", comment="S[i] = +(A[i]) \\"), function, groups)])


def test_the_text_of_a_kernel():
    text = text_of("out[group_id(0)] = exp(float32(group_id(1):int64)) + 1.0 / 2.0;", groups=(4, 2, 1))
    assert "// S[i] = +(A[i])\n" in text
    assert "    out[group_x] = expf((float)(int64_t)group_y) + 0x1.0000000000000p+0f / 0x1.0000000000000p+1f;" in text
    assert "void run_0(void *const *buffers) {" in text
    assert "group_x < 4; " in text and "group_y < 2; " in text
    assert "tile_" not in text


def test_names_of_c_are_left_alone():
    params = "write global int32* INT_MAX, read global int32* tile_div_int32, read global int32* signgam"
    text = text_of("INT_MAX[0] = tile_div_int32[0] / signgam[0];", params)
    assert "int_max[0] = tile_div_int32(v_tile_div_int32[0], signgam_1[0]);" in text


def test_shared_and_deep_parts_get_names():
    deep: s.Expr = s.WorkId(s.IdKind.GROUP, 0)
    for n in range(200):
        deep = s.Binary("add", s.Binary("bit_xor", deep, s.Const(n, I32), I32), deep, I32)
    out = s.Param("out", pointer(DType.INT32), s.Access.WRITE, elements=1)
    store = s.Store(s.Var("out", out.type), s.Const(0, I32), deep)
    function = s.Function("f", (out,), s.Block((store,)))
    text = c99.source([Kernel("f", Block("f"), function, (1, 1, 1))])
    assert text.count("const int32_t t") >= 199 and max(map(len, text.splitlines())) < 400


def test_a_bound_is_computed_once():
    """C would look at it before every iteration."""
    text = text_of("var n = 3; for (i = 0; i < n; i += 1) { n = n + 1; out[i] = 0.0; }")
    assert "const int32_t t1 = n;\n    for (int32_t i = 0; i < t1; i += 1) {" in text


def test_masked_scalars():
    mask = s.Compare("cmp_lt", s.Const(1, I32), s.Const(2, I32), s.Type(DType.BOOL))
    ptr = s.Var("out", pointer(DType.INT8))
    load = s.Load(ptr, s.Const(1, I32), s.Type(DType.INT8), mask)
    body = s.Block((s.Store(ptr, s.Const(0, I32), s.Cast(load, load.type), mask),))
    function = s.Function("f", (s.Param("out", ptr.type, s.Access.READWRITE, elements=2),), body)
    text = c99.source([Kernel("f", Block("f"), function, (1, 1, 1))])
    assert "if (1 < 2) out[0] = 1 < 2 ? out[1] : 0;" in text


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (parse_function("function f() group(2, 1, 1) { }"), "several items"),
        (parse_function("function f() group(1, 1, 1) { let v = splat(1.0, 4); }"), "4 lanes|Splat"),
        (parse_function('function f() group(1, 1, 1) { barrier("group", "local"); }'), "Barrier"),
        (None, "has no semtree function"),
    ],
)
def test_what_c_cannot_say_is_an_error(function, message):
    with pytest.raises(SemtreeError, match=message):
        c99.source([Kernel("f", Block("f"), function, (1, 1, 1))])
