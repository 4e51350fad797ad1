"""Whether a device multiplies by teams of sub-groups: tried once, by a small product of its own."""

from __future__ import annotations

from string import Template

from tile_ir.matrix import MATRIX_INSTRUCTIONS
from tile_ir.semtree.nodes import Type

from hal_opencl import binding
from hal_opencl.compiler import OPTIONS, build
from hal_opencl.context import DeviceContext
from hal_opencl.emit import teams

_INSTRUCTION = MATRIX_INSTRUCTIONS["wgmma_m64n32k16_bf16"]
_PIECE = Type(_INSTRUCTION.c.dtype, _INSTRUCTION.c.registers)
_ITEMS = 128
_PROBE = Template("""
kernel __attribute__((reqd_work_group_size(128, 1, 1)))
void probe(global float* out) {
    local ushort a[4096] __attribute__((aligned(1024)));
    local ushort b[2048] __attribute__((aligned(1024)));
    for (int n = get_local_id(0); n < 4096; n += 128) a[n] = 0x3f80;
    for (int n = get_local_id(0); n < 2048; n += 128) b[n] = 0x3f80;
    float4 c0 = 0, c1 = 0, c2 = 0, c3 = 0;
    $complete
    barrier(CLK_LOCAL_MEM_FENCE);
    ready(&c0, &c1, &c2, &c3);
    multiply(&c0, &c1, &c2, &c3, panels(a, 0, 16), panels(b, 0, 16));
    finish(&c0, &c1, &c2, &c3);
    const float4 sum = c0 + c1 + c2 + c3;
    out[get_local_id(0)] = sum.s0 + sum.s1 + sum.s2 + sum.s3;
}
""")
"""All factors are one: each work item adds up its sixteen sums, of sixteen products each."""
WANTED = 256


def probe() -> str:
    """The probe's OpenCL C."""
    return "\n".join([
        teams.fence("ready", 4, _PIECE),
        teams.multiply("multiply", _INSTRUCTION, a_panels=False, b_panels=False),
        teams.wait("finish", 4, _PIECE, 0),
        teams.descriptor("panels"),
        _PROBE.substitute(complete=teams.COMPLETE),
    ])  # fmt: skip


def multiplies(context: DeviceContext) -> bool:
    """Whether the driver assembles such a product, and it comes out right."""
    try:
        with context.guard:
            program = build(context.raw, context.info.raw, probe(), OPTIONS)
            return bool((binding.floats_of(context.raw, context.info.raw, program, "probe", _ITEMS) == WANTED).all())
    except (binding.BuildError, binding.cl_error):
        return False
