"""Stripe as text: PlaidML's dialect, extended for the fields that it lacks.

`parse_program(print_program(p)) == p` and `parse_block(print_block(b)) == b`, but for origins, which
text does not carry. The grammar is `stripe.lark` beside this module; README.md describes it.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator
from itertools import zip_longest

from tile_ir.stripe.affine import Affine, Quasi
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
    Sync,
    TensorType,
    Transfer,
    Wait,
)

RESERVED = frozenset({"block", "in", "out", "inout", "none", "inf", "nan", "true", "false"})
"""Names that the text form prints in backquotes, as it does every name that is not an identifier."""

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_PLAIN_TAG = re.compile(r"[A-Za-z0-9_.]+")
_PLAIN_SCALAR = re.compile(r"\$[A-Za-z0-9_.]+")


def print_program(program: Program) -> str:
    """The program's text: header lines (inputs, outputs, constants), then the entry block."""
    lines: list[str] = []
    if program.inputs:
        lines.append("inputs " + ", ".join(map(_name, program.inputs)))
    if program.outputs:
        lines.append("outputs " + ", ".join(map(_name, program.outputs)))
    lines.extend(map(_constant, program.constants))
    return "\n".join([*lines, print_block(program.entry)]) + "\n"


def print_block(block: Block, number: int = 0) -> str:
    """The text of a block as statement `number` of a list, indented by two blanks per level."""
    return "\n".join(_lines(block, number))


def print_statement(statement: Statement, number: int = 0) -> str:
    """One statement's text; a block's is its first line."""
    prefix = f"{number}{'[' + _join(statement.deps) + ']' if statement.deps else ''}: "
    return prefix + (block_head(statement) if isinstance(statement, Block) else _simple(statement))


def block_head(block: Block) -> str:
    """``#tag block<LOC> [i:32] if [k >= 0] instr "x" ( // name``: a block's first line."""
    parts = [*map(_tag, sorted(block.tags)), "block" + (f"<{print_location(block.loc)}>" if block.loc else "")]
    parts.append("[" + ", ".join(map(print_index, block.indexes)) + "]")
    if block.guard:
        parts.append("if [" + ", ".join(f"{print_form(g)} >= 0" for g in block.guard) + "]")
    if block.instr is not None:
        parts.append(f"instr {json.dumps(str(block.instr))}")
    parts.append("(")
    if block.name or block.comment:
        parts.append(f"// {_block_name(block.name)}".rstrip())
    return " ".join(parts)


def _lines(block: Block, number: int) -> Iterator[str]:
    """Lines of nested blocks from an explicit stack, so that depth never meets the recursion limit."""
    stack: list[tuple[str, Iterator[tuple[int, Statement]]]] = []
    items: Iterator[tuple[int, Statement]] = iter([(number, block)])
    pad = ""
    while True:
        for position, statement in items:
            yield pad + print_statement(statement, position)
            if isinstance(statement, Block):
                yield from _head_lines(statement, pad + "    ")
                yield pad + ") {"
                stack.append((pad, items))
                pad, items = pad + "  ", iter(enumerate(statement.body))
                break
        else:
            if not stack:
                return
            pad, items = stack.pop()
            yield pad + "}"


def _head_lines(block: Block, pad: str) -> Iterator[str]:
    if block.comment:
        yield from (f"{pad}// {line}" for line in block.comment.split("\n"))
    yield from (f"{pad}{print_form(form)} >= 0" for form in block.constraints)
    yield from (pad + print_refinement(ref) for ref in block.refs)


# --- pieces --------------------------------------------------------------------------------------


def print_form(form: Quasi) -> str:
    """``-1 + kx + 4*x``; a quasi-affine form is ``2*((k + 1)/4) + x`` or ``k%2``: floor division and modulo."""
    if isinstance(form, Affine):
        return _affine(form)
    num = _affine(form.num)
    part = f"{num if _PLAIN.fullmatch(num) else f'({num})'}{'/' if form.op.value == '//' else '%'}{form.den}"
    if form.scale != 1:
        part = f"{form.scale}*({part})"
    return part if form.plus == Affine() else _affine(form.plus, part)


