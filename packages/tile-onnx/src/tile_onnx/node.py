"""What a converter sees: a node with its values, attributes and the tools to make Tile of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from onnx import NodeProto
from tile_ir.dtype import DType
from tile_runtime.ops.unsupported import Unsupported
from tile_runtime.ops.values import Array, NotInTile
from tile_runtime.symbols import Symbol

from tile_onnx.graph import Graph, attribute_value
from tile_onnx.values import Held, Value, described, dtype_of

if TYPE_CHECKING:
    from tile_runtime.evaluator import Evaluator

__all__ = ["Array", "Node", "RunOnHost", "Symbol", "Unsupported", "Value"]


class RunOnHost(NotInTile):
    """A node whose work the host does between device programs, by the reference implementation."""


class Unlooped(Exception):
    """A subgraph that cannot be the body of a loop on the device: its rounds differ, or the host has a part in them."""


class Walker(Protocol):
    """What a node needs of the walk."""

    @property
    def evaluator(self) -> Evaluator: ...
    def host_array(self, value: Symbol | Held, name: str) -> Array: ...
    def converted(self, node: Node) -> Any: ...
    def enter(self, node: Node, graph: Graph, inputs: Sequence[Value], step: str) -> list[Value]: ...
    def later(self, node: Node, graph: Graph, inputs: Sequence[Value], function: Callable[..., Any]) -> list[Value]: ...
    def defined(self, node: Node, text: str) -> tuple[Value, ...]: ...
    def attempt(self, function: Callable[[], Any]) -> Any: ...


class Node:
    """One node of a graph with the values of its inputs."""

    def __init__(
        self,
        proto: NodeProto,
        opset: int,
        values: Sequence[Value],
        walker: Walker | None,
        label: str,
        frame: Any = None,
    ) -> None:
        self.proto = proto
        self.op: str = proto.op_type
        self.domain: str = "" if proto.domain == "ai.onnx" else proto.domain
        self.opset = opset
        self.values = values
        self.count: int = len(proto.output)
        self.name = label
        """Its name, or that of its first output where it has none; with the nodes that it stands in."""
        self.frame = frame
        self._steps = walker

    @property
    def _walker(self) -> Walker:
        if self._steps is None:
            raise TypeError("a node outside a walk has no values")
        return self._steps

    @property
    def evaluator(self) -> Evaluator:
        """What runs the model, for work on the host that has programs of its own."""
        return self._walker.evaluator

    # --- attributes and outputs -----------------------------------------------------------------------

    @cached_property
    def attributes(self) -> dict[str, Any]:
        """Its attributes, decoded: int, float, str, tuples of them, arrays, Graphs."""
        return {a.name: attribute_value(a) for a in self.proto.attribute}

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute's value, or the default where the node does not state it."""
        return self.attributes.get(name, default)

    def wants(self, k: int) -> bool:
        """Whether output `k` has a name."""
        return k < self.count and bool(self.proto.output[k])

    # --- inputs ---------------------------------------------------------------------------------------

    @property
    def arity(self) -> int:
        """The number of inputs, absent ones between others included."""
        return len(self.values)

    def on(self, values: Sequence[Value]) -> Node:
        """The same node with other inputs."""
        return Node(self.proto, self.opset, values, self._steps, self.name, self.frame)

    def value(self, k: int) -> Value:
        """Input `k`; None where it is absent or beyond the end."""
        return self.values[k] if k < len(self.values) else None

    def has(self, k: int) -> bool:
        """Whether input `k` is there."""
        return self.value(k) is not None

    def shape(self, k: int) -> tuple[int, ...]:
        """The shape of input `k`, a tensor."""
        return tuple(self._tensor(k).shape)

    def rank(self, k: int) -> int:
        """The number of dimensions of input `k`."""
        return len(self.shape(k))

    def dtype(self, k: int) -> DType:
        """The Tile dtype of input `k`; a dtype that Tile lacks sends the node to the host."""
        found = dtype_of(self._tensor(k))
        if found is None:
            raise RunOnHost
        return found

    def host(self, k: int) -> Array:
        """The numbers of input `k`. Where the device computes them, its program ends here and another begins."""
        value = self._tensor(k)
        if isinstance(value, np.ndarray):
            return value  # pyright: ignore[reportUnknownVariableType]
        return self._walker.host_array(value, f"{self.op} input {k}")

    def ints(self, k: int, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """The numbers of input `k` as integers, in one row; `default` where it is absent."""
        if not self.has(k):
            if default is None:
                raise self.unsupported(f"input {k} is absent")
            return default
        return tuple(int(v) for v in self.host(k).reshape(-1))

    def axis(self, value: int, rank: int | None = None) -> int:
        """An axis counted from the front; `rank` is that of input 0 where it is not given."""
        rank = self.rank(0) if rank is None else rank
        if not -rank <= value < max(rank, 1):
            raise self.unsupported(f"axis {value} of a tensor with {rank} dimensions")
        return value + rank if value < 0 else value

    def axes(self, values: Sequence[int], rank: int | None = None) -> tuple[int, ...]:
        """Axes counted from the front, in the order given; see `axis`."""
        return tuple(self.axis(v, rank) for v in values)

    def _tensor(self, k: int) -> Any:
        value = self.value(k)
        if value is None or isinstance(value, list):
            raise self.unsupported(f"input {k} is {described(value)}, a tensor is wanted")
        return value

    def convert(self, proto: NodeProto, opset: int, values: Sequence[Value]) -> Any:
        """What another node gives on these values, in the place of this one."""
        return self._walker.converted(Node(proto, opset, values, self._steps, self.name, self.frame))

    # --- ways out -------------------------------------------------------------------------------------

    def unsupported(self, why: str, hint: str | None = None) -> Unsupported:
        """The error to raise for a node that cannot be converted; all of them are reported together."""
        return Unsupported(why, hint)

    def on_host(self) -> RunOnHost:
        """The exception to raise for a node whose work only the host can do (ONNX's reference does it)."""
        return RunOnHost()

    def enter(self, graph: Graph, inputs: Sequence[Value], step: str = "") -> list[Value]:
        """The outputs of a subgraph, walked in place; `step` tells the walks of one subgraph apart."""
        return self._walker.enter(self, graph, inputs, step)

    def attempt(self, loop: Callable[[], Any]) -> Any:
        """What `loop` gives, which traces a loop and enters its body; None, and nothing has happened, where that cannot be."""
        return self._walker.attempt(loop)

    def defined(self, text: str) -> tuple[Value, ...]:
        """Its outputs as other operators make them: a function in ONNX's text form, ``(X, S) => (Y) { Y = Mul(X, S) }``.

        Inputs that the node lacks are absent in the text, too; ``<axis: int = @axis>`` hands an attribute on.
        """
        return self._walker.defined(self, text)

    def later(self, graph: Graph, inputs: Sequence[Value], function: Callable[..., Any]) -> list[Value]:
        """The outputs of `function(engine, captured, *inputs)`, called when the model runs; `engine` runs the subgraph."""
        return self._walker.later(self, graph, inputs, function)
