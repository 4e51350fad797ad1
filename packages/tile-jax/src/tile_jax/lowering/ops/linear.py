"""Products."""

from __future__ import annotations

from tile_runtime.ops.text import at, contraction, function, names
from tile_runtime.ops.values import apply

from tile_jax.lowering.registry import Op, Value, operation


@operation("stablehlo.dot_general")
def dot(op: Op) -> Value:
    """A contraction: batch axes first, then what is left of either side."""
    a, b = op.operands
    numbers: dict[str, list[int]] = op.attributes("dot_dimension_numbers")
    left, right = list(names(len(a.shape), "i")), list(names(len(b.shape), "j"))
    pairs = (("lhs_batching_dimensions", "rhs_batching_dimensions"), ("lhs_contracting_dimensions", "rhs_contracting_dimensions"))  # fmt: skip
    for ours, theirs in pairs:
        for mine, yours in zip(numbers[ours], numbers[theirs], strict=True):
            right[yours] = left[mine]
    shared = {left[k] for k in numbers["lhs_contracting_dimensions"]}
    batch = [left[k] for k in numbers["lhs_batching_dimensions"]]
    free = [n for n in (*left, *right) if n not in shared and n not in batch]
    statement = contraction("C", op.type.shape, (*batch, *free), "+", f"{at('A', left)} * {at('B', right)}")
    return apply(function(("A", "B"), ("C",), statement), a, b)
