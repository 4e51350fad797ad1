"""The scalar operations that C99 lacks or defines otherwise, as C functions with Tile's meaning.

`OPERATIONS` is the one table: the body of a function by operation and kind of dtype. What stands in no row is an operator
of C or a function of <math.h> with Tile's meaning (`tile_ir.emit.clike`). Operations on float16 and bfloat16 are those on
float32 between two conversions. Every row is tested against `tile_ir.numerics`, bit for bit.

Bodies are format texts: ``{T}`` is the C type of operands and result, ``{U}`` the unsigned type in which its arithmetic
wraps, ``{W}`` its width in bits, ``{f}`` the suffix of float functions.
"""

from __future__ import annotations

from collections.abc import Mapping

from tile_ir.dtype import DType, Kind
from tile_ir.frozen import frozen

NAMES: Mapping[DType, str] = {
    DType.BOOL: "bool", DType.INT8: "int8_t", DType.INT16: "int16_t", DType.INT32: "int32_t", DType.INT64: "int64_t",
    DType.UINT8: "uint8_t", DType.UINT16: "uint16_t", DType.UINT32: "uint32_t", DType.UINT64: "uint64_t",
    DType.FLOAT16: "uint16_t", DType.BFLOAT16: "uint16_t", DType.FLOAT32: "float", DType.FLOAT64: "double",
}  # fmt: skip
"""C types of values, in memory and in variables; float16 and bfloat16 are their bits."""
HALVES = (DType.FLOAT16, DType.BFLOAT16)

_BOTH = "{T} a, {T} b"
_BY = "{T} a, int64_t n"  # unsigned counts beyond int64 become negative ones, which shift everything out as well
_EXTREME = {"max": ">", "min": "<"}
OPERATIONS: Mapping[tuple[str, Kind], tuple[str, str]] = {
    ("abs", Kind.SIGNED): ("{T} a", "return a < 0 ? ({T})(0 - ({U})a) : a;"),
    ("abs", Kind.UNSIGNED): ("{T} a", "return a;"),
    ("abs", Kind.FLOAT): ("{T} a", "return fabs{f}(a);"),
    ("div", Kind.SIGNED): (_BOTH, "return b == 0 ? 0 : b == -1 ? ({T})(0 - ({U})a) : ({T})(a / b);"),
    ("div", Kind.UNSIGNED): (_BOTH, "return b == 0 ? 0 : ({T})(a / b);"),
    ("mod", Kind.SIGNED): (
        _BOTH,
        "if (b == 0 || b == -1) return 0;\n    {T} r = a % b;\n    return r != 0 && (r ^ b) < 0 ? r + b : r;",
    ),
    ("mod", Kind.UNSIGNED): (_BOTH, "return b == 0 ? 0 : ({T})(a % b);"),
    **{
        (op, kind): (_BOTH, f"return a {sign} b ? a : b;")
        for op, sign in _EXTREME.items()
        for kind in (Kind.SIGNED, Kind.UNSIGNED)
    },
    **{(op, Kind.FLOAT): (_BOTH, f"return a {sign} b || a != a ? a : b;") for op, sign in _EXTREME.items()},
    ("bit_left", Kind.BOOL): (_BY, "return a && n >= 0 && n < {W};"),
    ("bit_left", Kind.SIGNED): (_BY, "return n >= 0 && n < {W} ? ({T})(({U})a << n) : 0;"),
    ("bit_left", Kind.UNSIGNED): (_BY, "return n >= 0 && n < {W} ? ({T})(({U})a << n) : 0;"),
    ("bit_right", Kind.BOOL): (_BY, "return a && n == 0;"),
    ("bit_right", Kind.SIGNED): (_BY, "return n >= 0 && n < {W} ? ({T})(a >> n) : a < 0 ? -1 : 0;"),
    ("bit_right", Kind.UNSIGNED): (_BY, "return n >= 0 && n < {W} ? ({T})(a >> n) : 0;"),
}
"""(parameters, body) of each function."""

INTEGER_OF_FLOAT = "return x != x ? 0 : x >= {above} ? {high} : x < {low} ? {least} : ({T})x;"
"""The body of a cast from float32 or float64 to an integer: it truncates and saturates, and NaN gives 0."""

