"""A printer of semtree as a C-like language: subclass it, fill its tables, override what differs.

The base writes plain C: scalars, pointers, loops and the operators C has with Tile's meaning, in expressions of any depth
(what C would compute in `int` is cast back to its type). What C lacks or defines differently (total division, shifts,
saturating casts, NaN-aware max/min, vectors) goes through named functions: a subclass puts each in `functions` or
overrides `special`; `tile_ir.emit.c99` is such a subclass with all of them. Every name in the text comes from a
`NameAllocator`. Parts that are shared or nest deeply become variables first (`tile_ir.emit.shallow`); nothing here recurses
over expressions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from tile_ir.dtype import DType, Kind
from tile_ir.emit.names import NameAllocator
from tile_ir.emit.pieces import (
    ADDITIVE,
    ATOM,
    BAND,
    BOR,
    BXOR,
    EQUALITY,
    POSTFIX,
    PREFIX,
    RELATIONAL,
    TERM,
    TERNARY,
    Expansion,
    Piece,
    call,
    infix,
    render,
)  # fmt: skip
from tile_ir.emit.shallow import shallow
from tile_ir.frozen import frozen
from tile_ir.semtree.errors import SemtreeError
from tile_ir.semtree.nodes import (
    Access,
    Alloc,
    Assign,
    Binary,
    Block,
    Call,
    Cast,
    Comment,
    Compare,
    Const,
    Expr,
    For,
    Function,
    If,
    Let,
    Limit,
    Load,
    Param,
    Return,
    Select,
    Space,
    Statement,
    Store,
    Type,
    Unary,
    Unroll,
    Var,
    While,
)  # fmt: skip

MATH = (
    *("exp", "log", "sqrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh"),
    *("ceil", "floor", "round", "pow", "trunc", "atan2", "fmod"),
    *("expm1", "log1p", "asinh", "acosh", "atanh", "erf", "erfc"),
)
"""Functions of `tile_ir.ops` that <math.h> has with Tile's meaning."""
_NAMES = {"round_even": "rint"} | {name: name for name in ("fma", *MATH)}


@frozen
class Close:
    """End of a block: its closing text and how many scopes of names it ends."""

    text: str = "}"
    scopes: int = 1


Item = str | Statement | Close


