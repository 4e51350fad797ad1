"""The Tile optimizer: contraction analysis, Stripe passes, cost models, lowering to semtree.

Public names are loaded when first used, so that ``import tile_opt`` imports neither islpy nor lark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tile_opt.compiler import compile as compile
    from tile_opt.explain.contraction import contraction_report as contraction_report
    from tile_opt.lowering import lower as lower
    from tile_opt.pipeline import optimize as optimize
    from tile_opt.translate import to_stripe as to_stripe

_HOME = {
    "to_stripe": "tile_opt.translate",
    "optimize": "tile_opt.pipeline",
    "lower": "tile_opt.lowering",
    "compile": "tile_opt.compiler",
    "contraction_report": "tile_opt.explain.contraction",
}

__all__ = ["contraction_report", "compile", "lower", "optimize", "to_stripe"]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(home), name)
    return value
