"""Short ways to bind and run Tile in tests."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import tile_lang
from tile_ir.dtype import DType, from_numpy
from tile_ir.program.nodes import Program, TensorType

Array = np.ndarray[Any, Any]
_TYPE = re.compile(r"(\w+)=(\w+)\[([\d,\s]*)\]")


def types_of(text: str) -> dict[str, TensorType]:
    """``"A=float32[3,4] B=int8[]"`` as types."""
    found = _TYPE.findall(text)
    return {n: TensorType(DType(d), tuple(int(k) for k in s.split(",") if k.strip())) for n, d, s in found}


def program(source: str, types: str | Mapping[str, TensorType] = "") -> Program:
    """Parse and bind; a source without ``function`` is the body of one whose inputs are the types' names."""
    table = types_of(types) if isinstance(types, str) else dict(types)
    if not source.lstrip().startswith("function"):
        source = f"function ({', '.join(table)}) -> (O) {{ {source} }}"
    return tile_lang.bind(tile_lang.parse(source), table)


def run(source: str, /, **inputs: Any) -> Array:
    """Bind for these arrays and evaluate the only output."""
    arrays = {n: np.asarray(a) for n, a in inputs.items()}
    bound = program(source, {n: TensorType(from_numpy(a.dtype), a.shape) for n, a in arrays.items()})
    (result,) = tile_lang.evaluate(bound, arrays).values()
    return result


def result_type(source: str, types: str) -> str:
    """The type of the output O as text."""
    bound = program(source, types)
    return str(bound.types()[dict(bound.outputs)["O"]])
