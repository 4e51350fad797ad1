"""What the pieces of a Stripe text are before they become nodes, and the conversions between the two."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar, cast

from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.stripe.affine import Affine, DivMod, DivModOp, Quasi
from tile_ir.stripe.nodes import Instr

if TYPE_CHECKING:
    from lark import Token


@dataclass(eq=False)
class Fault(Exception):
    """A mistake found while building a node; becomes a TileSyntaxError with the token's span."""

    message: str
    token: object = None
    hint: str | None = None


_ALIASES = {
    **{f"{short}{bits}": f"{long}{bits}" for short, long in (("i", "int"), ("u", "uint")) for bits in (8, 16, 32, 64)},
    **{f"{short}{bits}": f"float{bits}" for short in ("f", "fp") for bits in (16, 32, 64)},
    "bf16": "bfloat16", "int": "int32", "float": "float32", "double": "float64", "half": "float16", "boolean": "bool",
}  # fmt: skip
_CALL = re.compile(r"([^()]*)\(\s*(\S.*)\)", re.DOTALL)
_MAX_DIGITS = 40
_E = TypeVar("_E", bound=Enum)


@frozen
class ScalarName:
    name: str


@frozen
class BufferView:
    name: str
    at: tuple[Quasi | str, ...]


@frozen
class Call:
    name: str
    args: tuple[Any, ...]
    dtype: DType | None

    @property
    def positional(self) -> list[Any]:
        return [a for a in self.args if not isinstance(a, Option)]

    def options(self, **defaults: Any) -> dict[str, Any]:
        """Keyword arguments over `defaults`; Fault for one that is not among them."""
        given = {a.name: a.value for a in self.args if isinstance(a, Option)}
        for name in given:
            if name not in defaults:
                raise Fault(
                    f"{self.name} has no option {str(name)!r}", name, f"options: {', '.join(defaults) or 'none'}"
                )
        return {**defaults, **given}


@frozen
class Option:
    name: str
    value: Any


@frozen
class UntypedOp:
    """An operation whose dtype is inferred once its block's refinements are known."""

    dst: str
    name: str
    args: tuple[str, ...]
    deps: tuple[int, ...] = ()


@frozen
class Numbered:
    label: int | None
    deps: tuple[int, ...]
    statement: Any


@frozen
class Guard:
    forms: tuple[Quasi, ...]


class Dropped:
    """Stands for an elision or a comment between statements."""


DROPPED = Dropped()


def to_dtype(name: str) -> DType:
    try:
        return DType(_ALIASES.get(str(name), str(name)))
    except ValueError:
        raise Fault(f"no element type is called {str(name)!r}", name) from None


def to_enum(kind: type[_E], name: Any, what: str) -> _E:
    try:
        return kind(str(name))
    except ValueError:
        choices = ", ".join(str(member.value) for member in kind)
        raise Fault(f"{str(name)!r} is not {what}", name, f"one of {choices}") from None


def integer_of(token: Token) -> int:
    if len(token) > _MAX_DIGITS:
        raise Fault("the number has too many digits", token)
    return int(token, 0) if token.startswith("0x") else int(token)


def to_name(value: Any) -> str:
    """The name that a value parsed as a form spells; Fault when it is no bare name."""
    match value:
        case Affine(((name, 1),), 0):
            return str(name)
        case BufferView(name, ()):
            return name
        case ScalarName(name):
            return name
        case _:
            raise Fault("a name is expected here")


def to_buffer(value: Any) -> str:
    if isinstance(value, ScalarName):
        raise Fault(f"a buffer is expected here, not the scalar {value.name}")
    return to_name(value)


def to_scalar(value: Any) -> str:
    if not isinstance(value, ScalarName):
        raise Fault("a scalar such as $x is expected here")
    return value.name


def to_int(value: Any) -> int:
    match value:
        case int():
            return value
        case Affine((), const):
            return const
        case _:
            raise Fault("an integer is expected here")


def to_affine(value: Quasi) -> Affine:
    if isinstance(value, Affine):
        return value
    raise Fault("only an affine form can stand here", hint="it contains / or %")


def scaled(form: Quasi, factor: int) -> Quasi:
    if isinstance(form, Affine):
        return form * factor
    return replace(form, scale=form.scale * factor, plus=form.plus * factor)


def divided(left: Quasi, sign: Token, right: Quasi, op: DivModOp) -> DivMod:
    divisor = to_affine(right)
    if not divisor.is_const or divisor.const <= 0:
        raise Fault("the divisor of a form is a positive integer", sign)
    return DivMod(to_affine(left), divisor.const, op)


def to_bool(value: Any) -> bool:
    name = to_name(value)
    if name not in ("true", "false"):
        raise Fault("true or false is expected here")
    return name == "true"


def to_items(value: Any) -> tuple[Any, ...]:
    if not isinstance(value, tuple):
        raise Fault("a list in brackets is expected here")
    return cast("tuple[Any, ...]", value)


def to_table(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Fault("options in braces are expected here")
    return cast("dict[str, Any]", value)


def to_text(value: Any) -> str:
    if not isinstance(value, str):
        raise Fault("a string is expected here")
    return value


def to_names(value: Any) -> tuple[str, ...]:
    return tuple(to_buffer(item) for item in to_items(value))


def to_forms(value: Any) -> tuple[Quasi, ...]:
    items = to_items(value)
    if not all(isinstance(item, Affine | DivMod) for item in items):
        raise Fault("index forms are expected here")
    return items


def present(values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(value for value in values if value is not None)


def string_of(token: Token) -> str:
    try:
        return json.loads(str(token), strict=False)
    except ValueError:
        raise Fault("the string has an unknown escape", token) from None


def instr_of(text: str) -> Instr:
    """An instruction as `Instr` prints it; a text that is no call is a name."""
    match = _CALL.fullmatch(text)
    args = [part.rpartition(":") for part in match[2].split(",")] if match else []
    if match is None or not all(re.fullmatch(r"\s*-?\d+\s*", size) for _, _, size in args):
        return Instr(text)
    sizes = tuple((name.strip(), int(size)) for name, colon, size in args if colon)
    return Instr(match[1], sizes, tuple(int(size) for _, colon, size in args if not colon))


def scalar_name(token: Token) -> str:
    return "$" + str(token[1:]).strip("`")
