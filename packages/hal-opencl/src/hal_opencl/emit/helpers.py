"""Functions in front of a kernel: what Tile defines and OpenCL C leaves open, as text, one per use and type.

Each maker gives the lines of one function; `{name}` is its identifier. T is the type of a value.
"""

from __future__ import annotations

from tile_ir.dtype import DType
from tile_ir.matrix import MANTISSA_BITS
from tile_ir.semtree.nodes import Type

from hal_opencl.emit.types import lane, mask, memory, register, register_bits, unsigned


def _zeros(t: Type, value: str = "0") -> str:
    return f"({register(t.dtype, t.lanes)})({value})"


def float_extreme(name: str, op: str, t: Type) -> str:
    """max or min of floats; NaN if either is NaN."""
    T = register(t.dtype, t.lanes)
    sign = ">" if op == "max" else "<"
    if t.lanes == 1:
        return f"{T} {name}({T} a, {T} b) {{ return a {sign} b || a != a ? a : b; }}"
    return f"{T} {name}({T} a, {T} b) {{ return select(b, a, (a {sign} b) | (a != a)); }}"


def divide(name: str, op: str, t: Type) -> str:
    """Truncating division (div) or floored remainder (mod); by zero 0, MIN / -1 wraps."""
    T = register(t.dtype, t.lanes)
    floored = op == "mod"
    if t.lanes == 1:
        return _divide_scalar(name, T, t, floored)
    one, zero = _zeros(t, "1"), _zeros(t)
    lines = [f"{T} {name}({T} a, {T} b) {{"]
    if t.dtype.is_signed:
        lines.append(f"    {T} d = select(b, {one}, (b == {zero}) | (b == {_zeros(t, '-1')}));")
    else:
        lines.append(f"    {T} d = select(b, {one}, b == {zero});")
    if floored:
        lines.append(f"    {T} r = a % d;")
        if t.dtype.is_signed:
            lines.append(f"    r = select(r, r + d, (r != {zero}) & ((r ^ d) < {zero}));")
        lines.append("    return r;")
    else:
        lines.append(f"    {T} q = a / d;")
        if t.dtype.is_signed:
            U = unsigned(t.dtype, t.lanes)
            lines.append(f"    q = select(q, as_{T}(({U})(0) - as_{U}(a)), b == {_zeros(t, '-1')});")
        lines.append(f"    return select(q, {zero}, b == {zero});")
    return "\n".join([*lines, "}"])


def _divide_scalar(name: str, T: str, t: Type, floored: bool) -> str:
    head = f"{T} {name}({T} a, {T} b)"
    if not t.dtype.is_signed:
        return f"{head} {{ return b == 0 ? 0 : a {'%' if floored else '/'} b; }}"
    if not floored:
        U = unsigned(t.dtype)
        return f"{head} {{ return b == 0 ? 0 : b == -1 ? ({T})(({U})0 - ({U})a) : a / b; }}"
    return (
        f"{head} {{\n    if (b == 0 || b == -1) return 0;\n    {T} r = a % b;\n"
        "    return r != 0 && (r ^ b) < 0 ? r + b : r;\n}"
    )


def shift(name: str, op: str, t: Type, count: Type) -> str:
    """A shift by any count: outside [0, width) the result is 0, or the sign."""
    T, C, width = register(t.dtype, t.lanes), register(count.dtype, count.lanes), t.dtype.bits
    keep_sign = op == "bit_right" and t.dtype.is_signed
    if t.lanes == 1:
        valid = f"n < {width}" + (" && n >= 0" if count.dtype.is_signed else "")
        moved = f"({T})(({unsigned(t.dtype)})a << n)" if op == "bit_left" else f"({T})(a >> n)"
        other = f"({T})(a >> {width - 1})" if keep_sign else f"({T})0"
        return f"{T} {name}({T} a, {C} n) {{ return {valid} ? {moved} : {other}; }}"
    valid = f"(n < ({C})({width}))" + (f" & (n >= ({C})(0))" if count.dtype.is_signed else "")
    valid = f"convert_{mask(t.dtype.bits, t.lanes)}({valid})"
    arrow = "<<" if op == "bit_left" else ">>"
    other = f"a >> ({T})({width - 1})" if keep_sign else f"({T})(0)"
    # OpenCL C takes the count modulo the width, so what is not chosen is harmless.
    return f"{T} {name}({T} a, {C} n) {{ return select({other}, a {arrow} convert_{T}(n), {valid}); }}"


