"""Refusing programs that a device cannot run, before anything is compiled."""

from __future__ import annotations

from collections.abc import Mapping

from tile_hal.interfaces import Device
from tile_ir.diagnostics import Diagnostic, Span, TileDeviceError
from tile_ir.dtype import DType
from tile_ir.program.nodes import Contraction, Op, Prng, Program

MISSING = "TILE-E506"
"""The code of a device's lack of an element type."""


def check_dtypes(program: Program, device: Device, spans: Mapping[str, Span]) -> None:
    """TileDeviceError naming every tensor (with its line) whose element type `device` lacks; `spans` has those of the inputs."""
    have = device.capabilities.dtypes
    found = [
        Diagnostic(MISSING, f"tensor {name!r} is {dtype}, which device {device.id} does not have", span, _hint(have))
        for name, dtype, span in _needs(program, spans)
        if dtype not in have
    ]
    if found:
        raise TileDeviceError(found)


def _needs(program: Program, spans: Mapping[str, Span]) -> list[tuple[str, DType, Span | None]]:
    needs: list[tuple[str, DType, Span | None]] = [(p.name, p.type.dtype, spans.get(p.name)) for p in program.inputs]
    for op in program.ops:
        needs += op_needs(op)
    return needs


def op_needs(op: Op) -> list[tuple[str, DType, Span | None]]:
    """Names, element types and places of what an operation makes."""
    if isinstance(op, Prng):
        return [(op.value, op.type.dtype, op.origin), (op.state, DType.UINT32, op.origin)]
    needs = [(op.name, op.type.dtype, op.origin)]
    if isinstance(op, Contraction) and op.acc is not op.type.dtype:
        needs.append((op.name, op.acc, op.origin))
    return needs


def _hint(have: frozenset[DType]) -> str:
    floats = ", ".join(sorted(d.value for d in have if d.is_float))
    return f"its floating-point types are {floats or 'none'}; cast with as_float, or choose another device"
