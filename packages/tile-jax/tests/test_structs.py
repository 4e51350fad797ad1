"""The structures lie in memory as C has them: sizes that the header of PJRT states."""

from __future__ import annotations

import ctypes

import pytest
from tile_jax.pjrt.api import HANDLERS, table
from tile_jax.pjrt.structs import SLOTS, STRUCTS

SIZES = {
    "Error_GetCode": 28,
    "Event_IsReady": 25,
    "Event_OnReady": 40,
    "Client_Compile": 56,
    "Client_DefaultDeviceAssignment": 48,
    "Client_BufferFromHostBuffer": 120,
    "Client_CreateUninitializedBuffer": 80,
    "Device_GetAttributes": 56,
    "Executable_Serialize": 56,
    "LoadedExecutable_Execute": 80,
    "Buffer_ToHostBuffer": 56,
    "Buffer_CopyRawToHost": 56,
    "Buffer_GetMemoryLayout": 104,
    "Program": 48,
    "NamedValue": 56,
    "MemoryLayout_Tiled": 56,
}
"""The header's sizes end with the last field, without what is padded behind it."""


@pytest.mark.parametrize("name", SIZES)
def test_sizes(name: str) -> None:
    last, *_ = STRUCTS[name]._fields_[-1]
    field = getattr(STRUCTS[name], last)
    padded = ctypes.sizeof(STRUCTS[name])
    assert SIZES[name] in (field.offset + field.size, padded)


def test_every_answer_has_its_slot_and_its_structure() -> None:
    assert len(SLOTS) == len(set(SLOTS)) == 138
    assert set(SLOTS) >= HANDLERS.keys()
    assert STRUCTS.keys() >= HANDLERS.keys()
    assert ctypes.sizeof(table()) == 40 + 8 * len(SLOTS)
