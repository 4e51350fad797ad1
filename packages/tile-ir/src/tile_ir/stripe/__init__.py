"""Stripe: data model, text form, verifier, interpreter and structural hash, loaded when first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tile_ir.stripe.hashing import structural_hash as structural_hash
    from tile_ir.stripe.interpret import run as run
    from tile_ir.stripe.interpret import run_block as run_block
    from tile_ir.stripe.parser import parse_block as parse_block
    from tile_ir.stripe.parser import parse_program as parse_program
    from tile_ir.stripe.printer import print_block as print_block
    from tile_ir.stripe.printer import print_program as print_program
    from tile_ir.stripe.verify import StripeError as StripeError

_HOMES = {
    "structural_hash": "hashing",
    "run": "interpret",
    "run_block": "interpret",
    "parse_block": "parser",
    "parse_program": "parser",
    "print_block": "printer",
    "print_program": "printer",
    "StripeError": "verify",
}

__all__ = [*_HOMES]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tile_ir.stripe' has no attribute {name!r}")
    value = getattr(import_module(f"tile_ir.stripe.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
