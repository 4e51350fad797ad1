"""What gives the results of a graph: they are computed, known, or views of what was given or computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from tile_runtime.ops.moving import permuted
from tile_runtime.ops.values import is_known
from tile_runtime.symbols import Symbol
from torch.fx import Node
from torch.fx.node import map_arg

from tile_torch.complexes import Complex, together
from tile_torch.dtypes import to_complex, to_tensor
from tile_torch.sizes import Bindings, dense_order, resolved, strides_of
from tile_torch.sources import Computed, Fixed, Given, Known, Permuted, Source, Viewed

aten = torch.ops.aten
VIEWS = frozenset(
    {
        aten.alias.default,
        aten.detach.default,
        aten.expand.default,
        aten.permute.default,
        aten.select.int,
        aten.slice.Tensor,
        aten.squeeze.default,
        aten.squeeze.dim,
        aten.squeeze.dims,
        aten.t.default,
        aten.transpose.int,
        aten.unsqueeze.default,
        aten.view.default,
        aten._unsafe_view.default,
    }
)
"""Operators whose result is in the memory of their first argument."""


@dataclass(slots=True)
class Results:
    """The results of one graph: symbols for the program to compute, and what makes the graph's outputs of them."""

    symbols: list[Symbol]
    sources: list[Source]


def results(outputs: Sequence[Any], values: Mapping[Node, Any], places: Mapping[Node, int], sizes: Bindings) -> Results:
    """The outputs of a graph, whose nodes are `values`; `places` are those of its inputs among the arguments."""
    made = _Making(values, places, sizes)
    sources = [made.source(o) for o in outputs]
    return Results(made.symbols, sources)


def _origin(node: Node) -> Node:
    """The node whose memory a chain of views shows."""
    while node.target in VIEWS and isinstance(node.args[0], Node):
        node = node.args[0]
    return node


class _Making:
    def __init__(self, values: Mapping[Node, Any], places: Mapping[Node, int], sizes: Bindings) -> None:
        self._values = values
        self._places = places
        self._sizes = sizes
        self._computed: dict[Node, int] = {}
        self.symbols: list[Symbol] = []

    def source(self, output: Any) -> Source:
        """What gives an output."""
        value = self._values[output] if isinstance(output, Node) else output
        if not isinstance(output, Node) or not (isinstance(value, Symbol | Complex) or is_known(value)):
            return Fixed(value)
        origin = _origin(output)
        if origin is not output and (origin in self._places or self._is_output(origin)):
            return self._viewed(output)
        if output in self._places:
            return Given(self._places[output])
        if is_known(value):
            return Known(to_tensor(value.copy()))
        if isinstance(value, Complex):
            whole = together(value)
            return Known(to_complex(to_tensor(whole.copy()))) if is_known(whole) else self._made(output, whole, 1)
        return self._made(output, cast(Symbol, value))

    def _is_output(self, origin: Node) -> bool:
        return any(user.op == "output" for user in origin.users) and isinstance(self._values[origin], Symbol | Complex)

    def _viewed(self, node: Node) -> Source:
        before = self.source(node.args[0])
        target: Any = node.target
        # Sizes may stand in lists: [n * 5, 4].
        known: Any = map_arg((node.args[1:], node.kwargs), self._values.__getitem__)
        rest = tuple(resolved(a, self._sizes) for a in known[0])
        named = {k: resolved(v, self._sizes) for k, v in known[1].items()}
        return Viewed(before, target, rest, named)

    def _made(self, node: Node, value: Symbol, parts: int = 0) -> Source:
        """A computed result, in the layout that PyTorch gives it; of complex numbers with `parts` along one more axis."""
        traced = node.meta.get("val")
        strides = strides_of(traced, self._sizes) if isinstance(traced, torch.Tensor) else None
        rank = len(value.shape) - parts
        order = dense_order(value.shape[:rank], strides) if strides is not None else None
        natural = tuple(range(rank))
        order = order or natural
        if node not in self._computed:
            self._computed[node] = len(self.symbols)
            self.symbols.append(permuted(value, (*order, rank) if parts else order))
        k = self._computed[node]
        if order == natural and not parts:
            return Computed(k)
        return Permuted(k, tuple(order.index(axis) for axis in natural), bool(parts))
