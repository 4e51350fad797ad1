"""The sample device: the text it prints, what runs, and what Python cannot compile."""

from __future__ import annotations

import numpy as np
import pytest
from tile_hal import HostBuffer
from tile_ir import kernels
from tile_ir.diagnostics import TileDeviceError
from tile_ir.dtype import DType
from tile_ir.semtree import nodes as ir
from tile_ir.stripe.nodes import Block
from tile_sample.device import SampleDevice
from tile_sample.plugin import tile_hal_driver

F32, I32 = ir.Type(DType.FLOAT32), ir.Type(DType.INT32)
POINTER = ir.Type(DType.FLOAT32, space=ir.Space.GLOBAL, ptr=True)
GROUP = ir.WorkId(ir.IdKind.GROUP, 0)
HALVES = """\
def halve(out, class_1, group_x, group_y, group_z):
 if bool(group_x < 3):
  out[group_x] = class_1[group_x] * float32(0.5)
"""


def kernel(body: ir.Statement) -> kernels.KernelList:
    params = (ir.Param("out", POINTER, ir.Access.WRITE, 4, 4), ir.Param("class", POINTER, ir.Access.READ, 4, 4))
    function = ir.Function("halve", params, ir.Block((body,)))
    return kernels.KernelList(
        (kernels.Kernel("halve", Block("halve"), function, (4, 1, 1)),), (), (), SampleDevice().target
    )


def halve() -> kernels.KernelList:
    half = ir.Binary("mul", ir.Load(ir.Var("class", POINTER), GROUP, F32), ir.Const(0.5, F32), F32)
    store = ir.Block((ir.Store(ir.Var("out", POINTER), GROUP, half),))
    return kernel(ir.If(ir.Compare("cmp_lt", GROUP, ir.Const(3, I32), ir.Type(DType.BOOL)), store))


def test_a_kernel_is_a_python_function() -> None:
    (group,) = tile_hal_driver().device_sets()
    (device,) = group.devices
    library = device.compiler.build(halve())
    assert library.source() == HALVES
    out, given = HostBuffer(np.zeros(16, np.uint8)), HostBuffer(np.arange(4, dtype=np.float32).view(np.uint8))
    device.executor.prepare(library, 0).run([out, given]).wait()
    assert out.as_array(np.float32).tolist() == [0.0, 0.5, 1.0, 0.0]


def test_what_python_refuses_is_a_build_error() -> None:
    body: ir.Statement = ir.Block()
    for n in range(25):  # Python nests at most twenty loops
        body = ir.For(f"i{n}", ir.Const(0, I32), ir.Const(1, I32), 1, ir.Block((body,)))
    with pytest.raises(TileDeviceError, match="halve"):
        SampleDevice().compiler.build(kernel(body))
