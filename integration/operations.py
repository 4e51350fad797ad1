"""The page of all scalar operations: ``python integration/operations.py`` writes docs/operations.md.

What an operation means stands in words here; which dtypes it has, how exact it is and every value that the page shows come from the
tables that define it (`tile_ir.ops`, `tile_ir.numerics`, the conformance suite's tolerances, semtree's nodes).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tile_hal.conformance.tolerance import ulp_bound
from tile_ir import numerics
from tile_ir.dots import DOTS
from tile_ir.dtype import DType, Kind
from tile_ir.ops import OPS, ScalarOp, Signature
from tile_ir.semtree import nodes, scalars
from tile_ir.semtree.verify import CORE_NODES, LISTED_FUNCTIONS, OPTIONAL_NODES

PAGE = Path(__file__).parents[1] / "docs" / "operations.md"
KINDS = {Kind.BOOL: "bool", Kind.SIGNED: "int8 … int64", Kind.UNSIGNED: "uint8 … uint64", Kind.FLOAT: "floats"}
HEAD = """\
# Operations, exactly

Every scalar operation on every kind of dtype, with the one meaning that it has on each device, in each kernel, vector lane and
remainder. `tile_ir.numerics.apply(name, operands, dtype)` is the executable definition, `tile_ir.emit.c99_prelude` the same as C text,
and levels 3 and 4 of the conformance suite check it. [language.md](language.md) says how programs come to these operations.

This page is written by `python integration/operations.py`; the values in it are computed by the definition.

## In general

- Operands of an operation have one dtype, the result's, except: comparisons give bool; a selection has a bool in front; the count of a shift may
  have any integer dtype, whatever the dtype of what is shifted; casts. Emitters never promote.
- Integers wrap. Nothing is undefined, and nothing depends on the host: every operand has a result.
- Floats round to nearest, ties to even, once per operation. Subnormals count, unless the device says that it flushes them. A product
  and a sum become one operation only where the node `Fma` says so. "Exact" in the tables means: the correctly rounded result, to the last bit.
- float16 and bfloat16 are computed in float32 and rounded once per operation; casts to and from them go through float32 as well, so that a
  float64 is rounded twice on its way to float16.
- Which NaN a NaN is, and the sign of a zero that `max` or `min` of two zeros gives, are not defined. All other signs of zero are.
- bool is a byte that holds 0 or 1, and 8 bits wide. Arithmetic on it is that of integers followed by `!= 0`: `add` and `max` are or,
  `mul`, `div` and `min` are and, `sub` is exclusive or, `neg` and `abs` change nothing.
