"""Chains of transpositions become one, or none."""

from __future__ import annotations

import numpy as np
import pytest
import tile_lang
from hypothesis import given
from hypothesis import strategies as st
from tile_ir.dtype import DType
from tile_ir.program.nodes import Contraction, Program, TensorType
from tile_lang.evaluate import evaluate
from tile_opt.program import ComposePermutations, DropDead, rewrite

INPUT = {"X": TensorType(DType.FLOAT32, (2, 3, 4))}


def bound(*statements: str, output: str = "Y") -> Program:
    return tile_lang.bind(tile_lang.parse(f"function (X) -> ({output}) {{ {' '.join(statements)} }}"), INPUT)


def composed(program: Program) -> Program:
    return rewrite(program, (ComposePermutations(), DropDead()))


@given(st.lists(st.permutations(range(3)), min_size=1, max_size=4))
def test_a_chain_is_one_copy_at_most(orders: list[list[int]]) -> None:
    shape, source, statements = (2, 3, 4), "X", list[str]()
    for k, order in enumerate(orders):
        sizes = [shape[d] for d in order]
        statements.append(f"T{k}[{', '.join(f'i{d}' for d in order)} : {', '.join(map(str, sizes))}] = =({source}[i0, i1, i2]);")  # fmt: skip
        shape, source = tuple(sizes), f"T{k}"
    program = bound(*statements, output=source)
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    found, wanted = evaluate(composed(program), {"X": x}), evaluate(program, {"X": x})
    assert np.array_equal(found[source], wanted[source])
    assert len(composed(program).ops) == (0 if np.array_equal(wanted[source].shape, x.shape) else 1)
    assert all(isinstance(op, Contraction) and op.loads[0].tensor == "X" for op in composed(program).ops)


@pytest.mark.parametrize(
    "statement",
    [
        "Y[j, i, k : 3, 2, 4] = =(T[i, j, k]), i < 1;",
        "Y[j, i, k : 3, 2, 5] = =(T[i, j, k]);",
        "Y[j, i, k : 3, 2, 4] = +(T[i, j, k]);",
        "Y[j, i, k : 3, 2, 2] = =(T[i, j, 2*k]);",
        "Y[j, i, k : 3, 2, 4] = =(T[1 - i, j, k]);",
    ],
)
def test_what_is_no_whole_copy_stays(statement: str) -> None:
    program = bound("S[j, i, k : 3, 2, 4] = =(X[i, j, k]);", "T[i, j, k : 2, 3, 4] = =(S[j, i, k]);", statement)
    x = {"X": np.arange(24, dtype=np.float32).reshape(2, 3, 4)}
    after = composed(program)
    assert np.array_equal(evaluate(after, x)["Y"], evaluate(program, x)["Y"])
    assert [op.name for op in after.ops] == ["Y"]
