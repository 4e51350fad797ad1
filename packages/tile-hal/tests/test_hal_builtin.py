"""The built-in devices, through hand-made kernels."""

from __future__ import annotations

import numpy as np
import pytest
import tile_hal
from tile_hal.builtin.common import load_target
from tile_ir.diagnostics import TileDeviceError
from tile_ir.dtype import DType
from tile_ir.kernels import BufferInfo, BufferKind, Kernel, KernelList, Step, StepKind
from tile_ir.semtree.nodes import Access, Binary, Block, Const, For, Function, Load, Param, Space, Store, Type, Var
from tile_ir.stripe import nodes as stripe
from tile_ir.stripe.affine import Affine
from tile_ir.target import Target

F32, N = DType.FLOAT32, 5
POINTER = Type(F32, space=Space.GLOBAL, ptr=True)
INT = Type(DType.INT32)


def double() -> Function:
    i = Var("i", INT)
    value = Load(Var("a", POINTER), i, Type(F32))
    body = Store(Var("out", POINTER), i, Binary("add", value, value, Type(F32)))
    params = (Param("out", POINTER, Access.WRITE, 4, N), Param("a", POINTER, Access.READ, 4, N))
    return Function("double", params, Block((For("i", Const(0, INT), Const(N, INT), 1, Block((body,))),)))


def stripe_double() -> stripe.Block:
    """``out[i] = a[i] + a[i]`` as a kernel block of two levels."""
    whole, cell = (stripe.TensorType.row_major(F32, (n,)) for n in (N, 1))
    zero, i = (Affine(),), (Affine.var("i"),)
    inner = stripe.Block(
        "stage",
        (stripe.Index("i", N),),
        refs=(
            stripe.Refinement(stripe.Direction.IN, "a", "a", i, cell),
            stripe.Refinement(stripe.Direction.OUT, "out", "out", i, cell),
        ),
        body=(stripe.Load("$a", "a"), stripe.Op("$r", "add", ("$a", "$a"), F32), stripe.Store("out", "$r")),
    )
    return stripe.Block(
        "kernel",
        refs=(
            stripe.Refinement(stripe.Direction.IN, "a", "a", zero, whole),
            stripe.Refinement(stripe.Direction.OUT, "out", "out", zero, whole),
        ),
        body=(inner,),
    )


def kernel_list(function: Function | None) -> KernelList:
    kernel = Kernel("double", stripe_double(), function, (1, 1, 1))
    kinds = (BufferKind.OUTPUT, BufferKind.INPUT)
    buffers = tuple(BufferInfo(n, f"b{n}", kind, (N,), F32, 4 * N) for n, kind in enumerate(kinds))
    return KernelList((kernel,), buffers, (Step(StepKind.KERNEL, 0, (0, 1)),), Target("interp"))


@pytest.mark.parametrize("function", [double(), None], ids=["semtree", "stripe"])
def test_interp_runs_semtree_and_stripe(function):
    device = tile_hal.device("interp")
    kernels = kernel_list(function)
    library = device.compiler.build(kernels)
    out = device.memory.allocate(4 * N)
    a = device.memory.wrap(memoryview(np.arange(N, dtype=np.float32)).toreadonly())
    tile_hal.submit(device, library, kernels, {0: out, 1: a}).wait()
    assert out.as_array(np.float32).tolist() == [0, 2, 4, 6, 8]
    assert "double" in library.source() or "kernel" in library.source()


def test_interp_reports_a_kernel_that_misbehaves():
    function = double()
    small = Function("double", (function.params[0], Param("a", POINTER, Access.READ, 4, N - 1)), function.body)
    device, kernels = tile_hal.device("interp"), kernel_list(small)
    out, a = (device.memory.allocate(4 * N) for _ in range(2))
    device.executor.fill(a).wait()
    with pytest.raises(TileDeviceError, match="TILE-E706"):
        tile_hal.submit(device, device.compiler.build(kernels), kernels, {0: out, 1: a}).wait()


def test_libraries_are_recognised_by_their_kernels():
    device, kernels = tile_hal.device("interp"), kernel_list(double())
    data = device.compiler.build(kernels).serialize()
    assert device.executor.prepare(device.compiler.deserialize(kernels, data), 0)
    with pytest.raises(ValueError, match="other kernels"):
        device.compiler.deserialize(kernel_list(None), data)


def test_null_compiles_and_refuses_to_run():
    device, kernels = tile_hal.device("null"), kernel_list(double())
    kernel = device.executor.prepare(device.compiler.build(kernels), 0)
    buffer = device.memory.allocate(4 * N)
    for call in (lambda: kernel.run([buffer, buffer]), lambda: device.executor.fill(buffer)):
        with pytest.raises(TileDeviceError, match=r"(?s)only compiles.*hint"):
            call()


@pytest.mark.parametrize("name", ["interp", "null"])
def test_shipped_targets_round_trip(name):
    target = load_target(name)
    assert target.name == name == tile_hal.device(name).target.name
    assert Target.from_json(target.to_json()) == target
