"""A Python function run once on placeholders: what it makes of them, as a Tile function."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np
from tile_ir.diagnostics import Diagnostic, TileTypeError

from tile_runtime.arguments import input_type
from tile_runtime.checks import described
from tile_runtime.compose import Linker
from tile_runtime.function import BaseFunction
from tile_runtime.symbols import Origins, Symbol, apply, constant, tracing
from tile_runtime.tensor import Tensor
from tile_runtime.trees import Structure, flatten, paths
from tile_runtime.typed import program_digest

if TYPE_CHECKING:
    from tile_ir.program.nodes import Program, TensorType


class Traced(BaseFunction):
    """What a Python function makes of placeholders: a program, what else it reads, and the form of its results."""

    def __init__(self, name: str, program: Program, form: Structure, linker: Linker) -> None:
        self.name = name
        self.program = program
        self.form = form
        self.bound: Mapping[str, Any] = dict(linker.tensors)
        self.captured: Mapping[str, Any] = dict(linker.captured)
        """Symbols of a composition around it, by the names of the inputs that stand for them."""
        self._name_all()

    def _name_all(self) -> None:
        self.inputs = tuple(p.name for p in self.program.inputs)
        self.outputs = tuple(public for public, _ in self.program.outputs)
        # A function that is made anew for every call is the same program; what is bound belongs to one of them.
        self.key: Hashable = object() if self.bound else ("traced", program_digest(self.program))

    def bind(self, types: Mapping[str, TensorType]) -> Program:
        return self.program

    def rewritten(self, program: Program) -> Traced:
        """The same with another program, whose inputs are called as before."""
        made = copy(self)
        made.program = program
        made._name_all()
        return made

    def applied(self, leaves: Sequence[Any]) -> list[Any]:
        """Its results on symbols, arrays and Tensors in place of the placeholders, as symbols."""
        if not self.outputs:
            return []
        rest = iter(leaves)
        given = {**self.bound, **self.captured}
        found = apply(self, {n: given[n] if n in given else next(rest) for n in self.inputs})
        return list(found) if isinstance(found, tuple) else [found]


def traced(name: str, call: Callable[[Sequence[Symbol]], Any], places: Sequence[Symbol]) -> Traced:
    """What ``call(places)`` gives, a tree of symbols, arrays, Tensors and numbers.

    What it takes from a composition around it, symbols of other placeholders, is `captured`.
    """
    with tracing():
        leaves, form = flatten(call(places))
        names = paths(form, "result")
        symbols = [result_symbol(n, v) for n, v in zip(names, leaves, strict=True)]
    linker = Linker(places, Origins(places).foreign)
    values = [linker.value(s) for s in symbols]
    return Traced(name, linker.program(tuple(zip(names, values, strict=True))), form, linker)


def place(name: str, type: TensorType) -> Symbol:
    """A placeholder of any name."""
    return Symbol(type.shape, type.dtype, name)


def places_for(leaves: Sequence[Any], names: Sequence[str]) -> list[Symbol]:
    """A placeholder for each leaf. TileTypeError names one that is no tensor."""
    return [place(name, leaf_type(name, v)) for name, v in zip(names, leaves, strict=True)]


def leaf_type(name: str, value: Any) -> TensorType:
    """The type of a leaf of an argument."""
    known = isinstance(value, (bool, int, float)) or hasattr(value, "dtype") or hasattr(value, "__dlpack__")
    if not known:
        hint = "arguments that choose what is computed are named in static=, as in tile.jit(f, static=('mode',))"
        if name == "device":
            hint = "where it runs is said once: tile.jit(f, device='llvm'), or by the Tensors that are passed"
        elif not isinstance(value, (str, bytes)) and not callable(value):
            hint = (
                "a class of tensors is a dataclass, or named by tile.register_tree; other objects are static= arguments"
            )
        raise TileTypeError(Diagnostic("TILE-E541", f"{name} is {described(value)}, not a tensor", hint=hint))
    return input_type(name, value)


def result_symbol(path: str, value: Any) -> Symbol:
    """A leaf of what a Python function returned, as a symbol."""
    if isinstance(value, Symbol):
        return value
    if isinstance(value, Tensor):
        return apply(_identity(), {"X": value})  # pyright: ignore[reportReturnType]
    if isinstance(value, (str, bytes)) or not (np.isscalar(value) or hasattr(value, "dtype")):
        hint = "return tensors and numbers, alone or in tuples, lists, dicts and dataclasses"
        raise TileTypeError(Diagnostic("TILE-E541", f"{path} is {described(value)}, not a tensor", hint=hint))
    return constant(value)


def _identity() -> BaseFunction:
    from tile_runtime.ops.values import parsed

    return parsed("function (X) -> (Y) { Y = X; }")
