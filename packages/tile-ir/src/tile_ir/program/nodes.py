"""Program: a bound, typed Tile function as a list of operations in SSA form.

Every name is defined once, by an input, or by one operation, before its uses. All shapes and dtypes are
known; literals carry the dtype they took; casts are explicit. A contraction stores its domain explicitly
(indexes, and a range constraint for every subscript of every tensor named in the text, then the user's),
so that rewriting its body never changes which index tuples are valid.

Nodes are equal when they mean the same bits: where they stand in a text (`origin`) does not count.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from tile_ir.contents import Contents
from tile_ir.diagnostics import Span
from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.ops import Aggregation

_ZERO = Fraction(0)
_WHOLE = {number: Fraction(number) for number in range(-64, 257)} | {0: _ZERO}
"""Of each small number one fraction: forms are compared more often than made, and what is the same object is equal at once."""


def _fraction(number: Fraction | int) -> Fraction:
    if number.denominator != 1:
        return Fraction(number)
    return _WHOLE.get(number.numerator) or Fraction(number)


@frozen
class Poly:
    """An affine form of index variables with rational coefficients; terms sorted by name, never zero."""

    terms: tuple[tuple[str, Fraction], ...] = ()
    const: Fraction = _ZERO

    @staticmethod
    def of(terms: Mapping[str, Fraction | int], const: Fraction | int = 0) -> Poly:
        items = tuple(sorted([(n, _fraction(c)) for n, c in terms.items() if c]))
        return Poly(items, _fraction(const))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(n for n, _ in self.terms)

    @property
    def index(self) -> str | None:
        """The index variable that the form is, with nothing beside it; None for other forms."""
        return self.terms[0][0] if len(self.terms) == 1 and self.terms[0][1] == 1 and not self.const else None

    @property
    def is_integral(self) -> bool:
        """All coefficients and the constant are integers."""
        return self.const.denominator == 1 and all(c.denominator == 1 for _, c in self.terms)

    def coefficient(self, name: str) -> Fraction:
        return next((c for n, c in self.terms if n == name), _ZERO)

    def __add__(self, other: Poly) -> Poly:
        total = dict(self.terms)
        for name, c in other.terms:
            total[name] = total.get(name, _ZERO) + c
        return Poly.of(total, self.const + other.const)

    def scaled(self, factor: Fraction | int) -> Poly:
        return Poly.of({n: c * factor for n, c in self.terms}, self.const * factor)

    def evaluate(self, values: Mapping[str, int]) -> Fraction:
        return self.const + sum((c * values[n] for n, c in self.terms), _ZERO)

    def __str__(self) -> str:
        """Constant first, then variables in name order: ``-1 + i + 2*x``."""
        parts = [(c, n) for n, c in self.terms]
        if self.const or not parts:
            parts.insert(0, (self.const, ""))
        text = ""
        for c, name in parts:
            size = abs(c)
            body = str(size) if not name else name if size == 1 else f"{size}*{name}"
            sign = (" - " if c < 0 else " + ") if text else ("-" if c < 0 else "")
            text += sign + body
        return text


@frozen
class TensorType:
    """Element type and shape of a value."""

    dtype: DType
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.dtype.bytes

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True, eq=False)
class Literal:
    """A scalar constant operand with the dtype it took from its neighbours.

    Equal by what is written: not-a-number equals itself, and 0.0, -0.0, 0 and False are four constants.
    """

    value: int | float | bool
    dtype: DType

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and self.dtype is other.dtype and self._written() == other._written()

    def __hash__(self) -> int:
        return hash((self._written(), self.dtype))

    def _written(self) -> str:
        return repr(self.value)


Operand = str | Literal


@frozen
class Constraint:
    """``0 <= formula < size``, formula integral (a user's fractional constraint is scaled to whole numbers)."""

    formula: Poly
    size: int
    origin: Span | None = field(default=None, compare=False)


@frozen
class TensorLoad:
    """``$dst = tensor[formulas]`` inside a contraction body; `tensor` may be a Literal (rank 0)."""

    dst: str
    tensor: Operand
    formulas: tuple[Poly, ...]


@frozen
class ScalarStatement:
    """``$dst = fn($args…)`` with result `dtype`; args are names of this body or literals."""

    dst: str
    fn: str
    args: tuple[Operand, ...]
    dtype: DType


@frozen
class Contraction:
    """``name[output : type.shape] = agg(body)`` over all valid tuples of `indexes`.

    A tuple of integers is valid when every constraint holds. Cells without a valid tuple hold the
    `default` tensor's value, or 0. `result` names the body value that is aggregated (already of
    `acc` dtype unless the body's dtype equals it); the result is cast from `acc` to `type.dtype` once.
    """

    name: str
    type: TensorType
    agg: Aggregation
    indexes: tuple[str, ...]
    output: tuple[Poly, ...]
    constraints: tuple[Constraint, ...]
    loads: tuple[TensorLoad, ...]
    body: tuple[ScalarStatement, ...]
    result: Operand
    acc: DType
    default: str | None = None
    no_defract: bool = False
    text: str = ""
    """The Tile statement, for comments and error messages."""
    origin: Span | None = field(default=None, compare=False)


@frozen
class Elementwise:
    """``name = fn(args…)`` for every element, with NumPy broadcasting of operand shapes to `type.shape`.

    `fn` is a scalar operation of `tile_ir.ops.OPS` or one of relu, sigmoid, stop_gradient, reverse_grad
    (kept whole because their derivatives are their own). `params` holds what is not an operand.
    """

    name: str
    type: TensorType
    fn: str
    args: tuple[Operand, ...]
    params: tuple[int | float, ...] = ()
    origin: Span | None = field(default=None, compare=False)


@frozen
class IndexOf:
    """``name = index(like, axis)``: each element is its own coordinate on `axis` (int32)."""

    name: str
    type: TensorType
    axis: int
    origin: Span | None = field(default=None, compare=False)


@frozen
class Reshape:
    """The same elements in C order under another shape.

    With another dtype, which inputs and constants may get alone, the same bytes: wider elements are made of neighbours, of
    which the first has the lowest bits.
    """

    name: str
    type: TensorType
    arg: str
    origin: Span | None = field(default=None, compare=False)


@frozen
class Lookup:
    """A subscript that is data: the integer ``tensor[formulas…]``, clamped into its dimension."""

    tensor: str
    formulas: tuple[Poly, ...]


Subscript = Poly | Lookup
"""Of a gather or scatter: a formula of the coordinates ``i0, i1, …`` of a cell, whole and in range, or data."""


def coordinates(rank: int) -> tuple[Poly, ...]:
    """The subscripts ``i0, i1, …`` of a cell itself."""
    return tuple(Poly.of({f"i{k}": 1}) for k in range(rank))


@frozen
class Gather:
    """``name[i0, i1, …] = data[subscripts…]`` for every cell; zeros when `data` has no cells."""

    name: str
    type: TensorType
    data: str
    subscripts: tuple[Subscript, ...]
    origin: Span | None = field(default=None, compare=False)


@frozen
class Scatter:
    """``name[subscripts…] = agg(updates[i0, i1, …])`` over all cells of `updates`, in row-major order.

    Of several values that ``=`` gives one cell the last one stays. Cells that nothing falls on hold the `default`
    tensor's value, or 0. Sums and products accumulate in the dtype's accumulator and round once.
    """

    name: str
    type: TensorType
    updates: str
    subscripts: tuple[Subscript, ...]
    agg: Aggregation = Aggregation.SUM
    default: str | None = None
    origin: Span | None = field(default=None, compare=False)

    @property
    def acc(self) -> DType:
        """The dtype of partial results."""
        dtype = self.type.dtype
        return dtype.accumulator if self.agg in (Aggregation.SUM, Aggregation.PROD) else dtype


def lookups(subscripts: tuple[Subscript, ...]) -> tuple[str, ...]:
    """The tensors that subscripts read."""
    return tuple(s.tensor for s in subscripts if isinstance(s, Lookup))


@frozen
class Argsort:
    """``name[…, k, …]`` is the place, along `axis`, of the element of `arg` that comes k-th in order (int32).

    The type says how many come first: all of them, or fewer. Equal elements keep the order they have. NaN counts as larger than every number; 0.0 and -0.0 are equal.
    """

    name: str
    type: TensorType
    arg: str
    axis: int
    descending: bool = False
    origin: Span | None = field(default=None, compare=False)


@frozen
class Prng:
    """One draw of the three-component Tausworthe generator: `value` uniform float32, `state` uint32 [3, 2048].

    Defines two names; either may be unused.
    """

    value: str
    state: str
    type: TensorType
    seed: str
    origin: Span | None = field(default=None, compare=False)


@frozen
class ConstantTensor:
    """A tensor whose elements are known."""

    name: str
    type: TensorType
    contents: Contents
    origin: Span | None = field(default=None, compare=False)

    @property
    def data(self) -> memoryview:
        """Its bytes, little-endian in C order."""
        return self.contents.view


@frozen
class Loop:
    """`count` rounds of `body`, each of which starts from what the last one carried.

    The inputs of `body` stand, in order, for `carries` (their values before the first round), one row of each of
    `slices` (cut along axis 0, which is `count` long) and `captured` (the same in all rounds); its outputs are what is
    carried on, and one row of each stacked result. `results` names the values carried out of the last round (those
    before the first, when `count` is 0), then the stacks, of `count` rows. With `reverse` the last row comes first, in
    the slices and in the stacks.
    """

    results: tuple[str, ...]
    types: tuple[TensorType, ...]
    body: Program
    count: int
    carries: tuple[str, ...]
    slices: tuple[str, ...] = ()
    captured: tuple[str, ...] = ()
    reverse: bool = False
    checkpoint: int = 0
    """For gradients: the values carried are saved every so many rounds, and computed again between; 0: in each round."""
    origin: Span | None = field(default=None, compare=False)


PlainOp = Contraction | Elementwise | IndexOf | Reshape | Gather | Scatter | Argsort | Prng | ConstantTensor
"""What is no loop: all that a function written in Tile consists of."""
Op = PlainOp | Loop


def results_of(op: Op) -> tuple[tuple[str, TensorType], ...]:
    """Names that an operation defines, and their types."""
    match op:
        case Prng():
            return ((op.value, op.type), (op.state, TensorType(DType.UINT32, (3, 2048))))
        case Loop():
            return tuple(zip(op.results, op.types, strict=True))
        case _:
            return ((op.name, op.type),)


def reinterprets_bits(op: Op) -> bool:
    """The operation needs a semtree node that no other nodes express: a device may lack it."""
    if isinstance(op, Loop):
        return any(map(reinterprets_bits, op.body.ops))
    return isinstance(op, Elementwise) and op.fn == "bitcast"


@frozen
class Param:
    """A program input."""

    name: str
    type: TensorType
    bound: bool = False
    """It holds the same from run to run until somebody writes to it: what depends on it alone is worth keeping."""


@frozen
class CustomGradient:
    """A derivative given by hand: instead of differentiating what computes `outputs` from `inputs`, run `backward`.

    Both name values of the program that holds this; an output is the result of an operation. The inputs of `backward`
    stand, in order, for `inputs`, `outputs` and one cotangent per output; its outputs are, in order, the derivatives
    of `inputs` (the last of which may be left out: they then have none).
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    backward: Program


@frozen
class Program:
    """Inputs, operations in order, and the names that are outputs (in header order).

    `outputs` are (public name, value name) pairs: a value may be an input, and two outputs one value.
    `gradients` matter to `tile_autodiff` only; what a program computes does not depend on them.
    """

    name: str
    inputs: tuple[Param, ...]
    ops: tuple[Op, ...]
    outputs: tuple[tuple[str, str], ...]
    gradients: tuple[CustomGradient, ...] = ()

    def types(self) -> dict[str, TensorType]:
        """Type of every name."""
        table = {p.name: p.type for p in self.inputs}
        for op in self.ops:
            table.update(results_of(op))
        return table
