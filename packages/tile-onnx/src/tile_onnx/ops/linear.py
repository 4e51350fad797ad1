"""Determinants."""

from __future__ import annotations

from math import prod

from tile_runtime.ops.text import cast, function, reshaped, wide
from tile_runtime.ops.values import Value, apply

from tile_onnx.node import Node
from tile_onnx.registry import operator

LARGEST = 12
"""Rows up to which elimination is written out; the host does larger matrices."""

_ELIMINATION = (
    "C{n}[b, i : {count}, {n}] = =(A{n}[b, i, 0]);",
    "S{n} = abs(C{n});",
    "M{n}[b, 0 : {count}, 1] = >(S{n}[b, i]);",
    "I{n} = index(S{n}, 1);",
    "K{n} = S{n} == M{n} ? I{n} : {n};",
    "P{n}[b, 0 : {count}, 1] = <(K{n}[b, i]);",
    "R{n}[b, 0, j : {count}, 1, {n}] = +(I{n}[b, i] == P{n}[b, 0] ? A{n}[b, i, j]);",
    "T{n}[b, 0, j : {count}, 1, {n}] = =(A{n}[b, 0, j]);",
    "B{n} = index(A{n}, 1) == reshape(P{n}, {count}, 1, 1) ? T{n} : A{n};",
    "V{n}[b, 0, 0 : {count}, 1, 1] = =(R{n}[b, 0, 0]);",
    "F{n}[b, i, 0 : {count}, {n}, 1] = =(B{n}[b, i, 0]);",
    "E{n} = B{n} - (V{n} == 0 ? 0 : F{n} / V{n}) * R{n};",
    "A{rest}[b, i, j : {count}, {rest}, {rest}] = =(E{n}[b, i + 1, j + 1]);",
    "G{n} = reshape(P{n}, {count}, 1, 1) == 0 ? V{n} : -V{n};",
)
"""Of matrices A of n rows: the pivot of the first column, G, signed by its row's exchange with the first, and A without both."""


@operator("Det", since=11)
def determinant(node: Node) -> Value:
    """By elimination, the largest of each column being its pivot."""
    *stack, rows, _ = node.shape(0)
    count = prod(stack)
    if not 0 < rows <= LARGEST or not count:
        raise node.on_host()
    statements = [f"A{rows} = {reshaped(wide('In', node.dtype(0)), (count, rows, rows))};"]
    for size in range(rows, 1, -1):
        statements += [s.format(n=size, rest=size - 1, count=count) for s in _ELIMINATION]
    pivots = " * ".join(["A1", *(f"G{size}" for size in range(2, rows + 1))])
    statements.append(f"Y = {reshaped(cast(f'({pivots})', node.dtype(0)), stack)};")
    return apply(function(("In",), ("Y",), *statements), node.value(0))
