"""What AOTAutograd's result depends on: the captured graph, its inputs, PyTorch's settings, and the versions of both."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import torch
from tile_hal.disk_cache import sources
from torch._functorch import config as functorch
from torch._guards import TracingContext
from torch._ops import HigherOrderOperator
from torch.fx import GraphModule, Node
from torch.fx.node import _get_qualified_name  # pyright: ignore[reportPrivateUsage, reportUnknownVariableType]

from tile_torch.traces.graphs import lines, written
from tile_torch.traces.records import NAMESPACES, Json, Unkept, packed

core: Any = torch._C  # pyright: ignore[reportPrivateUsage]

PACKAGES = ("tile_torch", "tile_runtime", "tile_lang", "tile_ir")
"""Whose sources decide what is traced, and what programs are made of it."""
ROOTS = ("torch", "_operator", "math", "builtins")
"""Modules whose functions their names describe."""
PLAIN = (torch.Tensor, torch.nn.Parameter)


def key(module: GraphModule, inputs: Sequence[Any], settled: Sequence[int] | None, how: Sequence[Any]) -> str:
    """SHA-256 of all that decides a trace; Unkept where something does that has no name: functions of the user's, tensors
    that share memory, sizes that are open. `settled` are the places of parameters and buffers, `how` the options."""
    parts = [
        _versions(),
        _settings(),
        packed(list(settled or ())),
        list(how),
        list(_inputs(inputs)),
        list(lines(module, _target)),
    ]
    if dict(module.named_parameters()) or dict(module.named_buffers()):
        raise Unkept("tensors of the graph's own")
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def known(module: GraphModule, static: Collection[str]) -> str | None:
    """The identity of a graph; None where it has no text."""
    try:
        return identity(written(module), static)
    except Unkept:
        return None


def identity(text: str, static: Collection[str] = ()) -> str:
    """SHA-256 of all that decides the program of a graph: its text, the names of what the program keeps, and versions."""
    return hashlib.sha256(json.dumps([_versions(), text, sorted(static)]).encode()).hexdigest()


def _versions() -> Json:
    return [torch.__version__, torch.version.git_version, *map(sources, PACKAGES)]


def _settings() -> Json:
    """Of PyTorch, as they are now."""
    if core._len_torch_dispatch_stack() or core._len_torch_function_stack():
        raise Unkept("a mode that sees every call")
    if core._autograd._top_saved_tensors_default_hooks(False) is not None:
        raise Unkept("hooks of saved tensors")
    context = TracingContext.try_get()
    if context is not None and context.fakify_first_call:
        raise Unkept("a first call without numbers")
    grad = [torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_cache_enabled()]
    cast = [torch.is_autocast_enabled("cpu"), str(torch.get_autocast_dtype("cpu"))]
    more = [
        torch.are_deterministic_algorithms_enabled(),
        str(torch.get_default_dtype()),
        torch.get_default_device().type,
    ]
    return [*grad, *cast, *more, torch.backends.mkldnn.enabled, functorch.get_hash().hex()]


def _inputs(inputs: Sequence[Any]) -> Iterator[Json]:
    seen: set[int] = set()
    for value in inputs:
        if type(value) not in PLAIN or value.layout is not torch.strided or value.device.type != "cpu":
            raise Unkept("an argument that is no plain tensor")
        memory = value.untyped_storage().data_ptr()
        if memory in seen and memory:
            raise Unkept("arguments that share memory")
        seen.add(memory)
        kind = [type(value).__name__, str(value.dtype), *map(list, (value.shape, value.stride()))]
        marks = [value.is_conj(), value.is_neg(), value.is_inference(), value._is_view(), value.storage_offset()]
        yield [*kind, value.requires_grad, value.is_leaf, *marks]


def _target(node: Node) -> str:
    if node.op in ("placeholder", "output", "call_method"):
        return str(node.target)
    if node.op != "call_function":
        raise Unkept("a module or constant of the graph's own")
    name: str = _get_qualified_name(node.target)  # pyright: ignore[reportArgumentType]
    root, _, rest = name.partition(".")
    if root not in ROOTS or isinstance(node.target, HigherOrderOperator):
        raise Unkept(name)
    if rest.startswith("ops.") and rest.split(".")[1] not in NAMESPACES:
        raise Unkept(name)
    return name