"""


def _kinds(bool: str, signed: str, *, unsigned: str = "", float: str = "–") -> Mapping[Kind, str]:
    return {Kind.BOOL: bool, Kind.SIGNED: signed, Kind.UNSIGNED: unsigned or signed, Kind.FLOAT: float}


MEANINGS: Mapping[str, str | Mapping[Kind, str]] = {
    "add": _kinds("or", "wraps", float="exact"),
    "sub": _kinds("exclusive or", "wraps", float="exact"),
    "mul": _kinds("and", "wraps", float="exact"),
    "div": _kinds(
        "and",
        "truncates toward zero; x / 0 is 0; the smallest / −1 wraps to itself",
        unsigned="truncates; x / 0 is 0",
        float="IEEE 754: x / 0 is an infinity, 0 / 0 is NaN",
    ),
    "neg": _kinds("the operand", "wraps", float="exact; of 0 it is −0"),
    "abs": _kinds(
        "the operand", "of the smallest, wraps to itself", unsigned="the operand", float="clears the sign, of −0 too"
    ),
    "max": _kinds("or", "the larger", float="the larger; NaN if either is; of 0 and −0 either"),
    "min": _kinds("and", "the smaller", float="the smaller; NaN if either is; of 0 and −0 either"),
    "ident": "the operand",
    "bitcast": "the operand's bits as another dtype of the same width (never bool); which bits a NaN has is open",
    "cmp_eq": _kinds("equal", "equal", float="equal; false beside NaN; 0 equals −0"),
    "cmp_ne": _kinds("not equal", "not equal", float="not equal; true beside NaN"),
    "cmp_lt": _kinds("false < true", "less", float="less; false beside NaN"),
    "cmp_gt": _kinds("true > false", "greater", float="greater; false beside NaN"),
    "cmp_le": _kinds("false <= true", "less or equal", float="less or equal; false beside NaN"),
    "cmp_ge": _kinds("true >= false", "greater or equal", float="greater or equal; false beside NaN"),
    "cond": "the second operand where the first is true, else the third, with all its bits",
    "bit_and": _kinds("and", "bit by bit"),
    "bit_or": _kinds("or", "bit by bit"),
    "bit_xor": _kinds("exclusive or", "bit by bit"),
    "bit_not": _kinds("not", "bit by bit"),
    "bit_left": _kinds(
        "as of 8 bits, then `!= 0`: kept by counts 0 … 7, else false",
        "bits fall out at the top; 0 for counts below 0 or from the width on",
    ),
    "bit_right": _kinds(
        "kept by count 0, else false",
        "copies the sign; 0 or −1, by the sign, for counts below 0 or from the width on",
        unsigned="shifts zeros in; 0 for counts below 0 or from the width on",
    ),
    "ceil": "the next integer above, exact; −0.5 gives −0",
    "floor": "the next integer below, exact",
    "round": "the nearest integer, halves away from zero, exact; keeps the sign of zero",
    "round_even": "the nearest integer, halves to the even one, exact; keeps the sign of zero",
    "trunc": "the next integer towards 0, exact; keeps the sign of zero",
    "recip": "1 / x",
    "expm1": "exp(x) − 1, to the last digits near 0",
    "log1p": "log(1 + x), to the last digits near 0; of −1 it is −inf, NaN below",
    "acosh": "as C's `acosh`; NaN below 1",
    "atanh": "as C's `atanh`; of ±1 it is ±inf, NaN beyond",
    "erf": "as C's `erf`: 2/√π times the integral of exp(−t²) from 0 to x",
    "erfc": "1 − erf(x), to the last digits for large x",
    "atan2": "as C's `atan2(y, x)`: the angle of the point (x, y), from −π to π; zeros count with their signs",
    "fmod": "as C's `fmod`: x − y·trunc(x / y), exact, with the sign of x; NaN for infinite x and for y = 0",
    "sqrt": "NaN below 0; of −0 it is −0",
    "pow": "as C's `pow`: x⁰ and 1ʸ are 1, beside NaN too; a negative x has powers to whole y only, else NaN",
}
"""By operation, and by kind where that matters. Functions that are not here are C's."""
CASTS = (
    ("any", "the same", "nothing changes, NaN and the sign of zero included"),
    ("any", "bool", "`!= 0`; NaN is true"),
    ("bool", "any", "0 or 1"),
    ("integer", "integer", "wraps: the low bits"),
    ("integer", "float32, float64", "rounded to nearest, ties to even"),
    ("integer", "float16, bfloat16", "through float32: rounded twice; beyond the largest, an infinity"),
    ("float", "integer", "truncates and saturates: beyond the range the nearest limit, infinities too; NaN is 0"),
    ("float32, float64", "float32, float64", "rounded to nearest, ties to even"),
    ("float", "float16, bfloat16", "through float32; beyond the largest, an infinity"),
    ("float16, bfloat16", "float32, float64", "exact"),
)
CORNERS: Sequence[tuple[str, DType, tuple[Any, ...]]] = (
    ("add", DType.INT8, (127, 1)),
    ("add", DType.BOOL, (True, True)),
    ("sub", DType.BOOL, (False, True)),
    ("sub", DType.UINT8, (0, 1)),
    ("mul", DType.FLOAT32, (0.0, np.inf)),
    ("div", DType.INT8, (-7, 2)),
    ("div", DType.INT8, (7, 0)),
    ("div", DType.INT8, (-128, -1)),
    ("div", DType.FLOAT32, (1.0, -0.0)),
    ("div", DType.FLOAT32, (0.0, 0.0)),
    ("neg", DType.INT8, (-128,)),
    ("neg", DType.FLOAT32, (0.0,)),
    ("abs", DType.INT8, (-128,)),
    ("max", DType.FLOAT32, (1.0, np.nan)),
    ("max", DType.INT8, (-1, 1)),
    ("bit_not", DType.UINT8, (1,)),
    ("bit_left", DType.INT8, (1, 7)),
    ("bit_left", DType.INT8, (1, 8)),
    ("bit_left", DType.INT8, (1, -1)),
    ("bit_left", DType.BOOL, (True, 1)),
    ("bit_right", DType.INT8, (-5, 1)),
    ("bit_right", DType.INT8, (-5, 100)),
    ("bit_right", DType.UINT8, (251, 1)),
    ("bit_right", DType.BOOL, (True, 1)),
    ("round", DType.FLOAT32, (2.5,)),
    ("round", DType.FLOAT32, (-2.5,)),
    ("round_even", DType.FLOAT32, (2.5,)),
    ("round_even", DType.FLOAT32, (-0.5,)),
    ("trunc", DType.FLOAT32, (-0.5,)),
    ("ceil", DType.FLOAT32, (-0.5,)),
    ("sqrt", DType.FLOAT32, (-1.0,)),
    ("log", DType.FLOAT32, (0.0,)),
    ("recip", DType.FLOAT32, (0.0,)),
    ("pow", DType.FLOAT32, (0.0, 0.0)),
    ("pow", DType.FLOAT32, (1.0, np.nan)),
    ("pow", DType.FLOAT32, (-8.0, 1 / 3)),
    ("pow", DType.FLOAT32, (-np.inf, 0.5)),
    ("log1p", DType.FLOAT32, (-1.0,)),
    ("atan2", DType.FLOAT32, (-0.0, -1.0)),
    ("atan2", DType.FLOAT32, (np.inf, -np.inf)),
    ("fmod", DType.FLOAT32, (-7.0, 3.0)),
    ("fmod", DType.FLOAT32, (7.0, -3.0)),
    ("fmod", DType.FLOAT32, (7.0, np.inf)),
    ("fmod", DType.FLOAT32, (7.0, 0.0)),
    ("add", DType.FLOAT16, (2048.0, 1.0)),
)
CONVERSIONS: Sequence[tuple[DType, Any, DType]] = (
    (DType.FLOAT32, -1.9, DType.INT8),
    (DType.FLOAT32, 300.0, DType.INT8),
    (DType.FLOAT32, -1.0, DType.UINT8),
    (DType.FLOAT32, np.nan, DType.INT32),
    (DType.FLOAT32, -np.inf, DType.INT32),
    (DType.INT32, 300, DType.INT8),
    (DType.INT8, -1, DType.UINT32),
    (DType.FLOAT32, np.nan, DType.BOOL),
    (DType.FLOAT32, 65520.0, DType.FLOAT16),
    (DType.FLOAT64, 1 + 2.0**-11 + 2.0**-40, DType.FLOAT16),
    (DType.INT32, 16777217, DType.FLOAT32),
)
NODES = """\
## In kernels

What emitters have to know of semtree beyond the operations (`tile_ir.semtree.nodes`).

- **The core**, which all devices take: {core}.
- **Optional**, taken by devices whose targets list them and else rewritten: {optional}.
- **Functions** of a Call beyond the core's, listed beside the nodes by name and else rewritten as formulas: {functions}.

- **mod** is a binary operator of kernels only, on int32 and int64: the remainder of floor division, with the divisor's sign
  ({mods}). By 0 it is 0.
- **Shifts**: the count has any integer dtype, signed or not, whatever the dtype of the value; bool is no count.
- **Load** of a scalar may be masked, by one bool: where it is false the result is 0 and memory is not touched. So may a **Store**, which then does
  nothing. Schedules mask vectors only, and only for targets whose settings say `masks`.
- `align` of a Load or Store promises that its address is a multiple of so many bytes; 0 promises the element's own size. **Alloc**.`align` is
  what such promises about the array rest on: an emitter that uses `align` of accesses must keep it, one that accesses element by element
  may drop it. What an array holds at first is undefined, and never read.
- **For** evaluates `start` and `stop` once, before the first iteration; `step` is a positive number, and the body cannot assign the variable.
- **Select** and the bool operators evaluate all of their operands; all are legal to evaluate.
- **Let** binds once; only a variable declared `mutable` is assigned. Names are any texts: rename them. A name may hide an outer one.
- **Const** holds a value of its dtype; **Limit** is the dtype's smallest or largest, which is ∓inf for floats.
- **WorkId**s are int32 or int64. Axis 0 varies fastest, and groups run in any order or at once.
- **Call** is a function of the table above; **Fma** is `a * b + c` rounded once (float16 and bfloat16: within 1 ULP of that).
- **Param**s are disjoint in memory, unless `alias_of` names the other; `elements` counts what the kernel may touch.
- Expressions are graphs: a node that is used twice is one object, and may be evaluated once or twice.
"""