def float_to_integer(name: str, source: Type, target: DType) -> str:
    """A conversion that truncates and saturates; NaN gives 0."""
    S, T = register(source.dtype, source.lanes), register(target, source.lanes)
    if source.lanes == 1:
        return f"{T} {name}({S} x) {{ return x != x ? ({T})0 : convert_{T}_sat_rtz(x); }}"
    # NaN is replaced first: some devices saturate it to the smallest integer.
    return f"{T} {name}({S} x) {{ return convert_{T}_sat_rtz(select(x, ({S})(0), x != x)); }}"


def round_half(name: str, t: Type) -> str:
    """A float rounded to float16 (nearest even), as a float."""
    F, n = register(t.dtype, t.lanes), "" if t.lanes == 1 else str(t.lanes)
    return (
        f"{F} {name}({F} x) {{\n    ushort{n} bits;\n    vstore_half{n}_rte(x, 0, (half*)&bits);\n"
        f"    return vload_half{n}(0, (const half*)&bits);\n}}"
    )


def half_of(name: str, t: Type) -> str:
    """Floats from the bits of float16."""
    F, n = register(t.dtype, t.lanes), "" if t.lanes == 1 else str(t.lanes)
    return f"{F} {name}(ushort{n} bits) {{ return vload_half{n}(0, (const half*)&bits); }}"


def half_bits(name: str, t: Type) -> str:
    """The bits of floats rounded to float16 (nearest even)."""
    F, n = register(t.dtype, t.lanes), "" if t.lanes == 1 else str(t.lanes)
    return f"ushort{n} {name}({F} x) {{ ushort{n} bits; vstore_half{n}_rte(x, 0, (half*)&bits); return bits; }}"


def round_bfloat(name: str, t: Type) -> str:
    """A float rounded to bfloat16 (nearest even), as a float."""
    F, U = register(t.dtype, t.lanes), unsigned(t.dtype, t.lanes)
    keep, nan = f"({U})(0xffff0000u)", f"({U})(0x7fc00000u)"
    if t.lanes == 1:
        chosen = "x != x ? 0x7fc00000u : rounded & 0xffff0000u"
        return (
            f"float {name}(float x) {{\n    uint bits = as_uint(x);\n"
            "    uint rounded = bits + 0x7fffu + ((bits >> 16) & 1u);\n"
            f"    return as_float({chosen});\n}}"
        )
    return (
        f"{F} {name}({F} x) {{\n    {U} bits = as_{U}(x);\n"
        f"    {U} rounded = bits + ({U})(0x7fffu) + ((bits >> ({U})(16u)) & ({U})(1u));\n"
        f"    return as_{F}(select(rounded & {keep}, {nan}, x != x));\n}}"
    )


def round_mantissa(name: str, bits: int, t: Type) -> str:
    """A float32 rounded to fewer mantissa bits, ties away from zero; NaN and infinities stay."""
    F, U = register(t.dtype, t.lanes), unsigned(t.dtype, t.lanes)
    dropped = MANTISSA_BITS - bits
    # Ties away from zero are half a unit more of the magnitude, and a carry into the exponent is right.
    half, keep = hex(1 << (dropped - 1)), hex(0xFFFFFFFF >> dropped << dropped)
    if t.lanes == 1:
        rounded = f"as_float((as_uint(x) + {half}u) & {keep}u)"
        return f"float {name}(float x) {{ return fabs(x) < INFINITY ? {rounded} : x; }}"
    rounded = f"as_{F}((as_{U}(x) + ({U})({half}u)) & ({U})({keep}u))"
    return f"{F} {name}({F} x) {{ return select(x, {rounded}, fabs(x) < ({F})(INFINITY)); }}"


def insert(name: str, t: Type, lane: str) -> str:
    """A vector with one lane replaced."""
    T, E = register(t.dtype, t.lanes), register(t.dtype)
    value = "-x" if t.dtype is DType.BOOL else "x"
    return f"{T} {name}({T} v, {E} x) {{ v.s{lane} = {value}; return v; }}"


def select_lanes(name: str, left: Type, right: Type, lanes: tuple[int, ...]) -> str:
    """The picked lanes of two vectors."""
    T = register(left.dtype, len(lanes))
    picked = ", ".join(
        lane("a", n, left.lanes) if n < left.lanes else lane("b", n - left.lanes, right.lanes) for n in lanes
    )
    A, B = register(left.dtype, left.lanes), register(right.dtype, right.lanes)
    return f"{T} {name}({A} a, {B} b) {{ return ({T})({picked}); }}"


