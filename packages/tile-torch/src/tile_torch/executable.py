"""A graph that runs on a Tile device: one program for each set of sizes, called with PyTorch's tensors."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Sequence, Set
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
from tile_torch.fallback import Segments
from tile_torch.newcomers import Newcomers
from tile_torch.outputs import results
from tile_torch.plans import Plan, Recipe
from tile_torch.program import Summary
from tile_torch.sizes import OpenSizes, Sizes
from tile_torch.traces import recipes
from tile_torch.walk import Slot, Walk

PROGRAMS = 32
"""Programs that a graph keeps, for different sizes; the least recently used goes first."""


class Executable:
    """A graph, compiled for the sizes that calls bring. Safe to use from any thread."""

    def __init__(
        self,
        module: GraphModule,
        evaluator: Evaluator,
        static: Set[str] = frozenset(),
        *,
        eager: bool = False,
        text: str | None = None,
    ) -> None:
        """`static` has the names of parameters and buffers, which seldom change; with `eager` PyTorch runs what Tile cannot.

        `text` decides what the graph computes, in any process: with it programs are found in the disk cache without a walk.
        """
        self.module = module
        self.evaluator = evaluator
        self.static = static
        self.eager = eager
        self.text = text
        self._placeholders = module.graph.find_nodes(op="placeholder")
        self._sizes = OpenSizes.of(self._placeholders)
        self._plans: OrderedDict[Sizes, Plan | Segments] = OrderedDict()
        self._newcomers = Newcomers(module)
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
        sizes = self._sizes.numbers(arguments)
        if sizes in self._plans:
            return self._plan(sizes).run(arguments)
        found = self._newcomers.run(sizes, arguments) if self._newcomers.wait(sizes) else None
        return self._first(sizes, arguments) if found is None else found

    def _first(self, sizes: Sizes, arguments: Sequence[Any]) -> list[Any]:
        start = time.perf_counter()
        found = self._plan(sizes).run(arguments)
        self._newcomers.bought(sizes, time.perf_counter() - start)
        return found

    def prepare(self, arguments: Sequence[Any]) -> None:
        """Makes the program for the sizes of these arguments, where they are known; TileTypeError lists what cannot run."""
        sizes = self._sizes.numbers(arguments)
        if None not in sizes:
            self._plan(sizes)
        elif not self.eager:
            with _disable_current_modes(), torch.no_grad():
                self._refuse(self._walk(sizes))

    def plan(self, arguments: Sequence[Any]) -> Plan | Segments:
        """The program for the sizes of these arguments, made when it is new; TileTypeError lists what cannot run."""
        return self._plan(self._sizes.numbers(arguments))

    def _plan(self, sizes: Sizes) -> Plan | Segments:
        with self._lock:
            found = self._plans.get(sizes)
            if found is None:
                with _disable_current_modes(), torch.no_grad():
                    found = self._plans[sizes] = self._made(self._walk(sizes))
                while len(self._plans) > PROGRAMS:
                    self._plans.popitem(last=False)
            self._plans.move_to_end(sizes)
            return found

    def _walk(self, sizes: Sizes) -> Walk:
        return Walk(self.module, self._sizes.bindings(sizes)).run()

    @staticmethod
    def _refuse(walk: Walk) -> None:
        if walk.problems:
            raise support.unsupported(list(walk.problems.values())) from walk.cause

    def _made(self, walk: Walk) -> Plan | Segments:
        if not self.eager:
            self._refuse(walk)
        if walk.problems or walk.hosted:
            return Segments(self.module, walk.problems, walk.hosted, self._part, self._body)
        composition, recipe = self._composed(walk)
        if composition is None or self.text is None or walk.draws or walk.checks:
            plan = recipe.plan(composition, self.evaluator)
            plan.draws, plan.checks = [d.function for d in walk.draws], [c.function for c in walk.checks]
            return plan
        recipes.write(self.text, recipe)
        return recipe.plan(recipe.program(lambda: composition), self.evaluator)

    def composition(self) -> Composition | None:
        """The program of a graph without open sizes; None where it computes nothing."""
        return self._composed(Executable.walked(self.module))[0]

    def _composed(self, walk: Walk) -> tuple[Composition | None, Recipe]:
        places = {n: k for k, n in enumerate(self._placeholders)}
        found = results(self._outputs, walk.values, places, walk.sizes)
        wanted = [*found.symbols, *(c.symbol for c in walk.checks)]
        taken = _needed(wanted)
        inputs = [i for i in walk.inputs if id(i.symbol) in taken]
        symbols = [*(i.symbol for i in inputs), *(d.symbol for d in walk.draws)]
        if not wanted:
            return None, Recipe((), (), (), tuple(found.sources))
        composition = Composition(symbols, wanted, ())
        named = tuple(zip(composition.inputs, (i.slot for i in inputs), strict=False))
        bound = tuple(n for n, slot in named if self._is_bound(slot))
        if len(bound) == len(symbols):
            bound = ()  # the program of a call without arguments would not give arrays
        summary = Summary.of(composition.program, set(bound)) if self.text else None
        return composition, Recipe(named, bound, composition.outputs, tuple(found.sources), summary)

    @cached_property
    def _outputs(self) -> Sequence[Any]:
        (end,) = self.module.graph.find_nodes(op="output")
        made: Any = end.args[0]
        return cast("Sequence[Any]", made) if isinstance(made, (tuple, list)) else (made,)

    def _is_bound(self, slot: Slot) -> bool:
        """Whether the program keeps an argument: parameters and buffers."""
        return self._placeholders[slot.number].name in self.static and slot.order is not None

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
