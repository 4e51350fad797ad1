"""Contractions of several loops read their largest operand side by side: what lies across it is copied, the result turned."""

from __future__ import annotations

import numpy as np
import pytest
import tile_lang
from model_support import kernels, processor
from tile_ir.dtype import DType
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import Contraction, Program, TensorType
from tile_lang.evaluate import evaluate
from tile_opt.program import AlongLargest, rewrite

SIZES = {"a": 32, "b": 3, "c": 2, "d": 5, "e": 16}


def program(statement: str, **operands: str) -> Program:
    """A function of one statement, whose operands have the dimensions that letters name."""
    types = {n: TensorType(DType.FLOAT32, tuple(SIZES[x] for x in dims)) for n, dims in operands.items()}
    given = ", ".join(f"{n}[{', '.join(x.upper() for x in dims)}]" for n, dims in operands.items())
    return tile_lang.bind(tile_lang.parse(f"function ({given}) -> (O) {{ {statement} }}"), types)


def rewritten(before: Program) -> list[Contraction]:
    """What the rewrite makes of it, with the results it had."""
    after = rewrite(before, (AlongLargest(least=64),))
    rng = np.random.default_rng(0)
    inputs = {n: rng.random(t.shape).astype(np.float32) for n, t in before.types().items() if n != "O"}
    np.testing.assert_allclose(evaluate(after, inputs)["O"], evaluate(before, inputs)["O"], rtol=1e-5)
    return [op for op in after.ops if isinstance(op, Contraction)]


@pytest.mark.parametrize("sign", ["+", ">"])
def test_an_operand_that_lies_across_is_copied(sign: str) -> None:
    copy, product = rewritten(program(f"O[b, c : B, C] = {sign}(X[b, c, a] * Y[a, c]);", X="bca", Y="ac"))
    assert copy.agg is Aggregation.ASSIGN and copy.type.shape == (SIZES["c"], SIZES["a"])
    assert product.loads[1].tensor == copy.name


def test_short_rows_count_together_where_they_merge() -> None:
    copy, product = rewritten(program("O[c, d, b : C, D, B] = +(X[a, c, d, b] * Y[b, d, c]);", X="acdb", Y="bdc"))
    assert copy.type.shape == (SIZES["c"], SIZES["d"], SIZES["b"])
    assert product.loads[1].tensor == copy.name


def test_a_result_that_lies_across_is_turned_in_the_end() -> None:
    product, back = rewritten(program("O[a, d, b : A, D, B] = +(X[b, c, d, a] * Y[c]);", X="bcda", Y="c"))
    assert product.type.shape == (SIZES["b"], SIZES["d"], SIZES["a"])
    assert back.name == "O" and back.agg is Aggregation.ASSIGN


def test_long_results_that_nothing_lies_along_are_no_reason_to_read_across() -> None:
    copy, product = rewritten(program("O[a : A] = +(X[a, e, b] * Y[a, b, e]);", X="aeb", Y="abe"))
    assert copy.type.shape == (SIZES["a"], SIZES["b"], SIZES["e"])
    assert product.loads[0].tensor == copy.name


@pytest.mark.parametrize(
    ("statement", "operands"),
    [
        (
            "O[a : A] = +(X[e, b, a] * Y[a, b, e]);",
            {"X": "eba", "Y": "abe"},
        ),  # the result is long, and an operand lies along it
        ("O[b, a : B, A] = +(X[b, c, a] * Y[c, a]);", {"X": "bca", "Y": "ca"}),  # all side by side
        ("O[b, d : B, D] = +(X[b, a] * Y[a, d]);", {"X": "ba", "Y": "ad"}),  # each element is used often
        ("O[a, b : A, B] = +(X[b, c] * Y[c, a]);", {"X": "bc", "Y": "ca"}),  # what is turned is no smaller
        ("O[a, b : A, B] = +(X[b, a + i]), i < 3;", {"X": "ba"}),  # windows
        ("O[c, b : C, B] = +(X[a, c, d, b] * Y[b, d, c]);", {"X": "acdb", "Y": "bdc"}),  # rows of b alone: d is summed
    ],
)
def test_others_stay(statement: str, operands: dict[str, str]) -> None:
    before = program(statement, **operands)
    assert rewrite(before, (AlongLargest(least=64),)) is before


@pytest.mark.parametrize(
    ("rows", "copies"),
    [
        ("=(X[c, b, d, a])", 1),  # a has too few to fill vectors: side by side along d, which the copy makes so
        ("=(X[a, b, c, d])", 0),  # nothing is turned
    ],
)
def test_a_copy_that_turns_rows_is_made_where_a_sum_would_read_element_by_element(rows: str, copies: int) -> None:
    source = f"""function (X[P, Q, R, S], Y[A, B, C, D]) -> (O) {{
        T[a, b, c, d : A, B, C, D] = {rows};
        O[a : A] = +(T[a, b, c, d] * Y[a, b, c, d]);
    }}"""
    shape = (7, 168, 3, 32) if not copies else (3, 168, 32, 7)
    found = list(kernels(source, processor("zen4"), X=shape, Y=(7, 168, 3, 32)))
    assert len(found) == copies + 2  # the sum has two steps
