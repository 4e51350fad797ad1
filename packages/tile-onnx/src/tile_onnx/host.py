"""Evaluating single nodes on the host, by ONNX's own reference implementation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from importlib import import_module
from typing import Any

import numpy as np
from onnx import NodeProto

from tile_onnx.node import Node
from tile_onnx.values import Array, frozen

SMALL = 4096
"""Elements up to which values are computed on the host while a model is imported."""


class NotEvaluated(Exception):
    """The reference does not have this operator, or fails on it."""


class Reference:
    """A node as ONNX's reference implementation computes it, which is made when it is first called."""

    def __init__(self, proto: NodeProto, domain: str, opset: int) -> None:
        self._node = proto, domain, opset

    def __call__(self, *values: Array | None) -> tuple[Any, ...]:
        """The outputs of the node as constants, given its inputs; NotEvaluated where the reference cannot."""
        with np.errstate(all="ignore"):
            return tuple(frozen(v) for v in self._tried("_checked", values))

    def run(self, *values: Array | None) -> list[Any]:
        """The outputs, which may be inputs or parts of them; NumPy may warn of what they hold."""
        made = self._tried("_unchecked", values)
        return [np.array(v) if isinstance(v, (np.generic, int, float)) else v for v in made]

    def _tried(self, way: str, values: Sequence[Array | None]) -> tuple[Any, ...]:
        """What one of the functions below gives of the values, absent ones at the end left out."""
        count = len(values)
        while count and values[count - 1] is None:
            count -= 1
        try:
            return getattr(self, way)(*values[:count])
        except Exception as problem:  # it is foreign code: any failure means that it cannot be used
            raise NotEvaluated(f"{type(problem).__name__}: {problem}") from problem

    @cached_property
    def _checked(self) -> Callable[..., Any]:
        return self._operator.run

    @cached_property
    def _unchecked(self) -> Callable[..., Any]:
        """What computes it; checks of every call take as long as a small node."""
        operator = self._operator
        way: Any = operator.run.__func__
        if way.__module__ == "onnx.reference.ops._op":  # of one and two operands, without attributes
            return operator._run
        if way is not import_module("onnx.reference.op_run").OpRun.run:
            return operator.run
        return partial(operator._run, **{n: getattr(operator, n) for n in operator.attributes_names_})

    @cached_property
    def _operator(self) -> Any:
        proto, domain, opset = self._node
        settings: dict[str, Any] = {
            "log": _silent, "opsets": {domain: opset}, "verbose": 0, "new_ops": None, "evaluator_cls": None,
        }  # fmt: skip
        return _loader(domain)(domain, proto.op_type, opset)(proto, settings)


def _loader(domain: str) -> Callable[[str, str, int], Any]:
    """What finds the reference of an operator."""
    package = {"ai.onnx.ml": "aionnxml._op_list"}.get(domain, "_op_list")
    return import_module(f"onnx.reference.ops.{package}").load_op


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
        return size(list(node.values))
    except (ValueError, TypeError, IndexError, ZeroDivisionError, OverflowError):
        return SMALL + 1


def _product(numbers: Any) -> int:
    found = 1
    for number in np.asarray(numbers).reshape(-1):
        found *= int(number)
    return found


def _range_size(values: list[Any]) -> int:
    start, limit, delta = (v.item() for v in values)
    return int((limit - start) / delta) + 1


def _unknown(values: list[Any]) -> int:
    return SMALL + 1


def _number(values: list[Any]) -> int:
    return int(values[0].item())


_GROWING: dict[str, Callable[[list[Any]], int]] = {
    "ConstantOfShape": _unknown,  # the converter gives the array without the reference, which takes long to import
    "Expand": lambda v: v[0].size * _product(v[1]),
    "Tile": lambda v: v[0].size * _product(v[1]),
    "CenterCropPad": lambda v: v[0].size * _product(v[1]),
    "Range": _range_size,
    "OneHot": lambda v: v[0].size * int(v[1].reshape(-1)[0]),
    "MelWeightMatrix": lambda v: int(v[0].item()) * int(v[1].item()),
    **dict.fromkeys(("HannWindow", "HammingWindow", "BlackmanWindow"), _number),
    **dict.fromkeys(
        ("AffineGrid", "AveragePool", "Col2Im", "Conv", "ConvInteger", "ConvTranspose", "DFT", "DeformConv", "GridSample",
         "LpPool", "MaxPool", "MaxRoiPool", "MaxUnpool", "Pad", "QLinearConv", "Resize", "RoiAlign", "STFT", "Upsample"),
        _unknown,
    ),
}  # fmt: skip
"""What attributes or other inputs may make large; nothing of this belongs to the arithmetic of shapes."""
