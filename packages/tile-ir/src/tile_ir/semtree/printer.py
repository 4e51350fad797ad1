"""Semtree as C-like text; `tile_ir.semtree.parser` reads it back to an equal function.

Types are written where operands do not determine them: literals carry a suffix (``1f64``; plain
``1`` is int32 and ``1.0`` float32), casts and limits name theirs, a vector load says ``a[i]:float32x8``.
Any node whose type is not the natural one gets such an annotation, so that ill-typed functions have
text as well. A name that is not a plain identifier stands in backticks.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from tile_ir.dtype import DType, Kind
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
    SHIFT,
    TERM,
    Expansion,
    Piece,
    commas,
    infix,
    render,
)  # fmt: skip
from tile_ir.frozen import frozen
from tile_ir.semtree.errors import SemtreeError
from tile_ir.semtree.nodes import (
    Alloc,
    Assign,
    AsyncCopy,
    AsyncWait,
    Atomic,
    Barrier,
    Binary,
    Bitcast,
    Block,
    Call,
    CallFn,
    Cast,
    Comment,
    Compare,
    Const,
    Expr,
    Extract,
    Fma,
    For,
    Function,
    If,
    Insert,
    Iota,
    LastGroup,
    Let,
    Limit,
    Load,
    MatrixLoad,
    Mma,
    Param,
    ReduceLanes,
    Return,
    Round,
    Select,
    Shuffle,
    Splat,
    Statement,
    Store,
    SubgroupOp,
    TeamMma,
    TensorCopy,
    TileStep,
    Type,
    Unary,
    Unroll,
    Var,
    While,
    WorkId,
)  # fmt: skip
from tile_ir.semtree.typing import natural_type

BINARY_SYMBOLS: dict[str, tuple[str, int]] = {
    "mul": ("*", TERM), "div": ("/", TERM), "mod": ("%", TERM), "add": ("+", ADDITIVE), "sub": ("-", ADDITIVE),
    "bit_left": ("<<", SHIFT), "bit_right": (">>", SHIFT), "bit_and": ("&", BAND), "bit_xor": ("^", BXOR),
    "bit_or": ("|", BOR),
}  # fmt: skip
COMPARE_SYMBOLS: dict[str, tuple[str, int]] = {
    "cmp_lt": ("<", RELATIONAL), "cmp_gt": (">", RELATIONAL), "cmp_le": ("<=", RELATIONAL),
    "cmp_ge": (">=", RELATIONAL), "cmp_eq": ("==", EQUALITY), "cmp_ne": ("!=", EQUALITY),
}  # fmt: skip
BINARY_FUNCTIONS = ("max", "min")
UNARY_FUNCTIONS = ("abs", "neg", "bit_not")
_KEYWORDS = (
    "function helpers let var alloc for if else while barrier atomic async_copy async_wait tensor_copy tile_step call return unroll "
    "true false private local global const read write readwrite"
)
KEYWORDS: frozenset[str] = frozenset(_KEYWORDS.split())
_FUNCTIONS = (
    "fma select splat extract insert shuffle iota limit_min limit_max reduce_add reduce_mul reduce_max reduce_min "
    "reduce_assign global_id group_id local_id subgroup round_bits matrix_load matrix_load_transposed mma literal "
    "max min abs neg bit_not"
)
FUNCTIONS: frozenset[str] = frozenset(_FUNCTIONS.split())
"""Names with a meaning of their own before a parenthesis; all others are calls of the math table."""
SUFFIXES: dict[DType, str] = {
    d: {Kind.BOOL: "b", Kind.SIGNED: "i", Kind.UNSIGNED: "u", Kind.FLOAT: "f"}[d.kind] + str(d.bits) for d in DType
} | {DType.BFLOAT16: "bf16"}

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_TYPE_NAME = re.compile(rf"({'|'.join(d.value for d in DType)})(x[0-9]+)?\Z")
_MAX_INDENT = 30


def escape(text: str, quote: str) -> str:
    """`text` with backslashes, newlines and `quote` escaped."""
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace(quote, "\\" + quote) if quote else text


def name_text(name: str) -> str:
    """A name as the text form spells it."""
    plain = _PLAIN_NAME.match(name) and name not in KEYWORDS and not _TYPE_NAME.match(name)
    return name if plain else f"`{escape(name, '`')}`"


def type_text(t: Type) -> str:
    """``float32x8``, ``global float32*``, ``local float32[256]``."""
    base = t.dtype.value + (f"x{t.lanes}" if t.lanes != 1 else "")
    if not t.ptr and not t.count and t.space.value == "private":
        return base
    mark = f"[{t.count}*]" if t.ptr and t.count else "*" if t.ptr else f"[{t.count}]"
    return f"{t.space.value} {base}{mark}"


def print_function(function: Function) -> str:
    """The text of a kernel with its helpers; SemtreeError on an operator the language lacks."""
    return _Printer().function(function)


def print_expr(expr: Expr, longest: int = 200) -> str:
    """The text of one expression, for messages: cut off after `longest` words, variables without types."""
    printer = _Printer(annotate_variables=False)
    return render(expr, printer.expand, longest=longest)


class _Printer:
    def __init__(self, annotate_variables: bool = True) -> None:
        self._annotate = annotate_variables
        self._scopes: list[dict[str, Type]] = [{}]
        self._lines: list[str] = []
        self._depth = 0

    # --- expressions

    def expr(self, expr: Expr, least: int = 0) -> str:
        return render(expr, self.expand, least)

    def expand(self, expr: Expr) -> Expansion:
        precedence, pieces = self._bare(expr)
        if not self._annotated(expr):
            return precedence, pieces
        inner = pieces if precedence >= POSTFIX else ["(", *pieces, ")"]
        return POSTFIX, [*inner, f":{type_text(expr.type)}"]

    def _annotated(self, expr: Expr) -> bool:
        match expr:
            case Var(name, t):
                return self._annotate and self._lookup(name) != t
            case Const() | Cast() | Bitcast() | Iota() | Limit():
                return False
            case Splat(value, t):
                return t != Type(value.type.dtype, t.lanes)
            case _:
                return natural_type(expr) != expr.type

    def _lookup(self, name: str) -> Type | None:
        return next((scope[name] for scope in reversed(self._scopes) if name in scope), None)

    def _bare(self, expr: Expr) -> Expansion:
        match expr:
            case Const(value, t):
                return _literal(value, t)
            case Var(name):
                return ATOM, [name_text(name)]
            case Load():
                return POSTFIX, _element(expr.ptr, expr.index, _options(mask=expr.mask, align=expr.align))
            case Binary(op, left, right) if op in BINARY_SYMBOLS:
                return infix(*BINARY_SYMBOLS[op], left, right)
            case Compare(op, left, right) if op in COMPARE_SYMBOLS:
                return infix(*COMPARE_SYMBOLS[op], left, right)
            case Unary("neg" | "bit_not" as op, value) if not isinstance(value, Const):
                return PREFIX, ["-" if op == "neg" else "~", (value, PREFIX)]
            case Cast(value, t):
                return ATOM, [f"{type_text(t)}(", (value, 0), ")"]
            case _:
                return ATOM, _call_pieces(expr)

    # --- statements

    def function(self, function: Function) -> str:
        self._function(function)
        return "\n".join(self._lines) + "\n"

    def _function(self, function: Function) -> None:
        params = ", ".join(_param(p) for p in function.params)
        size = ", ".join(str(n) for n in function.group_size)
        head = f"function {name_text(function.name)}({params}) group({size})"
        head += f" subgroup({function.subgroup})" if function.subgroup else ""
        self._line(head + (" helpers {" if function.helpers else " {"))
        if function.helpers:
            self._depth += 1
            for helper in function.helpers:
                self._function(helper)
            self._depth -= 1
            self._line("} {")
        self._scopes.append({p.name: p.type for p in function.params})
        self._body(function.body)
        self._scopes.pop()

    def _line(self, text: str) -> None:
        self._lines.append("    " * min(self._depth, _MAX_INDENT) + text)

    def _body(self, body: Block) -> None:
        """The statements of an opened block and its closing brace."""
        self._enter({})
        stack: list[Statement | _Close | _Else] = [_Close(1), *reversed(body.body)]
        while stack:
            item = stack.pop()
            match item:
                case _Close(scopes, text):
                    self._leave(scopes)
                    self._line(text)
                case _Else(block):
                    self._leave(1)
                    self._line("} else {")
                    self._enter({})
                    stack.extend(reversed(block.body))
                case Block(inner):
                    self._line("{")
                    self._enter({})
                    stack += [_Close(1), *reversed(inner)]
                case For() | While() | If():
                    stack.extend(reversed(self._compound(item)))
                case _:
                    self._line(self._simple(item))

    def _enter(self, names: dict[str, Type]) -> None:
        self._scopes.append(names)
        self._depth += 1

    def _leave(self, scopes: int) -> None:
        del self._scopes[-scopes:]
        self._depth -= 1

    def _compound(self, item: For | While | If) -> Sequence[Statement | _Close | _Else]:
        """Print the head and open the block; what is still to print."""
        match item:
            case For(var, start, stop, step, body, unroll):
                name = name_text(var)
                head = f"for ({name} = {self.expr(start)}; {name} < {self.expr(stop, SHIFT)}; {name} += {step})"
                self._line(head + (f' unroll("{unroll.value}") {{' if unroll is not Unroll.NONE else " {"))
                self._scopes.append({var: start.type})
                self._enter({})
                return [*body.body, _Close(2)]
            case While(cond, body):
                self._line(f"while ({self.expr(cond)}) {{")
                self._enter({})
                return [*body.body, _Close(1)]
            case If(cond, then, other):
                self._line(f"if ({self.expr(cond)}) {{")
                self._enter({})
                return [*then.body, *(() if other is None else (_Else(other),)), _Close(1)]

    def _simple(self, item: Statement) -> str:
        match item:
            case Let(name, value, mutable):
                text = f"{'var' if mutable else 'let'} {name_text(name)} = {self.expr(value)};"
                self._scopes[-1][name] = value.type
                return text
            case Assign(name, value):
                return f"{name_text(name)} = {self.expr(value)};"
            case Alloc(name, t, align):
                self._scopes[-1][name] = t
                return f"alloc {type_text(t)} {name_text(name)}{_align(align, 64)};"
            case Store(ptr, index, value, mask, align, hint):
                return f"{self._at(ptr, index, _options(mask=mask, align=align, hint=hint))} = {self.expr(value)};"
            case Atomic(agg, ptr, index, value):
                return f"atomic {agg.value} {self._at(ptr, index)} = {self.expr(value)};"
            case AsyncCopy(dst, to, src, at, count, guard, group, align, fill):
                found = _options(guard=guard, group=group, align=align, fill=int(fill))
                options = self._pieces([f", count={count}", *found])
                return f"async_copy {self._at(dst, to)} = {self._at(src, at)}{options};"
            case TensorCopy():
                return self._tensor_copy(item)
            case Barrier() | AsyncWait():
                return _wait_text(item)
            case LastGroup(flag, which, count):
                return f"last_group({self.expr(flag)}, {self.expr(which)}, {count});"
            case TileStep():
                return self._tile_step(item)
            case TeamMma():
                return self._team_product(item)
            case _:
                return self._other(item)

    def _other(self, item: Statement) -> str:
        match item:
            case CallFn(name, args):
                return f"call {name_text(name)}({self._pieces(commas(args))});"
            case Comment(text):
                return f"// {escape(text, '')}"
            case Return():
                return "return;"
            case _:
                raise SemtreeError(f"semtree has no statement {type(item).__name__}")

    def _tensor_copy(self, item: TensorCopy) -> str:
        dims = zip(item.at, zip(item.sizes, item.strides, item.box, item.steps, strict=True), strict=True)
        texts = (f"({self.expr(at)}, {', '.join(map(str, numbers))})" for at, numbers in dims)
        return f"tensor_copy {self._at(item.dst, item.dst_index)} = {self.expr(item.src)}, {', '.join(texts)}, {item.group};"

    def _tile_step(self, item: TileStep) -> str:
        place = ""
        if item.ptr is not None and item.index is not None:
            place = f", {self._at(item.ptr, item.index, _options(pitch=item.pitch))}"
        return f"tile_step {item.name}({', '.join(map(str, item.tiles))}){place};"

    def _team_product(self, node: TeamMma) -> str:
        a = self._at(node.a, node.a_index, _options(panels=node.a_panels, rounded=int(node.rounded)))
        b = self._at(node.b, node.b_index, _options(panels=node.b_panels))
        return f'team_mma "{escape(node.instruction, chr(34))}" = {a} * {b}, ({self._pieces(commas(node.c))});'

    def _at(self, ptr: Expr, index: Expr, options: Sequence[Piece] = ()) -> str:
        return self._pieces(_element(ptr, index, options))

    def _pieces(self, pieces: Sequence[Piece]) -> str:
        return "".join(p if isinstance(p, str) else self.expr(*p) for p in pieces)


@frozen
class _Close:
    scopes: int
    text: str = "}"


@frozen
class _Else:
    block: Block


def _param(p: Param) -> str:
    options = [f"align={p.align}"] if p.align != 1 else []
    options += [f"elements={p.elements}"] if p.elements else []
    options += [f'alias_of="{escape(p.alias_of, chr(34))}"'] if p.alias_of is not None else []
    tail = f" [{', '.join(options)}]" if options else ""
    return f"{p.access.value} {type_text(p.type)} {name_text(p.name)}{tail}"


def _align(align: int, default: int) -> str:
    return f" [align={align}]" if align != default else ""


def _wait_text(item: Barrier | AsyncWait) -> str:
    if isinstance(item, AsyncWait):
        return f"async_wait({item.group}, {item.pending});"
    return f'barrier("{escape(item.scope, chr(34))}", "{escape(item.fence, chr(34))}");'


def _element(ptr: Expr, index: Expr, options: Sequence[Piece]) -> list[Piece]:
    return [(ptr, POSTFIX), "[", (index, 0), *options, "]"]


def _options(**values: Expr | int | str | None) -> list[Piece]:
    """``, key=value`` for every value that is not its default (None, 0 or "")."""
    pieces: list[Piece] = []
    for key, value in values.items():
        if value is None or value == 0 or value == "":
            continue
        pieces.append(f", {key}=")
        pieces.append(f'"{escape(value, chr(34))}"' if isinstance(value, str) else _int_or_expr(value))
    return pieces


def _int_or_expr(value: Expr | int) -> Piece:
    return str(value) if isinstance(value, int) else (value, 0)


def _literal(value: int | float | bool, t: Type) -> Expansion:
    special = isinstance(value, float) and not math.isfinite(value)
    if special or isinstance(value, bool) or t.dtype is DType.BOOL or type_text(t) != type_text(Type(t.dtype, t.lanes)):
        return _odd_literal(value, t)
    negative = math.copysign(1, value) < 0
    text = repr(abs(float(value))) if isinstance(value, float) else str(abs(int(value)))
    plain = t.lanes == 1 and t.dtype is (DType.FLOAT32 if isinstance(value, float) else DType.INT32)
    text += "" if plain else SUFFIXES[t.dtype] + (f"x{t.lanes}" if t.lanes != 1 else "")
    return (PREFIX, ["-" + text]) if negative else (ATOM, [text])


def _odd_literal(value: int | float | bool, t: Type) -> Expansion:
    """Booleans, infinities and NaN, and literals of types that no suffix names."""
    if isinstance(value, bool) and t == Type(DType.BOOL):
        return ATOM, ["true" if value else "false"]
    text = f'"{value}"' if not isinstance(value, float) else f'"{float(value)!r}"'
    return ATOM, [f"literal({text}, {type_text(t)})"]


def _call_pieces(expr: Expr) -> list[Piece]:
    match expr:
        case Unary(op, value) if op in UNARY_FUNCTIONS:
            return [f"{op}(", (value, 0), ")"]
        case Binary(op, left, right) if op in BINARY_FUNCTIONS:
            return [f"{op}(", *commas((left, right)), ")"]
        case Fma(a, b, c):
            return ["fma(", *commas((a, b, c)), ")"]
        case Select(cond, then, other):
            return ["select(", *commas((cond, then, other)), ")"]
        case Call(name, args):
            text = f"`{escape(name, '`')}`" if name in FUNCTIONS else name_text(name)
            return [f"{text}(", *commas(args), ")"]
        case Bitcast(value, t):
            return [f"bitcast({type_text(t)}, ", (value, 0), ")"]
        case Splat(value, t):
            return ["splat(", (value, 0), f", {t.lanes})"]
        case Extract(vector, lane):
            return ["extract(", (vector, 0), f", {lane})"]
        case Insert(vector, lane, value):
            return ["insert(", (vector, 0), f", {lane}, ", (value, 0), ")"]
        case Shuffle(left, right, lanes):
            return ["shuffle(", *commas((left, right)), *(f", {lane}" for lane in lanes), ")"]
        case ReduceLanes(agg, value):
            return [f"reduce_{agg.value}(", (value, 0), ")"]
        case _:
            return _leaf_pieces(expr)


def _leaf_pieces(expr: Expr) -> list[Piece]:
    match expr:
        case Iota(t):
            return [f"iota({type_text(t)})"]
        case Limit("min" | "max" as which, t):
            return [f"limit_{which}({type_text(t)})"]
        case WorkId(kind, axis):
            return [f"{kind.value}_id({axis})"]
        case SubgroupOp(op, args):
            return [f'subgroup("{escape(op, chr(34))}"', *(p for arg in args for p in (", ", (arg, 0))), ")"]
        case Round(value, bits):
            return ["round_bits(", (value, 0), f", {bits})"]
        case MatrixLoad(ptr, index, transpose):
            return [f"matrix_load{'_transposed' if transpose else ''}(", *commas((ptr, index)), ")"]
        case Mma((m, n, k), a, b, c):
            return [f"mma({m}, {n}, {k}, [", *commas(a), "], [", *commas(b), "], [", *commas(c), "])"]
        case _:
            raise SemtreeError(f"semtree has no expression {type(expr).__name__} {getattr(expr, 'op', '')}")
