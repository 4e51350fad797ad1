"""Products of groups of rows, each group with a matrix of its own: layers of experts.

Rows lie group behind group; ``ends[g]`` (integers, ascending) is where group g ends. Rows behind the last end belong
to no group: what would be their products is zero.
"""

from __future__ import annotations

import numpy as np

from tile_runtime.ops.text import contraction, function, reshaped
from tile_runtime.ops.values import Value, apply


def groups(ends: Value, rows: int) -> Value:
    """The group of each row, int32 of [rows]; the number of groups for rows of none."""
    ended = f"B = as_int({reshaped('E', (1, ends.shape[0]))} <= {reshaped('I', (rows, 1))}, 32);"
    count = contraction("G", (rows,), ("i",), "+", "B[i, g]")
    return apply(function("EI", "G", ended, count), ends, np.arange(rows, dtype=np.int32))


def rows_with_own(rows: Value, matrices: Value, ends: Value) -> Value:
    """``[M, K] × [G, K, N] → [M, N]``: each row times the matrix of its group."""
    height, count = rows.shape[0], matrices.shape[0]
    product = contraction("P", (height, matrices.shape[2]), ("m", "n"), "+", "A[m, k] * W[G[m], k, n]")
    masked = f"Y = {reshaped('G', (height, 1))} < {count} ? P : 0;"
    return apply(function("AWG", "Y", product, masked), rows, matrices, groups(ends, height))


def sums_of_own(left: Value, right: Value, ends: Value) -> Value:
    """``[M, K] × [M, N] → [G, K, N]``: the products of rows, added up over each group."""
    (height, width), count = left.shape, ends.shape[0]
    own = f"B = {reshaped('G', (height, 1))} < {count} ? A : 0;"
    sizes = (count, width, right.shape[1])
    total = contraction("Y", sizes, ("G[m]", "k", "n"), "+", "B[m, k] * C[m, n]")
    return apply(function("ACG", "Y", own, total), left, right, groups(ends, height))
