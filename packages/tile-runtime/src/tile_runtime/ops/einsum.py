"""Einsum: one sum of products; the compiler finds which pairs come first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tile_runtime.ops.text import Names, Shape, aligned, at, contraction, function, names
from tile_runtime.ops.values import Value, apply


def einsum(equation: str, *values: Value) -> Value:
    """As `np.einsum`, with an ellipsis or without an arrow, too; ValueError where the equation does not fit."""
    shapes = [tuple(v.shape) for v in values]
    inputs, output = parsed(equation, shapes)
    sizes, tensors = _sizes(inputs, shapes), names(len(shapes), "A")
    # What has one element broadcasts.
    factors = [at(t, aligned(s, i)) for t, s, i in zip(tensors, shapes, inputs, strict=True)]
    statement = contraction("Y", [sizes[index] for index in output], output, "+", " * ".join(factors))
    return apply(function(tensors, ("Y",), statement), *values)


def parsed(equation: str, shapes: Sequence[Shape]) -> tuple[list[Names], Names]:
    """Index names of every operand, and of the result; ValueError where the equation does not fit the shapes."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    texts = left.split(",")
    if len(texts) != len(shapes):
        raise ValueError(f"the equation {equation!r} has {len(texts)} operands; {len(shapes)} are given")
    inputs = [_indexes(text, len(shape)) for text, shape in zip(texts, shapes, strict=True)]
    dots = max((tuple(i for i in term if i[0] == "e") for term in inputs), key=len, default=())
    if arrow:
        output = _indexes(right, len(right.replace("...", "")) + len(dots))
        _check_output(equation, inputs, output)
        return inputs, output
    letters = left.replace(",", "").replace(".", "")
    return inputs, (*dots, *(_name(c) for c in sorted(set(letters)) if letters.count(c) == 1))


def _check_output(equation: str, inputs: Sequence[Names], output: Names) -> None:
    """ValueError for an index of the result that no operand has, or that is there twice."""
    if not {*output} <= {index for term in inputs for index in term}:
        raise ValueError(f"the result of the equation {equation!r} has an index that no operand has")
    if len(set(output)) < len(output):
        raise ValueError(f"the result of the equation {equation!r} has an index twice")


def _name(letter: str) -> str:
    return f"{'i' if letter.islower() else 'u'}{ord(letter.lower()) - ord('a')}"


def _indexes(text: str, rank: int) -> Names:
    before, dots, after = text.partition("...")
    hidden, letters = rank - len(before) - len(after), before + after
    if (letters and not letters.isalpha()) or hidden < 0 or (hidden and not dots):
        raise ValueError(f"the term {text!r} of the equation does not fit a tensor of {rank} dimensions")
    return (*map(_name, before), *(f"e{hidden - k - 1}" for k in range(hidden)), *map(_name, after))


def _sizes(inputs: Sequence[Names], shapes: Sequence[Shape]) -> dict[str, int]:
    found: dict[str, Shape] = {}
    for indexes, shape in zip(inputs, shapes, strict=True):
        for index, size in zip(indexes, shape, strict=True):
            found[index] = np.broadcast_shapes(found.get(index, (1,)), (size,))
    return {index: size for index, (size,) in found.items()}
