"""Turns the parse of a Stripe text into nodes, bottom up, while lark reads it. Imported with the parser only."""

from __future__ import annotations

import base64
import binascii
from dataclasses import replace
from typing import Any

from lark import (
    Token,
    Transformer,
    v_args,  # pyright: ignore[reportUnknownVariableType]
)

from tile_ir.contents import Contents
from tile_ir.ops import Aggregation
from tile_ir.stripe.affine import Affine, DivMod, DivModOp, Quasi
from tile_ir.stripe.assemble import (
    computation,
    effect,
    numbered_body,
    remarks,
    to_fragment,
    to_swizzle,
    typed,
    with_options,
    write,
)
from tile_ir.stripe.nodes import (
    Bind,
    Block,
    Const,
    ConstantBuffer,
    Direction,
    Index,
    Instr,
    Layout,
    Location,
    Order,
    Program,
    Refinement,
    Scope,
    Statement,
    TensorType,
)
from tile_ir.stripe.syntax import (
    DROPPED,
    BufferView,
    Call,
    Dropped,
    Fault,
    Guard,
    Numbered,
    Option,
    ScalarName,
    UntypedOp,
    divided,
    instr_of,
    integer_of,
    present,
    scalar_name,
    scaled,
    string_of,
    to_affine,
    to_dtype,
    to_enum,
    to_int,
)

