"""A graph that runs on a Tile device: one program for each set of sizes, called with PyTorch's tensors."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, cast

import torch
from tile_ir import forking
from tile_runtime.compose import Composition
from tile_runtime.evaluator import Evaluator
from tile_runtime.symbols import Symbol
from torch.fx import GraphModule
from torch.utils._python_dispatch import _disable_current_modes  # pyright: ignore[reportPrivateUsage]

from tile_torch import support
from tile_torch.dtypes import ordered_array, to_array, to_tensor
from tile_torch.fallback import Segments
from tile_torch.outputs import Source, results
from tile_torch.parameters import Parameters
from tile_torch.sizes import OpenSizes
from tile_torch.walk import Input, Walk

PROGRAMS = 32
"""Programs that a graph keeps, for different sizes; the least recently used goes first."""
RECORDERS: list[Callable[[Evaluator, Composition], None]] = []
"""Told of every program that runs."""


@dataclass(slots=True)
class Plan:
    """A program for one set of sizes, and how arguments and results go in and out."""

    evaluator: Evaluator
    composition: Composition | None
    inputs: Sequence[Input]
    parameters: Parameters | None
    draws: Sequence[Callable[[], torch.Tensor]]
    checks: Sequence[Callable[[torch.Tensor], None]]
    """Of the last results, which are not among the outputs."""
    sources: Sequence[Source]

    def run(self, arguments: Sequence[Any]) -> list[Any]:
        """The graph's outputs."""
        computed = [] if self.composition is None else self._computed(arguments, self.composition)
        for check, found in zip(self.checks, computed[len(computed) - len(self.checks) :], strict=True):
            check(found)
        return [source(arguments, computed) for source in self.sources]

    def _computed(self, arguments: Sequence[Any], composition: Composition) -> list[torch.Tensor]:
        arrays = [ordered_array(arguments[i.place], i.order) for i in self.inputs]
        arrays += [to_array(draw()) for draw in self.draws]
        if self.parameters is not None:
            composition = self.parameters.bound(arguments)
        made: Any = self.evaluator.call(composition, arrays, {})
        for record in RECORDERS:
            record(self.evaluator, composition)
        return [to_tensor(a) for a in cast("tuple[Any, ...]", made)] if isinstance(made, tuple) else [to_tensor(made)]


class Executable:
    """A graph, compiled for the sizes that calls bring. Safe to use from any thread."""

    def __init__(
        self, module: GraphModule, evaluator: Evaluator, static: Set[str] = frozenset(), *, eager: bool = False
    ) -> None:
        """`static` has the names of parameters and buffers, which seldom change; with `eager` PyTorch runs what Tile cannot."""
        self.module = module
        self.evaluator = evaluator
        self.static = static
        self.eager = eager
        self._placeholders = module.graph.find_nodes(op="placeholder")
        self._sizes = OpenSizes.of(self._placeholders)
        self._plans: OrderedDict[tuple[int, ...], Plan | Segments] = OrderedDict()
        self._lock = forking.rlock()

    @staticmethod
    def walked(module: GraphModule) -> Walk:
        """A walk of a graph for the sizes with which it was traced."""
        placeholders = module.graph.find_nodes(op="placeholder")
        sizes = OpenSizes.of(placeholders)
        traced = sizes.numbers([n.meta.get("val") for n in placeholders])
        with _disable_current_modes(), torch.no_grad():
            walk = Walk(module, sizes.bindings(traced)).run()
        for body in chain(*walk.hosted.values()):
            walk.problems |= Executable.walked(body).problems
        return walk

    def __call__(self, arguments: Sequence[Any]) -> list[Any]:
        """The graph's outputs for its inputs."""
        return self.plan(arguments).run(arguments)

    def plan(self, arguments: Sequence[Any]) -> Plan | Segments:
        """The program for the sizes of these arguments, made when it is new; TileTypeError lists what cannot run."""
        key = self._sizes.numbers(arguments)
        with self._lock:
            found = self._plans.get(key)
            if found is None:
                with _disable_current_modes(), torch.no_grad():
                    found = self._plans[key] = self._made(Walk(self.module, self._sizes.bindings(key)).run())
                while len(self._plans) > PROGRAMS:
                    self._plans.popitem(last=False)
            self._plans.move_to_end(key)
            return found

    def _made(self, walk: Walk) -> Plan | Segments:
        if walk.problems and not self.eager:
            raise support.unsupported(list(walk.problems.values())) from walk.cause
        if walk.problems or walk.hosted:
            return Segments(self.module, walk.problems, walk.hosted, self._part, self._body)
        places = {n: k for k, n in enumerate(self._placeholders)}
        found = results(self._outputs, walk.values, places, walk.sizes)
        wanted = [*found.symbols, *(c.symbol for c in walk.checks)]
        taken = _needed(wanted)
        inputs = [i for i in walk.inputs if id(i.symbol) in taken]
        symbols = [*(i.symbol for i in inputs), *(d.symbol for d in walk.draws)]
        composition = Composition(symbols, wanted, ()) if wanted else None
        bound = self._bound(inputs)
        if len(bound) == len(symbols):
            bound = []  # the program of a call without arguments would not give arrays
        given = [i for i in inputs if i not in bound]
        draws = [d.function for d in walk.draws]
        parameters = self._parameters(composition, inputs, bound)
        checks = [c.function for c in walk.checks]
        return Plan(self.evaluator, composition, given, parameters, draws, checks, found.sources)

    @cached_property
    def _outputs(self) -> Sequence[Any]:
        (end,) = self.module.graph.find_nodes(op="output")
        made: Any = end.args[0]
        return cast("Sequence[Any]", made) if isinstance(made, (tuple, list)) else (made,)

    def _bound(self, inputs: Sequence[Input]) -> list[Input]:
        """Parameters and buffers that the program keeps."""
        return [i for i in inputs if self._placeholders[i.place].name in self.static and i.order is not None]

    def _parameters(
        self, composition: Composition | None, inputs: Sequence[Input], bound: Sequence[Input]
    ) -> Parameters | None:
        if composition is None or not bound:
            return None
        named = [(name, i) for name, i in zip(composition.inputs, inputs, strict=False) if i in bound]
        return Parameters(composition, named, self.evaluator.device)

    def _part(self, module: GraphModule) -> Executable:
        return Executable(module, self.evaluator, self.static, eager=self.eager)

    def _body(self, module: GraphModule) -> Executable:
        return Executable(module, self.evaluator, eager=self.eager)


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
