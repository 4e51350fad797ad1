"""Turns the parse of a Stripe text into nodes, bottom up, while lark reads it. Imported with the parser only."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, TypeVar

from lark import Token, Transformer, v_args

from tile_ir.dtype import DType
from tile_ir.ops import OPS, Aggregation, Signature
from tile_ir.stripe.affine import Affine, DivMod, DivModOp, Quasi
from tile_ir.stripe.nodes import (
    Bind,
    Block,
    Const,
    ConstantBuffer,
    Direction,
    Fragment,
    Index,
    Init,
    Layout,
    Load,
    LoadIndex,
    Location,
    Op,
    Order,
    Program,
    Reduce,
    Refinement,
    Scope,
    Special,
    Statement,
    Store,
    Swizzle,
    Sync,
    TensorType,
    Transfer,
    Wait,
)
from tile_ir.stripe.parser import Fault

_ALIASES = {
    **{f"{short}{bits}": f"{long}{bits}" for short, long in (("i", "int"), ("u", "uint")) for bits in (8, 16, 32, 64)},
    **{f"{short}{bits}": f"float{bits}" for short in ("f", "fp") for bits in (16, 32, 64)},
    "bf16": "bfloat16", "int": "int32", "float": "float32", "double": "float64", "half": "float16", "boolean": "bool",
}  # fmt: skip
_MAX_DIGITS = 40
_E = TypeVar("_E", bound=Enum)


@dataclass(frozen=True, slots=True)
class _Scalar:
    name: str


@dataclass(frozen=True, slots=True)
class _View:
    name: str
    at: tuple[Quasi | str, ...]


@dataclass(frozen=True, slots=True)
class _Call:
    name: str
    args: tuple[Any, ...]
    dtype: DType | None

    @property
    def positional(self) -> list[Any]:
        return [a for a in self.args if not isinstance(a, _Option)]

    def options(self, **defaults: Any) -> dict[str, Any]:
        """Keyword arguments over `defaults`; Fault for one that is not among them."""
        given = {a.name: a.value for a in self.args if isinstance(a, _Option)}
        for name in given:
            if name not in defaults:
                raise Fault(f"{self.name} has no option {str(name)!r}", name, f"options: {', '.join(defaults) or 'none'}")
        return {**defaults, **given}


@dataclass(frozen=True, slots=True)
class _Option:
    name: str
    value: Any


@dataclass(frozen=True, slots=True)
class _UntypedOp:
    """An operation whose dtype is inferred once its block's refinements are known."""

    dst: str
    name: str
    args: tuple[str, ...]
    deps: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Numbered:
    label: int | None
    deps: tuple[int, ...]
    statement: Any


class _Dropped:
    """Stands for an elision or a comment between statements."""


_DROPPED = _Dropped()


def _dtype(name: str) -> DType:
    try:
        return DType(_ALIASES.get(str(name), str(name)))
    except ValueError:
        raise Fault(f"no element type is called {str(name)!r}", name) from None


def _enum(kind: type[_E], name: Any, what: str) -> _E:
    try:
        return kind(str(name))
    except ValueError:
        choices = ", ".join(str(member.value) for member in kind)
        raise Fault(f"{str(name)!r} is not {what}", name, f"one of {choices}") from None


def _integer(token: Token) -> int:
    if len(token) > _MAX_DIGITS:
        raise Fault("the number has too many digits", token)
    return int(token, 0) if token.startswith("0x") else int(token)


def _bare(value: Any) -> str:
    """The name that a value parsed as a form spells; Fault when it is no bare name."""
    match value:
        case Affine(((name, 1),), 0):
            return str(name)
        case _View(name, ()):
            return name
        case _Scalar(name):
            return name
        case _:
            raise Fault("a name is expected here")


def _buffer(value: Any) -> str:
    if isinstance(value, _Scalar):
        raise Fault(f"a buffer is expected here, not the scalar {value.name}")
    return _bare(value)


def _scalar(value: Any) -> str:
    if not isinstance(value, _Scalar):
        raise Fault("a scalar such as $x is expected here")
    return value.name


def _int(value: Any) -> int:
    match value:
        case int():
            return value
        case Affine((), const):
            return const
        case _:
            raise Fault("an integer is expected here")


def _affine(value: Quasi) -> Affine:
    if isinstance(value, Affine):
        return value
    raise Fault("only an affine form can stand here", hint="it contains / or %")


