"""Machines as documents: they round-trip, and what is wrong with one is named."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tile_ir.diagnostics import TileDeviceError
from tile_ir.document import from_document, to_document
from tile_ir.emit.clike import CLikePrinter
from tile_ir.machine import Bandwidths, Cache, LocalMemory, Machine, Memory, Occupancy, Ports
from tile_ir.target import Capabilities, HardwareSettings, Options, Target

RATES = st.floats(0.25, 1e4)
CACHES = st.builds(Cache, st.integers(1, 4), st.integers(1, 1 << 30), st.integers(1, 32), latency=RATES)
MACHINES = st.builds(
    Machine,
    clock_ghz=RATES,
    cores=st.integers(1, 256),
    ports=st.builds(Ports, fma=RATES, load=RATES),
    caches=st.lists(CACHES, max_size=4).map(tuple),
    memory=st.builds(Memory, one_core=st.builds(Bandwidths, read=RATES)),
    local=st.none() | st.just(LocalMemory(banks=16)),
    occupancy=st.none() | st.just(Occupancy(subgroup=64)),
)


@given(MACHINES)
def test_a_machine_round_trips_through_its_target_document(machine: Machine) -> None:
    target = Target("t", machine=machine)
    assert Target.from_json(target.to_json()) == target
    assert from_document(Machine(), json.loads(json.dumps(to_document(machine))), "machine") == machine


def test_a_document_states_only_what_differs() -> None:
    machine = from_document(Machine(), {"ports": {"fma": 1}, "caches": [{"level": 1, "bytes": 4096}]}, "machine")
    assert machine == Machine(ports=Ports(fma=1), caches=(Cache(1, 4096),))


@pytest.mark.parametrize(
    ("document", "message", "hint"),
    [
        ({"portz": {}}, "machine has no field 'portz'", "did you mean 'ports'?"),
        ({"ports": {"fna": 1}}, "machine.ports has no field 'fna'", "did you mean 'fma'?"),
        ({"ports": {"load": True}}, "machine.ports.load is True, not a number", None),
        ({"ports": 2}, "machine.ports is 2, not a table of fields", None),
        ({"cores": 1.5}, "machine.cores is 1.5, not a whole number", None),
        ({"clock_ghz": -1}, "machine.clock_ghz is -1; it must be finite and at least 0", None),
        ({"clock_ghz": float("nan")}, "machine.clock_ghz is nan; it must be finite and at least 0", None),
        ({"ports": {"load": 0}}, "machine.ports.load is 0; it must be at least 0.001", None),
        ({"caches": [{"level": 1, "bytes": 0}]}, "machine.caches[0].bytes is 0; it must be at least 1", None),
        ({"vector": {"registers": 1}}, "machine.vector.registers is 1; it must be at least 2", None),
        ({"caches": {}}, "machine.caches is {}, not a list", None),
        ({"caches": [{"level": 1}]}, "machine.caches[0] needs bytes", None),
        ({"caches": [3]}, "machine.caches[0] needs level, bytes", None),
        ({"caches": [{"level": 1, "bytes": 1, "way": 2}]}, "machine.caches[0] has no field 'way'", "did you mean 'ways'?"),
        ({"caches": [{"level": "L1", "bytes": 1}]}, "machine.caches[0].level is 'L1', not a whole number", None),
        ({"cores": 2**63}, "machine.cores is 9223372036854775808; it must be at most 9223372036854775807", None),
        ({"caches": [{"level": 1, "bytes": {}}]}, "machine.caches[0].bytes is {}, not a whole number", None),
        ({"local": {"banks": "32"}}, "machine.local.banks is '32', not a whole number", None),
        ([], "machine is [], not a table of fields", None),
    ],
)  # fmt: skip
def test_a_wrong_field_is_named(document: Any, message: str, hint: str | None) -> None:
    with pytest.raises(TileDeviceError) as caught:
        from_document(Machine(), document, "machine")
    (problem,) = caught.value.diagnostics
    assert (problem.code, problem.message, problem.hint) == ("TILE-E414", message, hint)


def test_every_wrong_field_is_named_at_once() -> None:
    with pytest.raises(TileDeviceError) as caught:
        Target.from_json('{"name": "t", "machine": {"portz": 1, "memory": {"one_core": {"reed": 1}}, "cores": "two"}}')
    assert [d.message for d in caught.value.diagnostics] == [
        "machine has no field 'portz'",
        "machine.memory.one_core has no field 'reed'",
        "machine.cores is 'two', not a whole number",
    ]


def test_settings_are_read_with_the_same_care() -> None:
    with pytest.raises(TileDeviceError, match="settings has no field 'corez'"):
        Target.from_json('{"name": "t", "settings": {"corez": 1}}')
    with pytest.raises(TileDeviceError, match=r"settings.dim_sizes has 2 values, not 3"):
        Target.from_json('{"name": "t", "settings": {"dim_sizes": [1, "two"]}}')


def test_resolved_cores_reach_the_machine() -> None:
    target = Target("t").resolved(cores=7, l1_bytes=1)
    assert target.settings.cores == target.machine.cores == 7


@pytest.mark.parametrize("name", ["cpu", "gpu", "accelerator"])
def test_a_document_begins_with_a_preset(name: str) -> None:
    preset = Target.preset(name)
    assert Target.from_json(preset.to_json()) == preset and preset.passes and preset.name == name
    mine = Target.from_json(json.dumps({"name": "mine", "preset": name, "settings": {"cores": 7}, "nodes": ["Fma"]}))
    assert (mine.name, mine.settings.cores, mine.nodes, mine.passes) == ("mine", 7, {"Fma"}, preset.passes)
    assert mine.settings.max_regs == preset.settings.max_regs and mine.machine == preset.machine
    assert Target.from_json(json.dumps({"name": "mine", "preset": name, "passes": []})).passes == ()


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"name": "x", "preset": "tpu"}, "there is no preset 'tpu'.*the presets are cpu, gpu, accelerator"),
        ({"name": "x", "preset": ["cpu"]}, "there is no preset"),
        ({"name": "x", "pases": []}, "a target has no 'pases'"),
        ({"preset": "cpu"}, "a target has a name"),
    ],
)
def test_a_wrong_document_is_named(document: dict[str, Any], message: str) -> None:
    with pytest.raises(TileDeviceError, match=f"(?s){message}"):
        Target.from_json(json.dumps(document))


@pytest.mark.parametrize("kind", [HardwareSettings, Capabilities, Target, Options])
def test_help_names_every_field(kind: type) -> None:
    assert not [f.name for f in fields(kind) if f"``{f.name}``" not in (kind.__doc__ or "")]


def test_help_names_every_table_of_a_printer() -> None:
    tables = [name for name, hint in CLikePrinter.__annotations__.items() if "ClassVar" in str(hint)]
    assert tables and not [name for name in tables if f"``{name}``" not in (CLikePrinter.__doc__ or "")]
