"""How much blocks of operations compute, roughly, from what their text says."""

from __future__ import annotations

from collections.abc import Mapping
from math import isqrt, prod
from typing import Any

from tile_jax.lowering.mlir import Block, Operation
from tile_jax.lowering.tensors import is_tensor

EACH = 16
"""Of an operation beside its cells, in sums of two numbers: loops begin and end, scalars wait for one another."""
LOOPED = 32
"""Rounds that are taken for those of a loop inside."""
_WEIGHTS = {
    **dict.fromkeys(["exponential", "log", "logistic", "sine", "cosine", "tan", "tanh", "power", "cbrt", "atan2",
                     "exponential_minus_one", "log_plus_one", "divide", "remainder"], 8),
    **dict.fromkeys(["sort", "cholesky", "triangular_solve", "custom_call", "fft", "composite"], 64),
}  # fmt: skip
"""Of a cell, where it is more than a sum of two numbers."""
_CALLED = ("callee", "decomposition")
_READS_ALL = ("reduce", "reduce_window", "sort", "select_and_scatter")
_PRODUCTS = ("dot_general", "convolution")


def work(block: Block, functions: Mapping[str, Operation]) -> int:
    """Sums of two numbers that a block may take as long as, with the `functions` that it calls."""
    return sum(_work(op.operation, functions) for op in block.operations)


def _work(operation: Operation, functions: Mapping[str, Operation]) -> int:
    name = operation.name.partition(".")[2]
    blocks = [block for region in operation.regions for block in region.blocks]
    blocks += [functions[f].regions[0].blocks[0] for f in _called(operation)]
    inside = sum(work(block, functions) for block in blocks)
    return EACH + _WEIGHTS.get(name, 1) * _cells(name, operation) + inside * (LOOPED if name == "while" else 1)


def _called(operation: Operation) -> list[str]:
    return [operation.attributes[a].value for a in _CALLED if a in operation.attributes]


def _cells(name: str, operation: Operation) -> int:
    """Of the results, of what is read to the last cell, or of what is multiplied."""
    results, operands = _sizes(operation.results), _sizes(operation.operands)
    if name in _PRODUCTS:
        return isqrt(prod((*results, *operands)))  # of rows by columns this is the number of products
    return sum(results) + (sum(operands) if name in _READS_ALL else 0)


def _sizes(values: Any) -> list[int]:
    return [prod(v.type.shape) for v in values if is_tensor(v.type)]
