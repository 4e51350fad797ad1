"""Attention as ONNX and JAX have it is one kernel on graphics processors: one operator, whose heads may share keys, or written out."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import tile_opt
from hal_opencl.families import family_target
from tile_ir.kernels import BufferKind
from tile_ir.matrix import WGMMA
from tile_ir.target import Options, Target

onnx = pytest.importorskip("onnx")
tile_onnx = pytest.importorskip("tile_onnx")

HEADS, LENGTH, CELLS = 4, 256, 64
WRITTEN_OUT = (
    "T = Transpose<perm = [0, 1, 3, 2]>(K) P = MatMul(Q, T) X = Div(P, C) W = Softmax<axis = -1>(X) Y = MatMul(W, V)"
)


def target() -> Target:
    """A graphics processor whose sub-groups multiply in teams, for a user who allows that."""
    base = family_target("gpu-nvidia").resolved(cores=132)
    nodes, names = base.nodes | {"MatrixLoad", "Mma", "TeamMma"}, tuple(i.name for i in WGMMA)
    return replace(base, nodes=nodes, matrix=names, options=Options(reduced_precision=True))


@pytest.mark.parametrize(
    ("groups", "body"),
    [
        (4, "Y = Attention<is_causal = 1>(Q, K, V)"),
        (2, "Y = Attention<is_causal = 1>(Q, K, V)"),
        (2, "Y = Attention(Q, K, V, M)"),
        (4, WRITTEN_OUT),
    ],
    ids=["causal", "heads that share keys", "heads that share keys, masked", "written out"],
)
def test_attention_is_one_kernel(groups: int, body: str) -> None:
    shape = f"float16[1, {{}}, {LENGTH}, {CELLS}]"
    inputs = ", ".join(f"{shape.format(heads)} {name}" for name, heads in (("Q", HEADS), ("K", groups), ("V", groups)))
    more = f", float16[1, {HEADS}, {LENGTH}, {LENGTH}] M" if "M)" in body else ", float16 C" if "C)" in body else ""
    text = f'<ir_version: 10, opset_import: ["": 23]> g ({inputs}{more}) => ({shape.format(HEADS)} Y) {{ {body} }}'
    compiled = tile_opt.compile(tile_onnx.load(onnx.parser.parse_model(text)).function().program, target())
    assert len(compiled.kernels.kernels) == 1


def known_mask(jax: Any, q: Any, k: Any, v: Any) -> Any:
    """Scores where a triangle of ones is, as many write it."""
    scores = jax.numpy.einsum("bqhd,bkhd->bhqk", q, k) / 8
    seen = jax.numpy.tril(jax.numpy.ones(scores.shape[-2:], bool))
    weights = jax.nn.softmax(jax.numpy.where(seen, scores, -1e4))
    return jax.numpy.einsum("bhqk,bkhd->bqhd", weights, v)


@pytest.mark.parametrize(
    ("groups", "settings"),
    [(4, None), (2, {"is_causal": True}), (4, {"is_causal": True, "local_window_size": (64, 0)})],
    ids=["written out", "heads that share keys", "window"],
)
def test_masks_of_jax_are_part_of_the_kernel(groups: int, settings: dict[str, Any] | None) -> None:
    """They are known before a run: the largest score must not be found with another mask than the weights have."""
    jax: Any = pytest.importorskip("jax")
    explaining: Any = pytest.importorskip("tile_jax.explaining")
    attention = partial(known_mask, jax) if settings is None else partial(jax.nn.dot_product_attention, **settings)
    query, key = (jax.ShapeDtypeStruct((1, LENGTH, n, CELLS), "bfloat16") for n in (HEADS, groups))
    (step,) = explaining.lower(attention, query, key, key).steps
    buffers = tile_opt.compile(step.function.program, target()).kernels.buffers
    assert all(b.bytes < LENGTH * LENGTH for b in buffers if b.kind is BufferKind.TEMP), "nobody stores scores"