def page() -> str:
    """The text of docs/operations.md."""
    parts = [HEAD, *_tables(), *_casts(), _corners(), _nodes()]
    return "\n".join(parts)


def _tables() -> Iterable[str]:
    groups = {
        "Arithmetic": (Signature.SAME,),
        "Comparisons and selection": (Signature.COMPARE, Signature.SELECT),
        "Bits": (Signature.BITS, Signature.SHIFT),
    }
    for title, signatures in groups.items():
        yield (
            f"## {title}\n\n| operation | in Tile | "
            + " | ".join(KINDS.values())
            + " |\n|---|---|"
            + "---|" * len(KINDS)
        )
        for op in OPS.values():
            if op.signature in signatures:
                yield f"| `{op.name}` | {_symbol(op)} | " + " | ".join(_cell(op, kind) for kind in KINDS) + " |"
        yield ""
    yield "## Functions of floats\n\nBounds are units in the last place (ULP) beside the exact value; 0 is exact.\n"
    yield "| operation | | float32 | float64 | float16, bfloat16 |\n|---|---|---|---|---|"
    for op in OPS.values():
        if op.signature is Signature.MATH:
            bounds = [f"{ulp_bound(op.name, d):g}" for d in (DType.FLOAT32, DType.FLOAT64, DType.FLOAT16)]
            meaning = MEANINGS.get(op.name, f"as C's `{op.name}`")
            yield f"| `{op.name}` | {meaning} | {' | '.join(bounds)} |"
    yield "\n## Dot products of words\n\nThe compiler makes them of sums of products of short factors; Tile has no names for them.\n"
    yield "| operation | |\n|---|---|"
    for dot in DOTS.values():
        tiny = "subnormal numbers" if dot.a is DType.BFLOAT16 else "subnormal float32"
        how = f"added in float32, the last first, without {tiny}" if dot.c.is_float else "wrapping"
        yield f"| `{dot.name}(a, b, c)` | c + Σ aᵢ·bᵢ, {how}: {dot.depth} factors in a word of 32 bits, {dot.a} of a, {dot.b} of b |"
    yield ""
    single, half = ulp_bound("div", DType.FLOAT32), ulp_bound("div", DType.FLOAT16)
    yield f"\nDivision of float32 may be off by {single:g} ULP, of float16 and bfloat16 by {half:g}, of float64 by none.\n"


