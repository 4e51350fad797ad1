"""Common subexpressions of a training step's graph, before it is divided into forward and backward.

PyTorch's own pass does the same, but imports all of Inductor for it: a good part of a first call.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any, cast

import torch
from torch.fx import Graph, Node
from torch.multiprocessing.reductions import StorageWeakRef


def share(graph: Graph) -> None:
    """A call equal to an earlier one makes way for it, in place.

    Left alone are draws of random numbers, values of no tensors, and what shares memory with an output: outputs that
    are equal stay tensors of their own. A call that writes ends what is known.
    """
    outputs = {storage for node in graph.output_node().all_input_nodes for storage in _storages(node)}
    known: dict[object, Node] = {}
    for node in graph.nodes:
        if _writes(node):
            known.clear()
        storages = _storages(node)
        if not storages or storages & outputs or not _repeatable(node):
            continue
        try:
            earlier = known.setdefault((node.target, _key(node.args), _key(node.kwargs)), node)
        except TypeError:  # an argument without a hash
            continue
        if earlier is not node:
            node.replace_all_uses_with(earlier)
            graph.erase_node(node)


def _schema(node: Node) -> Any:
    """What an operator declares; None for what is no operator of ATen's kind."""
    return getattr(node.target, "_schema", None)


def _writes(node: Node) -> bool:
    schema = _schema(node)
    return schema is not None and schema.is_mutable


def _repeatable(node: Node) -> bool:
    """Called again with the same arguments it gives the same."""
    target: Any = node.target
    if _schema(node) is None or _writes(node):
        return target is operator.getitem
    return torch.Tag.nondeterministic_seeded not in target.tags and target.overloadpacket is not torch.ops.aten.empty


def _storages(node: Node) -> set[StorageWeakRef]:
    """The memory of a node's tensors; none where not all of its values are tensors with memory."""
    value: Any = node.meta.get("val")
    values = cast("Iterable[Any]", value if isinstance(value, tuple | list) else (value,))
    try:
        return {StorageWeakRef(tensor.untyped_storage()) for tensor in values}
    except (AttributeError, NotImplementedError):
        return set()


def _key(value: Any) -> object:
    """An argument as something that is equal for equal arguments only."""
    if isinstance(value, tuple | list):
        return tuple(map(_key, cast("Iterable[Any]", value)))
    if isinstance(value, dict):
        return tuple((name, _key(item)) for name, item in cast("dict[str, Any]", value).items())
    if isinstance(value, slice):
        return "slice", _key((value.start, value.stop, value.step))  # pyright: ignore[reportUnknownMemberType]
    return type(value).__name__, value.hex() if isinstance(value, float) else value
