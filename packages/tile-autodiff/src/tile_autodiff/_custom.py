"""Derivatives that a user gives for a part of a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tile_ir.diagnostics import Diagnostic, TileTypeError
from tile_ir.program.liveness import defined_by
from tile_ir.program.nodes import CustomGradient, Op, Prng
from tile_ir.program.rename import renamed, renamed_gradient

from tile_autodiff._emit import Graph


class Inliner:
    """Copies the backward programs of rules into a graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nested: list[CustomGradient] = []
        """Custom gradients of the operations that were copied."""

    def apply(
        self, rule: CustomGradient, arrived: Mapping[str, str | None], active: Callable[[str], bool]
    ) -> list[tuple[str, str]]:
        """Derivatives of the rule's active inputs from those of its outputs (None: zero)."""
        graph, backward = self.graph, rule.backward
        cotangents = [arrived[n] or graph.zeros(graph.types[n]) for n in rule.outputs]
        given = [*rule.inputs, *rule.outputs, *cotangents]
        self._check(rule, given)
        names = {p.name: value for p, value in zip(backward.inputs, given, strict=True)}
        for op in backward.ops:
            self._copy(op, names)
        self.nested += [renamed_gradient(g, names) for g in backward.gradients]
        results = [names[value] for _, value in backward.outputs]
        return [(n, d) for n, d in zip(rule.inputs, results, strict=False) if active(n)]

    def _copy(self, op: Op, names: dict[str, str]) -> None:
        graph = self.graph
        for name in defined_by(op):
            names[name] = graph.fresh("G_" + name)
        copy = renamed(op, names)
        if isinstance(copy, Prng):
            graph.link(copy)
        else:
            names[defined_by(op)[0]] = graph.add(copy)

    def _check(self, rule: CustomGradient, given: list[str]) -> None:
        backward = rule.backward
        have = [self.graph.types[n] for n in given]
        if [p.type for p in backward.inputs] != have:
            message = f"the custom gradient takes ({', '.join(str(p.type) for p in backward.inputs)})"
            hint = "its parameters are the inputs, the outputs and one cotangent per output"
            raise TileTypeError(Diagnostic("TILE-E804", f"{message}, not ({', '.join(map(str, have))})", hint=hint))
        types = backward.types()
        for name, (_, value) in zip(rule.inputs, backward.outputs, strict=False):
            if types[value] != self.graph.types[name]:
                message = f"the custom gradient of {name} is {types[value]}, the input is {self.graph.types[name]}"
                raise TileTypeError(Diagnostic("TILE-E804", message))
