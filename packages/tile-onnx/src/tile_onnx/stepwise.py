"""Runs a graph node by node with ONNX's reference implementation: nothing is compiled, sizes are what they are."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
from onnx import NodeProto
from tile_ir.frozen import frozen

from tile_onnx import functions, fused
from tile_onnx.graph import Graph, of_graph, with_attributes
from tile_onnx.host import NotEvaluated, Reference
from tile_onnx.language import Language
from tile_onnx.node import Node, RunOnHost, Unsupported
from tile_onnx.values import is_array

_WHOLE = (
    "Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh Attention BatchNormalization BitShift BitwiseAnd BitwiseNot "
    "BitwiseOr BitwiseXor Cast CastLike Ceil Celu Clip Concat Constant ConstantOfShape Cos Cosh CumSum DepthToSpace "
    "Div Einsum Elu Equal Erf Exp Expand EyeLike Flatten Floor Gather GatherElements "
    "GatherND Gemm GlobalAveragePool Greater GreaterOrEqual HardSigmoid Hardmax Identity InstanceNormalization IsInf IsNaN "
    "LayerNormalization LeakyRelu Less LessOrEqual Log LogSoftmax MatMul Max Mean Min Mod Mul "
    "Neg NonZero Not OneHot Or PRelu Pad Pow Range Reciprocal ReduceL1 ReduceL2 ReduceLogSum "
    "ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape RotaryEmbedding Round Selu Shape "
    "Sigmoid Sign Sin Sinh Size Slice Softmax Softplus Softsign Split Sqrt Squeeze Sub Sum Swish Tan Tanh TensorScatter ThresholdedRelu "
    "Tile TopK Transpose Trilu Unsqueeze Where Xor "
)
WHOLE = frozenset(_WHOLE.split())
"""Operators that the reference computes by whole arrays; others may take it thousands of times as long as a program."""

DEFINED = frozenset(
    {"Gelu", "GroupNormalization", "HardSwish", "Mish", "MeanVarianceNormalization", "RMSNormalization"}
)
"""Operators that ONNX defines by those."""
SINCE = 13
"""The reference gives operators of older sets their newer meaning."""

Values = dict[str, Any]
Work = Callable[[Values, Sequence[Any], float], Sequence[Any]]
"""The outputs of a node, of the values so far and its inputs, before a time."""


class Late(NotEvaluated):
    """It would take longer than it may."""


@frozen
class Step:
    """A node, and the names that nobody needs after it."""

    work: Work
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    dead: tuple[str, ...]


class Stepwise:
    """A graph as steps. NotEvaluated for graphs of which the reference has no part, or only slowly."""

    def __init__(self, graph: Graph, language: Language) -> None:
        if any(is_narrow(v) for v in graph.constants.values()):
            raise NotEvaluated("it rounds narrow floats after each operation")
        self.graph = graph
        self._language = language
        gone: dict[int, list[str]] = {}
        for name, k in graph.last_use.items():
            gone.setdefault(k, []).append(name)
        self._steps = [self._step(node, tuple(gone.get(k, ()))) for k, node in enumerate(graph.nodes)]

    def run(self, values: Values, end: float) -> list[Any]:
        """Its outputs, for inputs and what it captures by name; Late where that takes beyond `end` (`time.perf_counter`)."""
        if any(is_narrow(v) for v in values.values()):
            raise NotEvaluated("it rounds narrow floats after each operation")
        values = {**self.graph.constants, **values}
        with np.errstate(all="ignore"):
            return self._run(values, end)

    def _run(self, values: Values, end: float) -> list[Any]:
        for step in self._steps:
            if time.perf_counter() > end:
                raise Late("it takes too long")
            made = step.work(values, [values[n] if n else None for n in step.inputs], end)
            values.update(zip(step.outputs, made, strict=False))
            for name in step.dead:
                values.pop(name, None)
        return [values[n] for n in self.graph.outputs]

    def _step(self, node: NodeProto, dead: tuple[str, ...]) -> Step:
        proto = with_attributes(node, self._language.attributes)
        return Step(self._work(proto), tuple(proto.input), tuple(proto.output), dead)

    def _work(self, proto: NodeProto) -> Work:
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        local = self._language.functions.get((domain, proto.op_type))
        if local is not None:
            return partial(_call, self._body(functions.local(local), proto))
        if not domain and proto.op_type == "If":
            return partial(_branch, *self._branches(proto))
        opset = self._language.opsets.get(domain, 0)
        if not domain and opset >= SINCE and proto.op_type in WHOLE:
            return partial(_attend if proto.op_type == "Attention" else _refer, Reference(proto, domain, opset))
        if not domain and opset >= SINCE and proto.op_type in DEFINED:
            return partial(self._defined, {}, proto, opset)
        if fused.has(domain, proto.op_type):
            return partial(self._fused, proto, opset)
        raise NotEvaluated(f"{proto.op_type} is slow or unknown there")

    def _branches(self, proto: NodeProto) -> tuple[Stepwise, Stepwise]:
        found = {a.name: Stepwise(of_graph(a.g), self._language) for a in proto.attribute}
        return found["then_branch"], found["else_branch"]

    def _body(self, body: functions.Body, proto: NodeProto) -> Stepwise:
        given = {**body.defaults, **{a.name: a for a in proto.attribute}}
        return Stepwise(body.graph, Language(body.opsets, self._language.functions, given))

    def _defined(
        self,
        known: dict[Any, Stepwise],
        proto: NodeProto,
        opset: int,
        values: Values,
        inputs: Sequence[Any],
        end: float,
    ) -> Sequence[Any]:
        """An operator by ONNX's definition of it, which may depend on the dtypes of its inputs."""
        key = tuple(v.dtype if is_array(v) else None for v in inputs)
        if key not in known:
            body = functions.body(Node(proto, opset, inputs, None, proto.name))
            if body is None:
                raise NotEvaluated(f"{proto.op_type} is not defined for {key}")
            known[key] = self._body(body, proto)
        return _call(known[key], values, inputs, end)

    def _fused(self, proto: NodeProto, opset: int, values: Values, inputs: Sequence[Any], end: float) -> Sequence[Any]:
        """An operator of ONNX Runtime by those of ONNX, as the sizes of its inputs want them."""

        def run(node: Node, text: str) -> Sequence[Any]:
            body = self._body(functions.written(text), proto) if "@" in text else _written(text)
            return _call(body, values, inputs, end)

        try:
            return fused.outputs(Node(proto, opset, inputs, None, proto.name), run)
        except (Unsupported, RunOnHost) as reason:
            raise NotEvaluated(str(reason)) from reason


