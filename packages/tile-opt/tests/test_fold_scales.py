"""Constant factors take up the scales behind their contractions, where that is allowed."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tile_lang
from tile_ir.contents import Contents
from tile_ir.dtype import from_numpy
from tile_ir.program.nodes import ConstantTensor, Contraction, Elementwise, Program, TensorType
from tile_ir.target import Options
from tile_lang.evaluate import evaluate
from tile_opt.program import FoldScales, Prepack, rewrite, rewrites_for
from tile_opt.translate import to_stripe

MATMUL = "R[i, o : N, O] = +(X[i, k] * W[k, o]);"
SHAPES: dict[str, tuple[int, ...]] = {"X": (3, 4), "W": (4, 5), "S": (5,), "B": (5,), "M": (5,), "V": (5,)}


def program(body: str, shapes: dict[str, tuple[int, ...]] = SHAPES, dtype: Any = np.float32) -> Program:
    """``body`` on an input X and constants, which computes Y of R."""
    names = [n for n in shapes if re.search(rf"\b{n}\b", body)]
    header = {"X": "X[N, K]", "W": "W[K, O]"} if shapes is SHAPES else {}
    text = f"function ({', '.join(header.get(n, n) for n in names)}) -> (Y) {{ {body} }}"
    made = tile_lang.bind(tile_lang.parse(text), {n: TensorType(from_numpy(np.dtype(dtype)), shapes[n]) for n in names})
    random = np.random.default_rng(5)
    values = {n: (random.random(shapes[n]) + 0.5).astype(dtype) for n in names if n != "X"}
    types = {p.name: p.type for p in made.inputs}
    constants = tuple(ConstantTensor(n, types[n], Contents(v.tobytes())) for n, v in values.items())
    return replace(made, inputs=tuple(p for p in made.inputs if p.name == "X"), ops=(*constants, *made.ops))


def folded(before: Program) -> Program:
    """The rewritten program, which agrees with the first one."""
    after = FoldScales().apply(before)
    (param,) = before.inputs
    x = np.random.default_rng(1).standard_normal(param.type.shape).astype(param.type.dtype.numpy)
    want, got = evaluate(before, {"X": x})["Y"], evaluate(after, {"X": x})["Y"]
    np.testing.assert_allclose(got, want, rtol=3e-5, atol=3e-5)
    to_stripe(after)
    return after


def behind(made: Program) -> list[str]:
    """What is done to the sums."""
    place = max(k for k, op in enumerate(made.ops) if isinstance(op, Contraction))
    return [op.fn for op in made.ops[place + 1 :] if isinstance(op, Elementwise)]


@pytest.mark.parametrize(
    ("tail", "left"),
    [
        ("Y = R * S;", []),
        ("Y = S * R;", []),
        ("Y = R / S;", []),
        ("Y = R * 3;", []),
        ("Y = (R - M) * (S / sqrt(V + 0.001)) + B;", ["add"]),
        ("Y = (R + M) / S - B;", ["add"]),
        ("T = R * S + B; Y = T > 0 ? T : 0;", ["add", "cmp_gt", "cond"]),
        ("Y = (B - R) * S;", ["sub", "mul"]),
        ("Y = R + B;", ["add"]),
        ("Y = (R + B) - M;", ["add", "sub"]),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_matrix_products(tail: str, left: list[str], dtype: Any) -> None:
    assert behind(folded(program(f"{MATMUL} {tail}", dtype=dtype))) == left


CONVOLUTIONS = {
    "channels last": (
        "R[n, y, x, o : 2, 4, 4, 6] = +(X[n, y + i - 1, x + j - 1, c] * W[o, c, i, j]);",
        {"X": (2, 4, 4, 3), "W": (6, 3, 3, 3), "S": (6,), "B": (6,)},
    ),
    "channels first": (
        "R[n, o, y, x : 2, 6, 4, 4] = +(X[n, c, y + i - 1, x + j - 1] * W[o, c, i, j]);",
        {"X": (2, 3, 4, 4), "W": (6, 3, 3, 3), "S": (6, 1, 1), "B": (1, 6, 1, 1)},
    ),
    "of each channel": (
        "R[n, c, y, x : 2, 3, 4, 4] = +(X[n, c, y + i - 1, x + j - 1] * W[c, i, j]);",
        {"X": (2, 3, 4, 4), "W": (3, 3, 3), "S": (3, 1, 1), "B": (3, 1, 1)},
    ),
}


@pytest.mark.parametrize("kind", CONVOLUTIONS)
def test_convolutions(kind: str) -> None:
    body, shapes = CONVOLUTIONS[kind]
    made = folded(program(f"{body} Y = R * S + B;", shapes))
    assert behind(made) == ["add"]
    packs = len(rewrite(made, (Prepack(least=0),)).ops) > len(made.ops)
    assert packs == (kind == "channels last"), "weights that took up a scale are packed all the same"


@pytest.mark.parametrize(
    "body",
    [
        f"{MATMUL} Y = R * S + R;",  # the sums are read twice
        f"{MATMUL} Y = R * X;",  # by what calls change
        "R[i, o : N, O] = >(X[i, k] * W[k, o]); Y = R * S;",
        "R[i, o : N, O] = +(X[i, k] + W[k, o]); Y = R * S;",
        "R[i, o : N, O] = +(W[k, o] * W[k, o]); Y = R * S + X;",  # nothing but constants: done once as it is
    ],
)
def test_what_is_left_alone(body: str) -> None:
    shapes = {**SHAPES, "X": (5, 5), "W": (5, 5)} if "X;" in body else SHAPES
    if shapes is not SHAPES:
        body = body.replace("N, O", "5, 5")
    before = program(body, shapes)
    assert FoldScales().apply(before) is before


def test_halves_and_scales_along_rows_are_left_alone() -> None:
    half = program(f"{MATMUL} Y = R * S;", dtype=np.float16)
    assert FoldScales().apply(half) is half
    rows = program("R[i, o : 3, 5] = +(X[i, k] * W[k, o]); Y = R * S;", {"X": (3, 4), "W": (4, 5), "S": (3, 1)})
    assert FoldScales().apply(rows) is rows


def test_only_where_it_is_allowed() -> None:
    from tile_ir.target import Target

    target = Target.preset("cpu")
    assert FoldScales() not in rewrites_for(target)
    allowed = [replace(target, options=o) for o in (Options(fold_scales=True), Options(fast_math=True))]
    assert all(FoldScales() in rewrites_for(t) for t in allowed)