class CLikePrinter:
    """Text of one function after another; identifiers are unique in all of it.

    What a subclass fills or extends, all of it class variables:

    - ``types``: the name of each dtype; one that is missing cannot be written.
    - ``infixes``: operators written between their operands, as (symbol, precedence of `tile_ir.emit.pieces`).
    - ``functions``: operators and math functions written as calls; ``cast_<dtype>`` converts a float to that integer.
    - ``spaces``: the qualifier of each address space, "" for none.
    - ``suffixes``: what ends a literal of a dtype (``f``, ``ULL``).
    - ``wraps_by_unsigned``: True writes signed add, sub, mul and neg of 32 and 64 bits through unsigned types. Needless
      where the compiler is told that they wrap (``-fwrapv``); narrower ones are cast in any case.
    - ``unrolls``: lines before a loop that tell the device compiler how to unroll it.
    - ``indent``: the text of one level; ``max_indent``: levels beyond which lines are indented no further.

    Keys of `infixes` and `functions` are (op, DType), else (op, Kind), else op.
    """

    types: ClassVar[Mapping[DType, str]] = {
        DType.BOOL: "bool", DType.INT8: "int8_t", DType.INT16: "int16_t", DType.INT32: "int32_t",
        DType.INT64: "int64_t", DType.UINT8: "uint8_t", DType.UINT16: "uint16_t", DType.UINT32: "uint32_t",
        DType.UINT64: "uint64_t", DType.FLOAT32: "float", DType.FLOAT64: "double",
    }  # fmt: skip
    infixes: ClassVar[Mapping[Any, tuple[str, int]]] = {
        "add": ("+", ADDITIVE), "sub": ("-", ADDITIVE), "mul": ("*", TERM), ("div", Kind.FLOAT): ("/", TERM),
        "bit_and": ("&", BAND), "bit_or": ("|", BOR), "bit_xor": ("^", BXOR),
        "cmp_lt": ("<", RELATIONAL), "cmp_gt": (">", RELATIONAL), "cmp_le": ("<=", RELATIONAL),
        "cmp_ge": (">=", RELATIONAL), "cmp_eq": ("==", EQUALITY), "cmp_ne": ("!=", EQUALITY),
        ("add", Kind.BOOL): ("|", BOR), ("sub", Kind.BOOL): ("^", BXOR), ("mul", Kind.BOOL): ("&", BAND),
        ("div", Kind.BOOL): ("&", BAND), ("max", Kind.BOOL): ("|", BOR), ("min", Kind.BOOL): ("&", BAND),
    }  # fmt: skip
    functions: ClassVar[Mapping[Any, str]] = {
        (op, dtype): name + suffix
        for dtype, suffix in ((DType.FLOAT32, "f"), (DType.FLOAT64, ""))
        for op, name in _NAMES.items()
    }
    spaces: ClassVar[Mapping[Space, str]] = dict.fromkeys(Space, "")
    suffixes: ClassVar[Mapping[DType, str]] = {
        DType.FLOAT32: "f", DType.INT64: "LL", DType.UINT64: "ULL", DType.UINT32: "u",
    }  # fmt: skip
    wraps_by_unsigned: ClassVar[bool] = False
    unrolls: ClassVar[Mapping[Unroll, str]] = {}
    indent: ClassVar[str] = "    "
    max_indent: ClassVar[int] = 30

    def __init__(self, reserved: Sequence[str] = ()) -> None:
        self.names = NameAllocator((*reserved, *self.functions.values(), *self.types.values()))
        self._scopes: list[dict[str, str]] = [{}]
        self._lines: list[str] = []
        self._depth = 0

    # --- names

    def hint(self, name: str) -> str:
        """What the identifier for a name may look like; override where the language has more words than can be listed."""
        return name

    def declare(self, name: str) -> str:
        """A fresh identifier for a variable of this scope."""
        self._scopes[-1][name] = text = self.names.fresh(self.hint(name))
        return text

    def lookup(self, name: str) -> str:
        """The identifier of a declared variable."""
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        raise SemtreeError(f"{name!r} is not declared here")

    # --- types and literals

    def type_name(self, t: Type) -> str:
        """The name of a scalar or vector type (of a pointer's or array's element); override for vectors."""
        if t.dtype not in self.types or t.lanes != 1:
            raise SemtreeError(f"{type(self).__name__} has no type {t.dtype} with {t.lanes} lanes")
        return self.types[t.dtype]

    def pointer_name(self, t: Type, constant: bool = False) -> str:
        """``global const float* ``-like text of a pointer type."""
        words = [self.spaces[t.space], "const" if constant else "", self.type_name(t) + "*"]
        return " ".join(word for word in words if word)

    def literal(self, value: int | float | bool, t: Type) -> Expansion:
        """A scalar literal of exactly this value and type."""
        if t.dtype is DType.BOOL:
            return ATOM, ["true" if value else "false"]
        if t.dtype.is_float:
            return self.float_literal(float(value), t)
        suffix = self.suffixes.get(t.dtype, "")
        if value == t.dtype.min_value and t.dtype.is_signed:  # its absolute value is no literal
            return ADDITIVE, [f"{int(value) + 1}{suffix} - 1"]
        return (PREFIX if value < 0 else ATOM), [f"{int(value)}{suffix}"]

    def float_literal(self, value: float, t: Type) -> Expansion:
        """A floating-point literal; hexadecimal, so that no digit is lost."""
        if math.isnan(value):
            return ATOM, ["NAN"]
        sign = math.copysign(1.0, value) < 0
        text = "INFINITY" if math.isinf(value) else abs(value).hex() + self.suffixes.get(t.dtype, "")
        return (PREFIX, ["-" + text]) if sign else (ATOM, [text])

    # --- expressions

    def expression(self, expr: Expr, least: int = 0) -> str:
        """The text of an expression, in parentheses when it binds looser than `least`."""
        return render(expr, self.expand, least)

    def expand(self, expr: Expr) -> Expansion:
        """How one node is written; `special` has the first word."""
        special = self.special(expr)
        if special is not None:
            return special
        match expr:
            case Const(value, t):
                return self.literal(value, t)
            case Limit(which, t):
                return self.literal(t.dtype.min_value if which == "min" else t.dtype.max_value, t)
            case Var(name):
                return ATOM, [self.lookup(name)]
            case Load(ptr, index, t, None) if t.lanes == ptr.type.lanes:
                return POSTFIX, self.element(ptr, index)
            case Load(ptr, index, t, mask) if mask is not None and t.lanes == ptr.type.lanes == 1:
                return TERNARY, [(mask, TERNARY + 1), " ? ", *self.element(ptr, index), " : ", (Const(0, t), TERNARY)]
            case Select(cond, then, other):
                return TERNARY, [(cond, TERNARY + 1), " ? ", (then, TERNARY + 1), " : ", (other, TERNARY)]
            case Cast(value, t):
                return self.cast(value, t)
            case _:
                return self.operator(expr)

    def cast(self, value: Expr, t: Type) -> Expansion:
        """A conversion; float to integer saturates, so it is the function ``cast_<dtype>`` of the tables."""
        if t.dtype is DType.BOOL:
            return EQUALITY, [(value, RELATIONAL), " != 0"]
        if value.type.dtype.is_float and t.dtype.is_integer:
            return call(self.function_name(f"cast_{t.dtype.value}", value.type), (value,))
        return PREFIX, [f"({self.type_name(t)})", (value, PREFIX)]

    def special(self, expr: Expr) -> Expansion | None:
        """A subclass's own way to write a node, or None."""
        return None

    def operator(self, expr: Expr) -> Expansion:
        """Operators and calls by the tables; a subclass adds nodes through `special`."""
        match expr:
            case Binary(op, left, right) | Compare(op, left, right):
                symbol: tuple[str, int] | None = self._entry(self.infixes, op, left.type)
                if symbol is not None and isinstance(expr, Binary) and self._promotes(op, expr.type):
                    return self._wrapped(symbol[0], expr)
                if symbol is not None:
                    return infix(*symbol, left, right)
                return call(self.function_name(op, left.type), (left, right))
            case Unary(op, value, t) if t.dtype is DType.BOOL:
                return (PREFIX, ["!", (value, PREFIX)]) if op == "bit_not" else self.expand(value)
            case Unary("neg", value, t) if self._promotes("neg", t):
                return PREFIX, [f"({self.type_name(t)})-({self.type_name(_unsigned(t))})", (value, PREFIX)]
            case Unary("neg", value):
                return PREFIX, ["-", (value, POSTFIX)]
            case Unary("bit_not", value, t):
                return PREFIX, [f"({self.type_name(t)})~" if t.dtype.bits < 32 else "~", (value, PREFIX)]
            case Unary(op, value):
                return call(self.function_name(op, value.type), (value,))
            case Call(name, args):
                return call(self.function_name(name, expr.type), args)
            case _:
                raise SemtreeError(f"{type(self).__name__} cannot write {type(expr).__name__}")

    def _promotes(self, op: str, t: Type) -> bool:
        """True where C would compute in int, or leave a signed overflow undefined, and Tile wraps."""
        narrow = t.dtype.bits < 32 and t.dtype.is_integer
        return op in ("add", "sub", "mul", "neg") and (narrow or (t.dtype.is_signed and self.wraps_by_unsigned))

    def _wrapped(self, symbol: str, expr: Binary) -> Expansion:
        unsigned = f"({self.type_name(_unsigned(expr.type))})"
        pieces: list[Piece] = [f"({self.type_name(expr.type)})(", unsigned, (expr.left, PREFIX), f" {symbol} "]
        return PREFIX, [*pieces, unsigned, (expr.right, PREFIX), ")"]

    def function_name(self, op: str, t: Type) -> str:
        """The function that stands for an operator or a math function on this type."""
        name = self._entry(self.functions, op, t)
        if name is None:
            raise SemtreeError(f"{type(self).__name__} has no function for {op} of {t.dtype}")
        return name

    @staticmethod
    def _entry(table: Mapping[Any, Any], op: str, t: Type) -> Any:
        for key in ((op, t.dtype), (op, t.dtype.kind), op):
            if key in table:
                return table[key]
        return None

    def element(self, ptr: Expr, index: Expr) -> list[Piece]:
        """``ptr[index]``."""
        return [(ptr, POSTFIX), "[", (index, 0), "]"]

    def pieces(self, pieces: Sequence[Piece]) -> str:
        """The text of a row of strings and operands."""
        return "".join(p if isinstance(p, str) else self.expression(*p) for p in pieces)

    # --- statements

    def function(self, function: Function) -> str:
        """The text of a function after its helpers."""
        helpers = [self.function(helper) for helper in function.helpers]
        function = shallow(function)
        self._scopes.append({})
        self._lines = []
        self.line(self.signature(function) + " {")
        self.body(function.body)
        self._scopes.pop()
        return "\n".join([*helpers, *self._lines]) + "\n"

    def signature(self, function: Function) -> str:
        """The head of a function, without its brace; declares the parameters."""
        name = self.declare_global(function.name)
        return f"void {name}({', '.join(self.parameter(p) for p in function.params)})"

    def declare_global(self, name: str) -> str:
        """A fresh identifier known everywhere."""
        self._scopes[0][name] = text = self.names.fresh(self.hint(name))
        return text

    def parameter(self, param: Param) -> str:
        """``const float* restrict a`` and the like."""
        if not param.type.ptr:
            return f"{self.type_name(param.type)} {self.declare(param.name)}"
        restrict = "" if param.alias_of else "restrict "
        return f"{self.pointer_name(param.type, param.access is Access.READ)} {restrict}{self.declare(param.name)}"

    def line(self, text: str) -> None:
        """One line at the present indentation."""
        self._lines.append(self.indent * min(self._depth, self.max_indent) + text)

    def body(self, block: Block) -> None:
        """The statements of an opened block and its end."""
        self._open()
        stack: list[Item] = [Close(), *reversed(block.body)]
        while stack:
            item = stack.pop()
            if isinstance(item, Close):
                del self._scopes[-item.scopes :]
                self._depth -= 1
                self.line(item.text)
            elif isinstance(item, str):
                self.line(item)
                self._open()
            else:
                stack.extend(reversed(self.statement(item)))

    def _open(self) -> None:
        self._scopes.append({})
        self._depth += 1

    def statement(self, statement: Statement) -> Sequence[Item]:
        """Print a statement by the method ``write_<class in lower case>``.

        A compound one prints its head, opens its scope (`begin`) and gives what follows: statements, the
        `Close` of its block, and strings that open a further one.
        """
        write = getattr(self, f"write_{type(statement).__name__.lower()}", None)
        if write is None:
            raise SemtreeError(f"{type(self).__name__} cannot write {type(statement).__name__}")
        return write(statement) or ()

    def begin(self, head: str) -> None:
        """A line that opens a block."""
        self.line(head)
        self._open()

    def write_let(self, node: Let) -> None:
        value = self.expression(node.value)
        constant = "" if node.mutable else "const "
        self.line(f"{constant}{self.type_name(node.value.type)} {self.declare(node.name)} = {value};")

    def write_assign(self, node: Assign) -> None:
        self.line(f"{self.lookup(node.name)} = {self.expression(node.value)};")

    def write_store(self, node: Store) -> None:
        if max(node.value.type.lanes, node.ptr.type.lanes) > 1:
            raise SemtreeError(f"{type(self).__name__} cannot write a Store of vectors")
        guard = "" if node.mask is None else f"if ({self.expression(node.mask)}) "
        self.line(f"{guard}{self.pieces(self.element(node.ptr, node.index))} = {self.expression(node.value)};")

    def write_alloc(self, node: Alloc) -> None:
        space = self.spaces[node.type.space]
        prefix = f"{space} " if space else ""
        self.line(f"{prefix}{self.type_name(node.type)} {self.declare(node.name)}[{node.type.count}];")

    def write_for(self, node: For) -> Sequence[Item]:
        start, stop, t = self.expression(node.start), self.expression(node.stop, RELATIONAL + 1), node.start.type
        if node.unroll in self.unrolls:
            self.line(self.unrolls[node.unroll])
        self._scopes.append({})
        name = self.declare(node.var)
        self.begin(f"for ({self.type_name(t)} {name} = {start}; {name} < {stop}; {name} += {node.step}) {{")
        return [*node.body.body, Close(scopes=2)]

    def write_if(self, node: If) -> Sequence[Item]:
        self.begin(f"if ({self.expression(node.cond)}) {{")
        if node.other is None:
            return [*node.then.body, Close()]
        return [*node.then.body, Close("}"), "else {", *node.other.body, Close()]

    def write_while(self, node: While) -> Sequence[Item]:
        self.begin(f"while ({self.expression(node.cond)}) {{")
        return [*node.body.body, Close()]

    def write_block(self, node: Block) -> Sequence[Item]:
        self.begin("{")
        return [*node.body, Close()]

    def write_comment(self, node: Comment) -> None:
        for text in comment_lines(node.text):
            self.line(text)

    def write_return(self, node: Return) -> None:
        self.line("return;")


def comment_lines(text: str) -> list[str]:
    """A comment of any text, a line of C for each of its lines."""
    # A backslash at the end would swallow the next line; other characters might not be ASCII.
    lines = (line.encode("ascii", "replace").decode().rstrip("\\? ").replace("??/", "?") for line in text.splitlines())
    return [f"// {line}".rstrip() for line in lines]


def _unsigned(t: Type) -> Type:
    """The unsigned type, at least 32 bits wide, whose arithmetic wraps like that of `t`."""
    return Type(DType.UINT64 if t.dtype.bits == 64 else DType.UINT32, t.lanes)
