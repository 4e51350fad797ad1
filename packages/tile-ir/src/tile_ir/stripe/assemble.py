"""Makes Stripe statements, bodies and refinements from the pieces that `stripe.lark` reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tile_ir.dtype import DType
from tile_ir.ops import OPS, Aggregation, Signature
from tile_ir.stripe.affine import Affine, DivMod
from tile_ir.stripe.nodes import (
    Const,
    Fragment,
    Init,
    Load,
    LoadIndex,
    Op,
    Reduce,
    Refinement,
    Scope,
    Special,
    Statement,
    Store,
    Swizzle,
    Sync,
    Transfer,
    Wait,
)
from tile_ir.stripe.syntax import (
    BufferView,
    Call,
    Dropped,
    Fault,
    Numbered,
    UntypedOp,
    to_bool,
    to_buffer,
    to_dtype,
    to_enum,
    to_forms,
    to_int,
    to_items,
    to_name,
    to_names,
    to_scalar,
    to_table,
    to_text,
)

if TYPE_CHECKING:
    from lark import Token


def computation(name: str, call: Call) -> Statement | UntypedOp:
    """``$name = call``: load, load_index, a reduction, or an operation."""
    if call.name == "load":
        return _load(name, call)
    if call.name == "load_index":
        (form,) = positional(call, 1)
        if not isinstance(form, Affine | DivMod):
            raise Fault("load_index takes an index form", call.name)
        return LoadIndex(name, form, call.dtype or DType.INT32)
    if call.name.startswith("reduce_"):
        (src,) = positional(call, 1)
        options = call.options(over=(), broadcast=Affine.var("true"))
        agg = to_enum(Aggregation, call.name.removeprefix("reduce_"), "an aggregation")
        return Reduce(name, to_scalar(src), agg, to_names(options["over"]), to_bool(options["broadcast"]))
    return _operation(name, call)


def _load(name: str, call: Call) -> Load:
    (view,) = positional(call, 1)
    clamp = to_bool(call.options(clamp=Affine.var("false"))["clamp"])
    if isinstance(view, BufferView):
        return Load(name, view.name, view.at, clamp)
    return Load(name, to_buffer(view), (), clamp)


def write(dst: BufferView, call: Call) -> Statement:
    """``dst = store($x)`` or ``dst = transfer(src)``."""
    if call.name == "store":
        (src,) = positional(call, 1)
        false = Affine.var("false")
        options = call.options(clamp=false, atomic=false)
        return Store(dst.name, to_scalar(src), dst.at, to_bool(options["clamp"]), to_bool(options["atomic"]))
    if call.name == "transfer" and not dst.at:
        (src,) = positional(call, 1)
        options = call.options(unit="", group=0, where=())
        unit, group = to_text(options["unit"]), to_int(options["group"])
        return Transfer(dst.name, to_buffer(src), unit, group, to_forms(options["where"]))
    raise Fault("a buffer is written by store or transfer only", call.name)


def effect(call: Call) -> Statement:
    """A statement without a result: wait, sync, special."""
    make = EFFECTS.get(str(call.name))
    if make is None:
        raise Fault(f"{str(call.name)!r} is not a statement", call.name, f"one of {', '.join(EFFECTS)}")
    return make(call)


def remarks(tokens: list[Token]) -> tuple[str, str]:
    """(name, comment) of a block: the first comment is the name."""
    lines = [str(token[2:]).removeprefix(" ") for token in tokens]
    if not lines:
        return "", ""
    first, *rest = lines
    if first.startswith('"'):
        return _quoted_name(first), "\n".join(rest)
    name, _, remark = first.partition(" // ")
    return name.strip(), "\n".join([remark, *rest] if remark else rest)


def _quoted_name(text: str) -> str:
    """The name that a JSON string spells; the text itself where it merely starts with a quotation mark."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def numbered_body(items: list[Numbered]) -> tuple[Any, ...]:
    """Statements with deps as positions; elisions vanish, and labels may skip numbers."""
    positions: dict[int, int] = {}
    body: list[Any] = []
    for item in items:
        if not isinstance(item.statement, Dropped):
            label = len(body) if item.label is None else item.label
            if label in positions:
                raise Fault(f"two statements have the number {label}")
            positions[label] = len(body)
            body.append(item)
    return tuple(_with_deps(item, positions) for item in body)


