"""Targets: what the compiler knows of a device, as data.

A target is a JSON document: hardware settings, the machine as the cost model sees it, the hardware of an accelerator, the
code generator the backend wants, and the ordered pass list. Backends ship one; `Target.resolved` fills in probed values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tile_ir.document import from_document, to_document
from tile_ir.dtype import DType
from tile_ir.machine import Machine


@dataclass(frozen=True, slots=True)
class HardwareSettings:
    """The numbers that schedules are made from (limits of groups, local memory, the register file)."""

    threads: int = 1
    """Work items per group."""
    vec_size: int = 1
    """Widest vector in float32 lanes a work item should use."""
    use_global: bool = True
    """Read inputs straight from global memory instead of staging tiles in local memory."""
    mem_width: int = 64
    """Bytes of one useful memory transaction (a cache line)."""
    max_mem: int = 32768
    """Local bytes per group; on a CPU, the bytes of the L1 data cache."""
    static_local_bytes: int = 0
    """Bytes of local arrays that a kernel may declare where that exceeds `max_mem`; 0 = `max_mem`."""
    max_regs: int = 16384
    """Output register bytes per group."""
    goal_groups: int = 1
    """Groups needed for full occupancy."""
    goal_flops_per_byte: int = 1
    """Knee of the roofline."""
    dim_sizes: tuple[int, int, int] = (1 << 31, 1 << 31, 1 << 31)
    """Largest group count per grid dimension."""
    registers: int = 16
    """Vector registers per work item."""
    vector_bytes: int = 16
    """Bytes of one vector register."""
    l1_bytes: int = 32768
    l2_bytes: int = 1 << 20
    l3_bytes: int = 32 << 20
    """Shared last-level cache; outputs larger than this are streamed past the caches."""
    cores: int = 1
    """Compute units that run groups at once (never changes results, only the grain of work)."""
    fma: bool = True
    masks: bool = False
    """Vector loads, stores and arithmetic leave out single lanes at no cost."""
    buffer_align: int = 1
    """Bytes to which every buffer of the device is aligned, inputs included."""
    index_bits: int = 64
    """Width of subscript arithmetic; 32 only where ranges prove that it suffices."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a device can do, frozen; the conformance suite checks it."""

    dtypes: frozenset[DType] = frozenset(DType)
    nodes: frozenset[str] = frozenset()
    """Optional semtree nodes (class names) beyond the core."""
    max_group_size: int = 1
    local_bytes: int = 0
    subgroup: int = 1
    is_async: bool = False
    """`run` returns while dependencies are pending; work that is ready may all the same be done when it returns."""
    serializes: bool = False
    loads_outlines: bool = False
    """Compiled code can be loaded without the kernels' bodies (`Compiler.load`): it starts at once from the disk cache."""
    keeps_buffers: bool = False
    """Buffers may be dropped while work on them is pending: their memory lives until it is over, and its reuse is ordered behind it."""
    executes: bool = True
    """False for a compile-only device (`null`)."""
    flushes_subnormals: frozenset[DType] = frozenset()
    """Float dtypes in whose arithmetic a subnormal number, given or computed, may count as zero of its sign."""
    quirks: Mapping[str, str] = field(default_factory=dict[str, str])
    """Named deviations, each with a reason; a quirk that no longer fails is an error."""


@dataclass(frozen=True, slots=True)
class PassConfig:
    """One entry of a pass list: the pass's registered name, a label, and its option fields."""

    name: str
    label: str = ""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Options:
    """What the user allowed beyond the language's own rules."""

    fast_math: bool = False
    """Approximate math functions, and products fused with sums anywhere."""
    reduced_precision: bool = False
    """Matrix instructions for float32 (its factors rounded to TF32) and for 16-bit floats."""


@dataclass(frozen=True, slots=True)
class Target:
    """A device as the compiler sees it; frozen, and part of the cache key."""

    name: str
    settings: HardwareSettings = HardwareSettings()
    codegen: str = "semtree"
    """"semtree" or "stripe": what the backend's compiler takes."""
    passes: tuple[PassConfig, ...] = ()
    model: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The hardware of an accelerator (`tile_ir.hardware`): clock_mhz, mem_units, exec_units, tx_units, buses."""
    nodes: frozenset[str] = frozenset()
    """Optional semtree nodes the emitter takes; `legalise` rewrites all others."""
    machine: Machine = field(default_factory=Machine)
    """What the cost model knows: caches, ports, latencies, bandwidths."""
    matrix: tuple[str, ...] = ()
    """Matrix instructions (`tile_ir.matrix`) that the emitter can write, the preferred ones first."""
    options: Options = Options()

    def resolved(self, **settings: Any) -> Target:
        """This target with probed hardware settings filled in."""
        cores = settings.get("cores", self.machine.cores)
        return replace(self, settings=replace(self.settings, **settings), machine=replace(self.machine, cores=cores))

    def to_json(self) -> str:
        """Canonical JSON text; `from_json(to_json()) == self`."""
        document = {
            "name": self.name,
            "codegen": self.codegen,
            "settings": to_document(self.settings),
            "machine": to_document(self.machine),
            "model": dict(self.model),
            "nodes": sorted(self.nodes),
            "matrix": list(self.matrix),
            "options": to_document(self.options),
            "passes": [{"name": p.label or p.name, p.name: dict(p.options)} for p in self.passes],
        }
        return json.dumps(document, indent=2, sort_keys=True)

    @staticmethod
    def from_json(text: str) -> Target:
        """Read a target document; a pass entry is ``{"name": label, "<pass>": {options}}``.

        TileDeviceError TILE-E414 names every field of settings and machine that is unknown or of a wrong type.
        """
        data: dict[str, Any] = json.loads(text)
        return Target(
            name=data["name"],
            settings=from_document(HardwareSettings(), data.get("settings", {}), "settings"),
            machine=from_document(Machine(), data.get("machine", {}), "machine"),
            codegen=data.get("codegen", "semtree"),
            passes=tuple(_pass_config(entry) for entry in data.get("passes", ())),
            model=data.get("model", {}),
            nodes=frozenset(data.get("nodes", ())),
            matrix=tuple(data.get("matrix", ())),
            options=from_document(Options(), data.get("options", {}), "options"),
        )


def _pass_config(entry: Mapping[str, Any]) -> PassConfig:
    (name, options), *rest = [(k, v) for k, v in entry.items() if k != "name"]
    if rest:
        raise ValueError(f"a pass entry names one pass, not {sorted(k for k in entry if k != 'name')}")
    return PassConfig(name, entry.get("name", name), options)
