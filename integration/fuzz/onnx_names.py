"""The array API standard's names, each of which appends nodes to an ONNX graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from fuzz.graphs import Array, Graph

OPSET = 21
_SAME = {
    "add": "Add", "subtract": "Sub", "multiply": "Mul", "divide": "Div", "maximum": "Max", "minimum": "Min", "less": "Less",
    "equal": "Equal", "logical_and": "And", "logical_or": "Or", "logical_not": "Not", "negative": "Neg", "abs": "Abs",
    "sign": "Sign", "tanh": "Tanh", "sqrt": "Sqrt", "exp": "Exp", "where": "Where", "matmul": "MatMul",
}  # fmt: skip
_REDUCED = {"sum": "ReduceSum", "mean": "ReduceMean", "max": "ReduceMax", "min": "ReduceMin"}


def model_of(graph: Graph) -> ModelProto:
    """The graph as a model with inputs x0, x1, … and results y0, y1, …"""
    names = OnnxNames(graph)
    inputs = [names.known(f"x{n}", a) for n, a in enumerate(graph.inputs)]
    results = graph.run(names, inputs)
    for n, result in enumerate(results):
        names.nodes.append(helper.make_node("Identity", [result.name], [f"y{n}"]))
    kinds = [(f"x{n}", a) for n, a in enumerate(graph.inputs)], [(f"y{n}", a) for n, a in enumerate(graph.expected)]
    infos = [
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in k]
        for k in kinds
    ]
    made = helper.make_graph(names.nodes, "fuzz", infos[0], infos[1], names.weights)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)


class Value:
    """A name in the graph, and what it holds for the inputs that the graph was drawn with."""

    def __init__(self, name: str, value: Array) -> None:
        self.name, self.value = name, value


class OnnxNames:
    """A namespace of values by name; shapes and dtypes follow from NumPy, which computes the same."""

    float32, int32, bool_ = TensorProto.FLOAT, TensorProto.INT32, TensorProto.BOOL

    def __init__(self, graph: Graph) -> None:
        self.nodes: list[Any] = []
        self.weights: list[Any] = []

    def known(self, name: str, value: Array) -> Value:
        return Value(name, value)

    def __getattr__(self, name: str) -> Any:
        if name in _SAME:
            return lambda *args: self._node(_SAME[name], args, getattr(np, name))
        if name in _REDUCED:
            return lambda x, axis, keepdims: self._reduced(_REDUCED[name], x, axis, keepdims, getattr(np, name))
        raise AttributeError(name)

    def _node(self, op: str, args: Sequence[Any], compute: Any, **attributes: Any) -> Value:
        """A node of values and scalars; a scalar has the dtype of the first value."""
        dtype = next(a.value.dtype for a in args if isinstance(a, Value))
        given = [a if isinstance(a, Value) else self.asarray(a, dtype) for a in args]
        value = np.asarray(compute(*(g.value for g in given)))
        return self._made(op, [g.name for g in given], value, **attributes)

    def _made(self, op: str, inputs: Sequence[str], value: Array, **attributes: Any) -> Value:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, [*inputs], [name], **attributes))
        return Value(name, value)

    def asarray(self, value: Any, dtype: Any = np.int64) -> Value:
        array = np.asarray(value, dtype)
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return Value(name, array)

    def _reduced(self, op: str, x: Value, axis: int, keep: bool, compute: Any) -> Value:
        value = np.asarray(compute(x.value, axis=axis, keepdims=keep))
        return self._made(op, [x.name, self.asarray([axis]).name], value, keepdims=int(keep))

    def any(self, x: Value, axis: int, keepdims: bool) -> Value:
        return self.astype(self.max(self.astype(x, self.int32), axis, keepdims), self.bool_)

    def all(self, x: Value, axis: int, keepdims: bool) -> Value:
        return self.astype(self.min(self.astype(x, self.int32), axis, keepdims), self.bool_)

    def astype(self, x: Value, to: int) -> Value:
        return self._made("Cast", [x.name], x.value.astype(helper.tensor_dtype_to_np_dtype(to)), to=to)

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        return self._made("Reshape", [x.name, self.asarray(shape).name], x.value.reshape(shape))

    def permute_dims(self, x: Value, order: Sequence[int]) -> Value:
        return self._made("Transpose", [x.name], x.value.transpose(order), perm=[*order])

    def broadcast_to(self, x: Value, shape: Sequence[int]) -> Value:
        return self._made("Expand", [x.name, self.asarray(shape).name], np.broadcast_to(x.value, shape))

    def getitem(self, x: Value, parts: Sequence[tuple[int, int, int]]) -> Value:
        low, high, step = (list(column) for column in zip(*parts, strict=True))
        value = x.value[tuple(slice(a, b if b >= 0 else None, s) for a, b, s in parts)]
        ends = [b if b >= 0 else -(10**6) for b in high]
        more = [self.asarray(c).name for c in (low, ends, [*range(len(parts))], step)]
        return self._made("Slice", [x.name, *more], value)

    def flip(self, x: Value, axis: int) -> Value:
        size = x.value.shape[axis]
        return self.take(x, self.asarray([*range(size - 1, -1, -1)]), axis)

    def roll(self, x: Value, by: int, axis: int) -> Value:
        size = x.value.shape[axis]
        return self.take(x, self.asarray([(k - by) % size for k in range(size)]), axis)

    def concat(self, values: Sequence[Value], axis: int) -> Value:
        value = np.concatenate([v.value for v in values], axis)
        return self._made("Concat", [v.name for v in values], value, axis=axis)

    def expand_dims(self, x: Value, axis: int) -> Value:
        return self._made("Unsqueeze", [x.name, self.asarray([axis]).name], np.expand_dims(x.value, axis))

    def take(self, x: Value, where: Value, axis: int) -> Value:
        return self._made("Gather", [x.name, where.name], np.take(x.value, where.value, axis), axis=axis)

    def tril(self, x: Value, k: int) -> Value:
        if x.value.dtype == bool:
            return self.astype(self.tril(self.astype(x, self.int32), k), self.bool_)
        return self._made("Trilu", [x.name, self.asarray(k).name], np.tril(x.value, k), upper=0)

    def cumulative_sum(self, x: Value, axis: int) -> Value:
        return self._made("CumSum", [x.name, self.asarray(axis).name], x.value.cumsum(axis))

    def sort(self, x: Value, axis: int) -> Value:
        """The largest first, the other way round."""
        size = x.value.shape[axis]
        made = self._made("TopK", [x.name, self.asarray([size]).name], np.sort(x.value, axis), axis=axis, largest=0)
        self.nodes[-1].output.append(f"{made.name}_places")
        return made

    def argmax(self, x: Value, axis: int) -> Value:
        return self._made("ArgMax", [x.name], x.value.argmax(axis), axis=axis, keepdims=0)
