"""What stays in an SRAM, and what SRAMs give each other over the network, instead of crossing the bus to DRAM again."""

from __future__ import annotations

from dataclasses import replace
from importlib.resources import files
from typing import Any

import numpy as np
import pytest
import tile_opt
from tile_ir.stripe.nodes import Block, Direction
from tile_ir.stripe.walk import blocks_in
from tile_ir.target import Target
from tile_lang import evaluate
from tile_sim import Report, simulate, target
from tile_sim.sweep import convolution

CONV = convolution(14, 14, 8, 8)
WEIGHTS = 3 * 3 * 8 * 8
TEMPLATE = files("tile_sim").joinpath("targets", "accelerator.json.j2").read_text(encoding="utf-8")


def reloading(made: Target) -> Target:
    """The target without operands that stay."""
    options = [replace(p, options={**p.options, "resident": False}) if p.name == "schedule" else p for p in made.passes]
    return replace(made, passes=tuple(options))


def run(made: Target) -> tuple[Report, Block]:
    """A simulated convolution, with the right answer, and its tiles."""
    rng = np.random.default_rng(0)
    data = {p.name: rng.integers(-3, 4, p.type.shape).astype(np.int8) for p in CONV.inputs}
    kernels = tile_opt.compile(CONV, made, verify=True).kernels
    outputs, report = simulate(kernels, data)
    np.testing.assert_array_equal(outputs["R"], evaluate(CONV, data)["R"])
    assert all(peak <= made.settings.max_mem for name, peak in report.peak_bytes.items() if name.startswith("SRAM"))
    return report, next(b for b in blocks_in(kernels.kernels[0].stripe) if "tiled" in b.tags)


def bytes_of(report: Report, bus: str) -> int:
    """Bytes on the buses whose name ends so."""
    return sum(n for name, n in report.bus_bytes.items() if name.split(": ")[1].startswith(bus))


def test_the_weights_cross_the_bus_from_dram_once() -> None:
    made = target(SRAM_SIZE_KIB=4)
    (again, nest), (once, _) = run(reloading(made)), run(made)
    tiles = int(np.prod([i.range for i in nest.indexes]))
    assert tiles > 4
    assert bytes_of(again, "DRAM[0] -> DMA") - bytes_of(once, "DRAM[0] -> DMA") == (tiles - 1) * WEIGHTS
    assert bytes_of(again, "DMA[0] -> DRAM") == bytes_of(once, "DMA[0] -> DRAM") == 14 * 14 * 8
    assert once.cycles < again.cycles and once.energy_per_op_pj < again.energy_per_op_pj
    assert once.peak_bytes["SRAM[0]"] < again.peak_bytes["SRAM[0]"], "what never changes needs no second copy"


@pytest.mark.parametrize(("rate", "shared"), [(512, True), (64, False), (16, False)])
def test_a_network_carries_the_weights_only_where_it_is_faster_than_dram(rate: int, shared: bool) -> None:
    made = target(TEMPLATE.replace('"bytes_per_cycle": 512', f'"bytes_per_cycle": {rate}'), SRAM_SIZE_KIB=4)
    report, nest = run(made)
    copies = [b for b in nest.body if isinstance(b, Block) and b.loc is not None and b.loc.unit == "NOC"]
    assert bool(copies) is shared and (report.energy_pj.get("NOC", 0) > 0) is shared
    again, _ = run(reloading(made))
    tiles = int(np.prod([i.range for i in nest.indexes]))
    loads = 1 if shared else 4
    assert bytes_of(again, "DRAM[0] -> DMA") - bytes_of(report, "DRAM[0] -> DMA") == (tiles - loads) * WEIGHTS


def test_copies_that_stay_lie_in_every_sram() -> None:
    report, nest = run(target(SRAM_SIZE_KIB=4, NUM_SRAM=3, NUM_CONV=3))
    assert len({report.peak_bytes[f"SRAM[{k}]"] for k in range(3)}) == 1
    (view,) = [r for r in nest.refs if r.source.startswith("K1_SRAM") and r.dir is Direction.INOUT]
    assert len(view.access) == 1 + len(view.type.sizes), "the first form chooses the copy"


@pytest.mark.diagonal(2)
@pytest.mark.parametrize("sram", [0.5, 1, 2, 4, 16])
@pytest.mark.parametrize(
    "design", [{"NUM_SRAM": 1, "NUM_CONV": 1}, {"NUM_SRAM": 2}, {"NUM_SRAM": 8, "NUM_CONV": 8}, {"PIPELINE_DEPTH": 1}]
)
def test_nothing_moves_more_than_without(sram: float, design: dict[str, Any]) -> None:
    made = target(SRAM_SIZE_KIB=sram, **design)
    small = convolution(12, 12, 8, 8)
    before, after = (simulate(tile_opt.compile(small, t).kernels)[1] for t in (reloading(made), made))
    assert bytes_of(after, "DRAM[0] -> DMA") <= bytes_of(before, "DRAM[0] -> DMA")
    assert all(peak <= sram * 1024 for name, peak in after.peak_bytes.items() if name.startswith("SRAM"))
