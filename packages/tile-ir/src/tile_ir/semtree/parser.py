"""Reads the text form of semtree. ``parse_function(print_function(f)) == f`` for every function.

Variables take the type of their declaration, other nodes the one that their operands determine, unless
the text annotates them. The parser checks spelling and scope; `tile_ir.semtree.verify` checks sense.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NoReturn

from tile_ir.diagnostics import Diagnostic, Source, Span, TileSyntaxError
from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.ops import Aggregation
from tile_ir.semtree.nodes import (
    Access,
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
    IdKind,
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
    Space,
    Splat,
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
from tile_ir.semtree.printer import BINARY_FUNCTIONS, BINARY_SYMBOLS, COMPARE_SYMBOLS, SUFFIXES, UNARY_FUNCTIONS
from tile_ir.semtree.typing import natural_type

if TYPE_CHECKING:
    from lark import Lark, Token, Tree

_BINARY = {symbol: op for op, (symbol, _) in BINARY_SYMBOLS.items()}
_COMPARE = {symbol: op for op, (symbol, _) in COMPARE_SYMBOLS.items()}
_DTYPE_OF_SUFFIX = {suffix: dtype for dtype, suffix in SUFFIXES.items()}
_NUMBER = re.compile(r"([0-9.]+(?:[eE][+-]?[0-9]+)?)(?:([a-z]+[0-9]+)(?:x([0-9]+))?)?\Z")
_UNKNOWN = Type(DType.BOOL, -1)
"""The type of a variable that no scope knows, until an annotation gives it one."""

Named = dict[str, Any]


def parse_function(text: str, name: str = "<semtree>") -> Function:
    """The function that `text` spells; TileSyntaxError with line and column otherwise."""
    from lark.exceptions import UnexpectedInput

    source = Source(text, name)
    try:
        tree: Tree[Token] = _lark().parse(text)  # pyright: ignore[reportUnknownMemberType]
    except UnexpectedInput as error:
        start = error.pos_in_stream if error.pos_in_stream is not None else len(text)
        word = str(getattr(error, "token", text[start : start + 1]))
        what = repr(word) if word else "the end of the text"
        span = Span(source, start if word else len(text), start + len(word) if word else len(text))
        _fail(f"{what} does not fit here", span)
    return _Builder(source).build(tree)


@cache
def _lark() -> Lark:
    from lark import Lark

    grammar = files("tile_ir.semtree").joinpath("semtree.lark").read_text("utf-8")
    return Lark(grammar, parser="lalr", maybe_placeholders=False)


def _fail(message: str, span: Span | None) -> NoReturn:
    raise TileSyntaxError(Diagnostic("SEMTREE-E001", message, span))


@frozen
class _Element:
    """``ptr[index, options]``, not yet known to be read or written."""

    ptr: Expr
    index: Expr
    options: Named


@dataclass(slots=True)
class _Builder:
    """Makes nodes bottom-up and left to right, so that declarations come before their uses."""

    source: Source
    scopes: list[dict[str, Type]] = field(default_factory=lambda: [{}])
    unresolved: dict[int, tuple[Var, Span]] = field(default_factory=dict[int, "tuple[Var, Span]"])
    here: Span | None = None

    def build(self, tree: Tree[Token]) -> Function:
        stack: list[Any] = [tree]
        values: list[Any] = []
        while stack:
            item = stack.pop()
            if isinstance(item, _Reduce):
                args = values[len(values) - item.arity :] if item.arity else []
                del values[len(values) - item.arity :]
                values.append(self._reduce(item.rule, args))
            elif hasattr(item, "children"):
                stack.append(_Reduce(str(item.data), len(item.children)))
                stack.extend(reversed(item.children))
            else:
                self.here = Span(self.source, item.start_pos, item.end_pos)
                values.append(item)
        if self.unresolved:
            var, span = next(iter(self.unresolved.values()))
            _fail(f"{var.name} is not declared here", span)
        return values[0]

    def _reduce(self, rule: str, args: list[Any]) -> Any:
        try:
            return _RULES[rule](self, args)
        except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
            _fail(f"this {rule.replace('_', ' ')} makes no sense ({error})", self.here)

    # --- scopes

    def declare(self, name: str, t: Type) -> str:
        self.scopes[-1][name] = t
        return name

    def variable(self, args: list[Any]) -> Var:
        name = _text(args[0])
        known = next((scope[name] for scope in reversed(self.scopes) if name in scope), None)
        var = Var(name, known or _UNKNOWN)
        if known is None:
            assert self.here is not None
            self.unresolved[id(var)] = (var, self.here)
        return var

    def annotated(self, args: list[Any]) -> Expr:
        self.unresolved.pop(id(args[0]), None)
        return replace(args[0], type=args[1])

    def open(self, args: list[Any]) -> None:
        self.scopes.append({})

    def block(self, args: list[Any]) -> Block:
        self.scopes.pop()
        return Block(tuple(args[1:]))

    # --- functions

    def head(self, args: list[Any]) -> Named:
        named: Named = {"name": _text(args[0]), "params": tuple(a for a in args[1:] if isinstance(a, Param))}
        for attribute in args[1 + len(named["params"]) :]:
            named.update(attribute)
        self.scopes.append({p.name: p.type for p in named["params"]})
        return named

    def function(self, args: list[Any]) -> Function:
        self.scopes.pop()
        head, helpers, body = args
        return Function(**head, body=body, helpers=helpers)

    # --- statements that declare

    def let(self, args: list[Any]) -> Let:
        return Let(self.declare(_text(args[0]), args[1].type), args[1])

    def var(self, args: list[Any]) -> Let:
        return Let(self.declare(_text(args[0]), args[1].type), args[1], mutable=True)

    def alloc(self, args: list[Any]) -> Alloc:
        return Alloc(self.declare(_text(args[1]), args[0]), args[0], **args[2])

    def for_head(self, args: list[Any]) -> list[Any]:
        name, start, again, _, stop, third, step, unroll = args
        if not _text(name) == _text(again) == _text(third):
            raise ValueError("a loop has one variable")
        self.scopes.append({_text(name): start.type})
        return [_text(name), start, stop, step, unroll]

    def loop(self, args: list[Any]) -> For:
        self.scopes.pop()
        (name, start, stop, step, unroll), body = args
        return For(name, start, stop, step, body, unroll)


@frozen
class _Reduce:
    rule: str
    arity: int


# --- tokens ----------------------------------------------------------------------------------------


def unescape(text: str) -> str:
    """The inverse of `tile_ir.semtree.printer.escape`."""
    return re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], text, flags=re.DOTALL)


def _text(token: Any) -> str:
    return unescape(token[1:-1]) if token.type in ("QUOTED", "STRING") else str(token)


def _plain_type(args: Sequence[Any]) -> Type:
    dtype, _, lanes = str(args[0]).partition("x")
    return Type(DType(dtype), int(lanes or 1))


def _memory_type(args: Sequence[Any]) -> Type:
    space, base, *rest = args
    element = _plain_type([base])
    count = next((int(t) for t in rest if t.type == "NUMBER"), 0)
    return Type(element.dtype, element.lanes, count, Space(str(space)), any(t.type == "STAR" for t in rest))


def _number(args: Sequence[Any]) -> Const:
    match = _NUMBER.match(str(args[0]))
    if match is None:
        raise ValueError(f"{args[0]} is no number")
    digits, suffix, lanes = match.groups()
    value = int(digits) if digits.isdigit() else float(digits)
    dtype = _DTYPE_OF_SUFFIX[suffix] if suffix else DType.INT32 if isinstance(value, int) else DType.FLOAT32
    return Const(value, Type(dtype, int(lanes or 1)))


_WORDS: dict[str, bool] = {"True": True, "False": False}


def _literal(value: str, t: Type) -> Const:
    if value in _WORDS:
        return Const(_WORDS[value], t)
    return Const(int(value) if value.lstrip("-").isdigit() else float(value), t)


# --- expressions -----------------------------------------------------------------------------------


def _natural(expr: Expr) -> Expr:
    t = natural_type(expr)
    return expr if t is None else replace(expr, type=t)


def _binary(args: Sequence[Any]) -> Expr:
    left, op, right = args
    return Binary(_BINARY[str(op)], left, right, left.type)


def _compare(args: Sequence[Any]) -> Expr:
    left, op, right = args
    return Compare(_COMPARE[str(op)], left, right, Type(DType.BOOL, left.type.lanes))


def _negate(args: Sequence[Any]) -> Expr:
    value = args[-1]
    return Const(-value.value, value.type) if isinstance(value, Const) else Unary("neg", value, value.type)


def _load(element: _Element) -> Expr:
    return _natural(Load(element.ptr, element.index, _UNKNOWN, **_masked(element.options)))


def _masked(options: Named) -> Named:
    return {key: _integer(value) if key == "align" else value for key, value in options.items()}


def _integer(value: Any) -> int:
    if isinstance(value, Const) and isinstance(value.value, int):
        return value.value
    raise ValueError("a whole number belongs here")


def _call(builder: _Builder, args: Sequence[Any]) -> Expr:
    name, rest = args[0], list(args[1:])
    make = None if name.type == "QUOTED" else _FUNCTIONS.get(str(name))
    if make is not None:
        return _natural(make(rest))
    return _natural(Call(_text(name), tuple(rest), _UNKNOWN))


def _splat(value: Expr, lanes: Expr) -> Expr:
    return Splat(value, Type(value.type.dtype, _integer(lanes)))


def _mma(m: Expr, n: Expr, k: Expr, a: Any, b: Any, c: Any) -> Expr:
    return Mma((_integer(m), _integer(n), _integer(k)), a, b, c, _UNKNOWN)


Make = Callable[[list[Any]], Any]

_FUNCTIONS: dict[str, Make] = {
    "fma": lambda a: Fma(*_exactly(3, a), type=_UNKNOWN),
    "select": lambda a: Select(*_exactly(3, a), type=a[1].type),
    "splat": lambda a: _splat(*_exactly(2, a)),
    "extract": lambda a: Extract(a[0], _integer(_exactly(2, a)[1]), _UNKNOWN),
    "insert": lambda a: Insert(a[0], _integer(_exactly(3, a)[1]), a[2], _UNKNOWN),
    "shuffle": lambda a: Shuffle(a[0], a[1], tuple(_integer(lane) for lane in a[2:]), _UNKNOWN),
    "iota": lambda a: Iota(*_exactly(1, a)),
    "limit_min": lambda a: Limit("min", *_exactly(1, a)),
    "limit_max": lambda a: Limit("max", *_exactly(1, a)),
    "literal": lambda a: _literal(*_exactly(2, a)),
    "subgroup": lambda a: SubgroupOp(a[0], tuple(a[1:]), _UNKNOWN),
    "bitcast": lambda a: Bitcast(*reversed(_exactly(2, a))),
    "round_bits": lambda a: Round(a[0], _integer(_exactly(2, a)[1]), _UNKNOWN),
    "matrix_load": lambda a: MatrixLoad(*_exactly(2, a), transpose=False, type=_UNKNOWN),
    "matrix_load_transposed": lambda a: MatrixLoad(*_exactly(2, a), transpose=True, type=_UNKNOWN),
    "mma": lambda a: _mma(*_exactly(6, a)),
}


def _exactly(count: int, args: list[Any]) -> list[Any]:
    if len(args) != count:
        raise ValueError(f"{count} arguments belong here, not {len(args)}")
    return args


def _reducer(agg: Aggregation) -> Make:
    return lambda a: ReduceLanes(agg, *_exactly(1, a), type=_UNKNOWN)


def _work_id(kind: IdKind) -> Make:
    return lambda a: WorkId(kind, _integer(*_exactly(1, a)))


def _binary_function(op: str) -> Make:
    return lambda a: Binary(op, *_exactly(2, a), type=_UNKNOWN)


def _unary_function(op: str) -> Make:
    return lambda a: Unary(op, *_exactly(1, a), type=_UNKNOWN)


def _register_families() -> None:
    for agg in Aggregation:
        _FUNCTIONS[f"reduce_{agg.value}"] = _reducer(agg)
    for kind in IdKind:
        _FUNCTIONS[f"{kind.value}_id"] = _work_id(kind)
    for op in BINARY_FUNCTIONS:
        _FUNCTIONS[op] = _binary_function(op)
    for op in UNARY_FUNCTIONS:
        _FUNCTIONS[op] = _unary_function(op)


_register_families()

# --- statements ------------------------------------------------------------------------------------


def _options(args: Sequence[Any]) -> Named:
    return {key: value if isinstance(value, str) else _integer(value) for key, value in args}


def _store(args: Sequence[Any]) -> Store:
    element, value = args
    return Store(element.ptr, element.index, value, **_masked(element.options))


def _atomic(args: Sequence[Any]) -> Atomic:
    agg, element, value = args
    return Atomic(Aggregation(str(agg)), element.ptr, element.index, value, **element.options)


def _async_copy(args: Sequence[Any]) -> AsyncCopy:
    dst, src, *options = args
    named: Named = {key: value if key == "guard" else _integer(value) for key, value in options}
    named["fill"] = bool(named.get("fill", 0))
    return AsyncCopy(dst.ptr, dst.index, src.ptr, src.index, **named)


def _tensor_copy(args: Sequence[Any]) -> TensorCopy:
    dst, src, *dims, group = args
    sizes, strides, box, steps = (tuple(int(n) for n in dims[k::5]) for k in range(1, 5))
    return TensorCopy(dst.ptr, dst.index, src, tuple(dims[::5]), sizes, strides, box, steps, int(group))


def _tile_step(args: Sequence[Any]) -> TileStep:
    name, *rest = args
    places = [a for a in rest if isinstance(a, _Element)]
    tiles = tuple(int(a) for a in rest if not isinstance(a, _Element))
    memory: Named = (
        {}
        if not places
        else {"ptr": places[0].ptr, "index": places[0].index, **_options(list(places[0].options.items()))}
    )
    return TileStep(str(name), tiles, **memory)


def _team_mma(args: Sequence[Any]) -> TeamMma:
    name, a, _, b, *c = args
    first, second = (_options(list(e.options.items())) for e in (a, b))
    panels = first.get("panels", 0), second.get("panels", 0)
    return TeamMma(_text(name), tuple(c), a.ptr, a.index, b.ptr, b.index, *panels, bool(first.get("rounded")))


_ATTRIBUTES: dict[str, Callable[[Sequence[int]], Named]] = {
    "group": lambda sizes: {"group_size": tuple(sizes)},
    "subgroup": lambda sizes: {"subgroup": sizes[0]},
}


Rule = Callable[[_Builder, list[Any]], Any]


def _pure(make: Make) -> Rule:
    return lambda _, args: make(args)


_PURE_RULES: dict[str, Make] = {
    "start": lambda a: a[0],
    "param": lambda a: Param(_text(a[2]), a[1], Access(str(a[0])), **a[3]),
    "options": _options,
    "option": lambda a: (str(a[0]), a[1]),
    "attribute": lambda a: _ATTRIBUTES[str(a[0])]([int(n) for n in a[1:]]),
    "helpers": lambda a: tuple(a),
    "assign": lambda a: Assign(_text(a[0]), a[1]),
    "store": _store,
    "if": lambda a: If(*a),
    "while": lambda a: While(a[0], a[1]),
    "barrier": lambda a: Barrier(_text(a[0]), _text(a[1])),
    "last_group": lambda a: LastGroup(a[0], a[1], int(a[2])),
    "atomic": _atomic,
    "async_copy": _async_copy,
    "tensor_copy": _tensor_copy,
    "async_wait": lambda a: AsyncWait(int(a[0]), int(a[1])),
    "tile_step": _tile_step,
    "team_mma": _team_mma,
    "call_function": lambda a: CallFn(_text(a[0]), tuple(a[1:])),
    "comment": lambda a: Comment(unescape(str(a[0])[2:].removeprefix(" "))),
    "return": lambda a: Return(),
    "step": lambda a: -int(a[1]) if len(a) > 1 else int(a[0]),
    "unroll": lambda a: Unroll(_text(a[0])) if a else Unroll.NONE,
    "binary": _binary,
    "compare": _compare,
    "negate": _negate,
    "bit_not": lambda a: Unary("bit_not", a[0], a[0].type),
    "load": lambda a: _load(a[0]),
    "element": lambda a: _Element(a[0], a[1], dict(a[2:])),
    "number": _number,
    "true": lambda a: Const(True, Type(DType.BOOL)),
    "false": lambda a: Const(False, Type(DType.BOOL)),
    "cast": lambda a: Cast(a[1], a[0]),
    "type_argument": lambda a: a[0],
    "string": lambda a: _text(a[0]),
    "group": lambda a: tuple(a),
    "plain_type": _plain_type,
    "memory_type": _memory_type,
}
_RULES: dict[str, Rule] = {
    "variable": _Builder.variable,
    "annotated": _Builder.annotated,
    "open": _Builder.open,
    "block": _Builder.block,
    "head": _Builder.head,
    "function": _Builder.function,
    "let": _Builder.let,
    "var": _Builder.var,
    "alloc": _Builder.alloc,
    "for_head": _Builder.for_head,
    "for": _Builder.loop,
    "call": _call,
    **{name: _pure(make) for name, make in _PURE_RULES.items()},
}
