"""Rooms that lie above those that use them: Tensors have operators, whose functions are made of Tensors.

Whoever puts the package together says where such a room is, so that nothing below it knows its name; it is imported when it is
first needed.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType


class Above:
    """A module that is given by its name, before anybody asks for it."""

    __slots__ = ("_module", "_name")

    def __init__(self) -> None:
        self._name: str | None = None
        self._module: ModuleType | None = None

    def is_at(self, name: str) -> None:
        """Where it is found from now on."""
        self._name, self._module = name, None

    @property
    def module(self) -> ModuleType:
        """The module, imported at the first look."""
        if self._module is None:
            assert self._name is not None, "nobody has said where the functions of arrays are"
            self._module = import_module(self._name)
        return self._module


functions = Above()
"""The functions of arrays: what operators, indexing and methods of Tensors and Symbols are made of."""
