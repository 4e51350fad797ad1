"""Products of stacks get an index for each dimension of which a front end made one batch."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
import tile_lang
from hypothesis import given, settings
from hypothesis import strategies as st
from tile_ir.dtype import DType
from tile_ir.program.nodes import Program, Reshape, TensorType
from tile_lang.evaluate import evaluate
from tile_opt.program import SplitBatches, rewrite

SIDES = {"A": (3, 5), "B": (5, 4)}


def bound(parts: tuple[int, ...], flat: str, *statements: str, outputs: str = "Y") -> Program:
    """Of stacks A and B, those in `flat` of one batch dimension that a reshape has made."""
    shapes = {n: (*parts, *side) for n, side in SIDES.items()}
    before = [f"{n}2 = reshape({n}, {prod(parts)}, {', '.join(map(str, SIDES[n]))});" for n in flat]
    names = {n: f"{n}2" if n in flat else n for n in SIDES}
    body = " ".join([*before, *(s.format(**names, N=prod(parts)) for s in statements)])
    types = {n: TensorType(DType.FLOAT32, shape) for n, shape in shapes.items() if n in flat}
    types |= {n: TensorType(DType.FLOAT32, (prod(parts), *SIDES[n])) for n in SIDES if n not in flat}
    return tile_lang.bind(tile_lang.parse(f"function (A, B) -> ({outputs}) {{ {body} }}"), types)


def rewritten(program: Program) -> Program:
    """The program without the reshapes behind products, which has the same results."""
    random = np.random.default_rng(0)
    inputs = {p.name: random.normal(0, 1, p.type.shape).astype(np.float32) for p in program.inputs}
    after = rewrite(program, (SplitBatches(),))
    want, got = evaluate(program, inputs), evaluate(after, inputs)
    for name, value in want.items():
        np.testing.assert_allclose(got[name], value, 1e-5, 1e-5)
    return after


def reshapes(program: Program) -> list[str]:
    return [op.name for op in program.ops if isinstance(op, Reshape)]


PRODUCT = "C[n, i, j : {N}, 3, 4] = +({A}[n, i, k] * {B}[n, k, j]);"


@settings(max_examples=12)
@given(st.lists(st.integers(1, 3), min_size=2, max_size=3), st.sampled_from(["A", "B", "AB", ""]))
def test_the_reshape_behind_a_product_is_its_shape(parts: list[int], flat: str) -> None:
    after = rewritten(bound(tuple(parts), flat, PRODUCT, f"Y = reshape(C, {', '.join(map(str, parts))}, 3, 4);"))
    product = next(op for op in after.ops if op.name == "Y")
    assert not isinstance(product, Reshape)
    read = {load.tensor for load in product.loads}  # pyright: ignore[reportAttributeAccessIssue, reportUnknownVariableType, reportUnknownMemberType]
    assert read == {"A", "B"}, "what reshapes put together is read as it was"


LEFT = {
    "somebody wants the stack": ((PRODUCT, "Y = reshape(C, 2, 3, 3, 4); Z = C * 2;"), "Y, Z"),
    "rows are split": ((PRODUCT, "Y = reshape(C, 6, 3, 2, 2);"), "Y"),
    "other sizes": ((PRODUCT, "Y = reshape(C, 3, 6, 4);"), "Y"),
    "part of the stack": ((PRODUCT.replace(");", "), n < 5;"), "Y = reshape(C, 2, 3, 3, 4);"), "Y"),
    "moved": ((PRODUCT.replace("[n, k, j]", "[5 - n, k, j]"), "Y = reshape(C, 2, 3, 3, 4);"), "Y"),
}


@pytest.mark.parametrize("name", LEFT)
def test_other_reshapes_stay(name: str) -> None:
    statements, outputs = LEFT[name]
    after = rewritten(bound((2, 3), "AB", *statements, outputs=outputs))
    assert "Y" in reshapes(after)


@pytest.mark.parametrize(("flat", "stays"), [("AB", False), ("B", True)])
def test_a_factor_of_all_matrices_needs_no_batch_if_the_other_can_be_taken_apart(flat: str, stays: bool) -> None:
    shared = PRODUCT.replace("[n, k, j]", "[0, k, j]")
    after = rewritten(bound((2, 3), flat, shared, "Y = reshape(C, 2, 3, 3, 4);"))
    assert ("Y" in reshapes(after)) is stays