def _with_deps(item: Numbered, positions: dict[int, int]) -> Any:
    if not item.deps:
        return item.statement
    for dep in item.deps:
        if dep not in positions:
            raise Fault(f"statement {item.label} depends on {dep}, which is not there")
    return replace(item.statement, deps=tuple(positions[dep] for dep in item.deps))


def typed(body: tuple[Any, ...], refs: tuple[Refinement, ...]) -> tuple[Statement, ...]:
    """Give operations without a stated dtype that of their operands."""
    if not any(isinstance(s, UntypedOp) for s in body):
        return body
    buffers = {ref.into: ref.type.dtype for ref in refs}
    scalars: dict[str, DType] = {}
    result: list[Statement] = []
    for statement in body:
        match statement:
            case UntypedOp(dst, name, args, deps):
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
    # A text may leave out the refinements; the verifier reports what is then missing.
    return next((scalars[a] for a in operands if a in scalars), DType.FLOAT32)


def _operation(dst: str, call: Call) -> Op | UntypedOp:
    name, args = str(call.name), tuple(to_scalar(a) for a in call.positional)
    call.options()
    if call.dtype is None and name in ("cast", "bitcast"):
        raise Fault(f"{name} needs the dtype it casts to", call.name, f"{name}($x):float32")
    return UntypedOp(dst, name, args) if call.dtype is None else Op(dst, name, args, call.dtype)


def positional(call: Call, count: int) -> list[Any]:
    args = call.positional
    if len(args) != count:
        raise Fault(f"{call.name} takes {count} argument(s), not {len(args)}", call.name)
    return args


def _wait(call: Call) -> Wait:
    options = call.options(group=0, pending=0)
    return Wait(to_int(options["group"]), to_int(options["pending"]))


def _sync(call: Call) -> Sync:
    options = call.options(scope=Affine.var("group"), fence="local")
    return Sync(to_enum(Scope, to_name(options["scope"]), "a scope"), to_text(options["fence"]))


def _special(call: Call) -> Special:
    (name,) = positional(call, 1)
    options = call.options(outs=(), ins=(), params={})
    params = tuple((str(k), _param(v)) for k, v in to_table(options["params"]).items())
    return Special(to_text(name), to_names(options["outs"]), to_names(options["ins"]), params)


EFFECTS: dict[str, Callable[[Call], Statement]] = {"wait": _wait, "sync": _sync, "special": _special}


def _param(value: Any) -> int | float | str:
    match value:
        case str() | float():
            return value
        case Affine((("true" | "false" as word, 1),), 0):
            return word == "true"
        case _:
            return to_int(value)


def to_swizzle(value: Any) -> Swizzle | None:
    if value is None:
        return None
    numbers = [to_int(item) for item in to_items(value)]
    if len(numbers) != 3:
        raise Fault("a swizzle is [bits, base, shift]")
    return Swizzle(*numbers)


def to_fragment(value: Any) -> Fragment | None:
    if value is None:
        return None
    table = to_table(value)
    if table.keys() != {"lane", "register"}:
        raise Fault("a fragment is {lane=[…], register=[…]}")
    return Fragment(to_forms(table["lane"]), to_forms(table["register"]))


_REFINEMENT_OPTIONS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "init": ("init", lambda value: to_enum(Init, to_name(value), "an initialisation")),
    "acc": ("acc", lambda value: to_dtype(to_name(value))),
    "versions": ("versions", to_int),
    "bank": ("bank_dim", to_int),
    "const": ("const", to_bool),
    "hint": ("hint", to_text),
}


def with_options(ref: Refinement, options: dict[str, Any]) -> Refinement:
    fields: dict[str, Any] = {}
    for name, value in options.items():
        if name not in _REFINEMENT_OPTIONS:
            raise Fault(f"a refinement has no option {str(name)!r}", name, f"one of {', '.join(_REFINEMENT_OPTIONS)}")
        field, convert = _REFINEMENT_OPTIONS[name]
        fields[field] = convert(value)
    return replace(ref, **fields) if fields else ref
