"""Hypothesis strategies for random Tile programs with their input types.

`contractions` draws one contraction over everything the language has (strides, offsets, flips, fractional and
coupled formulas, constraints, empty domains, every aggregation and body, every dtype, one tensor twice), with
optional elementwise code before and after it; `elementwise` draws expressions over broadcast shapes. Sizes are
small, zero and one included. All draws are legal programs: a backend or compiler must accept them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction

from hypothesis import strategies as st
from tile_ir.dtype import DType, promote
from tile_ir.frozen import frozen
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import Poly, TensorType

from tile_hal.conformance.expressions import elementwise_statements

SIZES = (1, 2, 3, 4, 5, 7)
"""Ranges that index variables are meant to have: one, powers of two, primes."""
WIDE_SIZES = (16, 17, 31, 33, 65)
"""Ranges beyond a vector register or a register tile, with remainders: one variable in some programs."""
LARGEST = 14
"""Largest size of a dimension, or twice the largest range."""


class Data(Enum):
    """What the inputs hold, which decides how results are compared."""

    EXACT = "exact"
    """Whole numbers so small that every order of summation is exact (integers: any value)."""
    SPECIAL = "special"
    """As EXACT, with NaN, infinities and extremes among the values."""
    SIGNS = "signs"
    """-1, 0 and 1: products of any number of them are exact."""
    REAL = "real"
    """Normal random numbers; sums and products are compared within the tolerance table."""


@frozen
class Case:
    """A program in text, the types of its inputs, and how to fill and compare."""

    source: str
    inputs: dict[str, TensorType]
    data: Data
    seed: int
    agg: Aggregation | None = None
    """The aggregation of the only contraction, for REAL data."""

    def __str__(self) -> str:
        types = ", ".join(f"{n}: {t}" for n, t in self.inputs.items())
        return f"{self.source}\n// {types}; {self.data.value} data, seed {self.seed}"

    __repr__ = __str__


@frozen
class Formula:
    """An index formula: its text and its meaning."""

    text: str
    poly: Poly


@dataclass(slots=True)
class _Draft:
    """A contraction while it is being drawn."""

    ranges: dict[str, int]
    witness: dict[str, int]
    """A tuple that is valid unless a dimension is empty or a contradiction is drawn: empty domains are rare."""
    inputs: dict[str, TensorType] = field(default_factory=dict[str, TensorType])
    accesses: dict[str, list[Formula]] = field(default_factory=dict[str, list[Formula]])
    """Formulas by access, ``A`` (or ``A2`` for the second access of the same tensor)."""
    constraints: list[tuple[Formula, int]] = field(default_factory=list[tuple[Formula, int]])
    output: list[Formula] = field(default_factory=list[Formula])
    sizes: list[int] = field(default_factory=list[int])

    @property
    def largest(self) -> int:
        return max(LARGEST, *(2 * size for size in self.ranges.values())) if self.ranges else LARGEST

    def formulas(self) -> list[Formula]:
        used = [f for formulas in self.accesses.values() for f in formulas]
        return [*used, *self.output, *(f for f, _ in self.constraints)]


# --- formulas ----------------------------------------------------------------------------------------


def _rarely(draw: st.DrawFn, times: int) -> bool:
    """True about once in so many times; shrinks to False."""
    return draw(st.integers(0, times - 1)) == times - 1


def _plain(name: str) -> Formula:
    return Formula(name, Poly.of({name: 1}))


_SHAPES = (*["plain"] * 6, *["shift", "stride", "flip", "sum"] * 2, "difference", "half", "half sum", "constant")


def formula(draw: st.DrawFn, draft: _Draft) -> Formula:
    """An index formula over the draft's variables, most often a single one; a natural number at the witness."""
    names = sorted(draft.ranges)
    shape = draw(st.sampled_from(_SHAPES if names else ("constant",)))
    a = draw(st.sampled_from(names)) if names else ""
    b = draw(st.sampled_from(names)) if names else ""
    c = draw(st.sampled_from((0, 0, 1, -1, 2, -2, 3)))
    k = draw(st.integers(2, 3))
    text, linear, divisor = {
        "constant": ("", {}, 1),
        "plain": (a, {a: 1}, 1),
        "shift": (a, {a: 1}, 1),
        "stride": (f"{k}*{a}", {a: k}, 1),
        "flip": (f"-{a}", {a: -1}, 1),
        "sum": (f"{a} + {k - 1}*{b}", {a: 1, b: k - 1}, 1),
        "difference": (f"{k - 1}*{a} - {b}", {a: k - 1, b: -1}, 1),
        "half": (a, {a: 1}, k),
        "half sum": (f"{a} + {b}", {a: 1, b: 1}, k),
    }[shape]
    if a == b and len(linear) == 1 and shape in ("sum", "difference", "half sum"):
        text, linear = a, {a: 1}
    c = 0 if shape == "plain" else abs(c) if shape == "constant" else c
    form = Poly.of(linear)
    value = int(form.evaluate(draft.witness)) + c
    c += -value % divisor if value >= 0 else -value
    return _spell(text, form, c, divisor)


