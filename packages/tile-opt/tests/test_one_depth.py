"""Products that go through several loops of a sum in different orders have one depth, on a copy of a factor."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tile_lang
from tensor_support import BUSY
from tile_ir.dtype import DType
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import Contraction, Program, TensorType
from tile_ir.stripe.nodes import Block
from tile_lang.evaluate import evaluate
from tile_opt.passes.base import kernels_of
from tile_opt.pipeline import schedule
from tile_opt.program import OneDepth, rewrite
from tile_opt.translate import to_stripe

SIZES = {"m": 12, "n": 10, "x": 2, "a": 3, "b": 4, "c": 5}
FLOATS = DType.FLOAT32, DType.FLOAT64


def program(statement: str, dtype: DType, sizes: dict[str, int], **operands: str) -> Program:
    """A function of one statement, whose operands have the dimensions that letters name."""
    types = {n: TensorType(dtype, tuple(sizes[x] for x in dims)) for n, dims in operands.items()}
    given = ", ".join(f"{n}[{', '.join(x.upper() for x in dims)}]" for n, dims in operands.items())
    return tile_lang.bind(tile_lang.parse(f"function ({given}) -> (O) {{ {statement} }}"), types)


def product(
    left: str, right: str, dtype: DType = DType.FLOAT32, result: str = "mn", sizes: dict[str, int] = SIZES
) -> Program:
    subscripts = ", ".join(result), ", ".join(result.upper()), ", ".join(left), ", ".join(right)
    text = "O[{} : {}] = +(X[{}] * Y[{}]);".format(*subscripts)
    return program(text, dtype, sizes, X=left, Y=right)


def rewritten(before: Program, deep: int = 20, uses: int = 10) -> list[Contraction]:
    """What the rewrite makes of it, with the results it had."""
    after = rewrite(before, (OneDepth(frozenset(FLOATS), uses=uses, deep=deep),))
    rng = np.random.default_rng(0)
    inputs = {n: rng.random(t.shape).astype(t.dtype.numpy) for n, t in before.types().items() if n != "O"}
    np.testing.assert_allclose(evaluate(after, inputs)["O"], evaluate(before, inputs)["O"], rtol=1e-5)
    return [op for op in after.ops if isinstance(op, Contraction)]


@pytest.mark.parametrize(
    ("left", "right", "dtype", "shape", "result"),
    [
        ("mabc", "canb", DType.FLOAT32, "nabc", "mn"),
        ("mabc", "cabn", DType.FLOAT32, "nabc", "mn"),
        ("mabc", "cabn", DType.FLOAT64, "abcn", "mn"),
        ("mbca", "canb", DType.FLOAT64, "nbca", "mn"),
        ("xmabc", "xcban", DType.FLOAT64, "xabcn", "xmn"),
    ],
)
def test_the_smaller_factor_is_copied_in_the_order_of_the_other(
    left: str, right: str, dtype: DType, shape: str, result: str
) -> None:
    """In front of rows that lie so, too, but for factors of TF32, which instructions read along the depth."""
    copy, summed = rewritten(product(left, right, dtype, result))
    assert copy.agg is Aggregation.ASSIGN and copy.type.shape == tuple(SIZES[n] for n in shape)
    assert summed.loads[1].tensor == copy.name


def test_the_larger_factor_is_copied_where_the_smaller_one_alone_is_in_order() -> None:
    copy, summed = rewritten(product("ambc", "abcn"), deep=21)
    assert copy.type.shape == tuple(SIZES[n] for n in "mabc") and summed.loads[0].tensor == copy.name


@pytest.mark.parametrize(
    ("left", "right", "deep", "uses"),
    [
        ("mabc", "abcn", 20, 10),
        ("mabc", "cabn", 12, 10),
        ("mabc", "cabn", 61, 10),
        ("mabc", "cabn", 20, 13),
        ("ambc", "cnab", 20, 10),
    ],
    ids=["one order", "two loops are deep", "all are few", "read seldom", "apart in both"],
)
def test_what_is_left_alone(left: str, right: str, deep: int, uses: int) -> None:
    assert len(rewritten(product(left, right), deep, uses)) == 1


def test_the_copy_does_not_move_back_into_the_product() -> None:
    """Tiles copy either way around, but not loops that are many then."""
    sizes = {"m": 256, "n": 128, "a": 8, "b": 10, "c": 12}
    front = tuple(replace(p, options={**p.options, "turns": True}) if p.name == "inline" else p for p in BUSY.passes)
    before = product("mabc", "acbn", DType.BFLOAT16, "mn", sizes)
    after = rewrite(before, (OneDepth(frozenset({DType.BFLOAT16})),))
    first, *_ = kernels_of(schedule(to_stripe(after), replace(BUSY, passes=front)).program)
    assert isinstance(first, Block) and {r.into for r in first.refs} >= {"Y", "Y_deep"}
