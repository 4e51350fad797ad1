"""Hardware settings: the table that finds a device's family, and the family's target document."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any

from tile_ir.document import from_document, to_document
from tile_ir.dtype import DType
from tile_ir.machine import Bandwidths, Machine
from tile_ir.matrix import LANES, MATRIX_INSTRUCTIONS, WGMMA, MatrixInstruction
from tile_ir.target import PassConfig, Target

from hal_opencl.binding import DeviceInfo
from hal_opencl.emit.ptx import MNEMONICS

STATIC_LOCAL = 96 << 10
"""Bytes of local arrays that a kernel may declare on capability 9.0, where it was tried, though the driver reports half."""


DOUBLES: Mapping[tuple[int, int], frozenset[str]] = {
    (8, 0): frozenset({"mma_m8n8k4_f64"}), (9, 0): frozenset({"mma_m16n8k8_f64"}),
}  # fmt: skip
"""Instructions of float64 by capability; other processors have hardly any units for it."""
TEAM_NODES = frozenset({"TeamMma", "TensorCopy"})
"""What a processor has whose sub-groups multiply in teams."""


@cache
def _table() -> tuple[Mapping[str, Any], ...]:
    return tuple(json.loads(files("hal_opencl").joinpath("targets", "devices.json").read_text(encoding="utf-8")))


@cache
def family_target(family: str) -> Target:
    """The target document of a family, before probing."""
    return Target.from_json(files("hal_opencl").joinpath("targets", f"{family}.json").read_text(encoding="utf-8"))


def _matches(rule: Mapping[str, Any], info: DeviceInfo) -> bool:
    """Type equal; platform, vendor, name by regular expression; least float lanes and capability."""
    texts = {"platform": f"{info.platform} {info.platform_version}", "vendor": info.vendor, "name": info.name}
    if "type" in rule and rule["type"] != info.kind:
        return False
    if any(key in rule and not re.search(rule[key], text, re.IGNORECASE) for key, text in texts.items()):
        return False
    return info.float_lanes >= rule.get("float_lanes", 0) and info.capability >= tuple(rule.get("capability", ()))


def family_of(info: DeviceInfo) -> str:
    """The first family of the table that fits; the last rules fit everything."""
    return next(rule["family"] for rule in _table() if _matches(rule, info))


def target_of(info: DeviceInfo) -> Target:
    """The family's target with every matching rule's settings (first match wins) and the device's own sizes."""
    rule = next(rule for rule in _table() if _matches(rule, info))
    target = family_target(rule["family"])
    probed: dict[str, Any] = {"cores": max(1, info.units), "view_align": max(16, info.alignment)}
    if info.kind == "cpu":
        probed["goal_groups"] = 1
    else:
        probed["goal_groups"] = max(1, info.units * target.settings.goal_groups)
        probed["max_mem"] = min(target.settings.max_mem, info.local_bytes) or target.settings.max_mem
        probed["threads"] = min(target.settings.threads, info.max_group)
        probed["l2_bytes"] = info.cache_bytes or target.settings.l2_bytes
    resolved = target.resolved(**{**probed, **rule.get("settings", {})})
    resolved = replace(resolved, machine=_machine(rule, resolved, info), passes=_passes(resolved, info))
    if info.products:
        return replace(resolved, matrix=info.products, nodes=resolved.nodes | {"Mma"})
    return _with_matrices(resolved, info) if info.ptx else resolved


def _passes(target: Target, info: DeviceInfo) -> tuple[PassConfig, ...]:
    """The family's passes, without integers of 64 bits in memory where the device cannot change them at once."""
    if info.wide_atomics:
        return target.passes
    return tuple(replace(p, options={**p.options, "widest": 32}) if p.name == "atomics" else p for p in target.passes)


def _machine(rule: Mapping[str, Any], target: Target, info: DeviceInfo) -> Machine:
    """The family's machine with the rule's numbers and what the device says: clock, cache, local memory, units."""
    machine = from_document(family_target(rule["family"]).machine, rule.get("machine", {}), "machine")
    clock, units = info.clock_mhz / 1e3, max(1, info.units)
    if info.kind == "cpu":  # these report their base clock, and caches of the whole chip
        vector = replace(machine.vector, registers=target.settings.registers, bytes=target.settings.vector_bytes)
        return replace(machine, vector=vector, cores=units, clock_ghz=max(clock, machine.clock_ghz))
    *near, last = machine.caches
    # Some drivers report the first level, or all of its parts together.
    last = replace(last, bytes=max(info.cache_bytes, last.bytes), shared=units)
    local = machine.local and replace(machine.local, bytes=max(machine.local.bytes, info.local_bytes))
    memory = replace(machine.memory, all_cores=_scaled(machine.memory.all_cores, units / machine.cores))
    occupancy = machine.occupancy
    if occupancy is not None:
        occupancy = replace(occupancy, group_items=min(occupancy.group_items, info.max_group))
    resident = replace(machine, cores=units, occupancy=occupancy, clock_ghz=clock or machine.clock_ghz)
    return replace(resident, caches=(*near, last), local=local, memory=memory)


def _scaled(bandwidths: Bandwidths, factor: float) -> Bandwidths:
    """Chips of one family have memory about in proportion to their units."""
    return from_document(bandwidths, {k: v * factor for k, v in to_document(bandwidths).items()}, "bandwidths")


def _with_matrices(target: Target, info: DeviceInfo) -> Target:
    """The target with the matrix instructions that the emitter can write."""
    matrix = tuple(name for name, i in MATRIX_INSTRUCTIONS.items() if _is_ours(i, info))
    local = STATIC_LOCAL if info.capability >= (9, 0) else 0
    settings = replace(target.settings, static_local_bytes=local, shuffles=LANES)
    nodes = {"MatrixLoad", "Mma", "SubgroupOp", *(TEAM_NODES if info.teams else ())}
    return replace(target, settings=settings, matrix=matrix, nodes=target.nodes | nodes)


def _is_ours(instruction: MatrixInstruction, info: DeviceInfo) -> bool:
    if instruction.a.dtype is DType.FLOAT64:
        return instruction.name in DOUBLES.get(info.capability, ())
    return instruction.name in MNEMONICS or (instruction in WGMMA and info.teams)


def without_teams(target: Target) -> Target:
    """The target without instructions of teams of sub-groups."""
    matrix = tuple(name for name in target.matrix if MATRIX_INSTRUCTIONS[name].team == 1)
    return replace(target, matrix=matrix, nodes=target.nodes - TEAM_NODES)


def without_boxes(target: Target) -> Target:
    """The target without copies of boxes of tensors."""
    return replace(target, nodes=target.nodes - {"TensorCopy"})