def _affine(form: Affine, text: str = "") -> str:
    """The form's text, added to `text`; the constant comes first, as PlaidML prints it."""
    if text and form.const:
        text += f" {'-' if form.const < 0 else '+'} {abs(form.const)}"
    elif not text and (form.const or not form.terms):
        text = str(form.const)
    for name, coefficient in form.terms:
        body = _name(name) if abs(coefficient) == 1 else f"{abs(coefficient)}*{_name(name)}"
        if text:
            text += f" {'-' if coefficient < 0 else '+'} {body}"
        else:
            text = f"-{body}" if coefficient < 0 else body
    return text


def print_index(index: Index) -> str:
    """``i:32``, ``j = 4*k``, ``v:16 #vector(lanes=8)``, ``k:4 #ordered``."""
    text = _name(index.name)
    if index.value is None or index.range != 1:
        text += f":{index.range}"
    if index.value is not None:
        text += f" = {_affine(index.value)}"
    if index.order is not Order.FREE:
        text += f" #{index.order.value}"
    options = [f"axis={index.axis}"] if index.axis else []
    options += [f"lanes={index.lanes}"] if index.lanes != 1 else []
    if index.bind is not Bind.NONE or options:
        text += f" #{index.bind.value}" + (f"({', '.join(options)})" if options else "")
    return text


def print_location(location: Location) -> str:
    """``SRAM[i]``, ``REG:thread``; the scope is left out when it is the device."""
    unit = "" if location.unit == "" else _name(location.unit)
    at = f"[{', '.join(map(print_form, location.at))}]" if location.at else ""
    scope = "" if location.scope is Scope.DEVICE else f":{location.scope.value}"
    return unit + at + scope


def print_refinement(ref: Refinement) -> str:
    """``#tag inout<DRAM> O = P[x, 4*y]:add float32(16:64, 4:1) {init=identity}``."""
    text = "".join(_tag(tag) + " " for tag in sorted(ref.tags)) + ref.dir.value
    if ref.dir is Direction.ALLOC or ref.offset:
        text += f" new@0x{ref.offset:08x}"
    text += f"<{print_location(ref.loc)}> {_name(ref.into)}"
    if ref.source != ("" if ref.dir is Direction.ALLOC else ref.into):
        text += f" = {_name(ref.source)}"
    text += f"[{', '.join(map(print_form, ref.access))}]"
    if ref.agg is not None:
        text += f":{ref.agg.value}"
    return f"{text} {print_type(ref.type, _refinement_options(ref))}"


def _refinement_options(ref: Refinement) -> list[str]:
    options = [
        (ref.init is not Init.KEEP, f"init={ref.init.value}"),
        (ref.acc is not None, f"acc={ref.acc}"),
        (ref.versions != 1, f"versions={ref.versions}"),
        (ref.bank_dim is not None, f"bank={ref.bank_dim}"),
        (ref.const, "const=true"),
        (bool(ref.hint), f"hint={json.dumps(ref.hint)}"),
    ]
    return [text for wanted, text in options if wanted]


def print_type(type_: TensorType, options: Iterable[str] = ()) -> str:
    """``float32(size:stride, …) {align=64}``; layout fields other than strides are options in braces."""
    pairs = zip_longest(type_.sizes, type_.strides, fillvalue="?")
    items = [*_layout_options(type_.layout), *options]
    braces = " {" + ", ".join(items) + "}" if items else ""
    return f"{type_.dtype}({', '.join(f'{size}:{stride}' for size, stride in pairs)}){braces}"


def _layout_options(layout: Layout) -> Iterator[str]:
    if layout.align != 1:
        yield f"align={layout.align}"
    if layout.swizzle is not None:
        yield f"swizzle=[{layout.swizzle.bits}, {layout.swizzle.base}, {layout.swizzle.shift}]"
    if layout.fragment is not None:
        yield f"fragment={_fragment(layout.fragment)}"
    if layout.panel:
        yield f"panel={layout.panel}"


