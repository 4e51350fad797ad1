"""Expressions of semtree as OpenCL C 1.2."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, ClassVar

from tile_ir.dtype import DType
from tile_ir.emit.clike import CLikePrinter
from tile_ir.emit.pieces import ADDITIVE, ATOM, EQUALITY, POSTFIX, PREFIX, TERM, TERNARY, Expansion, Piece, call, infix
from tile_ir.ops import ROUNDINGS
from tile_ir.semtree.errors import SemtreeError
from tile_ir.semtree.nodes import (
    Binary,
    Bitcast,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Fma,
    IdKind,
    Limit,
    Load,
    Select,
    Space,
    Splat,
    Type,
    Unary,
    Unroll,
    Var,
    WorkId,
)  # fmt: skip

from hal_opencl.emit import approximate, helpers, ptx
from hal_opencl.emit.dialect import PLAIN, Dialect
from hal_opencl.emit.intervals import Intervals
from hal_opencl.emit.types import (
    HALVES,
    REGISTERS,
    WORDS,
    bits,
    mask,
    memory,
    register,
    register_bits,
    rounded,
    safe_hint,
    tag,
    unsigned,
    words,
)  # fmt: skip

_MATH = (
    "exp", "log", "sqrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "ceil", "floor", "round",
    "pow", "expm1", "log1p", "asinh", "acosh", "atanh", "erf", "erfc", "trunc", "atan2", "fmod",
)  # fmt: skip
_EXACT = ROUNDINGS | {"max", "min", "neg", "abs", "fmod"}
"""Operations that give a value of the operand's dtype without rounding."""
_SAME_IN_VECTORS = _EXACT | {"sqrt", "mad"}
_SHORT = 12
"""Longest decimal literal."""
_BOOLS = {
    "add": "bit_or", "sub": "bit_xor", "mul": "bit_and", "div": "bit_and", "max": "bit_or", "min": "bit_and",
    "bit_and": "bit_and", "bit_or": "bit_or", "bit_xor": "bit_xor",
}  # fmt: skip
_IDS = {IdKind.GLOBAL: "get_global_id", IdKind.GROUP: "get_group_id", IdKind.LOCAL: "get_local_id"}
_NATIVE = {name: f"native_{name}" for name in ("exp", "log", "sqrt", "sin", "cos", "tan")}


