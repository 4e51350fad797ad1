"""Designs, refusals, the model of time, and the co-design loop."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tile_opt
from tile_hal import Event, HostEvent
from tile_ir.diagnostics import TileDeviceError
from tile_ir.kernels import Kernel, KernelList, Step, StepKind
from tile_ir.stripe.nodes import Block, Direction
from tile_ir.stripe.parser import parse_block
from tile_ir.stripe.walk import blocks_in
from tile_sim import simulate, target
from tile_sim.__main__ import main
from tile_sim.design import expand, machine
from tile_sim.device import SimDevice
from tile_sim.simulate import Simulator, work
from tile_sim.sweep import CONVOLUTION, Design, convolution, measure, plot, stops_paying, sweep, table
from tile_sim.timeline import Calendar, Operand, Timeline

CONV = convolution(24, 24, 8, 32)


# --- designs -----------------------------------------------------------------------------------------


def test_the_template_follows_its_values() -> None:
    model = machine(target(NUM_SRAM=3, NUM_CONV=5, CLOCK_MHZ=1000))
    assert (model.count("SRAM"), model.count("CONV"), model.clock_mhz) == (3, 5, 1000)
    assert model.path(("SRAM", 2), ("CONV", 2)) is not None
    assert len(model.path(("SRAM", 0), ("CONV", 4)) or ()) == 2, "CONV[4] stands beside SRAM[1]"
    assert model.path(("DRAM", 0), ("SRAM", 2)) is not None


def test_mistakes_in_a_design_are_explained() -> None:
    with pytest.raises(TileDeviceError, match="a design has no value 'NUM_CONVS'"):
        target(NUM_CONVS=3)
    with pytest.raises(TileDeviceError, match="'NUM_FOO' is undefined"):
        expand("{{ NUM_FOO }}", {"A": 1})
    with pytest.raises(TileDeviceError, match="at line 2"):
        expand("1\n{% for i in range(3) %}", {})
    with pytest.raises(TileDeviceError, match="not JSON"):
        target('{ "name": }')
    with pytest.raises(TileDeviceError, match="CONV needs count"):
        target('{"name": "x", "model": {"clock_mhz": 1, "mem_units": {}, "exec_units": {"CONV": {}}, "tx_units": {}}}')


# --- refusals ----------------------------------------------------------------------------------------

GOOD = """block [] (
    in<DRAM> A[0] i8(64:1) out<DRAM> B[0] i8(64:1)
    none new@0x10<SRAM[0]> S[0] i8(64:1)
    none new@0x60<SRAM[0]> T[0] i8(64:1)
) {
  S = transfer(A, unit="DMA")
  block<DSP[0]> [i:64] ( in<SRAM> S[i] i8(1:1) out<SRAM> T[i] i8(1:1) ) { $s = load(S) $t = neg($s) T = store($t) }
  B = transfer(T, unit="DMA")
}"""


def listed(text: str) -> KernelList:
    identity = tile_opt.compile(convolution(2, 2, 1, 1), target(SRAM_SIZE_KIB=1)).kernels
    info = identity.buffers[0]
    buffers = tuple(
        replace(info, id=n, name=name, kind=kind, shape=(64,), bytes=64)
        for n, (name, kind) in enumerate([("A", info.kind), ("B", identity.buffers[-1].kind)])
    )
    kernel = Kernel("k", parse_block(text), None, (1, 1, 1))
    return replace(identity, kernels=(kernel,), buffers=buffers, steps=(Step(StepKind.KERNEL, 0, (1, 0)),))


def test_a_schedule_by_hand_runs() -> None:
    data = np.arange(64, dtype=np.int8)
    outputs, report = simulate(listed(GOOD), {"A": data})
    assert (outputs["B"] == -data).all()
    assert report.cycles == 1 + 2 + 1, "64 bytes at 64 a cycle, 64 operations at 64 a cycle and the pipeline, 64 bytes"
    assert report.peak_bytes["SRAM[0]"] == 0xA0


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("0x60", "0x3e0", "does not fit SRAM"),
        ("<SRAM[0]> T", "<SRAM[9]> T", "SRAM.9., which the machine does not have"),
        ("<DSP[0]>", "<DSP[7]>", "DSP.7., which the machine does not have"),
        ('transfer(A, unit="DMA")', 'transfer(A, unit="MAIL")', "no transfer unit 'MAIL'"),
        ("in<SRAM> S[i]", "in<SRAM> S[i + 1]", "outside"),
        ("block<DSP[0]>", "block", "no unit to run on"),
        ("B = transfer(T", "S = transfer(A) B = transfer(T", "no transfer unit ''"),
        ("out<SRAM> T[i] i8(1:1) )", "out<SRAM> T[i] i8(1:1) none<CACHE> Q[0] i8(4:1) )", "nothing was placed for it"),
    ],
)
def test_what_the_machine_cannot_do_is_refused(old: str, new: str, message: str) -> None:
    assert old in GOOD
    with pytest.raises(TileDeviceError if message != "outside" else Exception, match=message):
        simulate(listed(GOOD.replace(old, new)), {"A": np.zeros(64, np.int8)})


def test_bytes_that_another_buffer_took_are_refused() -> None:
    clobbered = GOOD.replace("0x60", "0x20").replace("B = transfer(T", 'T = transfer(S, unit="DMA") B = transfer(T')
    with pytest.raises(TileDeviceError, match=r"S in SRAM\[0\] was overwritten before it was read"):
        simulate(listed(clobbered), {"A": np.zeros(64, np.int8)})


# --- the model of time ---------------------------------------------------------------------------------


def test_work_starts_in_the_first_gap_that_is_long_enough() -> None:
    calendar = Calendar()
    calendar.take(0, 4)
    calendar.take(10, 5)
    assert (calendar.free(0, 6), calendar.free(0, 7), calendar.free(5, 5), calendar.free(12, 1)) == (4, 15, 5, 15)
    calendar.take(4, 6)
    assert (calendar.starts, calendar.ends, calendar.busy) == ([0], [15], 15)


def test_a_kernel_waits_for_the_slower_of_its_operations_and_its_bytes() -> None:
    model = machine(target(NUM_SRAM=2, NUM_CONV=2, CONV_OPS=100))
    timeline = Timeline(model)
    assert timeline.compute(("CONV", 0), 1000, [], 5) == (5, 5 + 10 + 2)
    assert timeline.compute(("CONV", 1), 100, [Operand(("SRAM", 1), 5120, False)], 0) == (0, 10)
    far = timeline.compute(("CONV", 1), 100, [Operand(("SRAM", 0), 5120, False)], 10)
    assert far == (10, 20)
    assert timeline.units["NOC", 0].busy == 10 and timeline.energy["NOC"] > 0


def test_operations_count_masked_points_and_stencils_in_full() -> None:
    body = "( in A[i] i8(1:1) out B[i] i8(1:1) ) { $a = load(A) $b = neg($a) B = store($b) }"
    assert work(parse_block(f"block [i:10] {body}")) == 10
    assert work(parse_block(f'block [i:10] instr "conv(i:32, c:-1)" {body}')) == 32
    assert work(parse_block("block [i:6] ( in A[i] i8(1:1) out B[i] i8(1:1) ) { $a = load(A) B = store($a) }")) == 6


# --- hardware and software together ----------------------------------------------------------------------


def scheduled(**design: Any) -> Block:
    return tile_opt.compile(CONV, target(**design)).kernels.kernels[0].stripe


def test_the_schedule_follows_the_machine() -> None:
    small, large = scheduled(SRAM_SIZE_KIB=2), scheduled(SRAM_SIZE_KIB=64)
    assert small != large
    shape = [
        {
            "idxs": [
                {"name": "i", "size": 8, "outs": [-1], "ins": [-1, 0]},
                {"name": "c", "size": 8, "outs": [0], "ins": [-1, -1]},
            ]
        }
    ]
    assert scheduled(SRAM_SIZE_KIB=64, CONV_STENCILS=shape) != large
    assert measure(CONV, Design(4, 2.0)).cycles > measure(CONV, Design(4, 64.0)).cycles


def test_every_iteration_takes_a_bank_and_a_unit_in_turn() -> None:
    (nest,) = [b for b in blocks_in(scheduled(SRAM_SIZE_KIB=4)) if "tiled" in b.tags]
    allocs = [r for r in nest.refs if r.dir is Direction.ALLOC]
    assert allocs and all(r.loc.unit == "SRAM" and r.loc.at[0].names for r in allocs)
    units = [b.loc for b in nest.body if isinstance(b, Block) and b.loc is not None]
    assert {u.unit for u in units} == {"CONV", "DSP", "DMA", "NOC"}


def test_twice_the_units_is_faster_until_it_stops_paying(tmp_path: Path) -> None:
    designs = [*(Design(n, 4.0) for n in (1, 16)), *(Design(n, 32.0) for n in (1, 2, 4, 8, 16))]
    results = sweep(convolution(48, 48, 16, 32), designs)
    times = {(r.design.conv, r.design.sram): r.report.cycles for r in results}
    assert times[1, 32.0] > 1.7 * times[2, 32.0] > 1.7**2 * times[4, 32.0]
    large = [r for r in results if r.design.sram == 32.0]
    assert stops_paying(large) in (4, 8)
    assert "stop paying" in table(results)
    plot(results, tmp_path / "sweep.svg")
    text = (tmp_path / "sweep.svg").read_text(encoding="utf-8")
    assert text.count('<g id="axes_') == 2 and "</svg>" in text


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["run", "--size", "8x8x4x4", "--sram", "4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cycles"] > 0
    assert main(["sweep", "--size", "8x8x4x4", "--conv", "1,2", "--sram", "4", "--plot", str(tmp_path / "p.png")]) == 0
    assert "CONV" in capsys.readouterr().out
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    source = tmp_path / "c.tile"
    source.write_text(CONVOLUTION)
    assert main(["run", "--file", str(source), "--input", "I=int8[4x4x2]", "--input", "K1=int8[3x3x2x2]"]) == 0
    assert "busy" in capsys.readouterr().out
    assert main(["run", "--set", "NUM_FOO=3"]) == 1
    assert "no value 'NUM_FOO'" in capsys.readouterr().err


# --- the device --------------------------------------------------------------------------------------


def test_the_device_runs_programs_through_the_hal() -> None:
    from tile_hal import submit
    from tile_sim.plugin import tile_hal_driver

    driver = tile_hal_driver()
    (device,) = driver.device_sets()[0].devices
    kernels = tile_opt.compile(CONV, device.target).kernels
    library = device.compiler.build(kernels)
    assert device.compiler.deserialize(kernels, library.serialize() or b"").source() == library.source()
    data = {"I": np.ones((24, 24, 8), np.int8), "K1": np.ones((3, 3, 8, 32), np.int8)}
    bindings: dict[int, Any] = {}
    for info in kernels.buffers:
        bindings[info.id] = buffer = device.memory.allocate(info.bytes)
        if info.name in data:
            buffer.map_discard()[:] = data[info.name].tobytes()
    (result_id,) = [b.id for b in kernels.buffers if b.name == "R"]
    seconds = submit(device, library, kernels, bindings).wait().seconds
    result = np.frombuffer(bindings[result_id].map_current(), np.int8).reshape(24, 24, 32)
    assert result[5, 5, 0] == 72 and result[0, 0, 0] == 32
    report = device.executor.report  # pyright: ignore[reportAttributeAccessIssue]
    assert report.cycles == simulate(kernels)[1].cycles
    assert seconds == pytest.approx(report.microseconds * 1e-6)


def run_convolution(device: Any, kernel: Kernel, dependencies: Sequence[Event] = ()) -> Event:
    """Start a kernel of CONV on buffers of its own."""
    kernels = KernelList((kernel,), (), (), device.target)
    prepared = device.executor.prepare(device.compiler.build(kernels), 0)
    refs = sorted((r for r in kernel.stripe.refs if r.dir is not Direction.ALLOC), key=lambda r: r.dir is Direction.IN)
    return prepared.run([device.memory.allocate(prod(r.type.sizes)) for r in refs], dependencies)


def test_a_run_that_waited_reports_the_seconds_of_the_machine() -> None:
    device: Any = SimDevice(target())
    (kernel,) = tile_opt.compile(CONV, device.target).kernels.kernels
    gate = HostEvent()
    held = run_convolution(device, kernel, [gate])
    assert not held.done and device.executor.report is None
    gate.set()
    assert held.wait().seconds == run_convolution(device, kernel).wait().seconds
    assert held.wait().seconds == pytest.approx(device.executor.report.microseconds * 1e-6)


def test_what_the_machine_refuses_fails_the_event() -> None:
    device: Any = SimDevice(target(NUM_SRAM=2, NUM_CONV=2, NUM_DSP=2))
    (kernel,) = tile_opt.compile(CONV, target()).kernels.kernels
    event = run_convolution(device, kernel)
    with pytest.raises(TileDeviceError, match="which the machine does not have"):
        event.wait()


def test_programs_for_other_devices_are_refused() -> None:
    from tile_ir.target import Target
    from tile_sim.device import SimCompiler

    kernels = tile_opt.compile(CONV, Target("other")).kernels
    with pytest.raises(TileDeviceError, match="runs scheduled Stripe"):
        SimCompiler().build(kernels)


def test_the_project_file_names_the_plugin() -> None:
    import tomllib

    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"] == {"tile_hal": {"sim": "tile_sim.plugin"}}


def test_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    exec(compile(text.split("```python")[1].split("```")[0], "README.md", "exec"), {})
    assert capsys.readouterr().out.split()[0] == "32"


def test_a_simulator_runs_several_programs() -> None:
    kernels = tile_opt.compile(CONV, target()).kernels
    twice = Simulator(machine(kernels.target)).run([kernels.kernels[0].stripe] * 2, None)
    assert len(twice.kernels) == 2 * len(simulate(kernels)[1].kernels)