def _symbol(op: ScalarOp) -> str:
    return f"`{op.symbol}`".replace("|", "\\|") if op.symbol else ""


def _cell(op: ScalarOp, kind: Kind) -> str:
    meaning = MEANINGS[op.name]
    return meaning if isinstance(meaning, str) else meaning[kind]


def _casts() -> Iterable[str]:
    yield "## Casts\n\n| from | to | |\n|---|---|---|"
    yield from (f"| {source} | {target} | {text} |" for source, target, text in CASTS)
    yield ""


def _corners() -> str:
    lines = ["## Corner cases, as the definition computes them\n", "| | dtype | |", "|---|---|---|"]
    for name, dtype, args in CORNERS:
        given = [
            np.asarray(a, dtype.numpy) if n == 0 or not _shift(name) else np.asarray(a, np.int32)
            for n, a in enumerate(args)
        ]
        result = numerics.apply(name, given, dtype)
        lines.append(f"| `{name}({', '.join(map(_number, given))})` | {dtype} | `{_number(result)}` |")
    for source, value, target in CONVERSIONS:
        given = np.asarray(value, source.numpy)
        lines.append(
            f"| `cast({_number(given)})` | {source} to {target} | `{_number(numerics.cast_array(given, target))}` |"
        )
    return "\n".join([*lines, ""])


def _shift(name: str) -> bool:
    return OPS[name].signature is Signature.SHIFT


def _number(value: Any) -> str:
    item = np.asarray(value).item()
    return str(item).lower() if isinstance(item, bool) else f"{item:.12g}" if isinstance(item, float) else str(item)


def _nodes() -> str:
    t = nodes.Type(DType.INT32)
    mod = scalars.operation("mod", (t, t), t)
    shown = ", ".join(f"{a} mod {b} = {mod(a, b)}" for a, b in ((7, 3), (-7, 3), (7, -3), (7, 0)))
    return NODES.format(
        core=", ".join(sorted(CORE_NODES)),
        optional=", ".join(sorted(OPTIONAL_NODES - LISTED_FUNCTIONS)),
        functions=", ".join(sorted(LISTED_FUNCTIONS)),
        mods=shown,
    )


if __name__ == "__main__":
    if "--print" in sys.argv[1:]:
        sys.stdout.buffer.write(page().encode())
    else:
        PAGE.write_text(page(), encoding="utf-8")
