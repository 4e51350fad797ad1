"""A graph that runs on a Tile device: one program for each set of sizes, called with PyTorch's tensors."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from typing import Any, cast

import torch
from tile_ir import forking
from tile_runtime.compose import Composition
from tile_runtime.evaluator import Evaluator
from tile_runtime.symbols import Symbol
from torch.fx import GraphModule
from torch.utils._python_dispatch import _disable_current_modes  # pyright: ignore[reportPrivateUsage]

from tile_torch import support
from tile_torch.dtypes import to_array, to_tensor
from tile_torch.outputs import Source, results
from tile_torch.sizes import bindings
from tile_torch.walk import Input, Walk

PROGRAMS = 32
"""Programs that a graph keeps, for different sizes; the least recently used goes first."""


@dataclass(slots=True)
class Plan:
    """A program for one set of sizes, and how arguments and results go in and out."""

    inputs: Sequence[Input]
    draws: Sequence[Callable[[], torch.Tensor]]
    composition: Composition | None
    sources: Sequence[Source]

    def run(self, arguments: Sequence[Any], evaluator: Evaluator) -> list[Any]:
        """The graph's outputs."""
        return [
            source(arguments, computed)
            for computed in [self._computed(arguments, evaluator)]
            for source in self.sources
        ]

    def _computed(self, arguments: Sequence[Any], evaluator: Evaluator) -> list[torch.Tensor]:
        if self.composition is None:
            return []
        arrays = [_array(arguments[i.place], i.order) for i in self.inputs]
        arrays += [to_array(draw()) for draw in self.draws]
        made: Any = evaluator.call(self.composition, arrays, {})
        return [to_tensor(a) for a in cast("tuple[Any, ...]", made)] if isinstance(made, tuple) else [to_tensor(made)]


def _array(tensor: torch.Tensor, order: tuple[int, ...] | None) -> Any:
    if order is None:
        return to_array(tensor.contiguous())
    return to_array(tensor.permute(order))


class Executable:
    """A graph, compiled for the sizes that calls bring. Safe to use from any thread."""

    def __init__(self, module: GraphModule, evaluator: Evaluator, static: Set[int] = frozenset()) -> None:
        self.module = module
        self.evaluator = evaluator
        self.static = static
        """Places of parameters and buffers, which seldom change, among the arguments."""
        self._placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
        self._plans: OrderedDict[tuple[int, ...], Plan] = OrderedDict()
        self._lock = forking.lock()

    def __call__(self, arguments: Sequence[Any]) -> list[Any]:
        """The graph's outputs for its inputs."""
        return self.plan(arguments).run(arguments, self.evaluator)

    def plan(self, arguments: Sequence[Any]) -> Plan:
        """The program for the sizes of these arguments, made when it is new; TileTypeError lists what cannot run."""
        known = bindings(self._placeholders, arguments)
        key = tuple(known.values())
        with self._lock:
            found = self._plans.get(key)
            if found is None:
                with _disable_current_modes(), torch.no_grad():
                    found = self._plans[key] = self._made(Walk(self.module, known).run())
                while len(self._plans) > PROGRAMS:
                    self._plans.popitem(last=False)
            self._plans.move_to_end(key)
            return found

    def _made(self, walk: Walk) -> Plan:
        if walk.problems:
            raise support.unsupported(list(walk.problems.values())) from walk.cause
        (end,) = (n for n in self.module.graph.nodes if n.op == "output")
        outputs = cast("Sequence[Any]", end.args[0])
        places = {n: k for k, n in enumerate(self._placeholders)}
        found = results(outputs, walk.values, places, walk.sizes)
        taken = _needed(found.symbols)
        inputs = [i for i in walk.inputs if id(i.symbol) in taken]
        symbols = [*(i.symbol for i in inputs), *(d.symbol for d in walk.draws)]
        composition = Composition(symbols, found.symbols, ()) if found.symbols else None
        return Plan(inputs, [d.function for d in walk.draws], composition, found.sources)


def _needed(symbols: Sequence[Symbol]) -> set[int]:
    """The placeholders, by identity, that symbols are computed from."""
    seen: set[int] = set()
    stack = list(symbols)
    while stack:
        symbol = stack.pop()
        if id(symbol) not in seen:
            seen.add(id(symbol))
            if symbol.source is not None:
                stack += [a for a in symbol.source[0].arguments.values() if isinstance(a, Symbol)]
    return seen
