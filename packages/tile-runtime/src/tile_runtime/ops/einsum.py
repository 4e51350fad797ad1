"""Einsum: operands are multiplied pair by pair, each index summed as soon as nothing after needs it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tile_ir.frozen import frozen

from tile_runtime.ops.text import Names, Shape, aligned, at, contraction, function, names
from tile_runtime.ops.values import Value, apply


@frozen
class Term:
    """A tensor of the text, and the index of each of its dimensions."""

    tensor: str
    indexes: Names
    shape: Shape

    def at(self) -> str:
        """The tensor at its indexes; at 0 where it has one element, which broadcasts."""
        return at(self.tensor, aligned(self.shape, self.indexes))


def einsum(equation: str, *values: Value) -> Value:
    """As `np.einsum`, with an ellipsis or without an arrow, too; ValueError where the equation does not fit."""
    shapes = [tuple(v.shape) for v in values]
    tensors = names(len(shapes), "A")
    inputs, output = parsed(equation, shapes)
    statements = _statements([Term(*t) for t in zip(tensors, inputs, shapes, strict=True)], output)
    return apply(function(tensors, ("Y",), *statements), *values)


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


def _statements(terms: Sequence[Term], output: Names) -> list[str]:
    """Contractions that leave the result in ``Y``."""
    sums = _Sums(_sizes(terms), [])
    first, *others = terms
    for k, other in enumerate(others):
        needed = {*output, *(index for later in others[k + 1 :] for index in later.indexes)}
        first = sums.alone(first, needed | {*other.indexes}, f"L{k}")
        other = sums.alone(other, needed | {*first.indexes}, f"R{k}")
        if k < len(others) - 1:
            kept = tuple(dict.fromkeys(i for i in first.indexes + other.indexes if i in needed))
            first = sums.add(f"P{k}", kept, first, other)
        else:
            sums.add("Y", output, first, other)
    if not others:
        sums.add("Y", output, first)
    return sums.statements


def _sizes(terms: Sequence[Term]) -> dict[str, int]:
    found: dict[str, Shape] = {}
    for term in terms:
        for index, size in zip(term.indexes, term.shape, strict=True):
            found[index] = np.broadcast_shapes(found.get(index, (1,)), (size,))
    return {index: size for index, (size,) in found.items()}


@frozen
class _Sums:
    """The sizes of indexes, and the statements so far."""

    sizes: dict[str, int]
    statements: list[str]

    def add(self, target: str, kept: Names, *factors: Term) -> Term:
        """The product of one or two terms, summed over all indexes that are not kept."""
        shape = tuple(self.sizes[index] for index in kept)
        self.statements.append(contraction(target, shape, kept, "+", " * ".join(f.at() for f in factors)))
        return Term(target, kept, shape)

    def alone(self, term: Term, needed: set[str], target: str) -> Term:
        """The term, summed over what only it has."""
        kept = tuple(dict.fromkeys(index for index in term.indexes if index in needed))
        return self.add(target, kept, term) if set(term.indexes) - needed else term
