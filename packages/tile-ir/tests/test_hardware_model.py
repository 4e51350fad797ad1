"""The hardware model: the slides' document, its paths, and mistakes that are all told at once."""

from __future__ import annotations

from typing import Any

import pytest
from tile_ir.diagnostics import TileDeviceError
from tile_ir.hardware import Bus, ExecUnit, hardware_model
from tile_ir.jsonc import read_json

SLIDE = """{
  "clock_mhz": 800,  // of everything
  "mem_units": { "DRAM": { "count": 1, "size_KiB": 1048576 }, "SRAM": { "count": 2, "size_KiB": 1.5 }, },
  "exec_units": { "DSP": { "count": 2, "ops_per_cycle": 64 }, "CONV": { "count": 2, "ops_per_cycle": 512, "pipeline_depth": 2 } },
  "tx_units": { "DMA": { "count": 1 }, "NOC": { "count": 1 }, },
  "buses": [
    { "sources": ["DRAM[0]"], "sinks": ["DMA[0]"], "bytes_per_cycle": 64 },
    { "sources": ["DMA[0]"], "sinks": ["SRAM[0]", "SRAM[1]"], "bytes_per_cycle": 64 },
    { "sources": ["SRAM[0]"], "sinks": ["NOC[0]", "CONV[0]"], "bytes_per_cycle": 512 },
    { "sources": ["NOC[0]"], "sinks": ["CONV[0]", "CONV[1]"], "bytes_per_cycle": 512 },
  ],
}"""


def test_the_slides_model_is_read() -> None:
    model = hardware_model(read_json(SLIDE))
    assert (model.clock_mhz, model.mem_units["SRAM"].bytes) == (800, 1536)
    assert model.exec_units["CONV"] == ExecUnit(2, 512, 2) and model.exec_units["DSP"].pipeline_depth == 1
    assert model.buses[0] == Bus((("DRAM", 0),), (("DMA", 0),), 64)
    assert [model.count(u) for u in ("SRAM", "CONV", "NOC", "GPU")] == [2, 2, 1, 0]


def test_paths_take_the_fewest_hops_through_transfer_units_only() -> None:
    model = hardware_model(read_json(SLIDE))
    assert model.path(("DRAM", 0), ("SRAM", 1)) == (0, 1)
    assert model.path(("SRAM", 0), ("CONV", 0)) == (2,)
    assert model.path(("SRAM", 0), ("CONV", 1)) == (2, 3)
    assert model.path(("SRAM", 1), ("CONV", 1)) is None
    assert model.path(("DRAM", 0), ("CONV", 0)) is None, "a memory on the way would need a buffer"


BASE: dict[str, Any] = {
    "clock_mhz": 1,
    "mem_units": {"M": {"count": 2, "size_KiB": 1}},
    "exec_units": {},
    "tx_units": {},
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clock_mhz": None}, "needs clock_mhz, a number"),
        ({"clock_mhz": 0}, "clock_mhz of the hardware model is 0; it must be above 0"),
        ({"clock_mhz": True}, "a number, not True"),
        ({"mem_unit": {}}, "no field 'mem_unit'(.|\n)*did you mean 'mem_units'"),
        ({"mem_units": 3}, "mem_units is int"),
        ({"mem_units": {"M": 3}}, "mem_units M is 3, not a table"),
        ({"mem_units": {"M": {"count": 1.5, "size_KiB": 1}}}, "needs count, a whole number, not 1.5"),
        ({"exec_units": {"E": {"count": 1}}}, "exec_units E needs ops_per_cycle"),
        ({"exec_units": {"M": {"count": 1, "ops_per_cycle": 1}}}, "more than one of"),
        ({"buses": 3}, "buses is not a list"),
        ({"buses": [3]}, "bus 0 is 3"),
        ({"buses": [{"sources": ["M[0]"], "sinks": ["N[0]"], "bytes_per_cycle": 1}]}, "no unit 'N'"),
        ({"buses": [{"sources": ["M[2]"], "sinks": ["M[0]"], "bytes_per_cycle": 1}]}, "M.2. is out of range, M has 2"),
        ({"buses": [{"sources": ["M"], "sinks": ["M[0]"], "bytes_per_cycle": 1}]}, "'M' names no unit"),
        ({"buses": [{"sources": [], "sinks": ["M[0]"], "bytes_per_cycle": 1}]}, "bus 0 has no sources"),
        ({"energy": {"op": "much"}}, "energy needs op, a number, not 'much'"),
    ],
)
def test_mistakes_are_told(change: dict[str, Any], message: str) -> None:
    with pytest.raises(TileDeviceError, match=message):
        hardware_model({**BASE, **change})


def test_every_mistake_is_told_at_once() -> None:
    with pytest.raises(TileDeviceError) as caught:
        hardware_model({"clock_mhz": -1, "mem_units": {"M": {"count": 0, "size_KiB": 1}}, "exec_units": {}})
    assert len(caught.value.diagnostics) == 3


def test_json_with_comments_and_trailing_commas() -> None:
    assert read_json('{ "a//b": [1, 2, ], // text, "quoted"\n "c": ",}", // last\n }') == {"a//b": [1, 2], "c": ",}"}
    with pytest.raises(TileDeviceError, match='use "'):
        read_json('{ ”DSP": 1 }')
    with pytest.raises(TileDeviceError, match="line 2"):
        read_json('{ "a": 1\n "b": 2 }')
