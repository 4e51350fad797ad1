"""Random contractions and random programs, as Tile source with the types of its inputs."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st
from tile_ir.dtype import DType
from tile_ir.program.nodes import TensorType

INDEXES = ("i", "j", "k")
SIZES = st.sampled_from([0, 1, 2, 3, 4, 5])
DTYPES = st.sampled_from(
    [DType.FLOAT32, DType.INT32, DType.INT8, DType.UINT8, DType.FLOAT64, DType.BOOL, DType.FLOAT16]
)


@dataclass(frozen=True, slots=True)
class Sample:
    """A function's source and its inputs' types."""

    source: str
    types: dict[str, TensorType]


@st.composite
def formulas(draw: st.DrawFn) -> str:
    """An index formula: one or two indexes, stride, flip, fraction, offset."""
    terms = []
    for name in draw(st.lists(st.sampled_from(INDEXES), min_size=1, max_size=2, unique=True)):
        factor = draw(st.sampled_from(["", "", "", "2 * ", "-", "3"]))
        terms.append(f"{factor}{name}")
    text = " + ".join(terms)
    text = draw(st.sampled_from([text, text, text, f"({text}) / 2"]))
    offset = draw(st.sampled_from(["", "", " + 1", " - 1", " - 2"]))
    return text + offset


@st.composite
def contractions(draw: st.DrawFn) -> Sample:
    """One contraction whose indexes are all bounded (``i < n`` is added for each)."""
    dtype = draw(DTYPES)
    refs, types = [], {}
    count = draw(st.integers(1, 3))
    for name in "ABC"[:count]:
        forms = draw(st.lists(formulas(), max_size=2))
        types[name] = TensorType(dtype, tuple(draw(SIZES) for _ in forms))
        refs.append(f"{name}[{', '.join(forms)}]")
    if draw(st.booleans()) and count == 2:
        refs[1], types["A"] = refs[1].replace("B", "A"), types["B"]
        refs[0] = refs[1]
        types = {"A": types["A"]}
    comb = draw(st.sampled_from([" * ", " + ", " == "]))
    body = comb.join(refs[:2]) if count < 3 else f"{refs[0]} == {refs[1]} ? {refs[2]}"
    if count == 3 and draw(st.booleans()):
        body = draw(st.sampled_from([" * ", " * ", " + "])).join(refs)
    forms = draw(st.lists(formulas(), max_size=2))
    target = f"O[{', '.join(forms)} : {', '.join(str(draw(SIZES)) for _ in forms)}]" if forms else "O[]"
    bounds = [f"{n} + {draw(st.integers(-1, 2))} < {draw(st.integers(1, 5))}".replace("+ -", "- ") for n in INDEXES]
    extra = draw(st.sampled_from(["", ", i - j < 3", ", i + 2 * k < 6", ", j / 2 < 2"]))
    agg = draw(st.sampled_from("+*><"))
    flag = draw(st.sampled_from(["", " no_defract"]))
    statement = f"{target} = {agg}({body}), {', '.join(bounds)}{extra}{flag};"
    return Sample(f"function ({', '.join(types)}) -> (O) {{ {statement} }}", types)


_EXPRESSIONS = (
    "{a} + {b}",
    "{a} * {b}",
    "{a} - 1",
    "{a} / {b}",
    "max({a}, {b})",
    "{a} < {b} ? {a} : {b}",
    "{a} == 3",
    "exp({a})",
    "relu({a})",
    "sigmoid({a})",
    "erf({a})",
    "softplus({a})",
    "round_even({a})",
    "sign({a})",
    "atan2({a}, {b})",
    "mod({a}, {b})",
    "fmod({a}, 3)",
    "where(isnan({a}), {b}, -inf)",
    "as_bfloat({a}, 16)",
    "bits_as_int({a})",
    "as_int({a}, 16)",
    "as_float({a}, 32)",
    "abs(-{a})",
    "index({a}, 0)",
    "reshape({a}, 3, 2)",
    "reverse_grad({a}, 0.5)",
    "shape({a})",
    "gather({a}, index({b}, 1))",
    "scatter({a}, I, {b})",
    "0.1",
    "7",
)


@st.composite
def programs(draw: st.DrawFn) -> Sample:
    """A few elementwise statements over [2, 3] tensors and vectors; may fail to bind."""
    types = {"A": TensorType(draw(DTYPES), (2, 3)), "B": TensorType(draw(DTYPES), (2, 3))}
    types["I"] = TensorType(DType.INT32, (2,))
    names, lines = ["A", "B"], []
    for k in range(draw(st.integers(1, 5))):
        text = draw(st.sampled_from(_EXPRESSIONS))
        picked = {key: draw(st.sampled_from(names)) for key in "ab"}
        lines.append(f"V{k} = {text.format(**picked)};")
        names.append(f"V{k}")
    outputs = ", ".join(draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True)))
    return Sample(f"function (A, B, I) -> ({outputs}) {{ {' '.join(lines)} }}", types)
