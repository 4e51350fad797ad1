"""What the conformance suite does not ask of an OpenCL device."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tile_hal
from hal_opencl import binding
from hal_opencl.driver import OpenCLDevice
from hal_opencl.emit.source import Source, gathered, joined
from hal_opencl.executor import OpenCLKernel
from tile_hal.host_queue import HostEvent
from tile_ir.diagnostics import TileDeviceError
from tile_ir.dtype import DType, from_numpy
from tile_ir.kernels import Kernel, KernelList
from tile_ir.ops import Aggregation
from tile_ir.semtree.nodes import (
    Access,
    Atomic,
    Binary,
    Block,
    Call,
    Const,
    For,
    Function,
    IdKind,
    Load,
    Param,
    ReduceLanes,
    Space,
    Statement,
    Store,
    Type,
    Var,
    WorkId,
)  # fmt: skip
from tile_ir.stripe import nodes as stripe
from tile_ir.target import Options

Launch = Callable[..., list[Any]]
INT, F32 = Type(DType.INT32), DType.FLOAT32
GROUP = WorkId(IdKind.GROUP, 0)
N = 64


def pointer(name: str, dtype: DType) -> Var:
    return Var(name, Type(dtype, space=Space.GLOBAL, ptr=True))


def function(arrays: dict[str, np.ndarray], *body: Statement, name: str = "f") -> Function:
    params = tuple(
        Param(key, pointer(key, from_numpy(a.dtype)).type, Access.READ if n else Access.READWRITE, 1, a.size)
        for n, (key, a) in enumerate(arrays.items())
    )
    return Function(name, params, Block(body))


def increment(by: float = 1.0) -> Function:
    i = Var("i", INT)
    value = Binary("add", Load(pointer("a", F32), i, Type(F32)), Const(by, Type(F32)), Type(F32))
    body = For("i", Const(0, INT), Const(N, INT), 1, Block((Store(pointer("out", F32), i, value),)))
    blank = np.zeros(N, np.float32)
    return function({"out": blank, "a": blank}, body)


def kernels(device: OpenCLDevice, *functions: Function) -> KernelList:
    items = tuple(Kernel(f"k{n}", stripe.Block(f.name), f, (1, 1, 1)) for n, f in enumerate(functions))
    return KernelList(items, (), (), device.target)


def ready(device: OpenCLDevice, item: Function) -> OpenCLKernel:
    return device.executor.prepare(device.compiler.build(kernels(device, item)), 0)


@pytest.mark.parametrize("agg", [Aggregation.SUM, Aggregation.MAX, Aggregation.PROD])
@pytest.mark.parametrize("dtype", [DType.INT8, DType.UINT16, DType.FLOAT16, DType.INT64, DType.FLOAT32, DType.FLOAT64])
def test_atomics_of_every_width(device: OpenCLDevice, launch: Launch, dtype: DType, agg: Aggregation) -> None:
    if dtype not in device.capabilities.dtypes:
        pytest.skip(f"no {dtype}")
    data = (np.arange(N) % 2 + 1).astype(dtype.numpy)
    if agg is Aggregation.PROD:
        data[8:] = 1
    out = np.ones(3, dtype.numpy)
    at = Binary("mod", GROUP, Const(3, INT), INT)
    body = Atomic(agg, pointer("out", dtype), at, Load(pointer("a", dtype), GROUP, Type(dtype)))
    got = launch(device, function({"out": out, "a": data}, body), [out, data], (N, 1, 1))[0]
    merge = {Aggregation.SUM: np.sum, Aggregation.MAX: np.max, Aggregation.PROD: np.prod}[agg]
    assert got.tolist() == [merge(np.append(data[n::3].astype(float), 1.0)) for n in range(3)]


@pytest.mark.parametrize("lanes", [3, 6, 32])
def test_lane_counts_opencl_lacks(device: OpenCLDevice, launch: Launch, lanes: int) -> None:
    wide = Type(F32, lanes)
    data = np.arange(1, lanes + 1, dtype=np.float32)
    out = np.zeros(lanes + 1, np.float32)
    vector = Load(pointer("a", F32), Const(0, INT), wide)
    double = Store(pointer("out", F32), Const(0, INT), Binary("add", vector, vector, wide))
    total = Store(pointer("out", F32), Const(lanes, INT), ReduceLanes(Aggregation.SUM, vector, Type(F32)))
    got = launch(device, function({"out": out, "a": data}, double, total), [out, data])[0]
    assert got.tolist() == [*(2 * data), data.sum()]


def test_equal_kernels_are_built_once(device: OpenCLDevice) -> None:
    library = device.compiler.build(kernels(device, increment(), increment(), increment(2.0)))
    assert library.sources[0] == library.sources[1] != library.sources[2]
    assert library.program(0) is library.program(1)
    assert library.source().count("kernel __attribute__") == 2


def quotients(device: OpenCLDevice, count: int) -> KernelList:
    """Kernels with names of their own, and a helper that all need: division is total."""
    i, t = Var("i", INT), DType.INT32
    blank = np.zeros(N, np.int32)
    divided = [Binary("div", Load(pointer("a", t), i, INT), Const(n, INT), INT) for n in range(count)]
    loops = [For("i", Const(0, INT), Const(N, INT), 1, Block((Store(pointer("out", t), i, d),))) for d in divided]
    return kernels(device, *(function({"out": blank, "a": blank}, body, name=f"k{n}") for n, body in enumerate(loops)))


def test_as_many_kernels_as_pay_are_one_program(device: OpenCLDevice) -> None:
    many = quotients(device, 11)
    library = device.compiler.build(many)
    again = device.compiler.deserialize(many, library.serialize() or b"")
    assert again.source() == library.source()
    for made in (library, again):
        assert len({made.program(n) for n in range(11)}) == -(-11 // library.context.kernels_of_a_program)
        assert all(device.executor.prepare(made, n) for n in range(11))


def test_a_helper_of_several_kernels_is_written_once() -> None:
    sources = [Source(("head", "helper", f"kernel {n}"), f"k{n}") for n in (0, 1, 2)]
    assert joined(sources) == "head\nhelper\nkernel 0\nkernel 1\nkernel 2"
    assert [len(g) for g in gathered([*sources, sources[0]], 2)] == [2, 1]
    assert [len(g) for g in gathered([sources[0], Source(("other",), "k0"), sources[1]], 8)] == [1, 2]


def test_a_build_error_names_the_kernel_and_shows_the_log(
    device: OpenCLDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that are built with it are none the worse."""
    many = quotients(device, 3)
    sources = device.compiler.emit(many)
    broken = replace(sources[1], parts=tuple(part.replace("out[", "nowhere[") for part in sources[1].parts))
    monkeypatch.setattr(device.compiler, "emit", lambda _: [sources[0], broken, sources[2]])
    library = device.compiler.build(many)
    with pytest.raises(TileDeviceError, match=r"(?s)kernel 'k1'.*nowhere"):
        device.executor.prepare(library, 1)
    assert device.executor.prepare(library, 0) and device.executor.prepare(library, 2)


