"""Steps that depend on constants alone, done now: a program that is built ahead of time has their results in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tile_ir.contents import Contents
from tile_ir.kernels import BufferKind, KernelList, Step, flat_steps
from tile_ir.stripe.nodes import ConstantBuffer, TensorType

from tile_hal.interfaces import Device
from tile_hal.submission import submit


def folded(device: Device, kernels: KernelList) -> KernelList:
    """The same program, its steps that depend on constants alone done now on `device`: their results are constants.

    What no step needs any more is left out.
    """
    once = tuple(step for step in kernels.steps if step.once)
    found = _results(device, _chosen(kernels, once)) if once else {}
    buffers = tuple(replace(b, kind=BufferKind.CONST) if b.id in found else b for b in kernels.buffers)
    made = tuple(
        ConstantBuffer(b.name, TensorType.row_major(b.dtype, b.shape), found[b.id]) for b in buffers if b.id in found
    )
    whole = replace(kernels, buffers=buffers, constants=(*kernels.constants, *made))
    return _chosen(whole, tuple(step for step in kernels.steps if not step.once), (BufferKind.INPUT, BufferKind.OUTPUT))


def _chosen(kernels: KernelList, steps: tuple[Step, ...], always: tuple[BufferKind, ...] = ()) -> KernelList:
    """A program of some of the steps, which are done in every run; what they keep are its outputs.

    It has the buffers that they touch, and those that are `always` there.
    """
    numbers = sorted({s.kernel for s in flat_steps(steps) if s.kernel >= 0})
    order = {n: k for k, n in enumerate(numbers)}
    alone = tuple(_renumbered(replace(s, once=False), order) for s in _moved(kernels.steps, steps))
    touched = {b for step in alone for b in step.buffers}
    buffers = tuple(
        replace(b, kind=BufferKind.OUTPUT) if b.kind is BufferKind.KEPT else b
        for b in kernels.buffers
        if b.id in touched or b.kind in always
    )
    read = {b.name for b in buffers if b.kind is BufferKind.CONST}
    constants = tuple(c for c in kernels.constants if c.name in read)
    picked = tuple(kernels.kernels[n] for n in numbers)
    return replace(kernels, kernels=picked, steps=alone, buffers=buffers, constants=constants)


def _moved(steps: tuple[Step, ...], chosen: tuple[Step, ...]) -> tuple[Step, ...]:
    """The chosen steps, which depend on those among them."""
    wanted = {id(s) for s in chosen}
    place = {n: k for k, n in enumerate(n for n, s in enumerate(steps) if id(s) in wanted)}
    return tuple(replace(steps[n], deps=tuple(place[d] for d in steps[n].deps if d in place)) for n in place)


def _renumbered(step: Step, kernels: Mapping[int, int]) -> Step:
    """The step with other numbers of kernels, in its loop too."""
    loop = step.loop
    if loop is not None:
        loop = replace(loop, steps=tuple(_renumbered(s, kernels) for s in loop.steps))
    return replace(step, kernel=kernels.get(step.kernel, -1), loop=loop)


def _results(device: Device, kernels: KernelList) -> dict[int, Contents]:
    """What a program without inputs computes, by the numbers of its outputs."""
    memory = device.memory
    outputs = {b.id: b for b in kernels.buffers if b.kind is BufferKind.OUTPUT}
    buffers = {number: memory.allocate(info.bytes) for number, info in outputs.items()}
    done = submit(device, device.compiler.build(kernels), kernels, buffers)
    found: dict[int, Contents] = {}
    for number, buffer in buffers.items():
        found[number] = Contents(bytes(buffer.map_current([done])[: outputs[number].bytes]))
        buffer.unmap().wait()
    return found
