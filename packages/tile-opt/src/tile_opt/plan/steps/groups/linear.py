"""Steps that are linear in what they carry, ``new = factor * old + offset``: what makes the factor of one, or of several.

Such steps can be summed up: the factor of several is the product of theirs, and their offset what they make of 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set

from tile_ir.frozen import frozen
from tile_ir.names import claim
from tile_ir.stripe.nodes import Load, Op, Statement

Parts = tuple[str | None, ...]
"""For each argument of an operation the scalar that its part of the carried value is times the start; None for no part."""


def times(body: Sequence[Statement], olds: Set[str], new: str, start: str) -> tuple[tuple[Op, ...], str] | None:
    """`start` times the factor by which `new` holds each of `olds`, the same value, and the operations that make that.

    They may stand behind `body`. None where it is not linear.
    """
    found = _Parts(dict.fromkeys(olds, start), [], {s.dst for s in body if isinstance(s, Load | Op)} | {start})
    for s in body:
        if isinstance(s, Op) and any(a in found.parts for a in s.args):
            found.take(s)
        elif isinstance(s, Load) and any(a in found.parts for a in s.at):
            found.parts[s.dst] = None
    part = found.parts.get(new)
    return None if part is None else (tuple(found.made), part)


@frozen
class _Parts:
    """What is known of the statements so far."""

    parts: dict[str, str | None]
    """What each scalar that depends on the carried value holds of it; None where it is not linear in it."""
    made: list[Op]
    taken: set[str]

    def take(self, op: Op) -> None:
        given = tuple(self.parts.get(a) for a in op.args)
        known = all(self.parts.get(a, "") is not None for a in op.args)
        rule = _RULES.get(op.name) if known and op.dtype.is_float else None
        form = None if rule is None else rule(given, op.args)
        if form is None or len(form) == 1:
            self.parts[op.dst] = None if form is None else form[0]
            return
        name, *args = form
        part = claim(f"{op.dst}_part", self.taken)
        self.made.append(Op(part, name, tuple(args), op.dtype))
        self.parts[op.dst] = part


Form = tuple[str, ...] | None
"""An operation's name and its arguments; a scalar alone; None for what is not linear."""


def _sum(parts: Parts, args: Sequence[str]) -> Form:
    a, b = parts
    return ("add", a, b) if a and b else (a or b or "",)


def _difference(parts: Parts, args: Sequence[str]) -> Form:
    a, b = parts
    if a and b:
        return "sub", a, b
    return (a,) if a else ("neg", b or "")


def _product(parts: Parts, args: Sequence[str]) -> Form:
    a, b = parts
    if a and b:
        return None
    return ("mul", a, args[1]) if a else ("mul", args[0], b or "")


def _quotient(parts: Parts, args: Sequence[str]) -> Form:
    a, b = parts
    return ("div", a, args[1]) if a and not b else None


def _same(name: str) -> Callable[[Parts, Sequence[str]], Form]:
    return lambda parts, args: (name, parts[0] or "")


_RULES: Mapping[str, Callable[[Parts, Sequence[str]], Form]] = {
    "add": _sum, "sub": _difference, "mul": _product, "div": _quotient, "neg": _same("neg"), "cast": _same("cast"),
    "ident": lambda parts, args: (parts[0] or "",),
}  # fmt: skip
