"""Contractions that add up products of two short factors: what these are, and what only scales the sum.

A factor is ``x - z``: an element of a tensor of 8-bit integers (or of int16), and what it is counted from. In a sum of floats a product
may also have scales, which do not move with the sum. Or it is a 16-bit float as it is. All of it is found through elementwise operations,
so that it does not matter how the program is cut into statements.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod

import numpy as np
from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import Contraction, Literal
from tile_ir.stripe.affine import Affine, intervals, names_in

from tile_opt.analysis import affine
from tile_opt.program.dots.known import Known
from tile_opt.program.trees import Call, Leaf, Tree, Trees, leaves

SMALL = (DType.INT8, DType.UINT8)
HALVES = (DType.BFLOAT16, DType.FLOAT16)
FACTORS = (*SMALL, DType.INT16, *HALVES)
"""Dtypes that words may hold."""
LARGEST_SCALE, MOST_SCALES = 2.0**24, 4
"""Scales within this factor of 1, and so many of them, can be multiplied in any order without overflow."""
INT_LIMIT = 1 << 31


@frozen
class Factor:
    """``x - zero``, each an expression over the contraction's indexes; `zero` is a number where it is known."""

    leaf: Leaf
    zero: Tree | int

    @property
    def names(self) -> frozenset[str]:
        return frozenset(names_in(self.leaf.forms))


@frozen
class Match:
    """A sum of products of two factors, both integers or both 16-bit floats, times scales."""

    op: Contraction
    ranges: Mapping[str, int]
    """Of every index."""
    factors: tuple[Factor, Factor]
    scales: tuple[Tree, ...]
    cuts: tuple[tuple[Affine, int], ...]
    """Constraints ``0 <= form < size`` that the ranges do not imply."""
    output: tuple[Affine, ...]

    @property
    def reduced(self) -> tuple[str, ...]:
        """The indexes that are summed over."""
        kept = names_in(self.output)
        return tuple(n for n in self.op.indexes if n not in kept)


@dataclass(slots=True)
class Matcher:
    """Finds matches in one program."""

    trees: Trees
    known: Known
    ranges: dict[str, int] = field(default_factory=dict[str, int])
    reduced: frozenset[str] = frozenset()

    def match(self, op: Contraction) -> Match | None:
        """What `op` adds up, if that is products of two small integers."""
        dtype = op.type.dtype
        if op.agg is not Aggregation.SUM or op.default is not None or 0 in op.type.shape:
            return None
        if op.acc not in (DType.INT32, DType.FLOAT32) or (dtype is not op.acc and dtype not in HALVES):
            return None
        ranges = _ranges(op)
        if ranges is None or not all(f.is_integral for f in (*op.output, *(f for x in op.loads for f in x.formulas))):
            return None
        output, accesses = tuple(map(affine, op.output)), [tuple(map(affine, x.formulas)) for x in op.loads]
        self.ranges = ranges
        self.reduced = frozenset(ranges) - names_in(output)
        tree = self.trees.summed(op, accesses)
        parts = list(_multiplied(tree))
        found = [(part, self._factor(part)) for part in parts]
        factors = [f for part, f in found if f is not None and set(_names(part)) & self.reduced]
        scales = tuple(part for part, f in found if f is None or not set(_names(part)) & self.reduced)
        cuts = _cuts(op, ranges)
        if len(factors) != 2 or cuts is None:
            return None
        match = Match(op, ranges, (factors[0], factors[1]), scales, cuts, output)
        kinds = {f.leaf.dtype.is_float for f in factors}
        if kinds == {True}:
            return match if not scales else None
        exact = kinds == {False} and dtype is op.acc and self._may_scale(scales, dtype) and self._fits(factors, dtype)
        return match if exact else None

    def _fits(self, factors: list[Factor], dtype: DType) -> bool:
        """Sums of integers wrap alike; the sum of floats must not leave what an int32 holds."""
        if dtype is DType.INT32:
            return True
        size = prod(self.ranges[n] for n in self.reduced)
        for factor in factors:
            low, high = _reach(factor.leaf.dtype)
            size *= max(-low, high) + (abs(factor.zero) if isinstance(factor.zero, int) else 255)
        return size < INT_LIMIT

    def _may_scale(self, scales: tuple[Tree, ...], dtype: DType) -> bool:
        """Known numbers that are neither infinite nor extreme, none of which moves with the sum."""
        if not scales:
            return True
        found = [leaf for s in scales for leaf in _ends(s)]
        still = all(not set(_names(s)) & self.reduced for s in scales)
        return dtype is DType.FLOAT32 and still and len(found) <= MOST_SCALES and all(map(self._is_moderate, found))

    def _is_moderate(self, end: Leaf | Literal) -> bool:
        value = self.known.value(end if isinstance(end, Literal) else end.tensor)
        if value is None or end.dtype is not DType.FLOAT32:
            return False
        size = np.abs(value.astype(np.float64))
        return bool(((size <= LARGEST_SCALE) & ((size >= 1 / LARGEST_SCALE) | (size == 0))).all())

    # --- factors ----------------------------------------------------------------------------------------

    def _factor(self, tree: Tree) -> Factor | None:
        """``x - z``, converted to a wider dtype on the way; None for others."""
        if isinstance(tree, Leaf):
            return Factor(tree, 0) if tree.dtype in FACTORS else None
        if not isinstance(tree, Call) or tree.dtype not in _WIDE:
            return None
        inner = self._factor(tree.args[0]) if tree.fn in ("cast", "sub", "add") else None
        if inner is not None and inner.leaf.dtype.is_float:
            return inner if tree.fn == "cast" and tree.dtype.is_float else None
        if tree.fn == "cast":
            return inner
        zero = self._zero(tree.args[1], -1 if tree.fn == "add" else 1) if inner is not None else None
        if inner is None or zero is None or inner.zero != 0 or not _holds(tree.dtype, inner.leaf.dtype, zero):
            return None
        return Factor(inner.leaf, zero)

    def _zero(self, tree: Tree, sign: int) -> Tree | int | None:
        """A whole number: known, or one that a run brings in an integer which does not move with the sum."""
        end = tree
        while isinstance(end, Call) and end.fn == "cast" and end.dtype in _WIDE:
            end = end.args[0]
        if isinstance(end, Call):
            return None
        number = self.known.number(end if isinstance(end, Literal) else end.tensor)
        if number is not None:
            return sign * int(number) if int(number) == number and abs(number) < 1 << 20 else None
        moves = set(_names(end)) & self.reduced
        return end if isinstance(end, Leaf) and end.dtype in SMALL and sign > 0 and not moves else None


