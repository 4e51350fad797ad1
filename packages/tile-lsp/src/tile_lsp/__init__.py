"""A language server for Tile: mistakes as you type, hover, definitions, references, renaming, formatting, completion, colours.

Editors start it as ``tile-lsp`` and talk to it on standard input and output. Importing this package imports nothing else.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tile_lsp.command import main as main
    from tile_lsp.server import Server as Server

__version__ = "0.1.0"

__all__ = ["Server", "main"]

_HOME = {"main": "tile_lsp.command", "Server": "tile_lsp.server"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME[name]), name)
    return value
