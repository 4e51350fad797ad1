"""Elementwise kernels of several tests, built at once: each call of a device's compiler is what takes time.

Every kernel is launched by its own test alone, so that what goes wrong in one is that test's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from functools import lru_cache

import numpy as np
from tile_ir.diagnostics import TileError
from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.kernels import BufferKind, KernelList
from tile_ir.semtree.nodes import Function

from tile_hal.conformance.kernels import Array, Formula, elementwise, kernel_list, lanes_of, launch_list
from tile_hal.interfaces import Device, Library

COUNT = 1024
"""Elements of a test; a multiple of every vector width."""
alone = False
"""Whether every kernel is built by itself: once a process died, for it may have been in a compiler."""


@frozen
class Case:
    """``out[i] = formula(in0[i], …)`` for `count` elements; `name` and dtypes say which formula it is."""

    name: str
    formula: Formula = field(compare=False)
    out: DType
    dtypes: tuple[DType, ...]
    count: int = COUNT
    node: str = ""
    """What a device may lack."""

    def fits(self, device: Device) -> bool:
        """Whether the device has all that it needs."""
        has = device.capabilities
        return {self.out, *self.dtypes} <= set(has.dtypes) and (not self.node or self.node in has.nodes)


def compute(device: Device, case: Case, args: Sequence[Array], row: Sequence[Case] = ()) -> list[Array]:
    """The scalar form's results and, where there are vectors, theirs; `row` are cases to build this one with."""
    together = (case,) if alone or case not in row else tuple(other for other in row if other.fits(device))
    try:
        kernels, library = _built(device, together)
    except TileError:  # perhaps of another's kernel
        kernels, library = _built(device, together := (case,))
    step = kernels.steps[together.index(case)]
    mine = replace(kernels, steps=(step,), buffers=tuple(kernels.buffers[n] for n in step.buffers))
    outputs = sum(info.kind is BufferKind.OUTPUT for info in mine.buffers)
    blanks = [np.zeros(case.count, case.out.numpy)] * outputs
    return launch_list(device, library, mine, [*blanks, *args])


@lru_cache(maxsize=2)
def _built(device: Device, row: tuple[Case, ...]) -> tuple[KernelList, Library]:
    kernels = kernel_list(device, *(_kernel(device, case, n) for n, case in enumerate(row)))
    return kernels, device.compiler.build(kernels)


def _kernel(device: Device, case: Case, number: int) -> Function:
    lanes = min((lanes_of(device, d) for d in (case.out, *case.dtypes)), default=1)
    again = [lanes] if lanes > 1 else []
    made = elementwise(case.formula, case.out, case.dtypes, case.count, again=again)
    return replace(made, name=f"kernel{number}")
