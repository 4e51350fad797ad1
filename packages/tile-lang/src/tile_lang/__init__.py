"""The Tile language: parser, types, printers, formatter and reference evaluator.

Importing this package imports nothing else; each public name loads its module when first used.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tile_ir.program.nodes import Program as Program
    from tile_ir.program.nodes import TensorType as TensorType
    from tile_ir.program.parser import parse_program as parse_program
    from tile_ir.program.printer import print_program as print_program

    from tile_lang import ast as ast
    from tile_lang.bind import bind as bind
    from tile_lang.checking import check as check
    from tile_lang.codes import CODES as CODES
    from tile_lang.evaluate import evaluate as evaluate
    from tile_lang.formatter import format_source as format_source
    from tile_lang.limits import Limits as Limits
    from tile_lang.lint import lint as lint
    from tile_lang.parser import parse as parse
    from tile_lang.printer import print_function as print_function

_HOME = {
    "parse": "tile_lang.parser",
    "print_function": "tile_lang.printer",
    "format_source": "tile_lang.formatter",
    "bind": "tile_lang.bind",
    "print_program": "tile_ir.program.printer",
    "parse_program": "tile_ir.program.parser",
    "evaluate": "tile_lang.evaluate",
    "Limits": "tile_lang.limits",
    "check": "tile_lang.checking",
    "lint": "tile_lang.lint",
    "CODES": "tile_lang.codes",
    "Program": "tile_ir.program.nodes",
    "TensorType": "tile_ir.program.nodes",
}

__all__ = [
    "CODES",
    "Limits",
    "Program",
    "TensorType",
    "ast",
    "bind",
    "check",
    "evaluate",
    "format_source",
    "lint",
    "parse",
    "parse_program",
    "print_function",
    "print_program",
]


class _Package(ModuleType):
    """A package in which a submodule does not hide the public function of the same name."""

    def __setattr__(self, name: str, value: object) -> None:
        if name in _HOME and isinstance(value, ModuleType):
            value = getattr(value, name)
        super().__setattr__(name, value)

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        """By name, as other modules go to other processes inside functions that use them."""
        return import_module, (self.__name__,)


def __getattr__(name: str) -> Any:
    if name == "ast":
        return import_module("tile_lang.ast")
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


sys.modules[__name__].__class__ = _Package