class OpenCLExpressions(CLikePrinter):
    """Names, types, literals and expressions; `preamble` holds the functions that they need from us."""

    types: ClassVar[Mapping[DType, str]] = REGISTERS
    functions: ClassVar[Mapping[Any, str]] = {name: name for name in ("fma", "mad", *_MATH)} | {"round_even": "rint"}
    spaces: ClassVar[Mapping[Space, str]] = {
        Space.PRIVATE: "", Space.LOCAL: "local", Space.GLOBAL: "global", Space.CONST: "constant",
    }  # fmt: skip
    suffixes: ClassVar[Mapping[DType, str]] = {
        DType.FLOAT32: "f", DType.FLOAT16: "f", DType.BFLOAT16: "f",
        DType.INT64: "L", DType.UINT64: "UL", DType.UINT32: "u",
    }  # fmt: skip
    wraps_by_unsigned: ClassVar[bool] = True
    unrolls: ClassVar[Mapping[Unroll, str]] = {Unroll.FULL: "#pragma unroll", Unroll.AUTO: "#pragma unroll 8"}

    def __init__(self, groups: tuple[int, int, int] = (1, 1, 1), dialect: Dialect = PLAIN) -> None:
        super().__init__(WORDS)
        self.preamble: dict[str, str] = {}
        self._dialect = dialect
        self._intervals = Intervals(groups)
        self._locals: dict[int, str] = {}
        self._kernel = True
        self._waiting: frozenset[str] = frozenset()

    # --- names and types

    def hint(self, name: str) -> str:
        return safe_hint(name)

    def type_name(self, t: Type) -> str:
        return register(t.dtype, t.lanes)

    def pointer_name(self, t: Type, constant: bool = False) -> str:
        words = [self.spaces[t.space], "const" if constant else "", memory(t.dtype, t.lanes) + "*"]
        return " ".join(word for word in words if word)

    def helper(self, name: str, make: Callable[..., str], *args: Any) -> str:
        """The identifier of a function of the preamble, written when first asked for."""
        name = f"tile_{name}"
        if name not in self.preamble:
            self.preamble[name] = make(name, *args)
        return name

    # --- literals

    def literal(self, value: int | float | bool, t: Type) -> Expansion:
        if t.lanes > 1:
            element = "-1" if t.dtype is DType.BOOL and value else self._text(self.literal(value, t.scalar))
            return PREFIX, [f"({self.type_name(t)})({'0' if t.dtype is DType.BOOL and not value else element})"]
        if t.dtype.is_float:
            return self.float_literal(rounded(float(value), t.dtype), t)
        return super().literal(value if t.dtype is DType.BOOL else int(value), t)

    def float_literal(self, value: float, t: Type) -> Expansion:
        """Decimal where that is short and exact, else hexadecimal: either way no digit is lost."""
        text = str(Decimal(value)) if math.isfinite(value) else ""
        if not 0 < len(text) <= _SHORT or "E" in text:
            return super().float_literal(value, t)
        text += ("" if "." in text else ".0") + self.suffixes.get(t.dtype, "")
        return (PREFIX if text[0] == "-" else ATOM), [text]

    @staticmethod
    def _text(expansion: Expansion) -> str:
        return "".join(str(piece) for piece in expansion[1])

    # --- expressions

    def special(self, expr: Expr) -> Expansion | None:
        handler = self._handlers.get(type(expr))
        return handler(self, expr) if handler is not None else None

    def _const(self, node: Const) -> Expansion:
        return self.literal(node.value, node.type)

    def _limit(self, node: Limit) -> Expansion:
        t = node.type
        return self.literal(t.dtype.min_value if node.which == "min" else t.dtype.max_value, t)

    def _var(self, node: Var) -> Expansion:
        name, t = self.lookup(node.name), node.type
        if node.name not in self._waiting:
            return ATOM, [name]
        if self._waits_as(t.lanes) == bits(t.lanes):
            return self._from_memory((ATOM, [name]), t)
        if t.dtype is DType.FLOAT16:
            self.preamble.setdefault("unpack halves", ptx.UNPACK_HALVES)
        return ATOM, [f"{self.helper(f'floats_of_{tag(t)}', ptx.floats, t)}({name})"]

    def _waits_as(self, lanes: int) -> str:
        """The type of 16-bit elements that wait: where NVIDIA's assembler takes them apart, it waits for their load."""
        return memory(DType.UINT32, lanes // 2) if self._dialect.ptx and lanes > 1 else bits(lanes)

    def _work_id(self, node: WorkId) -> Expansion:
        return PREFIX, [f"({self.type_name(node.type)}){_IDS[node.kind]}({node.axis})"]

    # loads

    def _load(self, node: Load) -> Expansion:
        t, space = node.type, node.ptr.type.space
        if node.mask is not None:
            return self._masked_load(node)
        if t.lanes == node.ptr.type.lanes and (t.lanes == 1 or not node.ptr.type.ptr):
            if t.dtype is DType.FLOAT16:
                return ATOM, ["vload_half(", (node.index, 0), ", ", *self._half_pointer(node.ptr, space), ")"]
            return self._from_memory((POSTFIX, self.element(node.ptr, node.index)), t)
        where = self._address(node.ptr, node.index)
        aligned = node.align and node.align % (t.lanes * t.dtype.bytes) == 0
        if t.dtype is DType.FLOAT16 and not aligned:
            return ATOM, [f"vload_half{t.lanes}(0, ", *where, ")"]
        if aligned:
            return self._from_memory(self._wide(space, where, t), t)
        return self._from_memory((ATOM, [f"vload{t.lanes}(0, ", *where, ")"]), t)

    def _wide(self, space: Space, where: list[Piece], t: Type) -> Expansion:
        """Elements at an address that is a multiple of their bytes, 16-bit floats as bits."""
        kind, moved = self._kinds(space, t)
        pointer = " ".join(w for w in (self.spaces[space], "const", f"{moved}*") if w)
        loaded: list[Piece] = [f"*({pointer})", "(", *where, ")"]
        return (PREFIX, loaded) if moved == kind else (ATOM, [f"as_{kind}(", *loaded, ")"])

    def _kinds(self, space: Space, t: Type) -> tuple[str, str]:
        """The type of elements in memory, 16-bit floats as bits, and the one that they are moved as."""
        kind = memory(DType.UINT16 if t.dtype is DType.FLOAT16 else t.dtype, t.lanes)
        apart = self._dialect.ptx and space is not Space.PRIVATE
        return kind, (words(t.dtype, t.lanes) if apart else "") or kind

    def _half_pointer(self, ptr: Expr, space: Space) -> list[Piece]:
        if ptr.type.ptr:
            return [(ptr, 0)]
        return [f"({self.spaces[space]} half*)".replace("( ", "("), (ptr, PREFIX)]

    def _address(self, ptr: Expr, index: Expr) -> list[Piece]:
        """``p + index`` as a pointer to elements in memory."""
        base: list[Piece] = (
            self._half_pointer(ptr, ptr.type.space) if ptr.type.dtype is DType.FLOAT16 else [(ptr, ADDITIVE)]
        )
        if isinstance(index, Const) and index.value == 0:
            return base
        return [*base, " + ", (index, ADDITIVE + 1)]

    def _from_memory(self, loaded: Expansion, t: Type) -> Expansion:
        precedence, pieces = loaded
        if t.dtype is DType.BOOL:
            zero = "0" if t.lanes == 1 else f"({memory(t.dtype, t.lanes)})(0)"
            return EQUALITY, [*_embed(precedence, pieces, EQUALITY), f" != {zero}"]
        if t.dtype is DType.FLOAT16:
            return ATOM, [f"{self.helper(f'half_of_{tag(t)}', helpers.half_of, t)}(", *pieces, ")"]
        if t.dtype is DType.BFLOAT16:
            if t.lanes == 1:
                return ATOM, ["as_float((uint)", *_embed(precedence, pieces, PREFIX), " << 16)"]
            wide = unsigned(t.dtype, t.lanes)
            return ATOM, [f"as_{register(t.dtype, t.lanes)}(convert_{wide}(", *pieces, f") << ({wide})(16u))"]
        return loaded

    def _masked_load(self, node: Load) -> Expansion:
        t, space = node.type, node.ptr.type.space
        if t.lanes == 1:
            plain = Load(node.ptr, node.index, t)
            assert node.mask is not None
            return TERNARY, [(node.mask, TERNARY + 1), " ? ", (plain, TERNARY + 1), " : 0"]
        element = {DType.BOOL: "p[LANE] ? -1 : 0", DType.FLOAT16: "vload_half(LANE, p)",
                   DType.BFLOAT16: "as_float((uint)p[LANE] << 16)"}.get(t.dtype, "p[LANE]")  # fmt: skip
        name = self.helper(f"load_{tag(t)}_{space.value}", helpers.masked_load, self.spaces[space], t, element)
        assert node.mask is not None
        return ATOM, [f"{name}(", *self._address(node.ptr, node.index), ", ", (node.mask, 0), ")"]

    # arithmetic

    def _unary(self, node: Unary) -> Expansion:
        t, value = node.type, node.value
        if t.dtype is DType.BOOL:
            return (
                (PREFIX, ["!" if t.lanes == 1 else "~", (value, PREFIX)])
                if node.op == "bit_not"
                else self.expand(value)
            )
        if node.op == "abs":
            return self._abs(value, t)
        if node.op == "bit_not":
            return PREFIX, ["~", (value, PREFIX)] if t.lanes > 1 or t.dtype.bits >= 32 else [
                f"({self.type_name(t)})~",
                (value, PREFIX),
            ]
        if t.dtype.is_float:
            return PREFIX, ["-", (value, POSTFIX)]
        if t.lanes > 1:
            return self._through_unsigned(t, [f"({unsigned(t.dtype, t.lanes)})(0) - ", *self._as_unsigned(value)])
        return PREFIX, [
            f"({self.type_name(t)})(0{'u' if t.dtype.bits <= 32 else 'UL'} - ({_wide(t)})",
            (value, PREFIX),
            ")",
        ]

    def _abs(self, value: Expr, t: Type) -> Expansion:
        if t.dtype.is_float:
            return call("fabs", (value,))
        if not t.dtype.is_signed:
            return self.expand(value)
        if t.lanes > 1:
            return ATOM, [f"as_{self.type_name(t)}(abs(", (value, 0), "))"]
        inner = "int" if t.dtype.bits < 32 else self.type_name(t)
        return PREFIX, [f"({self.type_name(t)})abs(({inner})", (value, PREFIX), ")"]

    def _binary(self, node: Binary) -> Expansion:
        t, op = node.type, node.op
        if t.dtype is DType.BOOL and op in _BOOLS:
            return infix(*self.infixes[_BOOLS[op]], node.left, node.right)
        if op in ("bit_left", "bit_right"):
            return self._shift(node)
        if t.dtype.is_float:
            return self._round(self._float_binary(node), t, op)
        if op in ("bit_and", "bit_or", "bit_xor"):
            return infix(*self.infixes[op], node.left, node.right)
        if op in ("max", "min"):
            return self._integer_extreme(node)
        if op in ("div", "mod"):
            return self._divide(node)
        return self._wrapping(node)

    def _float_binary(self, node: Binary) -> Expansion:
        t, op = node.type, node.op
        if op in ("max", "min"):
            wide = Type(DType.FLOAT32, t.lanes) if t.dtype in HALVES else t
            maker = ptx.extreme if self._dialect.ptx and wide.dtype is DType.FLOAT32 else helpers.float_extreme
            return call(self.helper(f"{op}_{tag(wide)}", maker, op, wide), (node.left, node.right))
        if op == "div":
            return infix("/", TERM, node.left, node.right)
        if op not in ("add", "sub", "mul"):
            raise SemtreeError(f"OpenCL has no operation {op} of {t.dtype}")
        return infix(*self.infixes[op], node.left, node.right)

    def _round(self, expansion: Expansion, t: Type, op: str = "") -> Expansion:
        """Rounded to a half type, unless the operation is exact."""
        if t.dtype not in HALVES or op in _EXACT:
            return expansion
        bfloat = ptx.round_bfloat if self._dialect.ptx else helpers.round_bfloat
        maker = helpers.round_half if t.dtype is DType.FLOAT16 else bfloat
        return ATOM, [self.helper(f"round_{tag(t)}", maker, t) + "(", *expansion[1], ")"]

    def _integer_extreme(self, node: Binary) -> Expansion:
        t = node.type
        if t.lanes > 1 or t.dtype.bits >= 32:
            return call(node.op, (node.left, node.right))
        # C computes narrow scalars in int, so their texts may have that type: an overloaded function must be told.
        return ATOM, [f"{node.op}((int)", (node.left, PREFIX), ", (int)", (node.right, PREFIX), ")"]

    def _divide(self, node: Binary) -> Expansion:
        t, op = node.type, node.op
        divisor = node.right.value if isinstance(node.right, (Splat,)) else node.right
        known = isinstance(divisor, Const) and divisor.value not in (0, -1)
        positive = known and isinstance(divisor, Const) and divisor.value > 0
        if known and (op == "div" or not t.dtype.is_signed):
            return infix("/" if op == "div" else "%", TERM, node.left, node.right)
        if op == "mod" and positive and t.lanes == 1 and self._intervals.not_negative(node.left, self.lookup):
            return infix("%", TERM, node.left, node.right)
        return call(self.helper(f"{op}_{tag(t)}", helpers.divide, op, t), (node.left, node.right))

    def _wrapping(self, node: Binary) -> Expansion:
        """add, sub, mul of integers: signed ones through unsigned, unless they provably fit."""
        t, op = node.type, node.op
        if op not in ("add", "sub", "mul"):
            raise SemtreeError(f"OpenCL has no operation {op} of {t.dtype}")
        symbol, precedence = self.infixes[op]
        if t.lanes > 1:
            if not t.dtype.is_signed:
                return infix(symbol, precedence, node.left, node.right)
            return self._through_unsigned(
                t, [*self._as_unsigned(node.left), f" {symbol} ", *self._as_unsigned(node.right)]
            )
        plain = t.dtype is DType.UINT32 or t.dtype is DType.UINT64
        if plain or (t.dtype.bits >= 32 and self._intervals.fits(node, self.lookup)):
            return infix(symbol, precedence, node.left, node.right)
        wide = f"({_wide(t)})"
        pieces: list[Piece] = [
            f"({self.type_name(t)})(",
            wide,
            (node.left, PREFIX),
            f" {symbol} ",
            wide,
            (node.right, PREFIX),
            ")",
        ]
        return PREFIX, pieces

    def _as_unsigned(self, value: Expr) -> list[Piece]:
        return [f"as_{unsigned(value.type.dtype, value.type.lanes)}(", (value, 0), ")"]

    def _through_unsigned(self, t: Type, pieces: Sequence[Piece]) -> Expansion:
        if not t.dtype.is_signed:
            return ADDITIVE, pieces
        return ATOM, [f"as_{self.type_name(t)}(", *pieces, ")"]

    def _shift(self, node: Binary) -> Expansion:
        t, count = node.type, node.right.type
        name = f"{'shl' if node.op == 'bit_left' else 'shr'}_{tag(t)}_{tag(count)}"
        return call(self.helper(name, helpers.shift, node.op, t, count), (node.left, node.right))

    def _fma(self, node: Fma) -> Expansion:
        return self._round(call("fma", (node.a, node.b, node.c)), node.type)

    def _call(self, node: Call) -> Expansion:
        t, name = node.type, node.name
        own = approximate.of_halves.get(t.dtype, {}).get(name) if self._dialect.ptx else None
        if own is not None:
            return self._round(call(self.helper(f"{name}_{tag(t)}", own, t), node.args), t)
        if name == "recip":
            one = self._text(self.literal(1.0, Type(DType.FLOAT32 if t.dtype in HALVES else t.dtype, t.lanes)))
            return self._round((TERM, [f"{one} / ", (node.args[0], TERM + 1)]), t)
        if self._dialect.fast_math and t.dtype is DType.FLOAT32 and name in _NATIVE:
            return call(_NATIVE[name], node.args)
        function = self.function_name(name, t)
        if t.lanes > 1 and self._dialect.math_by_lane and name not in _SAME_IN_VECTORS:
            wide = Type(DType.FLOAT32, t.lanes) if t.dtype in HALVES else t
            function = self.helper(f"{name}_{tag(wide)}", helpers.by_lane, function, wide, len(node.args))
        return self._round(call(function, node.args), t, name)

    # comparisons, masks, select

    def _compare(self, node: Compare) -> Expansion:
        lanes, dtype = node.type.lanes, node.left.type.dtype
        if lanes == 1:
            return infix(*self.infixes[node.op], node.left, node.right)
        if dtype is DType.BOOL:
            return self._compare_masks(node)
        raw = infix(*self.infixes[node.op], node.left, node.right)
        return raw if register_bits(dtype) == 8 else (ATOM, [f"convert_char{lanes}(", *raw[1], ")"])

    def _compare_masks(self, node: Compare) -> Expansion:
        """Masks are 0 and -1: false < true."""
        symbol, invert = {
            "cmp_eq": ("^", "~("), "cmp_ne": ("^", ""), "cmp_lt": ("&", "~"), "cmp_gt": ("&", "r"),
            "cmp_le": ("|", "~"), "cmp_ge": ("|", "r"),
        }[node.op]  # fmt: skip
        left, right = "~" if invert == "~" else "", "~" if invert == "r" else ""
        pieces: list[Piece] = [f"({left}", (node.left, PREFIX), f" {symbol} {right}", (node.right, PREFIX), ")"]
        return (PREFIX, ["~", *pieces]) if invert == "~(" else (ATOM, pieces)

    def _mask(self, cond: Expr, bits: int) -> list[Piece]:
        """A condition as the mask `select` wants for elements of `bits` bits; atomic text."""
        lanes = cond.type.lanes
        if isinstance(cond, Compare) and helpers.same_width(cond.left.type.dtype, bits):
            return infix(*self.infixes[cond.op], cond.left, cond.right)[1]  # type: ignore[return-value]
        if bits == 8:
            return [(cond, 0)]
        return [f"convert_{mask(bits, lanes)}(", (cond, 0), ")"]

    def _select(self, node: Select) -> Expansion:
        if node.cond.type.lanes == 1:
            return TERNARY, [(node.cond, TERNARY + 1), " ? ", (node.then, TERNARY + 1), " : ", (node.other, TERNARY)]
        bits = register_bits(node.type.dtype)
        return ATOM, ["select(", (node.other, 0), ", ", (node.then, 0), ", ", *self._mask(node.cond, bits), ")"]

    # casts

    def _cast(self, node: Cast) -> Expansion:
        source, t, value = node.value.type, node.type, node.value
        if source.dtype is t.dtype:
            return self.expand(value)
        if t.dtype is DType.BOOL:
            return self._cast_to_bool(value, t)
        if source.dtype is DType.BOOL:
            return self._cast_from_bool(value, t)
        if source.dtype.is_float and t.dtype.is_integer:
            wide = Type(DType.FLOAT32, source.lanes) if source.dtype in HALVES else source
            name = f"{t.dtype.value}_from_{tag(wide)}"
            return call(self.helper(name, helpers.float_to_integer, wide, t.dtype), (value,))
        target = self.type_name(t)
        if register(source.dtype) == register(t.dtype):
            return self._round(self.expand(value), t, "max" if t.dtype is DType.FLOAT32 else "")
        plain: Expansion = (PREFIX, [f"({target})", (value, PREFIX)])
        return self._round(plain if t.lanes == 1 else call(f"convert_{target}", (value,)), t)

    def _bitcast(self, node: Bitcast) -> Expansion:
        """Floats of 16 bits are float32 in registers, and small integers may be int."""
        source, t = node.value.type, node.type
        if source.dtype in HALVES or t.dtype in HALVES:
            return self._of_half_bits(self._half_bits(node.value), t)
        if t.lanes == 1 and t.dtype.bits < 32:
            return PREFIX, [f"({self.type_name(t)})", (node.value, PREFIX)]
        return ATOM, [f"as_{self.type_name(t)}(", (node.value, 0), ")"]

    def _half_bits(self, value: Expr) -> Expansion:
        """The 16 bits of a value, unsigned."""
        t = value.type
        ushort = register(DType.UINT16, t.lanes)
        if t.dtype is DType.FLOAT16:
            return call(self.helper(f"half_bits_{tag(t)}", helpers.half_bits, t), (value,))
        if t.dtype is DType.BFLOAT16:
            return ATOM, [f"convert_{ushort}(as_{register(DType.UINT32, t.lanes)}(", (value, 0), ") >> 16)"]
        return (
            (PREFIX, [f"({ushort})", (value, PREFIX)]) if t.lanes == 1 else (ATOM, [f"as_{ushort}(", (value, 0), ")"])
        )

    def _of_half_bits(self, bits: Expansion, t: Type) -> Expansion:
        if t.dtype in HALVES:
            return self._from_memory(bits, t)
        return PREFIX, [f"({self.type_name(t)})" if t.lanes == 1 else f"as_{self.type_name(t)}", "(", *bits[1], ")"]

    def _cast_to_bool(self, value: Expr, t: Type) -> Expansion:
        zero = Const(0, value.type)
        return self.expand(Compare("cmp_ne", value, zero, t))

    def _cast_from_bool(self, value: Expr, t: Type) -> Expansion:
        if t.lanes == 1:
            return PREFIX, [f"({self.type_name(t)})", (value, PREFIX)]
        # abs turns a mask's -1 into 1; a minus sign would too, but oclgrind has that wrong.
        return ATOM, [f"convert_{self.type_name(t)}(abs(", (value, 0), "))"]

    _handlers: ClassVar[dict[type, Callable[..., Expansion]]] = {
        Const: _const, Var: _var, Limit: _limit, WorkId: _work_id, Load: _load, Unary: _unary, Binary: _binary, Fma: _fma,
        Call: _call, Compare: _compare, Select: _select, Cast: _cast, Bitcast: _bitcast,
    }  # fmt: skip


def _embed(precedence: int, pieces: Sequence[Piece], least: int) -> list[Piece]:
    return ["(", *pieces, ")"] if precedence < least else [*pieces]


def _wide(t: Type) -> str:
    """The unsigned type, at least 32 bits wide, whose arithmetic wraps like that of a scalar."""
    return "ulong" if t.dtype.bits == 64 else "uint"