def _reach(dtype: DType) -> tuple[int, int]:
    return int(dtype.min_value), int(dtype.max_value)


def _holds(wide: DType, dtype: DType, zero: Tree | int) -> bool:
    """Differences between a number of `dtype` and `zero` do not wrap in the dtype that they are computed in."""
    if wide.bits > DType.INT16.bits:
        return True
    least, most = (zero, zero) if isinstance(zero, int) else (int(DType.INT8.min_value), int(DType.UINT8.max_value))
    (low, high), (lowest, highest) = _reach(dtype), _reach(wide)
    return lowest <= low - most and high - least <= highest


_WIDE = (DType.INT16, DType.INT32, DType.INT64, DType.FLOAT32)
"""Dtypes that hold differences of 8-bit integers."""


def _multiplied(tree: Tree) -> Iterator[Tree]:
    """The factors of a product of products."""
    if isinstance(tree, Call) and tree.fn == "mul" and tree.dtype in (DType.INT32, DType.FLOAT32):
        for part in tree.args:
            yield from _multiplied(part)
    else:
        yield tree


def _ends(tree: Tree) -> Iterator[Leaf | Literal]:
    """The elements and numbers of products and quotients; what is none of them counts as a number nobody knows."""
    match tree:
        case Call(fn="mul" | "div", args=args):
            for a in args:
                yield from _ends(a)
        case Call():
            yield Literal(float("nan"), DType.FLOAT32)
        case _:
            yield tree


def _names(tree: Tree) -> Iterator[str]:
    return (n for leaf in leaves(tree) for f in leaf.forms for n in f.names)


def _ranges(op: Contraction) -> dict[str, int] | None:
    """The range of every index, which begins at 0, as constraints with one unknown index after the other bound it; None where they do not."""
    forms = [(affine(c.formula), c.size) for c in op.constraints if c.formula.is_integral]
    found: dict[str, int] = {}
    while len(found) < len(op.indexes):
        bounds = [b for form, size in forms if (b := _bound(form, size, found)) is not None]
        if not bounds:
            return None
        for name, size in bounds:
            found[name] = min(size, found.get(name, size))
    return found


def _bound(form: Affine, size: int, known: Mapping[str, int]) -> tuple[str, int] | None:
    """The index that ``0 <= form < size`` keeps between 0 and a limit, where it is the only one without a range."""
    unknown = [(n, c) for n, c in form.terms if n not in known]
    if len(unknown) != 1 or unknown[0][1] < 0:
        return None
    ((name, step),) = unknown
    low, high = (form - Affine.var(name, step)).bounds({n: (0, known[n] - 1) for n in form.names if n != name})
    return (name, (size - 1 - low) // step + 1) if -step < -high <= 0 else None


def _cuts(op: Contraction, ranges: Mapping[str, int]) -> tuple[tuple[Affine, int], ...] | None:
    """The constraints that the ranges do not imply; None where one is not whole."""
    limits = intervals(ranges)
    cuts: dict[tuple[Affine, int], None] = {}
    if not all(c.formula.is_integral for c in op.constraints):
        return None
    for c in op.constraints:
        form = affine(c.formula)
        low, high = form.bounds(limits)
        if low < 0 or high >= c.size:
            cuts[form, c.size] = None
    return tuple(cuts)
