"""A program in parts that run on two devices, one after the other."""

from __future__ import annotations

from collections.abc import Collection

from tile_hal.interfaces import Device
from tile_ir.program import division
from tile_ir.program.division import Part as Part
from tile_ir.program.liveness import defined_by, used_by
from tile_ir.program.nodes import Program

from tile_runtime.requirements import bits_missing, op_needs


def lacking(program: Program, device: Device) -> dict[str, str]:
    """What `device` lacks for an operation, such as "no float64", by the operation's first name, where it lacks anything."""
    have = device.capabilities.dtypes
    types = program.types()
    found: dict[str, str] = {}
    for op in program.ops:
        read = [types[name].dtype for name in used_by(op)]
        missing = dict.fromkeys(d.value for d in (*(n[1] for n in op_needs(op)), *read) if d not in have)
        if bits_missing(op, device):
            missing["way to reinterpret bits"] = None
        if missing:
            found[defined_by(op)[0]] = f"no {' and '.join(missing)}"
    return found


def divide(program: Program, away: Collection[str]) -> tuple[Part, ...]:
    """The parts, in the order that they run in; operations whose first name is in `away` run on the other device."""
    return division.divide(program, lambda op: defined_by(op)[0] in away)