MAX_TERMS = 1000
"""Most distinct indexes of one form."""


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
        return Affine((), integer_of(token))

    def name_form(self, name: Token) -> Affine:
        return Affine.var(str(name))

    def negate(self, form: Quasi) -> Quasi:
        return scaled(form, -1)

    def plus(self, left: Quasi, right: Quasi) -> Quasi:
        match left, right:
            case Affine(), Affine():
                if len(left.terms) > MAX_TERMS:
                    raise Fault("the form has too many terms")
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
        return scaled(form, factor.const)

    def floordiv(self, left: Quasi, slash: Token, right: Quasi) -> DivMod:
        return divided(left, slash, right, DivModOp.DIV)

    def modulo(self, left: Quasi, percent: Token, right: Quasi) -> DivMod:
        return divided(left, percent, right, DivModOp.MOD)

    def positive(self, token: Token) -> int:
        return integer_of(token)

    def negative(self, token: Token) -> int:
        return -integer_of(token)

    # literals and values

    def float_literal(self, token: Token) -> float:
        return float(token)

    def int_literal(self, token: Token) -> int:
        return integer_of(token)

    def negative_literal(self, token: Token) -> int:
        return -integer_of(token)

    def name_literal(self, token: Token) -> bool:
        if token not in ("true", "false"):
            raise Fault(f"{str(token)!r} is not a literal", token)
        return token == "true"

    def string(self, token: Token) -> str:
        return string_of(token)

    def scalar(self, token: Token) -> ScalarName:
        return ScalarName(scalar_name(token))

    def list(self, *values: Any) -> tuple[Any, ...]:
        return present(values)

    def option(self, name: Token, value: Any) -> Option:
        return Option(name, value)

    def options(self, *options: Option | None) -> dict[str, Any]:
        return {option.name: option.value for option in options if option is not None}

    def view(self, name: Token, *at: Quasi | ScalarName | None) -> BufferView:
        return BufferView(str(name), tuple(a.name if isinstance(a, ScalarName) else a for a in at if a is not None))

    def call(self, name: Token, *rest: Any) -> Call:
        *args, dtype = rest
        return Call(name, present(args), None if dtype is None else to_dtype(dtype))

    def dropped(self, *_: object) -> Dropped:
        return DROPPED

    elided = dropped

    def comment(self, token: Token) -> Token:
        return token

    # programs and blocks

    def names(self, *names: Token) -> tuple[str, ...]:
        return tuple(map(str, names))

    def inputs(self, names: tuple[str, ...]) -> Option:
        return Option("inputs", names)

    def outputs(self, names: tuple[str, ...]) -> Option:
        return Option("outputs", names)

    def constant(self, name: Token, typed: tuple[TensorType, dict[str, Any]], data: Token) -> Option:
        try:
            content = base64.b64decode(string_of(data), validate=True)
        except (ValueError, binascii.Error):
            raise Fault("the constant's data is not base64", data) from None
        type_, rest = typed
        if rest:
            raise Fault(f"a constant has no option {str(next(iter(rest)))!r}", next(iter(rest)))
        return Option("constant", ConstantBuffer(str(name), type_, Contents(content)))

    def program(self, *items: Any) -> Program:
        header = [item for item in items if isinstance(item, Option)]
        constants = tuple(h.value for h in header if h.name == "constant")
        by_name = {h.name: h.value for h in header}
        entry = self.block_text(*items)
        return Program(entry, constants, by_name.get("inputs", ()), by_name.get("outputs", ()))

    def block_text(self, *items: Any) -> Block:
        numbered = next(item for item in items if isinstance(item, Numbered))
        if not isinstance(numbered.statement, Block):
            raise Fault("a block is expected at the top")
        return replace(numbered.statement, deps=numbered.deps)

    def number(self, label: Token, *deps: Token | None) -> tuple[int, tuple[int, ...]]:
        return integer_of(label), tuple(integer_of(dep) for dep in deps if dep is not None)

    def statement(self, number: tuple[int, tuple[int, ...]] | None, *parts: Any) -> Numbered:
        *tags, body = parts
        label, deps = number or (None, ())
        if tags:
            if not isinstance(body, Block):
                raise Fault("only blocks and refinements have tags")
            body = replace(body, tags=frozenset(tags))
        return Numbered(label, deps, body)

    def total(self, _: Token) -> Dropped:
        return DROPPED

    def guard(self, *forms: Quasi) -> Guard:
        return Guard(forms)

    def instr(self, token: Token) -> Instr:
        return instr_of(string_of(token))

    def constraint(self, form: Quasi, bound: int) -> Quasi:
        return self.plus(form, Affine((), -bound)) if bound else form

    def block(self, location: Location | None, *items: Any) -> Block:
        parts = [item for item in items if item is not None]
        name, comment = remarks([item for item in parts if isinstance(item, Token)])
        refs = tuple(item for item in parts if isinstance(item, Refinement))
        body = numbered_body([item for item in parts if isinstance(item, Numbered)])
        return Block(
            name=name,
            indexes=tuple(item for item in parts if isinstance(item, Index)),
            constraints=tuple(item for item in parts if isinstance(item, Affine | DivMod)),
            guard=next((item.forms for item in parts if isinstance(item, Guard)), ()),
            refs=refs,
            body=typed(body, refs),
            loc=location,
            instr=next((item for item in parts if isinstance(item, Instr)), None),
            comment=comment,
        )

    def index(self, name: Token, range_: int | None, value: Quasi | None, *marks: tuple[str, dict[str, Any]]) -> Index:
        if range_ is None and value is None:
            raise Fault(f"index {str(name)!r} needs a range or a value", name, f"{name}:32 or {name} = 4*k")
        size = 1 if range_ is None else range_
        index = Index(str(name), size, None if value is None else to_affine(value))
        for word, options in marks:
            if word == Order.ORDERED.value:
                index = replace(index, order=Order.ORDERED)
                continue
            bind = to_enum(Bind, word, "a binding or 'ordered'")
            if unknown := options.keys() - {"axis", "lanes"}:
                raise Fault(f"a binding has no option {str(min(unknown))!r}", min(unknown))
            index = replace(
                index, bind=bind, axis=to_int(options.get("axis", 0)), lanes=to_int(options.get("lanes", 1))
            )
        return index

    def mark(self, token: Token, *options: Option | None) -> tuple[str, dict[str, Any]]:
        return str(token[1:]).strip("`"), self.options(*options)

    # refinements

    def offset(self, token: Token) -> Option:
        return Option("offset", integer_of(token))

    def location(self, unit: Token | None, *rest: Any) -> Location:
        *at, scope = rest
        kind = Scope.DEVICE if scope is None else to_enum(Scope, scope, "a scope")
        return Location("" if unit is None else str(unit), present(at), kind)

    def extent(self, size: int, stride: int) -> tuple[int, int]:
        return size, stride

    def type(self, dtype: Token, *rest: Any) -> tuple[TensorType, dict[str, Any]]:
        *extents, options = rest
        pairs = present(extents)
        given = dict(options or {})
        layout = Layout(
            tuple(stride for _, stride in pairs),
            to_int(given.pop("align", 1)),
            to_swizzle(given.pop("swizzle", None)),
            to_fragment(given.pop("fragment", None)),
            to_int(given.pop("panel", 0)),
        )
        return TensorType(to_dtype(dtype), tuple(size for size, _ in pairs), layout), given

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
            access=present(access),
            type=type_,
            agg=None if agg is None else to_enum(Aggregation, agg, "an aggregation"),
            loc=location or Location("DRAM"),
            offset=0 if offset is None else offset.value,
            tags=frozenset(parts[:direction_at]),
        )
        return with_options(ref, options)

    # statements

    def const(self, dst: Token, dtype: Token, value: int | float | bool) -> Const:
        return Const(scalar_name(dst), value, to_dtype(dtype))

    def compute(self, dst: Token, call: Call) -> Statement | UntypedOp:
        return computation(scalar_name(dst), call)

    def update(self, dst: BufferView, call: Call) -> Statement:
        return write(dst, call)

    def effect(self, call: Call) -> Statement:
        return effect(call)