def _scaled(form: Quasi, factor: int) -> Quasi:
    if isinstance(form, Affine):
        return form * factor
    return replace(form, scale=form.scale * factor, plus=form.plus * factor)


def _divmod(left: Quasi, sign: Token, right: Quasi, op: DivModOp) -> DivMod:
    divisor = _affine(right)
    if not divisor.is_const or divisor.const <= 0:
        raise Fault("the divisor of a form is a positive integer", sign)
    return DivMod(_affine(left), divisor.const, op)


def _boolean(value: Any) -> bool:
    name = _bare(value)
    if name not in ("true", "false"):
        raise Fault("true or false is expected here")
    return name == "true"


def _names(value: Any) -> tuple[str, ...]:
    return tuple(_buffer(item) for item in value)


def _forms(values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(value for value in values if value is not None)


@v_args(inline=True)
class Builder(Transformer[Token, Any]):
    """One method per rule of stripe.lark; stateless, so that one parser serves every thread."""

    # names and forms

    def plain(self, token: Token) -> Token:
        return token

    def quoted(self, token: Token) -> Token:
        return token.update(value=token[1:-1])

    def tag(self, token: Token) -> str:
        return str(token[1:]).strip("`")

    def int_form(self, token: Token) -> Affine:
        return Affine((), _integer(token))

    def name_form(self, name: Token) -> Affine:
        return Affine.var(str(name))

    def negate(self, form: Quasi) -> Quasi:
        return _scaled(form, -1)

    def plus(self, left: Quasi, right: Quasi) -> Quasi:
        match left, right:
            case Affine(), Affine():
                return left + right
            case DivMod(), Affine():
                return replace(left, plus=left.plus + right)
            case Affine(), DivMod():
                return replace(right, plus=right.plus + left)
            case _:
                raise Fault("a form has at most one / or %")

    def minus(self, left: Quasi, right: Quasi) -> Quasi:
        return self.plus(left, self.negate(right))

    def times(self, left: Quasi, star: Token, right: Quasi) -> Quasi:
        factor, form = (left, right) if isinstance(left, Affine) and left.is_const else (right, left)
        if not (isinstance(factor, Affine) and factor.is_const):
            raise Fault("a product of two index forms is not affine", star)
        return _scaled(form, factor.const)

    def floordiv(self, left: Quasi, slash: Token, right: Quasi) -> DivMod:
        return _divmod(left, slash, right, DivModOp.DIV)

    def modulo(self, left: Quasi, percent: Token, right: Quasi) -> DivMod:
        return _divmod(left, percent, right, DivModOp.MOD)

    def positive(self, token: Token) -> int:
        return _integer(token)

    def negative(self, token: Token) -> int:
        return -_integer(token)

    # literals and values

    def float_literal(self, token: Token) -> float:
        return float(token)

    def int_literal(self, token: Token) -> int:
        return _integer(token)

    def negative_literal(self, token: Token) -> int:
        return -_integer(token)

    def name_literal(self, token: Token) -> bool:
        if token not in ("true", "false"):
            raise Fault(f"{str(token)!r} is not a literal", token)
        return token == "true"

    def string(self, token: Token) -> str:
        return _string(token)

    def scalar(self, token: Token) -> _Scalar:
        return _Scalar(_scalar_name(token))

    def list(self, *values: Any) -> tuple[Any, ...]:
        return _forms(values)

    def option(self, name: Token, value: Any) -> _Option:
        return _Option(name, value)

    def options(self, *options: _Option | None) -> dict[str, Any]:
        return {option.name: option.value for option in options if option is not None}

    def view(self, name: Token, *at: Quasi | _Scalar | None) -> _View:
        return _View(str(name), tuple(a.name if isinstance(a, _Scalar) else a for a in at if a is not None))

    def call(self, name: Token, *rest: Any) -> _Call:
        *args, dtype = rest
        return _Call(name, _forms(args), None if dtype is None else _dtype(dtype))

    def dropped(self, *_: object) -> _Dropped:
        return _DROPPED

    elided = dropped

    def comment(self, token: Token) -> Token:
        return token

    # programs and blocks

    def names(self, *names: Token) -> tuple[str, ...]:
        return tuple(map(str, names))

    def inputs(self, names: tuple[str, ...]) -> _Option:
        return _Option("inputs", names)

    def outputs(self, names: tuple[str, ...]) -> _Option:
        return _Option("outputs", names)

    def constant(self, name: Token, typed: tuple[TensorType, dict[str, Any]], data: Token) -> _Option:
        try:
            content = base64.b64decode(_string(data), validate=True)
        except (ValueError, binascii.Error):
            raise Fault("the constant's data is not base64", data) from None
        type_, rest = typed
        if rest:
            raise Fault(f"a constant has no option {str(next(iter(rest)))!r}", next(iter(rest)))
        return _Option("constant", ConstantBuffer(str(name), type_, content))

    def program(self, *items: Any) -> Program:
        header = [item for item in items if isinstance(item, _Option)]
        constants = tuple(h.value for h in header if h.name == "constant")
        by_name = {h.name: h.value for h in header}
        entry = self.block_text(*items)
        return Program(entry, constants, by_name.get("inputs", ()), by_name.get("outputs", ()))

    def block_text(self, *items: Any) -> Block:
        numbered = next(item for item in items if isinstance(item, _Numbered))
        if not isinstance(numbered.statement, Block):
            raise Fault("a block is expected at the top")
        return replace(numbered.statement, deps=numbered.deps)

    def number(self, label: Token, *deps: Token | None) -> tuple[int, tuple[int, ...]]:
        return _integer(label), tuple(_integer(dep) for dep in deps if dep is not None)

    def statement(self, number: tuple[int, tuple[int, ...]] | None, *parts: Any) -> _Numbered:
        *tags, body = parts
        label, deps = number or (None, ())
        if tags:
            if not isinstance(body, Block):
                raise Fault("only blocks and refinements have tags")
            body = replace(body, tags=frozenset(tags))
        return _Numbered(label, deps, body)

    def total(self, _: Token) -> _Dropped:
        return _DROPPED

    def guard(self, *forms: Quasi) -> tuple[Quasi, ...]:
        return forms

    def instr(self, token: Token) -> str:
        return _string(token)

    def constraint(self, form: Quasi, bound: int) -> Quasi:
        return self.plus(form, Affine((), -bound)) if bound else form

    def block(self, location: Location | None, *items: Any) -> Block:
        parts = [item for item in items if item is not None]
        name, comment = _comments([item for item in parts if isinstance(item, Token)])
        refs = tuple(item for item in parts if isinstance(item, Refinement))
        body = _body([item for item in parts if isinstance(item, _Numbered)])
        return Block(
            name=name,
            indexes=tuple(item for item in parts if isinstance(item, Index)),
            constraints=tuple(item for item in parts if isinstance(item, Affine | DivMod)),
            guard=next((item for item in parts if isinstance(item, tuple)), ()),
            refs=refs,
            body=_typed(body, refs),
            loc=location,
            instr=next((item for item in parts if isinstance(item, str) and not isinstance(item, Token)), ""),
            comment=comment,
        )

    def index(self, name: Token, range_: int | None, value: Quasi | None, *marks: tuple[str, dict[str, Any]]) -> Index:
        if range_ is None and value is None:
            raise Fault(f"index {str(name)!r} needs a range or a value", name, f"{name}:32 or {name} = 4*k")
        size = 1 if range_ is None else range_
        index = Index(str(name), size, None if value is None else _affine(value))
        for word, options in marks:
            if word == Order.ORDERED.value:
                index = replace(index, order=Order.ORDERED)
                continue
            bind = _enum(Bind, word, "a binding or 'ordered'")
            if unknown := options.keys() - {"axis", "lanes"}:
                raise Fault(f"a binding has no option {str(min(unknown))!r}", min(unknown))
            index = replace(index, bind=bind, axis=_int(options.get("axis", 0)), lanes=_int(options.get("lanes", 1)))
        return index

    def mark(self, token: Token, *options: _Option | None) -> tuple[str, dict[str, Any]]:
        return str(token[1:]).strip("`"), self.options(*options)

    # refinements

    def offset(self, token: Token) -> _Option:
        return _Option("offset", _integer(token))

    def location(self, unit: Token | None, *rest: Any) -> Location:
        *at, scope = rest
        kind = Scope.DEVICE if scope is None else _enum(Scope, scope, "a scope")
        return Location("" if unit is None else str(unit), _forms(at), kind)

    def extent(self, size: int, stride: int) -> tuple[int, int]:
        return size, stride

    def type(self, dtype: Token, *rest: Any) -> tuple[TensorType, dict[str, Any]]:
        *extents, options = rest
        pairs = _forms(extents)
        given = dict(options or {})
        layout = Layout(
            tuple(stride for _, stride in pairs),
            _int(given.pop("align", 1)),
            _swizzle(given.pop("swizzle", None)),
            _fragment(given.pop("fragment", None)),
        )
        return TensorType(_dtype(dtype), tuple(size for size, _ in pairs), layout), given

    def refinement(self, *parts: Any) -> Refinement:
        direction_at = next(i for i, part in enumerate(parts) if isinstance(part, Token) and part.type == "DIRECTION")
        offset, location, into, source, *access, agg, typed = parts[direction_at + 1 :]
        direction = Direction(str(parts[direction_at]))
        implied = "" if direction is Direction.ALLOC else str(into)
        type_, options = typed
        ref = Refinement(
            dir=direction,
            into=str(into),
            source=implied if source is None else str(source),
            access=_forms(access),
            type=type_,
            agg=None if agg is None else _enum(Aggregation, agg, "an aggregation"),
            loc=location or Location("DRAM"),
            offset=0 if offset is None else offset.value,
            tags=frozenset(parts[:direction_at]),
        )
        return _with_options(ref, options)

    # statements

    def const(self, dst: Token, dtype: Token, value: int | float | bool) -> Const:
        return Const(_scalar_name(dst), value, _dtype(dtype))

    def compute(self, dst: Token, call: _Call) -> Statement | _UntypedOp:
        name = _scalar_name(dst)
        if call.name == "load":
            (view,) = _arity(call, 1)
            options = call.options(clamp=Affine.var("false"))
            at = view.at if isinstance(view, _View) else ()
            return Load(name, _buffer(view if not at else _View(view.name, ())), at, _boolean(options["clamp"]))
        if call.name == "load_index":
            (form,) = _arity(call, 1)
            if not isinstance(form, Affine | DivMod):
                raise Fault("load_index takes an index form", call.name)
            return LoadIndex(name, form, call.dtype or DType.INT32)
        if call.name.startswith("reduce_"):
            (src,) = _arity(call, 1)
            options = call.options(over=(), broadcast=Affine.var("true"))
            agg = _enum(Aggregation, call.name.removeprefix("reduce_"), "an aggregation")
            return Reduce(name, _scalar(src), agg, _names(options["over"]), _boolean(options["broadcast"]))
        return _operation(name, call)

    def update(self, dst: _View, call: _Call) -> Statement:
        if call.name == "store":
            (src,) = _arity(call, 1)
            false = Affine.var("false")
            options = call.options(clamp=false, atomic=false)
            return Store(dst.name, _scalar(src), dst.at, _boolean(options["clamp"]), _boolean(options["atomic"]))
        if call.name == "transfer" and not dst.at:
            (src,) = _arity(call, 1)
            options = call.options(unit="", group=0)
            return Transfer(dst.name, _buffer(src), str(options["unit"]), _int(options["group"]))
        raise Fault("a buffer is written by store or transfer only", call.name)

    def effect(self, call: _Call) -> Statement:
        make = _EFFECTS.get(str(call.name))
        if make is None:
            raise Fault(f"{str(call.name)!r} is not a statement", call.name, f"one of {', '.join(_EFFECTS)}")
        return make(call)


def _string(token: Token) -> str:
    try:
        return json.loads(str(token), strict=False)
    except ValueError:
        raise Fault("the string has an unknown escape", token) from None


def _scalar_name(token: Token) -> str:
    return "$" + str(token[1:]).strip("`")


def _comments(tokens: list[Token]) -> tuple[str, str]:
    """(name, comment) of a block: the first comment is the name, as on the slides."""
    lines = [str(token[2:]).removeprefix(" ") for token in tokens]
    if not lines:
        return "", ""
    first, *rest = lines
    if first.startswith('"'):
        return json.loads(first), "\n".join(rest)
    name, _, remark = first.partition(" // ")
    return name.strip(), "\n".join([remark, *rest] if remark else rest)


def _body(items: list[_Numbered]) -> tuple[Any, ...]:
    """Statements with deps as positions; elisions vanish, and labels may skip numbers."""
    positions: dict[int, int] = {}
    body: list[Any] = []
    for item in items:
        if not isinstance(item.statement, _Dropped):
            label = len(body) if item.label is None else item.label
            if label in positions:
                raise Fault(f"two statements have the number {label}")
            positions[label] = len(body)
            body.append(item)
    return tuple(_with_deps(item, positions) for item in body)


def _with_deps(item: _Numbered, positions: dict[int, int]) -> Any:
    if not item.deps:
        return item.statement
    for dep in item.deps:
        if dep not in positions:
            raise Fault(f"statement {item.label} depends on {dep}, which is not there")
    return replace(item.statement, deps=tuple(positions[dep] for dep in item.deps))


def _typed(body: tuple[Any, ...], refs: tuple[Refinement, ...]) -> tuple[Statement, ...]:
    """Give operations without a stated dtype that of their operands."""
    if not any(isinstance(s, _UntypedOp) for s in body):
        return body
    buffers = {ref.into: ref.type.dtype for ref in refs}
    scalars: dict[str, DType] = {}
    result: list[Statement] = []
    for statement in body:
        match statement:
            case _UntypedOp(dst, name, args, deps):
                dtype = _inferred(name, args, scalars)
                statement = Op(dst, name, args, dtype, deps)
                scalars[dst] = dtype
            case Load(dst, src):
                if src in buffers:
                    scalars[dst] = buffers[src]
            case Reduce(dst, src):
                if src in scalars:
                    scalars[dst] = scalars[src]
            case Const(dst, _, dtype) | LoadIndex(dst, _, dtype) | Op(dst, _, _, dtype):
                scalars[dst] = dtype
            case _:
                pass
        result.append(statement)
    return tuple(result)


def _inferred(name: str, args: tuple[str, ...], scalars: dict[str, DType]) -> DType:
    signature = OPS[name].signature if name in OPS else Signature.SAME
    if signature is Signature.COMPARE:
        return DType.BOOL
    operands = args[1:] if signature is Signature.SELECT else args
    # A slide may leave out the refinements; the verifier reports what is then missing.
    return next((scalars[a] for a in operands if a in scalars), DType.FLOAT32)


def _operation(dst: str, call: _Call) -> Op | _UntypedOp:
    name, args = str(call.name), tuple(_scalar(a) for a in call.positional)
    call.options()
    if call.dtype is None and name == "cast":
        raise Fault("cast needs the dtype it casts to", call.name, "cast($x):float32")
    return _UntypedOp(dst, name, args) if call.dtype is None else Op(dst, name, args, call.dtype)


def _arity(call: _Call, count: int) -> list[Any]:
    args = call.positional
    if len(args) != count:
        raise Fault(f"{call.name} takes {count} argument(s), not {len(args)}", call.name)
    return args


def _wait(call: _Call) -> Wait:
    options = call.options(group=0, pending=0)
    return Wait(_int(options["group"]), _int(options["pending"]))


def _sync(call: _Call) -> Sync:
    options = call.options(scope=Affine.var("group"), fence="local")
    return Sync(_enum(Scope, _bare(options["scope"]), "a scope"), str(options["fence"]))


def _special(call: _Call) -> Special:
    (name,) = _arity(call, 1)
    options = call.options(outs=(), ins=(), params={})
    params = tuple((str(k), _param(v)) for k, v in options["params"].items())
    return Special(str(name), _names(options["outs"]), _names(options["ins"]), params)


_EFFECTS: dict[str, Callable[[_Call], Statement]] = {"wait": _wait, "sync": _sync, "special": _special}


def _param(value: Any) -> int | float | str:
    match value:
        case str() | float():
            return value
        case Affine((("true" | "false" as word, 1),), 0):
            return word == "true"
        case _:
            return _int(value)


def _swizzle(value: Any) -> Swizzle | None:
    if value is None:
        return None
    bits, base, shift = (_int(item) for item in value)
    return Swizzle(bits, base, shift)


def _fragment(value: Any) -> Fragment | None:
    return None if value is None else Fragment(tuple(value["lane"]), tuple(value["register"]))


_REFINEMENT_OPTIONS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "init": ("init", lambda value: _enum(Init, _bare(value), "an initialisation")),
    "acc": ("acc", lambda value: _dtype(_bare(value))),
    "versions": ("versions", _int),
    "bank": ("bank_dim", _int),
    "const": ("const", _boolean),
    "hint": ("hint", str),
}


def _with_options(ref: Refinement, options: dict[str, Any]) -> Refinement:
    fields: dict[str, Any] = {}
    for name, value in options.items():
        if name not in _REFINEMENT_OPTIONS:
            raise Fault(f"a refinement has no option {str(name)!r}", name, f"one of {', '.join(_REFINEMENT_OPTIONS)}")
        field, convert = _REFINEMENT_OPTIONS[name]
        fields[field] = convert(value)
    return replace(ref, **fields) if fields else ref
