"""Values of which a part is read are computed for that part alone, and what is read of them is the same."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import pytest
import tile_lang
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from program_samples import programs
from test_rewrite import same_results
from tile_ir.dtype import DType
from tile_ir.program.nodes import Contraction, Gather, Op, Poly, Program, Reshape, TensorType
from tile_opt.program import DropDead, PartsRead, ShareCommon, rewrite

EAGER = (ShareCommon(), DropDead(), PartsRead(share=1.0, least=0))
LAYER = """
function (X[T, D], W[D, H], V[H, O]) -> (R) {
    A[t, h : T, H] = +(X[t, d] * W[d, h]);
    S = A > 0 ? A : 0;
    M[t, 0 : T, 1] = >(S[t, h]);
    N = S / (M + 1);
    Y[t, o : T, O] = +(N[t, h] * V[h, o]);
    R[o : O] = =(Y[READ, o]);
}"""


def bound(text: str, **shapes: tuple[int, ...]) -> Program:
    types = {name: TensorType(DType.FLOAT32, shape) for name, shape in shapes.items()}
    return tile_lang.bind(tile_lang.parse(text), types)


def layer(read: str) -> Program:
    return bound(LAYER.replace("READ", read), X=(12, 5), W=(5, 7), V=(7, 3))


def shapes(program: Program) -> dict[str, tuple[int, ...]]:
    return {name: type.shape for name, type in program.types().items()}


@st.composite
def cropped(draw: st.DrawFn) -> Program:
    """A random program, of some of whose values boxes are its results."""
    program = draw(programs(most_ops=5))
    types = {name: t for name, t in program.types().items() if t.size}
    names = draw(st.lists(st.sampled_from(sorted(types, reverse=True)), min_size=1, max_size=2)) if types else []
    crops: list[Op] = []
    for k, name in enumerate(names):
        low = tuple(draw(st.integers(0, n - 1)) for n in types[name].shape)
        size = tuple(draw(st.integers(1, n - a)) for a, n in zip(low, types[name].shape, strict=True))
        at = tuple(Poly.of({f"i{d}": 1}, a) for d, a in enumerate(low))
        crops.append(Gather(f"crop{k}", TensorType(types[name].dtype, size), name, at))
    outputs = tuple((f"O{k}", f"crop{k}") for k in range(len(crops)))
    return replace(program, ops=(*program.ops, *crops), outputs=outputs or program.outputs)


@given(cropped())
@settings(max_examples=150, suppress_health_check=list(HealthCheck))
def test_what_is_read_stays_the_same(program: Program) -> None:
    same_results(program, rewrite(program, EAGER))


@pytest.mark.parametrize(("read", "rows"), [("T - 1", 1), ("0", 1), ("o + 2", 3), ("2 * o + 1", 5)])
def test_rows_that_nobody_reads_are_not_computed(read: str, rows: int) -> None:
    program = layer(read)
    after = PartsRead(least=0).apply(program)
    assert any("[11:12, 0:3] alone" in op.text for op in after.ops if isinstance(op, Contraction)) == (read == "T - 1")
    assert {name: shape[0] for name, shape in shapes(after).items() if name in "ASMNY"} == dict.fromkeys("ASMNY", rows)
    same_results(program, after)


def test_a_value_with_two_readers_is_computed_for_both() -> None:
    text = LAYER.replace("-> (R)", "-> (R, Q)").replace("READ", "1").replace("}", " Q[o : O] = =(Y[4, o]); }")
    program = bound(text, X=(12, 5), W=(5, 7), V=(7, 3))
    after = PartsRead(least=0).apply(program)
    assert shapes(after)["Y"] == (4, 3)
    same_results(program, after)


def test_borders_of_what_is_read_stay_borders() -> None:
    """Two windows, whose zeros beside the image a crop at its edge still meets."""
    text = """function (X[H, W], K[A, B]) -> (R) {
        Y[y, x : H, W] = +(X[y + a - 1, x + b - 1] * K[a, b]);
        Z[y, x : H, W] = +(Y[y + a - 1, x + b - 1] * K[a, b]);
        R[y, x : 3, 4] = =(Z[y, x + 5]);
    }"""
    program = bound(text, X=(16, 16), K=(3, 3))
    after = PartsRead(least=0).apply(program)
    assert [shapes(after)[name] for name in "YZ"] == [(4, 6), (3, 4)]
    same_results(program, after)


def test_results_and_what_is_read_as_a_whole_stay() -> None:
    whole = bound("function (A[N, M]) -> (B, C) { B[n, 0 : N, 1] = +(A[n, m]); C[] = =(B[3, 0]); }", A=(8, 9))
    assert PartsRead(least=0).apply(whole) is whole
    most = layer("o + 2")
    assert PartsRead(share=0.2, least=0).apply(most) is most
    little = layer("0")
    saved = sum(
        prod((12, 5, 7)) * 11 // 12
        if op.name == "A"
        else prod((12, 7)) * 11 // 12
        if op.name == "M"
        else 12 * 7 * 3 * 11 // 12
        for op in little.ops
        if isinstance(op, Contraction) and op.name in "AMY"
    )
    assert PartsRead(least=saved + 1).apply(little) is little
    assert PartsRead(least=saved).apply(little) is not little


def test_bytes_seen_as_words_are_seen_as_a_whole() -> None:
    seen = Reshape("words", TensorType(DType.INT32, (4, 2)), "A")
    crop = Gather("crop", TensorType(DType.INT32, (2, 2)), "words", (Poly.of({"i0": 1}, 1), Poly.of({"i1": 1})))
    program = bound("function (A[M, N]) -> (O) { O = A; }", A=(4, 8))
    inputs = tuple(replace(p, type=TensorType(DType.INT8, (4, 8))) for p in program.inputs)
    program = replace(program, inputs=inputs, ops=(seen, crop), outputs=(("O", "crop"),))
    assert shapes(rewrite(program, EAGER))["words"] == (4, 2)


def test_work_that_joins_its_reader_anyway_stays() -> None:
    """Elementwise work is done where it is read, as part of what reads it."""
    program = bound("function (A[N]) -> (R) { B = A * 2; C = exp(B); R[] = =(C[N - 1]); }", A=(1 << 16,))
    assert PartsRead().apply(program) is program