def _spell(text: str, form: Poly, const: int, divisor: int) -> Formula:
    if text.startswith("-"):
        text = f"{const} - {text[1:]}" if const >= 0 else f"{text} - {-const}"
    elif text and const:
        text = f"{text} {'+' if const > 0 else '-'} {abs(const)}"
    poly = (form + Poly.of({}, const)).scaled(Fraction(1, divisor))
    return Formula(text or str(const), poly) if divisor == 1 else Formula(f"({text})/{divisor}", poly)


def _span(formula: Formula, ranges: dict[str, int]) -> tuple[int, int]:
    """Smallest and largest integer value over the intended ranges."""
    low = high = formula.poly.const
    for name, c in formula.poly.terms:
        reach = c * (ranges[name] - 1)
        low, high = low + min(reach, 0), high + max(reach, 0)
    return -(-low.numerator // low.denominator), high.numerator // high.denominator


_DELTAS: tuple[int | None, ...] = (*[0] * 30, *[1] * 4, 2, 2, *[-1] * 4, None)
"""What a dimension's size differs by from what its formula reaches; None is an empty dimension."""


def _size(draw: st.DrawFn, form: Formula, draft: _Draft) -> int:
    """A dimension that mostly just fits the formula, sometimes cuts it or is too large, rarely is empty."""
    delta = draw(st.sampled_from(_DELTAS))
    wanted = 0 if delta is None else min(draft.largest, _span(form, draft.ranges)[1] + 1 + delta)
    return 0 if delta is None else max(wanted, int(form.poly.evaluate(draft.witness)) + 1)


def _rank(polys: Sequence[Poly], names: Sequence[str]) -> int:
    """Linearly independent forms among `polys`, constants aside."""
    rows = [[p.coefficient(n) for n in names] for p in polys]
    rank = 0
    for column in range(len(names)):
        pivot = next((r for r in rows[rank:] if r[column]), None)
        if pivot is None:
            continue
        rows.remove(pivot)
        rows.insert(rank, pivot)
        for other in rows[rank + 1 :]:
            factor = other[column] / pivot[column]
            other[:] = [x - factor * y for x, y in zip(other, pivot, strict=True)]
        rank += 1
    return rank


# --- contractions ------------------------------------------------------------------------------------

_BODIES = {
    "one": "{0}",
    "product": "{0} * {1}",
    "sum": "{0} + {1}",
    "equal": "{0} == {1}",
    "select": "{0} == {1} ? {2}",
}


@st.composite
def contractions(draw: st.DrawFn, dtypes: Sequence[DType]) -> Case:
    """A random contraction, perhaps with elementwise code and a second contraction around it."""
    count = draw(st.sampled_from((1, 2, 3, 2, 3, 4, 0)))
    ranges = {name: draw(st.sampled_from(SIZES)) for name in "ijkl"[:count]}
    if ranges and _rarely(draw, 4):
        ranges = {name: min(size, 3) for name, size in ranges.items()}
        ranges[draw(st.sampled_from(sorted(ranges)))] = draw(st.sampled_from(WIDE_SIZES))
    draft = _Draft(ranges, {name: draw(st.integers(0, size - 1)) for name, size in ranges.items()})
    agg = draw(st.sampled_from([*Aggregation, Aggregation.SUM, Aggregation.SUM]))
    body = draw(st.sampled_from(sorted(_BODIES)))
    types = _dtypes(draw, dtypes)
    references = [_access(draw, draft, n, types) for n in range({"one": 1, "select": 3}.get(body, 2))]
    _output(draw, draft, agg)
    _constraints(draw, draft)
    data = _data(draw, agg, body, draft)
    element = _element(body, [draft.inputs[r.partition("[")[0]].dtype for r in references])
    shape = tuple(draft.sizes)
    default = ""
    if _rarely(draw, 8):
        draft.inputs["Z"] = TensorType(element, shape)
        default = " default Z"
    target = ", ".join(f.text for f in draft.output)
    sizes = ", ".join(map(str, draft.sizes))
    limits = "".join(f", {f.text} < {bound}" for f, bound in draft.constraints)
    contraction = f"O[{target} : {sizes}]" if draft.output else "O[]"
    statements = [f"{contraction} = {agg.symbol}({_BODIES[body].format(*references)}){limits}{default};"]
    results = ["O"]
    if data in (Data.EXACT, Data.SPECIAL) and draw(st.booleans()):
        statements, results = _surround(draw, statements, draft.inputs, element, shape)
    return _case(draft.inputs, statements, results, data, draw(st.integers(0, 1 << 20)), agg)


def _case(
    inputs: dict[str, TensorType], statements: Sequence[str], results: Sequence[str], data: Data, seed: int,
    agg: Aggregation | None,
) -> Case:  # fmt: skip
    header = ", ".join(f"{n}[{', '.join(f'{n}{d}' for d in range(len(t.shape)))}]" for n, t in inputs.items())
    text = "\n".join(f"    {s}" for s in statements)
    return Case(f"function ({header}) -> ({', '.join(results)}) {{\n{text}\n}}", dict(inputs), data, seed, agg)


def _dtypes(draw: st.DrawFn, dtypes: Sequence[DType]) -> list[DType]:
    """Three operand dtypes: mostly one for all."""
    first = draw(st.sampled_from([*dtypes, *(d for d in dtypes if d.is_float)]))
    mixed = _rarely(draw, 5)
    return [first, *(draw(st.sampled_from(dtypes)) if mixed else first for _ in range(2))]


def _access(draw: st.DrawFn, draft: _Draft, number: int, types: Sequence[DType]) -> str:
    """Text of operand `number`: a new tensor, or the first one again with other formulas."""
    if number and draft.inputs["A"].shape and _rarely(draw, 4):
        rank = len(draft.inputs["A"].shape)
        drawn = [formula(draw, draft) for _ in range(rank)]
        draft.accesses[f"A{number}"] = drawn
        draft.inputs["A"] = _grown(draft.inputs["A"], [int(f.poly.evaluate(draft.witness)) for f in drawn])
        return f"A[{', '.join(f.text for f in drawn)}]"
    name = "ABC"[number]
    drawn = [formula(draw, draft) for _ in range(draw(st.sampled_from((1, 2, 3, 2, 0))))]
    draft.accesses[name] = drawn
    shape = tuple(_size(draw, f, draft) for f in drawn)
    draft.inputs[name] = TensorType(types[number], shape)
    return f"{name}[{', '.join(f.text for f in drawn)}]"


def _grown(type_: TensorType, needed: Sequence[int]) -> TensorType:
    """The type with dimensions that reach the needed coordinates; empty ones stay empty."""
    return TensorType(type_.dtype, tuple(n and max(n, c + 1) for n, c in zip(type_.shape, needed, strict=True)))


def _output(draw: st.DrawFn, draft: _Draft, agg: Aggregation) -> None:
    """Output formulas and sizes; for ``=`` every variable is one of them, so that no cell is written twice."""
    names = sorted(draft.ranges)
    if agg is Aggregation.ASSIGN:
        order = draw(st.permutations(names))
        simple = [st.sampled_from([_plain(n), Formula(f"2*{n}", Poly.of({n: 2})), Formula(f"{n} + 1", Poly.of({n: 1}, 1))])
                  for n in order]  # fmt: skip
        draft.output = [draw(s) for s in simple]
    else:
        outer = draw(st.lists(st.sampled_from(names), unique=True, max_size=3)) if names else []
        draft.output = [formula(draw, draft) if _rarely(draw, 4) else _plain(n) for n in outer]
    draft.sizes = [_size(draw, f, draft) for f in draft.output]


def _constraints(draw: st.DrawFn, draft: _Draft) -> None:
    """Some constraints, a contradiction now and then, and what it takes to bound every variable."""
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2])) if draft.ranges else 0):
        form = formula(draw, draft)
        low = int(form.poly.evaluate(draft.witness)) + 1
        draft.constraints.append((form, draw(st.integers(low, max(low, _span(form, draft.ranges)[1] + 1)))))
    names = sorted(draft.ranges)
    if names and _rarely(draw, 20):
        draft.constraints.append((Formula(f"{names[0]} + 50", Poly.of({names[0]: 1}, 50)), 10))
    for name in names:
        forms = [f.poly for f in draft.formulas()]
        rank = _rank(forms, names)
        if rank == len(names):
            break
        if _rank([*forms, Poly.of({name: 1})], names) > rank:
            draft.constraints.append((_plain(name), draft.ranges[name]))


