"""Whether a device copies boxes of tensors: tried once, with a small tensor of a kernel's own."""

from __future__ import annotations

from string import Template

import numpy as np
import numpy.typing as npt

from hal_opencl import binding
from hal_opencl.compiler import OPTIONS, build
from hal_opencl.context import DeviceContext
from hal_opencl.emit import tensors

_ROWS, _COLUMNS, _BOX, _FLOATS = 6, 36, (8, 32), 1024
_TENSOR = tensors.Tensor("out", (_ROWS, _COLUMNS), (_COLUMNS, 1), _BOX, (1, 1))
_BITS, _STEP = 0x3F800000, 0x800
"""Of the first element, and from one to the next: among four of them one lies between two of those that are kept."""
_PROBE = Template("""
kernel __attribute__((reqd_work_group_size(1024, 1, 1)))
void probe(global float* out) {
    local float box[256] __attribute__((aligned(1024)));
    local ulong barriers[2] __attribute__((aligned(16)));
    local uint words[32] __attribute__((aligned(128)));
    for (uint n = get_local_id(0); n < $elements; n += 1024) out[n] = as_float($bits + n * $step);
    asm volatile("fence.proxy.async;" ::: "memory");
    describe(words, (global uint*)(out + 512), out, 32);
    ready(barriers);
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    known((global uint*)(out + 512));
    start(box, out + 512, barriers, 0, 4);
    close(barriers);
    wait(barriers, 0);
    for (uint n = get_local_id(0); n < 256; n += 1024) out[768 + n] = box[n ^ n / 32 * 4];
}
""")


def probe() -> str:
    """The probe's OpenCL C: columns 4 to 35 of all rows and of two behind them."""
    return "\n".join([
        tensors.describe("describe", _TENSOR),
        tensors.known("known"),
        tensors.ready("ready", 2),
        tensors.start("start", _BOX),
        tensors.close("close"),
        tensors.wait("wait", 2, (0,)),
        _PROBE.substitute(elements=_ROWS * _COLUMNS, bits=f"{_BITS:#x}", step=f"{_STEP:#x}"),
    ])  # fmt: skip


def wanted() -> npt.NDArray[np.float32]:
    """The box as rows: its elements rounded to ten bits of the mantissa, ties to even, and zeros behind the tensor."""
    bits = _BITS + np.arange(_ROWS * _COLUMNS, dtype=np.uint32).reshape(_ROWS, _COLUMNS)[:, 4:] * _STEP
    rounded = (bits + 0xFFF + (bits >> 13 & 1)) & ~np.uint32(0x1FFF)
    return np.concatenate([rounded.astype(np.uint32).view(np.float32), np.zeros((2, 32), np.float32)])


def copies_boxes(context: DeviceContext) -> bool:
    """Whether the driver assembles such a copy, and it brings what it should."""
    try:
        with context.guard:
            program = build(context.raw, context.info.raw, probe(), OPTIONS)
            found = binding.floats_of(context.raw, context.info.raw, program, "probe", _FLOATS)
    except (binding.BuildError, binding.cl_error):
        return False
    return bool((found[768:].reshape(_BOX) == wanted()).all())