def by_lane(name: str, function: str, t: Type, arity: int) -> str:
    """A math function of vectors as calls of the scalar one."""
    T, args = register(t.dtype, t.lanes), "abc"[:arity]
    calls = ", ".join(f"{function}({', '.join(f'{a}.s{n:x}' for a in args)})" for n in range(t.lanes))
    return f"{T} {name}({', '.join(f'{T} {a}' for a in args)}) {{\n    return ({T})({calls});\n}}"


def masked_load(name: str, space: str, t: Type, element: str) -> str:
    """Lanes of `t` whose mask is set, the others 0; `element` reads ``p[lane]``."""
    M, T = f"char{t.lanes}", register(t.dtype, t.lanes)
    pointer = " ".join(word for word in (space, "const", memory(t.dtype) + "*") if word)
    lines = [f"{T} {name}({pointer} p, {M} m) {{", f"    {T} v = ({T})(0);"]
    lines += [f"    if (m.s{n:x}) v.s{n:x} = {element.replace('LANE', str(n))};" for n in range(t.lanes)]
    return "\n".join([*lines, "    return v;", "}"])


def masked_store(name: str, space: str, t: Type, element: str) -> str:
    """Store the lanes whose mask is set; `element` writes lane VALUE to ``p[LANE]``."""
    M, T = f"char{t.lanes}", register(t.dtype, t.lanes)
    pointer = f"{space} {memory(t.dtype)}*".strip()
    lines = [f"void {name}({pointer} p, {T} v, {M} m) {{"]
    for n in range(t.lanes):
        lines.append(f"    if (m.s{n:x}) {{ {element.replace('LANE', str(n)).replace('VALUE', f'v.s{n:x}')} }}")
    return "\n".join([*lines, "}"])


def atomic(name: str, space: str, t: Type, merged: str) -> str:
    """``*p = merged`` by compare and exchange of the word around it; `merged` is of ``old`` and ``x``.

    The first look is an exchange of 0 for 0, because a plain read would be a data race.
    """
    T, bits = register(t.dtype), t.dtype.bits
    head = f"void {name}(volatile {space} {memory(t.dtype)}* p, {T} x) {{"
    word, exchange = ("ulong", "atom_cmpxchg") if bits == 64 else ("uint", "atomic_cmpxchg")
    if bits >= 32:
        body = [
            f"    volatile {space} {word}* w = (volatile {space} {word}*)p;",
            f"    {word} seen = {exchange}(w, 0, 0), next;",
        ]
        old, new, shift_ = f"as_{T}(seen)", f"as_{word}({merged})", ""
        update = f"        next = {new};"
    else:
        body = [
            f"    volatile {space} uint* w = (volatile {space} uint*)((size_t)p & ~(size_t)3);",
            "    uint shift = (uint)((size_t)p & 3) * 8u;",
            "    uint seen = atomic_cmpxchg(w, 0u, 0u), next;",
        ]
        old, shift_ = _from_bits(f"(seen >> shift) & {hex((1 << bits) - 1)}u", t.dtype), hex((1 << bits) - 1) + "u"
        update = f"        next = (seen & ~({shift_} << shift)) | ((uint){_to_bits(merged, t.dtype)} << shift);"
    loop = [
        "    for (;;) {",
        f"        {T} old = {old};",
        update,
        f"        {word} now = {exchange}(w, seen, next);",
        "        if (now == seen) break;",
        "        seen = now;",
        "    }",
    ]
    return "\n".join([head, *body, *loop, "}"])


def _from_bits(bits: str, dtype: DType) -> str:
    if dtype is DType.BOOL:
        return f"({bits}) != 0u"
    if dtype is DType.BFLOAT16:
        return f"as_float(({bits}) << 16)"
    if dtype is DType.FLOAT16:
        return f"tile_half_from_bits((ushort)({bits}))"
    return f"({register(dtype)})({bits})"


def _to_bits(value: str, dtype: DType) -> str:
    if dtype is DType.BFLOAT16:
        return f"(as_uint({value}) >> 16)"
    if dtype is DType.FLOAT16:
        return f"tile_half_to_bits({value})"
    if dtype is DType.BOOL:
        return f"(({value}) != 0)"
    return f"(u{register(dtype)})({value})" if dtype.is_signed else f"({value})"


HALF_BITS = """float tile_half_from_bits(ushort bits) { return vload_half(0, (const half*)&bits); }
ushort tile_half_to_bits(float x) { ushort bits; vstore_half_rte(x, 0, (half*)&bits); return bits; }"""


def same_width(dtype: DType, bits: int) -> bool:
    """Comparisons of this dtype give masks of `bits` bits."""
    return dtype is not DType.BOOL and register_bits(dtype) == bits