def _data(draw: st.DrawFn, agg: Aggregation, body: str, draft: _Draft) -> Data:
    floats = any(t.dtype.is_float for t in draft.inputs.values())
    if not floats:
        return draw(st.sampled_from([Data.EXACT, Data.SPECIAL]))
    if agg is Aggregation.PROD:
        # Sums of two signs would make twos; a comparison makes nothing but 0, 1 and operands.
        return draw(st.sampled_from([Data.SIGNS, Data.REAL])) if body == "one" else Data.SIGNS
    all_floats = all(t.dtype.is_float for t in draft.inputs.values())
    if agg is Aggregation.SUM and body in ("one", "product", "sum") and all_floats:
        return draw(st.sampled_from([Data.REAL, Data.EXACT, Data.REAL, Data.SPECIAL]))
    return draw(st.sampled_from([Data.EXACT, Data.SPECIAL]))


def _element(body: str, operands: Sequence[DType]) -> DType:
    if body == "equal":
        return DType.BOOL
    element = operands[0]
    for other in operands[1:]:
        element = promote(element, other)
    return element


def _surround(
    draw: st.DrawFn, contraction: list[str], inputs: dict[str, TensorType], element: DType, shape: tuple[int, ...]
) -> tuple[list[str], list[str]]:
    """Elementwise code after the contraction, and perhaps a reduction of its result that is combined with it."""
    statements, results = list(contraction), ["R"]
    if element is DType.BOOL:
        statements.append("R = O ? 3 : 4;")
        return statements, results
    other = ""
    if shape and draw(st.booleans()):
        keep = draw(st.integers(0, len(shape)))
        inputs["E"] = TensorType(element, shape[len(shape) - keep :])
        other = "E"
    statements += elementwise_statements(draw, "O", element, other)
    if shape and draw(st.booleans()):
        index = ", ".join(f"x{d}" for d in range(len(shape)))
        last = len(shape) - 1
        target = ", ".join("0" if d == last else f"x{d}" for d in range(len(shape)))
        sizes = ", ".join("1" if d == last else str(n) for d, n in enumerate(shape))
        agg = draw(st.sampled_from([">", "<"]))
        statements += [f"M[{target} : {sizes}] = {agg}(R[{index}]);", "Q = R - M;"]
        results = draw(st.sampled_from([["Q"], ["R", "Q"], ["M", "Q"]]))
    return statements, results


