"""What the operators of a graph mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from onnx import AttributeProto, FunctionProto


@dataclass(frozen=True, slots=True, eq=False)
class Language:
    """What the operators of a graph mean: operator sets, functions, and attributes of the function around it."""

    opsets: Mapping[str, int]
    functions: Mapping[tuple[str, str], FunctionProto]
    attributes: Mapping[str, AttributeProto] = field(default_factory=dict[str, AttributeProto])
