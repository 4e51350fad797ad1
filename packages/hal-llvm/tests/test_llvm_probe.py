"""What a processor that nobody described is taken for: the loops run, their rates make a machine, and are measured once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hal_llvm import binding
from hal_llvm.cpu import family_target
from hal_llvm.probe import timing
from hal_llvm.probe.fitting import PORTS, measured
from hal_llvm.probe.kept import probed
from hal_llvm.probe.loops import WAITING
from hal_llvm.probe.timing import Rates
from tile_ir.machine import Machine
from tile_ir.settings import Settings

AVX2 = family_target("avx2")
MADE_UP = binding.Processor("x86_64-unknown-linux-gnu", "made-up", "+avx2,+fma")
WALKS = {
    "L2 read": 1 / 28, "L2 write": 1 / 25, "L2 copy": 1 / 14,
    "L3 read": 1 / 22, "L3 write": 1 / 20, "L3 copy": 1 / 10.5,
    "memory read": 1 / 20, "memory write": 1 / 12, "memory past": 1 / 25,
}  # fmt: skip
"""Of a processor with a way in and a way out between its caches."""


def rates(**changed: float) -> Rates:
    """What loops tell of a busy machine: all ports a little below what they are."""
    ports = {"fma": 1.7, "add": 2.6, "vector": 3.5, "load": 1.8, "store": 0.96, "shuffle": 1.7, "issue": 4.2}
    others = {"div": 3.0, "sqrt": 5.0, "split": 1.1, "window": WAITING * 4 / 256}
    latencies = {"fma_latency": 4.02, "add_latency": 3.05, "minmax_latency": 2.1}
    pages = {"pages 1": 1.6, "pages 2": 27.0}
    return {"clock": 3.1, **{p: 1 / r for p, r in ports.items()}, **others, **latencies, **pages, **WALKS, **changed}


def machine(**changed: float) -> Machine:
    return measured(AVX2.machine, rates(**changed))


def test_ports_are_whole_and_no_fewer_than_the_loops_reached() -> None:
    ports = machine().ports
    assert [getattr(ports, name) for name in PORTS] == [2, 3, 4, 2, 1, 2, 5]
    assert (ports.fma_latency, ports.add_latency, ports.minmax_latency, ports.window) == (4, 3, 2, 256)


def test_a_neighbour_on_the_same_core_does_not_make_it_narrower_than_all() -> None:
    busy, known = machine(issue=1 / 2.2, window=WAITING * 4 / 128).ports, AVX2.machine.ports
    assert (busy.issue, busy.window) == (known.issue, known.window)


def test_functions_are_counted_in_multiplications() -> None:
    assert (machine().functions.div, machine().functions.sqrt) == (6, 10)


def test_caches_with_two_ways_have_room_for_both() -> None:
    second = machine().caches[1]
    assert second.duplex == 1 and 28 < second.bandwidth < 36 and 25 <= second.write < 36


def test_caches_with_one_way_take_turns() -> None:
    second = machine(**{"L2 read": 1 / 40, "L2 write": 1 / 22, "L2 copy": 1 / 14}).caches[1]
    assert second.duplex == 2


def test_pages_cost_what_a_load_takes_longer() -> None:
    near, far = (tlb.latency for tlb in machine().pages.tlbs)
    assert near == 1 and 20 < far < 30


def test_another_probe_of_the_same_machine_finds_the_same_numbers() -> None:
    """Loops on a machine that others use take a little longer or shorter each time."""
    ports = {"fma": 1 / 1.62, "vector": 1 / 3.3, "shuffle": 1 / 1.8, "issue": 1 / 4.6, "minmax_latency": 2.3}
    others = {"clock": 3.13, "split": 1.05, "window": WAITING * 4 / 236, "div": 2.9, "sqrt": 5.1, "pages 2": 27.3}
    moved = {"L2 read": 1 / 28.4, "L3 read": 1 / 21.9, "memory read": 1 / 20.5}
    assert machine(**ports, **others, **moved) == machine()


def test_memory_is_shared_as_the_document_has_it() -> None:
    memory, known = machine().memory, AVX2.machine.memory
    assert memory.one_core.read > 20 and memory.one_core.write > 12
    assert memory.all_cores.read / memory.one_core.read == pytest.approx(known.all_cores.read / known.one_core.read)


def test_nothing_absurd_is_believed() -> None:
    slow, known = machine(**{"clock": 1e-3, "memory read": 1e6}), AVX2.machine
    assert slow.clock_ghz == known.clock_ghz / 4
    assert slow.memory.one_core.read == known.memory.one_core.read / 4
    stalled = machine(fma_latency=0.1, div=1e4)
    assert stalled.ports.fma_latency == round(known.ports.fma_latency / 4)
    assert stalled.functions.div == known.functions.div * 4


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """As little as shows that the loops run."""
    for name, value in {"ROUNDS": 4, "RUN": 1e-7, "WALK": 1e-7, "PIECE": 1 << 18, "PIECES": 2}.items():
        monkeypatch.setattr(timing, name, value)


@pytest.mark.usefixtures("short")
def test_loops_run_on_this_processor() -> None:
    known = family_target("sse2")  # registers of 16 bytes, which all have
    found = timing.rates(known.machine, binding.host(), known.settings.fma)
    assert {*found} == {*rates()} and all(value > 0 for value in found.values())


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """How often something was measured."""
    calls: list[str] = []

    def measure(*_: object) -> Rates:
        calls.append("measured")
        return rates()

    monkeypatch.setattr(timing, "rates", measure)
    yield calls


def test_a_processor_is_measured_once(tmp_path: Path, counted: list[str]) -> None:
    settings = Settings(cache_dir=tmp_path)
    first, again = (probed(AVX2, MADE_UP, "made up", settings) for _ in range(2))
    assert first == again == replace(AVX2, machine=machine()) and len(counted) == 1
    assert probed(AVX2, MADE_UP, "another", settings) == first and len(counted) == 2


def test_processes_that_measure_at_once_take_the_numbers_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, others = Settings(cache_dir=tmp_path), iter([rates(clock=3.0), rates(clock=4.0)])

    def measure(*_: object) -> Rates:
        found = next(others)
        if found["clock"] == 3.0:
            probed(AVX2, MADE_UP, "made up", settings)
        return found

    monkeypatch.setattr(timing, "rates", measure)
    assert probed(AVX2, MADE_UP, "made up", settings).machine.clock_ghz == 4.0


@pytest.mark.parametrize("cache", ["read", "off"])
def test_nothing_is_measured_that_is_not_kept(tmp_path: Path, counted: list[str], cache: str) -> None:
    assert probed(AVX2, MADE_UP, "made up", Settings(cache_dir=tmp_path, cache=cache)) == AVX2 and not counted


def test_what_cannot_be_measured_leaves_the_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> Rates:
        raise OSError("no memory")

    monkeypatch.setattr(timing, "rates", fails)
    assert probed(AVX2, MADE_UP, "made up", Settings(cache_dir=tmp_path)) == AVX2