HALF_CASTS: Mapping[tuple[DType, DType], str] = {
    (DType.FLOAT32, DType.BFLOAT16): """\
    uint32_t bits = (uint32_t)x << 16;
    float y;
    memcpy(&y, &bits, 4);
    return y;""",
    (DType.BFLOAT16, DType.FLOAT32): """\
    uint32_t bits;
    memcpy(&bits, &x, 4);
    if (x != x) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);""",
    (DType.FLOAT32, DType.FLOAT16): """\
    uint32_t rest = x & 0x7fff, bits = rest << 13;
    float y;
    memcpy(&y, &bits, 4);
    y *= 0x1p+112f; /* the exponent's other bias; what is subnormal becomes normal */
    memcpy(&bits, &y, 4);
    if (rest >= 0x7c00) bits = 0x7f800000 | (rest & 0x3ff) << 13;
    bits |= (uint32_t)(x & 0x8000) << 16;
    memcpy(&y, &bits, 4);
    return y;""",
    (DType.FLOAT16, DType.FLOAT32): """\
    uint32_t bits, sign;
    float y;
    memcpy(&bits, &x, 4);
    sign = bits >> 16 & 0x8000;
    bits &= 0x7fffffff;
    if (bits > 0x7f800000) return (uint16_t)(sign | 0x7e00);
    if (bits >= 0x477ff000) return (uint16_t)(sign | 0x7c00);
    if (bits < 0x38800000) { /* adding a half leaves as many bits as a subnormal has */
        memcpy(&y, &bits, 4);
        y += 0.5f;
        memcpy(&bits, &y, 4);
        return (uint16_t)(sign | (bits - 0x3f000000));
    }
    bits += 0xfff + (bits >> 13 & 1);
    return (uint16_t)(sign | (bits - 0x38000000) >> 13);""",
}
"""Bodies of the conversions between float32 and the half types, by (to, from); to the nearest, ties to even."""


@frozen
class Operation:
    """A function of the prelude: its identifier and its text."""

    name: str
    text: str


def operation(op: str, dtype: DType) -> Operation | None:
    """The function that computes `op` on values of `dtype` (shifts count by int64_t); None where C has an operator."""
    found = OPERATIONS.get((op, dtype.kind))
    if found is None:
        return None
    return _function(f"tile_{op}_{dtype.value}", NAMES[dtype], *(text.format(**_words(dtype)) for text in found))


def cast(source: DType, target: DType) -> Operation | None:
    """The function that converts `source` to `target`; None where C's cast does, or where the way leads through float32."""
    name, parameter = f"tile_{target.value}_of_{source.value}", f"{NAMES[source]} x"
    if (target, source) in HALF_CASTS:
        return _function(name, NAMES[target], parameter, HALF_CASTS[target, source].lstrip())
    if source in HALVES or not (source.is_float and target.is_integer):
        return None
    low, high = int(target.min_value), int(target.max_value)
    limits = {"above": f"0x1p+{high.bit_length()}", "high": f"{high}{_suffix(target)}", "low": f"{float(low):.1f}"}
    least = f"{low + 1}{_suffix(target)} - 1" if low else "0"
    return _function(name, NAMES[target], parameter, INTEGER_OF_FLOAT.format(T=NAMES[target], least=least, **limits))


def bits(source: DType, target: DType) -> Operation:
    """The function that reinterprets the bits of `source` as `target`."""
    body = f"{NAMES[target]} y;\nmemcpy(&y, &x, {target.bytes});\nreturn y;"
    name = f"tile_{target.value}_with_bits_of_{source.value}"
    return _function(name, NAMES[target], f"{NAMES[source]} x", body.replace("\n", "\n    "))


def _words(dtype: DType) -> dict[str, str]:
    unsigned = "uint64_t" if dtype.bits == 64 else "uint32_t"
    return {"T": NAMES[dtype], "U": unsigned, "W": str(dtype.bits), "f": "f" if dtype is DType.FLOAT32 else ""}


def _suffix(dtype: DType) -> str:
    return {DType.INT64: "LL", DType.UINT64: "ULL", DType.UINT32: "u"}.get(dtype, "")


def _function(name: str, result: str, parameters: str, body: str) -> Operation:
    lines = body.splitlines()
    if len(lines) == 1:
        return Operation(name, f"static inline {result} {name}({parameters}) {{ {body} }}\n")
    inner = "\n".join([f"    {lines[0]}", *lines[1:]])
    return Operation(name, f"static inline {result} {name}({parameters}) {{\n{inner}\n}}\n")