# --- elementwise programs ------------------------------------------------------------------------------


@st.composite
def elementwise(draw: st.DrawFn, dtypes: Sequence[DType]) -> Case:
    """Expressions of exact operations over tensors that broadcast together."""
    element = draw(st.sampled_from([d for d in dtypes if d is not DType.BOOL]))
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 5, 8, 17, 33, 0]), max_size=3)))
    inputs: dict[str, TensorType] = {"A": TensorType(element, shape)}
    for name in "BC"[: draw(st.integers(0, 2))]:
        keep = draw(st.integers(0, len(shape)))
        part = tuple(1 if _rarely(draw, 4) else n for n in shape[len(shape) - keep :])
        inputs[name] = TensorType(element, part)
    names = list(inputs)
    statements: list[str] = []
    for number in range(draw(st.integers(1, 4))):
        first, second = draw(st.sampled_from(names)), draw(st.sampled_from(names))
        result = f"T{number}"
        body = elementwise_statements(draw, first, element, second, result)
        statements += body
        names.append(result)
    last = names[-1]
    data = draw(st.sampled_from([Data.REAL, Data.SPECIAL]) if element.is_float else st.just(Data.SPECIAL))
    # No reassociation and no contraction of a product and a sum: real data must agree bit by bit too.
    return _case(inputs, statements, [last], data, draw(st.integers(0, 1 << 20)), None)
