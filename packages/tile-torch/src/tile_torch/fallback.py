"""Graphs with control flow, or with operators that Tile lacks: PyTorch runs these between the programs of the rest."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy, deepcopy
from typing import Any, cast

import torch
from tile_ir.diagnostics import TileFallbackWarning
from torch._C import _AutoDispatchBelowAutograd  # pyright: ignore[reportPrivateUsage]
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from tile_torch import support

Runner = Callable[..., Any]
Runners = Callable[[GraphModule], Runner]


class Segments:
    """A graph whose parts run in turn on the Tile device and in PyTorch."""

    def __init__(
        self,
        module: GraphModule,
        problems: Mapping[Node, support.Problem],
        hosted: Mapping[Node, Sequence[GraphModule]],
        part: Runners,
        body: Runners,
    ) -> None:
        """`part` makes a function of a part of the graph, and `body` of what the control flow of `hosted` nodes runs."""
        if problems:
            _warn(list(problems.values()))
        refused = {node.name for node in (*problems, *hosted)}
        divider = CapabilityBasedPartitioner(_copied(module), _Supported(refused), allows_single_node_partition=True)
        self._module = divider.partition_and_fuse("tile_")
        for node in self._module.graph.find_nodes(op="call_module"):
            self._replace(str(node.target), part)
        for node in self._module.graph.find_nodes(op="get_attr"):
            if isinstance(getattr(self._module, str(node.target), None), GraphModule):
                self._replace(str(node.target), body)

    def _replace(self, name: str, runners: Runners) -> None:
        module = cast(GraphModule, self._module.get_submodule(name))
        setattr(self._module, name, _Part(module, runners(module)))

    def run(self, arguments: Sequence[Any]) -> list[Any]:
        """The graph's outputs."""
        with _AutoDispatchBelowAutograd():
            return list(self._module(*arguments))


class _Part(torch.nn.Module):
    """A part that Tile runs, in the place of the module that it was."""

    def __init__(self, module: GraphModule, runner: Runner) -> None:
        super().__init__()
        self._runner = runner
        (end,) = module.graph.find_nodes(op="output")
        self._single = not isinstance(end.args[0], (tuple, list))

    def forward(self, *arguments: Any) -> Any:
        """A result, or several."""
        made = self._runner(arguments)
        return made[0] if self._single else tuple(made)


class _Supported(OperatorSupportBase):
    """All nodes but some, and what is picked from the results of these."""

    def __init__(self, refused: Collection[str]) -> None:
        self._refused = refused

    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: Node) -> bool:
        if node.op != "call_function" or node.name in self._refused:
            return False
        if not isinstance(node.meta.get("val"), (torch.Tensor, list, tuple)):
            return False  # sizes are PyTorch's business
        return node.target is not operator.getitem or self.is_node_supported(submodules, cast(Node, node.args[0]))


def _copied(module: GraphModule) -> GraphModule:
    """A graph that may be cut: the nodes of its own, with the same names."""
    made = GraphModule(module, deepcopy(module.graph))
    for ours, theirs in zip(made.graph.nodes, module.graph.nodes, strict=True):
        ours.meta, ours.name = copy(theirs.meta), theirs.name
    return made


def _warn(problems: Sequence[support.Problem]) -> None:
    listed = "; ".join(d.message for d in support.diagnostics(problems))
    warnings.warn(f"PyTorch runs what Tile cannot: {listed}", TileFallbackWarning, stacklevel=2)
