"""Reads the text form of Stripe that `tile_ir.stripe.printer` writes, and the examples of "PlaidML & Stripe".

Beyond the canonical form it accepts: dtype aliases (``i8``, ``fp32``, ``int``), a missing ``:dtype`` after an
operation (inferred from the operands), missing statement numbers and commas between indexes, ``;`` after a
statement, and elisions (``…``, ``<Elided memory xfers>``), which it drops.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from tile_ir.diagnostics import Diagnostic, Source, Span, TileLimitError, TileSyntaxError
from tile_ir.stripe.nodes import Block, Program
from tile_ir.stripe.syntax import Fault

MAX_DEPTH = 200
"""Deepest nesting of brackets (a block inside a block is one level) that a text may have; deeper is a TileLimitError."""

_BRACKETS = re.compile(r'//[^\n]*|"(?:[^"\\\n]|\\.)*"|`[^`\n]*`|[()\[\]{}]')


def parse_program(text: str | Source) -> Program:
    """The program a text describes; TileSyntaxError with a span when it is not Stripe.

    A text without header lines has no inputs, outputs or constants.
    """
    return _parse(text, "program")


def parse_block(text: str | Source) -> Block:
    """One block, with or without a statement number; TileSyntaxError when the text is anything else."""
    return _parse(text, "block_text")


def _parse(text: str | Source, start: str) -> Any:
    from lark.exceptions import UnexpectedInput, VisitError

    source = text if isinstance(text, Source) else Source(text, "<stripe>")
    _check_depth(source)
    try:
        return _lark().parse(source.text, start=start)
    except UnexpectedInput as error:
        raise TileSyntaxError(_unexpected(source, error)) from None
    except Fault as fault:
        raise TileSyntaxError(_fault(source, fault)) from None
    except VisitError as error:
        if isinstance(error.orig_exc, Fault):
            raise TileSyntaxError(_fault(source, error.orig_exc)) from None
        raise


@cache
def _lark() -> Any:
    from lark import Lark

    from tile_ir.stripe.builder import Builder  # pyright: ignore[reportUnknownVariableType]

    lark: Any = Lark
    return lark.open(
        "stripe.lark",
        rel_to=__file__,
        parser="lalr",
        start=["program", "block_text"],
        transformer=Builder(),
        maybe_placeholders=True,
    )


def _check_depth(source: Source) -> None:
    depth = 0
    for match in _BRACKETS.finditer(source.text):
        first = match.group()[0]
        if first in "({[":
            depth += 1
            if depth > MAX_DEPTH:
                message = f"Stripe text is nested deeper than {MAX_DEPTH} brackets"
                raise TileLimitError(Diagnostic("TILE-E602", message, Span(source, *match.span())))
        elif first in ")}]":
            depth -= 1


def _unexpected(source: Source, error: Any) -> Diagnostic:
    """What lark could not read: a character that starts no token, a token out of place, or the end."""
    token: Any = getattr(error, "token", None)
    start: int = (error.pos_in_stream if token is None else token.start_pos) or 0
    if token is None:
        span = Span(source, start, start + 1)
        return Diagnostic("TILE-E601", f"no Stripe token starts with {source.text[start]!r} here", span)
    if token.type != "$END":
        span = Span(source, start, start + len(token))
        return Diagnostic("TILE-E601", f"{str(token)!r} cannot stand here", span, _expected(error))
    end = len(source.text)
    return Diagnostic("TILE-E601", "the text ends in the middle of a statement", Span(source, end, end))


def _expected(error: Any) -> str | None:
    names = sorted(error.expected)
    return f"expected one of {', '.join(names)}" if names and len(names) <= 6 else None


def _fault(source: Source, fault: Fault) -> Diagnostic:
    start = getattr(fault.token, "start_pos", None)
    span = None if start is None else Span(source, start, start + len(str(fault.token)))
    return Diagnostic("TILE-E603", fault.message, span, fault.hint)