def _fragment(fragment: Fragment) -> str:
    lane, register = (", ".join(map(print_form, forms)) for forms in (fragment.lane, fragment.register))
    return f"{{lane=[{lane}], register=[{register}]}}"


def _constant(constant: ConstantBuffer) -> str:
    data = base64.b64encode(constant.data).decode("ascii")
    return f'constant {_name(constant.name)} {print_type(constant.type)} = "{data}"'


# --- statements ----------------------------------------------------------------------------------


def _simple(statement: Statement) -> str:
    match statement:
        case Load(dst, src, at, clamp):
            return f"{_scalar(dst)} = load({_view(src, at)}{_flag('clamp', clamp)})"
        case Store(dst, src, at, clamp, atomic):
            return f"{_view(dst, at)} = store({_scalar(src)}{_flag('clamp', clamp)}{_flag('atomic', atomic)})"
        case Const(dst, value, dtype):
            return f"{_scalar(dst)} = ({dtype}){_literal(value)}"
        case LoadIndex(dst, value, dtype):
            return f"{_scalar(dst)} = load_index({print_form(value)}):{dtype}"
        case Op(dst, name, args, dtype):
            return f"{_scalar(dst)} = {_name(name)}({', '.join(map(_scalar, args))}):{dtype}"
        case Reduce(dst, src, agg, over, broadcast):
            names = ", ".join(map(_name, over))
            tail = "" if broadcast else ", broadcast=false"
            return f"{_scalar(dst)} = reduce_{agg.value}({_scalar(src)}, over=[{names}]{tail})"
        case _:
            return _effect(statement)


def _effect(statement: Statement) -> str:
    match statement:
        case Transfer(dst, src, unit, group, where):
            options = (f", unit={json.dumps(unit)}" if unit else "") + (f", group={group}" if group else "")
            options += f", where=[{', '.join(map(print_form, where))}]" if where else ""
            return f"{_name(dst)} = transfer({_name(src)}{options})"
        case Wait(group, pending):
            return f"wait(group={group}, pending={pending})"
        case Sync(scope, fence):
            return f"sync(scope={scope.value}, fence={json.dumps(fence)})"
        case Special(name, outs, ins, params):
            fields = [f"outs=[{', '.join(map(_name, outs))}]", f"ins=[{', '.join(map(_name, ins))}]"]
            if params:
                fields.append("params={" + ", ".join(f"{_name(k)}={_param(v)}" for k, v in params) + "}")
            return f"special({', '.join([json.dumps(name), *fields])})"
        case _:
            raise TypeError(f"not a Stripe statement: {statement!r}")


def _view(name: str, at: tuple[Quasi | str, ...]) -> str:
    if not at:
        return _name(name)
    return f"{_name(name)}[{', '.join(_scalar(a) if isinstance(a, str) else print_form(a) for a in at)}]"


def _flag(name: str, value: bool) -> str:
    return f", {name}=true" if value else ""


def _literal(value: int | float | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value)


def _param(value: int | float | str) -> str:
    return json.dumps(value) if isinstance(value, str) else _literal(value)


def _name(name: str) -> str:
    return name if _PLAIN.fullmatch(name) and name not in RESERVED else f"`{name}`"


def _scalar(name: str) -> str:
    return name if _PLAIN_SCALAR.fullmatch(name) else f"$`{name.removeprefix('$')}`"


def _tag(tag: str) -> str:
    return f"#{tag}" if _PLAIN_TAG.fullmatch(tag) else f"#`{tag}`"


def _block_name(name: str) -> str:
    plain = "//" not in name and name == name.strip() and name.isprintable() and not name.startswith('"')
    return name if plain else json.dumps(name)


def _join(items: Iterable[object]) -> str:
    return ", ".join(map(str, items))
