"""Semtree: the typed kernel language, its text form, verifier and interpreter.

Nodes are in `tile_ir.semtree.nodes`; the functions here load what they need when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tile_ir.semtree.errors import SemtreeError, SemtreeRuntimeError

if TYPE_CHECKING:
    from tile_ir.semtree.interpret import launch
    from tile_ir.semtree.parser import parse_function
    from tile_ir.semtree.printer import print_function

__all__ = ["SemtreeError", "SemtreeRuntimeError", "launch", "parse_function", "print_function"]

_LAZY = {
    "launch": "interpret",
    "parse_function": "parser",
    "print_function": "printer",
}


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
