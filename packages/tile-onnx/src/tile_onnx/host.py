"""Evaluating single nodes on the host, by ONNX's own reference implementation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import NodeProto

from tile_onnx.node import Node
from tile_onnx.values import Array

SMALL = 4096
"""Elements up to which values are computed on the host while a model is imported."""


class NotEvaluated(Exception):
    """The reference does not have this operator, or fails on it."""


def evaluate(proto: NodeProto, domain: str, opset: int, values: Sequence[Array | None]) -> tuple[Any, ...]:
    """The outputs of a node, given its inputs; NotEvaluated where the reference cannot."""
    from onnx.reference.ops import load_op

    trimmed = list(values)
    while trimmed and trimmed[-1] is None:
        trimmed.pop()
    try:
        kind = load_op(domain, proto.op_type, opset)
        settings: dict[str, Any] = {
            "log": _silent, "opsets": {domain: opset}, "verbose": 0, "new_ops": None, "evaluator_cls": None,
        }  # fmt: skip
        with np.errstate(all="ignore"):
            return tuple(kind(proto, settings).run(*trimmed))
    except Exception as problem:  # it is foreign code: any failure means that it cannot be used
        raise NotEvaluated(f"{type(problem).__name__}: {problem}") from problem


def _silent(*_: Any) -> None: ...


def folds(node: Node) -> bool:
    """Whether the host computes a node while the model is imported: all inputs are known, and few or of a dtype without kernels."""
    from tile_onnx.values import dtype_of

    arrays = [v for v in node.values if v is not None]
    if not arrays or not all(isinstance(v, np.ndarray) for v in arrays):
        return False
    if any(dtype_of(v) is None for v in arrays):
        return True
    return sum(v.size for v in arrays) <= SMALL and _result_size(node) <= SMALL


def _result_size(node: Node) -> int:
    """Elements of a result that can be much larger than the inputs."""
    size = _GROWING.get(node.op)
    if size is None:
        return 0
    try:
        return size(*node.values)
    except (ValueError, TypeError, IndexError, ZeroDivisionError, OverflowError):
        return SMALL + 1


def _product(numbers: Any) -> int:
    found = 1
    for number in np.asarray(numbers).reshape(-1):
        found *= int(number)
    return found


def _range_size(start: Array, limit: Array, delta: Array) -> int:
    return int((limit.item() - start.item()) / delta.item()) + 1


_GROWING: dict[str, Callable[..., int]] = {
    "ConstantOfShape": _product,
    "Expand": lambda x, shape: x.size * _product(shape),
    "Tile": lambda x, repeats, *_: x.size * _product(repeats),
    "Range": _range_size,
    "Pad": lambda x, pads=None, *_: SMALL + 1 if pads is None else _product(np.add(np.resize(x.shape, x.ndim), np.abs(pads).max(initial=0) * 2)),
    "OneHot": lambda indices, depth, *_: indices.size * int(depth.reshape(-1)[0]),
    "Resize": lambda x, *_: SMALL + 1,
    "Upsample": lambda x, *_: SMALL + 1,
    "CenterCropPad": lambda x, shape, *_: x.size * _product(shape),
    "Col2Im": lambda x, *_: SMALL + 1,
    "HannWindow": lambda n, *_: int(n.item()),
    "HammingWindow": lambda n, *_: int(n.item()),
    "BlackmanWindow": lambda n, *_: int(n.item()),
    "MelWeightMatrix": lambda bins, length, *_: int(bins.item()) * int(length.item()),
}  # fmt: skip
