"""Copies in pieces of copies in pieces are made once, from where the first ones come, and are one kernel of a graphics processor."""

from __future__ import annotations

import numpy as np
import pytest
from explain_support import GPU
from model_support import processor
from tile_ir.dtype import DType
from tile_ir.program.nodes import Contraction, Program, TensorType
from tile_ir.stripe.interpret import run
from tile_lang import bind, parse
from tile_lang.evaluate import evaluate
from tile_opt.blocks.tree import kernels_of
from tile_opt.pipeline import optimize
from tile_opt.program import ComposePieces, rewrite, rewrites_for
from tile_opt.translate import to_stripe

FRAMES = {
    "reflect": "O[y, x : H + 6, W + 4] = =(A[reflect(y - 3), reflect(x - 2)]);",
    "a cell": "O[y, x : H + 2, W + 2] = =(A[reflect(y - 1), symmetric(x - 1)]);",
    "around": "O[y, x : H, W] = =(A[wrap(y - 3), wrap(x + 2)]);",
    "one side": "O[y, x : H + 2, W] = =(A[clamp(y - 2), wrap(x + 1)]);",
}
READ_TWICE = "P[y, x : H + 2, W] = =(A[reflect(y - 1), x]); O[y, x : H + 2, W + 2] = =(P[y, wrap(x - 1)]); Q = P * 2;"
GAPS = "P[2 + y, x : H + 3, W] = =(A[y, x]); O[y, x : H + 3, W + 2] = =(P[y, wrap(x - 1)]);"


def bound(text: str, outputs: str = "O") -> Program:
    source = f"function (A[H, W]) -> ({outputs}) {{ {text} }}"
    return bind(parse(source), {"A": TensorType(DType.FLOAT32, (20, 18))})


def sources(program: Program) -> set[object]:
    return {load.tensor for op in program.ops if isinstance(op, Contraction) for load in op.loads}


def values() -> dict[str, np.ndarray]:
    found = np.random.default_rng(0).standard_normal((20, 18)).astype(np.float32)
    found[0, :3] = np.nan, -0.0, np.inf
    return {"A": found}


@pytest.mark.parametrize("text", FRAMES.values(), ids=FRAMES)
def test_what_frames_frame_is_read_where_it_comes_from(text: str) -> None:
    program = bound(text)
    after = rewrite(program, (ComposePieces(),))
    assert sources(after) == {"A"}
    for got in (evaluate(after, values()), run(to_stripe(after), values())):
        assert got["O"].tobytes() == evaluate(program, values())["O"].tobytes()


@pytest.mark.parametrize(("text", "outputs"), [(READ_TWICE, "O, Q"), (GAPS, "O")], ids=["read twice", "gaps"])
def test_other_copies_stay(text: str, outputs: str) -> None:
    """Of what others read, too, and of what has zeros between its pieces."""
    assert "P" in sources(ComposePieces().apply(bound(text, outputs)))


def test_copies_of_too_many_pieces_are_made_one_after_the_other() -> None:
    assert sources(ComposePieces(most=8).apply(bound(FRAMES["reflect"]))) != {"A"}


@pytest.mark.parametrize("text", FRAMES.values(), ids=FRAMES)
def test_a_frame_is_one_kernel(text: str) -> None:
    """Single rows and columns go over all others, and what is read backwards is read side by side."""
    program = bound(text)
    stripe = to_stripe(rewrite(program, rewrites_for(GPU)), GPU)
    scheduled = optimize(stripe, GPU)
    assert len(kernels_of(scheduled)) == 1
    assert run(scheduled, values())["O"].tobytes() == evaluate(program, values())["O"].tobytes()


@pytest.mark.parametrize("text", FRAMES.values(), ids=FRAMES)
def test_a_processor_stores_nothing_between_frames(text: str) -> None:
    assert sources(rewrite(bound(text), rewrites_for(processor("zen4")))) == {"A"}