def test_damaged_code_falls_back_to_the_source(device: OpenCLDevice) -> None:
    from hal_opencl.emit.source import emit_kernel

    item = kernels(device, increment(7.0))
    text = emit_kernel(item.kernels[0]).text
    program = device.compiler._start(text, ("-cl-std=CL1.2",), b"damaged").result()
    assert program is not None


def test_code_of_another_driver_is_refused(device: OpenCLDevice) -> None:
    item = kernels(device, increment())
    data = device.compiler.build(item).serialize()
    assert data is not None
    with pytest.raises(ValueError, match="another device"):
        device.compiler.deserialize(item, data.replace(b"hal-opencl", b"hal-openCL", 1))
    with pytest.raises(ValueError, match="damaged"):
        device.compiler.deserialize(item, data[:-3])
    with pytest.raises(ValueError, match="other kernels"):
        device.compiler.deserialize(kernels(device, increment(9.0)), data)


def test_fp64_is_refused_before_compilation(device: OpenCLDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = Type(DType.FLOAT64)
    store = Store(pointer("out", DType.FLOAT64), Const(0, INT), Const(1.0, wide))
    monkeypatch.setattr(type(device.info), "fp64", property(lambda self: False))
    with pytest.raises(TileDeviceError, match="no float64"):
        device.compiler.build(kernels(device, function({"out": np.zeros(1)}, store)))


def test_work_is_spread_over_queues(device: OpenCLDevice) -> None:
    kernel = ready(device, increment())
    buffers = [device.memory.allocate(4 * N) for _ in range(9)]
    events = [kernel.run([out, buffers[0]]) for out in buffers[1:]]
    assert len({id(event.lane) for event in events}) > 1
    follower = kernel.run([buffers[0], buffers[1]], [events[0]])
    assert follower.lane is events[0].lane
    tile_hal.join([*events, follower]).wait()


def test_only_profiled_runs_are_timed(device: OpenCLDevice) -> None:
    kernel = ready(device, increment())
    buffers = [device.memory.allocate(4 * N) for _ in range(2)]
    assert kernel.run(buffers).wait().seconds is None
    assert kernel.run(buffers, profile=True).wait().seconds is not None


def test_other_events_hold_work_back_and_may_fail_it(device: OpenCLDevice) -> None:
    kernel = ready(device, increment())
    buffers = [device.memory.allocate(4 * N) for _ in range(2)]
    gate = HostEvent()
    first = kernel.run(buffers, [gate])
    second = kernel.run(buffers, [first])
    assert not first.done and not second.done
    threading.Timer(0.02, lambda: gate.fail(RuntimeError("no luck"))).start()
    with pytest.raises(TileDeviceError, match="no luck"):
        second.wait()
    assert first.done and second.done
    kernel.run(buffers).wait()


def test_overlapping_views_are_copied_rightly(device: OpenCLDevice) -> None:
    step = device.info.alignment
    base = device.memory.allocate(3 * step)
    pattern = bytes(n % 251 for n in range(3 * step))
    base.map_discard()[:] = pattern
    base.unmap().wait()
    low, high = device.memory.view(base, 0, 2 * step), device.memory.view(base, step, 2 * step)
    assert low is not None and high is not None
    device.executor.copy(low, high).wait()
    assert bytes(base.map_current()) == pattern[:step] + pattern[: 2 * step]
    base.unmap().wait()
    assert device.memory.view(base, step // 2, 8) is None


def test_buffers_of_other_devices_are_refused(device: OpenCLDevice) -> None:
    stranger = OpenCLDevice(99, device.info).memory.allocate(4 * N)
    with pytest.raises(TileDeviceError, match="not of this device"):
        ready(device, increment()).run([stranger, device.memory.allocate(4 * N)])


def test_arguments_are_set_anew_when_buffers_change(device: OpenCLDevice) -> None:
    kernel = ready(device, increment())
    for start in range(5):
        source, out = device.memory.allocate(4 * N), device.memory.allocate(4 * N)
        np.frombuffer(source.map_discard(), np.float32)[:] = start
        source.unmap().wait()
        event = kernel.run([out, source])
        assert np.frombuffer(out.map_current([event]), np.float32).tolist() == [start + 1.0] * N
        out.unmap().wait()
        del source, out
        gc.collect()


def test_no_group_at_all(device: OpenCLDevice, launch: Launch) -> None:
    out = np.full(2, 5.0, np.float32)
    store = Store(pointer("out", F32), Const(0, INT), Const(1.0, Type(F32)))
    assert launch(device, function({"out": out}, store), [out], (0, 1, 1))[0].tolist() == [5.0, 5.0]


def test_fast_math_is_close(device: OpenCLDevice) -> None:
    wide = Type(F32, 4)
    vector = Load(pointer("a", F32), Const(0, INT), wide)
    value = Binary("add", Binary("mul", vector, vector, wide), Call("exp", (vector,), wide), wide)
    data, out = np.linspace(-2, 2, 4, dtype=np.float32), np.zeros(4, np.float32)
    item = function({"out": out, "a": data}, Store(pointer("out", F32), Const(0, INT), value))
    target = replace(device.target, options=Options(fast_math=True))
    library = device.compiler.build(replace(kernels(device, item), target=target))
    assert "mad(" in library.source() and "native_exp(" in library.source()
    buffers = [device.memory.allocate(16) for _ in range(2)]
    buffers[1].map_discard()[:] = data.tobytes()
    event = device.executor.prepare(library, 0).run(buffers, [buffers[1].unmap()])
    got = np.frombuffer(buffers[0].map_current([event]), np.float32)
    assert np.allclose(got, data * data + np.exp(data), rtol=1e-2)
    buffers[0].unmap().wait()


def test_two_thousand_kernels_are_queued_without_a_wait(device: OpenCLDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = ready(device, increment(0.0))
    buffers = [device.memory.allocate(4 * N) for _ in range(2)]
    device.executor.fill(buffers[1]).wait()
    waits = list[object]()
    monkeypatch.setattr(binding, "wait", waits.append)
    event = kernel.run(buffers)
    for _ in range(2000):
        event = kernel.run(buffers, [event])
    assert not waits
    monkeypatch.undo()
    event.wait()
    assert not np.frombuffer(buffers[0].map_current(), np.float32).any()
    buffers[0].unmap().wait()


def test_memory_that_was_given_up_is_used_again(device: OpenCLDevice) -> None:
    kernel = ready(device, increment())
    value = device.memory.allocate(4 * N)
    event = device.executor.fill(value)
    for turn in range(200):
        result = device.memory.allocate(4 * N)
        event = kernel.run([result, value], [event])
        value = result  # the last one goes, though it is still being read
        if turn == 3:
            before = device.memory.usage.allocations
    assert device.memory.usage.allocations == before
    assert np.frombuffer(value.map_current([event]), np.float32).tolist() == [200.0] * N
    value.unmap().wait()


def test_the_driver_is_asked_once_about_memory_that_is_used_again(
    device: OpenCLDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A question takes as long as a tenth of a call."""
    kernel = ready(device, increment())
    value = device.memory.allocate(4 * N)
    last = kernel.run([device.memory.allocate(4 * N), value], [device.executor.fill(value)])
    asked = list[object]()
    monkeypatch.setattr(device.executor._context.lanes, "status", lambda raw: asked.append(raw) or binding.COMPLETE + 1)
    for _ in range(10):
        last = kernel.run([device.memory.allocate(4 * N), value])
    assert 0 < len(asked) <= 10
    monkeypatch.undo()
    last.wait()
    assert last.lane is not None and last.number <= last.lane.finished


def test_threads_share_the_memory(device: OpenCLDevice) -> None:
    kernel = ready(device, increment())
    found: list[float] = []

    def work(start: float) -> None:
        value = device.memory.allocate(4 * N)
        np.frombuffer(value.map_discard(), np.float32)[:] = start
        event = value.unmap()
        for _ in range(60):
            result = device.memory.allocate(4 * N)
            event = kernel.run([result, value], [event])
            value = result
        found.extend(set(np.frombuffer(value.map_current([event]), np.float32).tolist()))
        value.unmap().wait()

    threads = [threading.Thread(target=work, args=(1000.0 * n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [1000.0 * n + 60 for n in range(6)]


def test_wrapped_memory_outlives_the_work_on_it(device: OpenCLDevice) -> None:
    kernel, out = ready(device, increment()), device.memory.allocate(4 * N)
    wrapped = device.memory.wrap(np.full(N + 64, 2.0, np.float32)[16 : 16 + N].data)
    if wrapped is None:
        pytest.skip("works on no memory of the host's")
    gate = HostEvent()
    event = kernel.run([out, wrapped], [gate])
    del wrapped
    gc.collect()
    gate.set()
    assert np.frombuffer(out.map_current([event]), np.float32).tolist() == [3.0] * N
    out.unmap().wait()


def test_an_allocation_that_fails_gives_back_what_is_kept(
    device: OpenCLDevice, fails_once: Callable[..., list[str]]
) -> None:
    name = "wrap_array" if device.executor._context.maps_for_free else "make_buffer"
    kept = device.memory.allocate(1 << 16)
    del kept
    assert device.memory.usage.held > device.memory.usage.used
    called = fails_once(name)
    fresh = device.memory.allocate(12345 << 4)
    assert len(called) == 2 and fresh.nbytes == 12345 << 4
    usage = device.memory.usage
    assert usage.held == usage.used
    fails_once(name, times=2)
    with pytest.raises(TileDeviceError, match=r"TILE-E705.*has no \d+ bytes left"):
        device.memory.allocate(54321 << 4)


def test_a_kernel_that_finds_no_memory_is_tried_again(
    device: OpenCLDevice, fails_once: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = ready(device, increment())
    buffers = [device.memory.allocate(4 * N) for _ in range(2)]
    device.executor.fill(buffers[1]).wait()
    called = fails_once("enqueue_kernel")
    event = kernel.run(buffers)
    assert len(called) == 2
    assert np.frombuffer(buffers[0].map_current([event]), np.float32).tolist() == [1.0] * N
    buffers[0].unmap().wait()
    fails_once("enqueue_kernel", times=2)
    with pytest.raises(TileDeviceError, match="TILE-E705"):
        kernel.run(buffers)
    monkeypatch.undo()
    kernel.run(buffers).wait()
