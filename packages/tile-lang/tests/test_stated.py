"""Types that a text itself states."""

from __future__ import annotations

import pytest
from tile_ir.diagnostics import Source
from tile_ir.dtype import DType
from tile_ir.program.nodes import TensorType
from tile_lang.stated import stated_types

TYPES = {
    "A": TensorType(DType.FLOAT32, (3, 4)),
    "B": TensorType(DType.INT32, ()),
    "C'": TensorType(DType.FLOAT32, (5,)),
}


@pytest.mark.parametrize(
    "text", ["A=[3,4] B=int32[] C'=[5]", "A=[3, 4], B=int32, C'=float32[5]", "A=[3,4],B=int32[] ,C'=[5]"]
)
def test_spaces_or_commas_part_what_is_stated(text: str) -> None:
    found = stated_types(Source(f"// shapes: {text}\nfunction (A) -> (B) {{ B = A; }}"))
    assert found.types == TYPES and not found.diagnostics


def test_what_cannot_be_read_is_pointed_at() -> None:
    found = stated_types(Source("// shapes: A=[3,4], B=flote32[2], [7]\n"))
    assert set(found.types) == {"A"}
    assert [d.message.split(" is not")[0] for d in found.diagnostics] == ["B=flote32[2]", "[7]"]
    assert {d.code for d in found.diagnostics} == {"TILE-W153"}