@lru_cache(64)
def _written(text: str) -> Stepwise:
    body = functions.written(text)
    return Stepwise(body.graph, Language(body.opsets, {}))


def is_narrow(value: Any) -> bool:
    """Whether it holds floats of 16 bits or fewer."""
    return is_array(value) and value.dtype.kind in "fV" and value.dtype.itemsize < 4


def _refer(reference: Reference, values: Values, inputs: Sequence[Any], end: float) -> Sequence[Any]:
    return reference.run(*inputs)


def _attend(reference: Reference, values: Values, inputs: Sequence[Any], end: float) -> Sequence[Any]:
    """Attention: the reference takes the number of queries from the mask, which may have one row for all of them."""
    query, key, value, *rest = inputs
    if rest and rest[0] is not None:
        mask = rest[0]
        rest[0] = np.broadcast_to(mask, (*mask.shape[:-2], query.shape[-2], mask.shape[-1]))
    return reference.run(query, key, value, *rest)


def _branch(then: Stepwise, other: Stepwise, values: Values, inputs: Sequence[Any], end: float) -> Sequence[Any]:
    return (then if bool(inputs[0].reshape(-1)[0]) else other).run(values, end)


def _call(body: Stepwise, values: Values, inputs: Sequence[Any], end: float) -> Sequence[Any]:
    names: Mapping[str, Any] = dict.fromkeys(body.graph.inputs)
    return body.run({**names, **dict(zip(body.graph.inputs, inputs, strict=False))}, end)
