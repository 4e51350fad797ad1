"""Limits: what a program may ask of the compiler before it is refused with a diagnostic."""

from __future__ import annotations

from collections.abc import Sequence

from tile_ir.diagnostics import Diagnostic, Span, TileLimitError
from tile_ir.frozen import frozen

LIMIT_CODE = "TILE-E050"

_WHAT = {
    "max_source_bytes": "the source has {value} bytes",
    "max_nesting": "brackets or operators are nested {value} deep",
    "max_literal_digits": "a number has {value} digits",
    "max_name_length": "a name has {value} characters",
    "max_statements": "the function has {value} statements",
    "max_rank": "a tensor has {value} dimensions",
    "max_indexes": "a contraction has {value} index variables",
    "max_elements": "a tensor has {value} elements",
    "max_bytes": "a tensor needs {value} bytes",
    "max_depth": "functions call one another {value} deep",
    "max_calls": "there are {value} calls of the text's functions",
    "max_ops": "the program has {value} operations",
    "max_constant_bits": "a constant needs {value} bits",
}


@frozen
class Limits:
    """Upper bounds, each checked where the quantity first becomes known.

    `max_nesting` counts brackets, prefix operators, and ``?:`` inside one another; chains of binary operators
    are not nested. `max_constant_bits` bounds exact integer folding. `max_errors` only shortens reports.
    """

    max_source_bytes: int = 1_000_000
    max_nesting: int = 256
    max_literal_digits: int = 1_000
    max_name_length: int = 1_000
    max_statements: int = 20_000
    max_rank: int = 32
    max_indexes: int = 64
    max_elements: int = 1 << 40
    max_bytes: int = 1 << 42
    max_depth: int = 32
    max_calls: int = 10_000
    max_ops: int = 100_000
    max_constant_bits: int = 4_096
    max_errors: int = 100

    def shortened(self, diagnostics: Sequence[Diagnostic]) -> list[Diagnostic]:
        """The first `max_errors`, and how many more there are."""
        shown = list(diagnostics[: self.max_errors])
        rest = len(diagnostics) - len(shown)
        if rest:
            more = f"{rest} more {'error is' if rest == 1 else 'errors are'} not shown"
            shown.append(Diagnostic("TILE-E051", more, diagnostics[self.max_errors].span))
        return shown

    def diagnostic(self, name: str, value: int, span: Span | None = None) -> Diagnostic:
        """The finding for a limit that `value` exceeds: names the limit, both numbers and how to raise it."""
        limit: int = getattr(self, name)
        text = str(value) if abs(value) < 1 << 99 else f"2^{value.bit_length() - 1} or more"
        message = f"{_WHAT[name].format(value=text)}; the limit {name} is {limit}"
        hint = f"simplify the program; tile_lang.parse and tile_lang.bind accept limits=Limits({name}=…)"
        return Diagnostic(LIMIT_CODE, message, span, hint)

    def check(self, name: str, value: int, span: Span | None = None) -> None:
        """Raise TileLimitError when `value` is above the limit called `name`."""
        if value > getattr(self, name):
            raise TileLimitError(self.diagnostic(name, value, span))


DEFAULT_LIMITS = Limits()
