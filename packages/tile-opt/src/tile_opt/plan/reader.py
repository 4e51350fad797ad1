"""Turns the parse of a plan text into plans, bottom up, while lark reads it. Imported with the parser only."""

from __future__ import annotations

from typing import Any

from lark import (
    Token,
    Transformer,
    v_args,  # pyright: ignore[reportUnknownVariableType]
)
from lark.tree import Meta
from tile_ir.frozen import frozen
from tile_ir.stripe.nodes import Bind, Scope, Swizzle
from tile_ir.stripe.syntax import Fault, integer_of, string_of

from tile_opt.plan.plan import Across, Cover, Edge, Instruction, Level, Plan, Reduction, Staging

_FIELDS = {
    "in": "unit", "as": "order", "by": "scope", "pad": "pad", "swizzle": "swizzle", "versions": "versions",
    "to": "dtype", "at": "level",
}  # fmt: skip
"""The word of each option of a staging, and its field."""


@frozen
class Line:
    """An entry of a plan: the word that a person knows it by, what it says, and its characters [start, end)."""

    kind: str
    value: Any
    start: int
    end: int


@frozen
class PlacedPlan:
    """The plan of a kernel, and the lines that it was read from."""

    name: Token
    plan: Plan
    lines: tuple[Line, ...]


@v_args(inline=True)
class Reader(Transformer[Token, Any]):
    """One method per rule of plan.lark; stateless, so that one parser serves every thread."""

    # names and numbers

    def plain(self, token: Token) -> Token:
        return token

    def quoted(self, token: Token) -> Token:
        return token.update(value=string_of(token))

    def INT(self, token: Token) -> int:
        return integer_of(token)

    def TIMES(self, token: Token) -> int:
        return integer_of(token.update(value=token[1:]))

    # parts of lines

    def cover(self, loop: Token, size: int, stride: int | None) -> Cover:
        return Cover(str(loop), size, stride or 0)

    def bind(self, word: Token) -> Bind:
        return Bind.NONE if word == "serial" else Bind(str(word))

    def loops(self, *names: Token | None) -> tuple[str, ...]:
        return tuple(str(name) for name in names if name is not None)

    def scope(self, word: Token) -> Scope:
        return Scope(str(word))

    def swizzle(self, *parts: Any) -> Swizzle:
        return Swizzle(*(part for part in parts if isinstance(part, int)))

    def option(self, word: Token, value: Any) -> tuple[Token, Any]:
        return word, str(value) if isinstance(value, Token) else value

    def across(self, word: Token) -> Across:
        return Across(str(word))

    def handling(self, word: Token) -> Edge:
        return Edge(str(word))

    def role(self, role: Token, loop: Token) -> tuple[str, str]:
        return str(role), str(loop)

    # lines

    @v_args(inline=True, meta=True)
    def level(self, meta: Meta, ordered: Token | None, bind: Bind, *rest: Any) -> Line:
        *covers, lanes = rest
        return _line("level", meta, Level(bind, tuple(covers), 1 if lanes is None else lanes, ordered is not None))

    @v_args(inline=True, meta=True)
    def stage(self, meta: Meta, word: Token, operand: Token, *options: tuple[Token, Any]) -> Line:
        fields: dict[str, Any] = {"operand": str(operand)}
        for option, value in options:
            if _FIELDS[option] in fields:
                raise Fault(f"the staging of {str(operand)!r} says {str(option)!r} twice", option)
            fields[_FIELDS[option]] = value
        if "unit" not in fields:
            hint = f"such as: stage {operand} in LOCAL"
            raise Fault(f"the staging of {str(operand)!r} names no memory unit", word, hint)
        return _line("stage", meta, fields)

    @v_args(inline=True, meta=True)
    def reduce(self, meta: Meta, _: Token, loop: Token, __: Token, across: Across, ways: int | None) -> Line:
        return _line("reduce", meta, Reduction(str(loop), across, 1 if ways is None else ways))

    @v_args(inline=True, meta=True)
    def edge(self, meta: Meta, _: Token, loop: Token, handling: Edge) -> Line:
        return _line("edge", meta, (str(loop), handling))

    @v_args(inline=True, meta=True)
    def instruction(self, meta: Meta, _: Token, name: Token, *roles: tuple[str, str]) -> Line:
        return _line("instruction", meta, Instruction(str(name), roles))

    @v_args(inline=True, meta=True)
    def because(self, meta: Meta, _: Token, reason: Token) -> Line:
        return _line("because", meta, string_of(reason))

    # plans

    def plan(self, word: Token, name: Token, *lines: Line) -> PlacedPlan:
        found: dict[str, list[Any]] = {
            kind: [] for kind in ("level", "stage", "reduce", "edge", "instruction", "because")
        }
        for line in lines:
            if found[line.kind] and line.kind in ("instruction", "because"):
                token = Token(line.kind, line.kind, line.start, end_pos=line.end)
                raise Fault(f"the plan of {str(name)!r} says {line.kind!r} twice", token)
            found[line.kind].append(_staging(line.value, len(found["level"])) if line.kind == "stage" else line.value)
        levels, stagings, reductions, edges, instructions, reasons = (tuple(values) for values in found.values())
        plan = Plan(levels, stagings, reductions, edges, next(iter(instructions), None), "".join(reasons))
        return PlacedPlan(name, plan, lines)

    def start(self, *plans: PlacedPlan) -> tuple[PlacedPlan, ...]:
        seen: set[str] = set()
        for plan in plans:
            if plan.name in seen:
                raise Fault(f"there are two plans for the kernel {str(plan.name)!r}", plan.name)
            seen.add(str(plan.name))
        return plans


def _line(kind: str, meta: Meta, value: Any) -> Line:
    return Line(kind, value, meta.start_pos, meta.end_pos)


def _staging(fields: dict[str, Any], levels: int) -> Staging:
    """The level of a staging is the one above it, unless it says another."""
    placed: dict[str, Any] = {"level": levels - 1, **fields}
    return Staging(**placed)
