"""Refusing programs that a device cannot run: for their dtypes before anything is compiled, for their memory before anything is run."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tile_hal.interfaces import Device
from tile_ir.diagnostics import Diagnostic, Span, TileDeviceError, TileLimitError
from tile_ir.dtype import DType
from tile_ir.kernels import BufferKind, KernelList
from tile_ir.program.liveness import defined_by
from tile_ir.program.nodes import Contraction, Loop, Op, Program, reinterprets_bits, results_of
from tile_ir.settings import Settings

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
    found += [
        Diagnostic(MISSING, f"device {device.id} cannot reinterpret bits, which {name!r} needs", span, _ELSEWHERE)
        for op in program.ops
        if bits_missing(op, device)
        for name, _, span in op_needs(op)
    ]
    if found:
        raise TileDeviceError(found)


_ELSEWHERE = "choose another device, or give one as fallback"


def bits_missing(op: Op, device: Device) -> bool:
    """The operation reinterprets bits, and `device`, or what is generated for it, has no node for that."""
    able = device.target.codegen == "stripe" or "Bitcast" in device.target.nodes & device.capabilities.nodes
    return reinterprets_bits(op) and not able


def check_memory(kernels: KernelList, device: Device, program: Callable[[], Program]) -> None:
    """TileLimitError when what a program makes beside its inputs needs more memory than it may take; `program` is for the place."""
    asked = Settings.from_environment().memory
    limit = device.memory.size_goal if asked is None else asked
    needed = _bytes_made(kernels)
    if needed <= limit:
        return
    largest = max(kernels.buffers, key=lambda b: 0 if b.kind is BufferKind.INPUT else b.bytes)
    origin = next((op.origin for op in program().ops if largest.name in defined_by(op)), None)
    whose = f"device {device.id} has" if asked is None else "TILE_MEMORY allows"
    message = f"the program needs {needed} bytes for its results and temporaries; {whose} {limit}"
    shape = ", ".join(map(str, largest.shape))
    hint = f"the largest is {largest.name}, {largest.dtype}[{shape}]; TILE_MEMORY, such as 64G, allows more"
    raise TileLimitError(Diagnostic("TILE-E518", message, origin, hint))


def _bytes_made(kernels: KernelList) -> int:
    """Bytes of all buffers but the inputs; temporaries share arenas."""
    arenas: dict[int, int] = dict(enumerate(kernels.arenas))
    for temporary in (b for b in kernels.buffers if b.kind is BufferKind.TEMP):
        arenas[temporary.arena] = max(arenas.get(temporary.arena, 0), temporary.offset + temporary.bytes)
    rest = (b.bytes for b in kernels.buffers if b.kind not in (BufferKind.INPUT, BufferKind.TEMP))
    return sum(rest) + sum(arenas.values())


def _needs(program: Program, spans: Mapping[str, Span]) -> list[tuple[str, DType, Span | None]]:
    needs: list[tuple[str, DType, Span | None]] = [(p.name, p.type.dtype, spans.get(p.name)) for p in program.inputs]
    for op in program.ops:
        needs += op_needs(op)
    return needs


def op_needs(op: Op) -> list[tuple[str, DType, Span | None]]:
    """Names, element types and places of what an operation makes."""
    needs = [(name, type.dtype, op.origin) for name, type in results_of(op)]
    if isinstance(op, Loop):
        return [*needs, *(need for inner in op.body.ops for need in op_needs(inner))]
    if isinstance(op, Contraction) and op.acc is not op.type.dtype:
        needs.append((op.name, op.acc, op.origin))
    return needs


def _hint(have: frozenset[DType]) -> str:
    floats = ", ".join(sorted(d.value for d in have if d.is_float))
    return f"its floating-point types are {floats or 'none'}; cast with as_float, or choose another device"
