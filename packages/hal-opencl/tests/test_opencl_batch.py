"""Programs of several steps as one batch: what they give, what fails in the middle, and that nothing is allocated twice."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from hal_opencl import binding
from hal_opencl.batch import OpenCLBatch
from hal_opencl.driver import OpenCLDevice
from tile_hal.interfaces import Buffer
from tile_hal.submission import Prepared
from tile_ir.contents import Contents
from tile_ir.diagnostics import TileDeviceError
from tile_ir.dtype import DType
from tile_ir.kernels import BufferInfo, BufferKind, Kernel, KernelList, Step, StepKind
from tile_ir.semtree.nodes import Access, Binary, Block, Const, For, Function, Load, Param, Space, Store, Type, Var
from tile_ir.stripe import nodes as stripe
from tile_ir.stripe.nodes import ConstantBuffer, TensorType

N, F32, INT = 64, DType.FLOAT32, Type(DType.INT32)
BYTES = 4 * N
START = np.arange(N, dtype=np.float32)


def increment() -> Function:
    """``out[i] = a[i] + 1``."""
    pointers = {name: Var(name, Type(F32, space=Space.GLOBAL, ptr=True)) for name in ("out", "a")}
    access = {"out": Access.READWRITE, "a": Access.READ}
    i, one = Var("i", INT), Const(1.0, Type(F32))
    store = Store(pointers["out"], i, Binary("add", Load(pointers["a"], i, Type(F32)), one, Type(F32)))
    params = tuple(Param(name, pointers[name].type, access[name], 1, N) for name in pointers)
    return Function("f", params, Block((For("i", Const(0, INT), Const(N, INT), 1, Block((store,))),)))


def info(number: int, kind: BufferKind, offset: int = 0) -> BufferInfo:
    return BufferInfo(number, f"b{number}", kind, (N,), F32, BYTES, offset=offset)


def prepared(device: OpenCLDevice) -> Prepared:
    """``out = copy = in + 1 + 1 + 1`` by way of temporaries; ``zero`` is filled, ``more = const + 1``."""
    far = device.info.alignment * -(-BYTES // device.info.alignment)
    buffers = (
        info(0, BufferKind.INPUT), info(1, BufferKind.OUTPUT), info(2, BufferKind.OUTPUT), info(3, BufferKind.OUTPUT),
        info(4, BufferKind.OUTPUT), info(5, BufferKind.TEMP), info(6, BufferKind.TEMP, far), info(7, BufferKind.CONST),
    )  # fmt: skip
    steps = (
        Step(StepKind.KERNEL, 0, (5, 0)),
        Step(StepKind.FILL, buffers=(6,)),
        Step(StepKind.KERNEL, 0, (6, 5), (0, 1)),
        Step(StepKind.KERNEL, 0, (1, 6), (2,)),
        Step(StepKind.COPY, buffers=(2, 1), deps=(3,)),
        Step(StepKind.FILL, buffers=(3,)),
        Step(StepKind.KERNEL, 0, (4, 7)),
    )
    data = np.full(N, 0.5, np.float32).tobytes()
    constant = ConstantBuffer("b7", TensorType.row_major(F32, (N,)), Contents(data))
    kernel = Kernel("k", stripe.Block("f"), increment(), (1, 1, 1))
    listed = KernelList((kernel,), buffers, steps, device.target, (constant,))
    return Prepared(device, device.compiler.build(listed), listed)


def source(device: OpenCLDevice) -> Buffer:
    buffer = device.memory.allocate(BYTES)
    buffer.map_discard()[:] = START.tobytes()
    buffer.unmap().wait()
    return buffer


def read(buffer: Buffer) -> npt.NDArray[np.float32]:
    values = np.frombuffer(bytes(buffer.map_current()), np.float32)
    buffer.unmap().wait()
    return values


def check(device: OpenCLDevice, program: Prepared, given: Buffer) -> None:
    outputs = [device.memory.allocate(BYTES) for _ in range(4)]
    program.run([given, *outputs]).wait()
    for got, wanted in zip(outputs, (START + 3, START + 3, 0 * START, 0 * START + 1.5), strict=True):
        np.testing.assert_array_equal(read(got), wanted)


def test_a_batch_gives_what_its_steps_give(device: OpenCLDevice) -> None:
    program, given = prepared(device), source(device)
    assert isinstance(program._batch, OpenCLBatch)
    check(device, program, given)
    program._batch = None
    check(device, program, given)


def test_wrapped_memory_takes_the_steps_one_by_one(device: OpenCLDevice) -> None:
    wrapped = device.memory.wrap(START.copy().data)
    if wrapped is None:
        pytest.skip("works on no memory of the host's")
    program = prepared(device)
    assert program._batch.run([wrapped, *[device.memory.allocate(BYTES) for _ in range(4)]]) is None
    check(device, program, wrapped)


def test_a_warm_program_allocates_nothing(device: OpenCLDevice) -> None:
    program, given = prepared(device), source(device)
    for turn in range(30):
        if turn == 10:
            before = device.memory.usage.allocations
        check(device, program, given)
    assert device.memory.usage.allocations == before


def test_threads_run_one_program(device: OpenCLDevice) -> None:
    program, given = prepared(device), source(device)
    failed: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(20):
                check(device, program, given)
        except BaseException as problem:
            failed.append(problem)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_kernels_have_events_where_the_loader_has_no_name(
    device: OpenCLDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binding, "_bare", None)
    check(device, prepared(device), source(device))


@pytest.mark.parametrize("name", ["enqueue_unseen", "enqueue_kernel", "fill", "copy"])
def test_a_step_that_finds_no_memory_is_tried_again(
    device: OpenCLDevice, monkeypatch: pytest.MonkeyPatch, fails_once: Callable[..., list[str]], name: str
) -> None:
    program, given = prepared(device), source(device)
    steps = {"enqueue_unseen": 3, "enqueue_kernel": 1, "fill": 2, "copy": 1}[name]
    called = fails_once(name)
    check(device, program, given)
    assert len(called) == steps + 1
    fails_once(name, times=3)
    with pytest.raises(TileDeviceError, match="TILE-E705"):
        check(device, program, given)
    monkeypatch.undo()
    check(device, program, given)


def test_a_failure_in_the_middle_leaves_nothing_running(device: OpenCLDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    program, given = prepared(device), source(device)
    finished: list[bool] = []
    lanes = device.executor._context.lanes
    monkeypatch.setattr(binding, "copy", lambda *_: (_ for _ in ()).throw(binding.cl.LogicError("test", -5)))
    monkeypatch.setattr(lanes, "finish", lambda: finished.append(True))
    with pytest.raises(TileDeviceError, match="TILE-E706"):
        program.run([given, *[device.memory.allocate(BYTES) for _ in range(4)]])
    assert finished
