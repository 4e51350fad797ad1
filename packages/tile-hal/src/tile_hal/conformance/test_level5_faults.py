"""Level 5: mistakes get errors and leave the device usable; threads, load and lifetimes do no harm."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tile_ir.diagnostics import TileDeviceError, TileError, TileInternalError
from tile_ir.dtype import DType
from tile_ir.kernels import KernelList
from tile_ir.semtree.nodes import Access

import tile_hal
from tile_hal.conformance import samples
from tile_hal.conformance.buffers import download, upload
from tile_hal.conformance.gate import Gate, Started
from tile_hal.conformance.kernels import build, function, kernel_list, launch, number, param, store
from tile_hal.conformance.samples import N, chain, increment
from tile_hal.interfaces import Buffer, Device, Event

F32 = DType.FLOAT32


def ramp(device: Device) -> Buffer:
    return upload(device, np.arange(N, dtype=np.float32))


def works(device: Device) -> None:
    """The device still compiles, runs and answers."""
    got = launch(device, increment(), [np.zeros(N, np.float32), np.arange(N, dtype=np.float32)])[0]
    assert got.tolist() == [i + 1.0 for i in range(N)]


class Stranger(Buffer):
    """A buffer that no device made."""

    nbytes = 4 * N

    def map_current(self, dependencies: object = ()) -> memoryview:
        return memoryview(bytearray(self.nbytes))

    def map_discard(self) -> memoryview:
        return memoryview(bytearray(self.nbytes))

    def unmap(self) -> Event:
        return tile_hal.CompletedEvent()


def _too_few(device: Device) -> list[Buffer]:
    return [ramp(device)]


def _too_many(device: Device) -> list[Buffer]:
    return [ramp(device)] * 3


def _small_input(device: Device) -> list[Buffer]:
    return [ramp(device), device.memory.allocate(4 * N - 1)]


def _small_output(device: Device) -> list[Buffer]:
    return [device.memory.allocate(0), ramp(device)]


def _strange(device: Device) -> list[Buffer]:
    return [ramp(device), Stranger()]


@pytest.mark.parametrize(
    "params", [_too_few, _too_many, _small_input, _small_output, _strange], ids=lambda f: f.__name__.strip("_")
)
def test_bad_parameters_are_refused(tile_device: Device, params: Callable[[Device], list[Buffer]]) -> None:
    kernel = build(tile_device, increment())
    with pytest.raises(TileDeviceError):
        kernel.run(params(tile_device)).wait()
    works(tile_device)


def test_a_written_buffer_may_not_be_read_only(tile_device: Device) -> None:
    frozen = tile_device.memory.wrap(memoryview(bytes(4 * N)))
    if frozen is None:
        pytest.skip("device does not wrap read-only memory")
    with pytest.raises(TileDeviceError):
        build(tile_device, increment()).run([frozen, ramp(tile_device)]).wait()
    out = ramp(tile_device)
    build(tile_device, increment()).run([out, frozen]).wait()
    assert download(out, F32).tolist() == [1.0] * N


@pytest.mark.compile_only
@pytest.mark.parametrize("broken", [samples.undeclared, samples.unknown_operation], ids=lambda f: f.__name__)
def test_a_malformed_kernel_fails_to_build(tile_device: Device, broken: Callable[[Device], KernelList]) -> None:
    """In `build`, or in `prepare` where compiling goes on in the background; with an error that says so."""
    with pytest.raises((TileError, TileInternalError)):
        tile_device.executor.prepare(tile_device.compiler.build(broken(tile_device)), 0)
    build(tile_device, increment())


@pytest.mark.compile_only
@pytest.mark.parametrize("index", [-1, 1, 1000])
def test_there_is_no_such_kernel(tile_device: Device, index: int) -> None:
    if not tile_device.capabilities.executes:
        pytest.skip("compile-only device")
    library = tile_device.compiler.build(kernel_list(tile_device, increment()))
    with pytest.raises(TileDeviceError):
        tile_device.executor.prepare(library, index)


def test_a_library_of_another_device_is_refused(tile_device: Device) -> None:
    class Foreign(tile_hal.Library):
        pass

    with pytest.raises(TileDeviceError):
        tile_device.executor.prepare(Foreign(), 0)


@pytest.mark.compile_only
def test_a_compile_only_device_says_so(tile_device: Device) -> None:
    if tile_device.capabilities.executes:
        pytest.skip("device executes")
    kernel = build(tile_device, increment())
    with pytest.raises(TileDeviceError) as caught:
        kernel.run([ramp(tile_device), ramp(tile_device)]).wait()
    assert all(d.hint for d in caught.value.diagnostics)


def test_errors_do_not_stick(tile_device: Device) -> None:
    kernel, gate = build(tile_device, increment()), Gate()
    buffers = [ramp(tile_device), ramp(tile_device)]
    gate.fail("lost")
    failed = kernel.run(buffers, [gate])
    for _ in range(3):
        with pytest.raises(TileDeviceError, match="lost"):
            failed.wait()
    assert failed.done
    assert download(buffers[0], F32)[1] == 1
    kernel.run(buffers).wait()
    assert download(buffers[0], F32)[1] == 2
    works(tile_device)


def test_out_of_memory_is_survived(tile_device: Device) -> None:
    with pytest.raises(TileDeviceError):
        tile_device.memory.allocate(1 << 50)
    works(tile_device)


@pytest.mark.parametrize("fails", [False, True], ids=["succeed", "fail"])
def test_a_thousand_pending_events(tile_device: Device, fails: bool) -> None:
    if not tile_device.capabilities.is_async:
        pytest.skip("synchronous device")
    kernel, gate = build(tile_device, increment()), Gate()
    source, out = (upload(tile_device, np.zeros(N, np.float32)) for _ in range(2))
    event: Event = gate
    for _ in range(1000):
        event = kernel.run([out, source], [event])
        source, out = out, source
    tile_device.executor.flush()
    assert not event.done
    if fails:
        gate.fail("the first of a thousand")
        with pytest.raises(TileDeviceError, match="the first of a thousand"):
            event.wait()
        assert download(source, F32)[0] == download(out, F32)[0] == 0
    else:
        gate.open()
        event.wait()
        assert download(source, F32).tolist() == [1000.0] * N
    works(tile_device)


PATIENCE = 10.0
"""Seconds of work for a slow device, which gets fewer kernels."""


def test_two_thousand_kernels_without_a_wait(tile_device: Device) -> None:
    kernels = kernel_list(tile_device, increment())
    prepared = tile_hal.Prepared(tile_device, tile_device.compiler.build(kernels), kernels)
    source, outs = ramp(tile_device), [tile_device.memory.allocate(4 * N) for _ in range(4)]
    start = time.perf_counter()
    for out in outs:
        prepared.run([out, source]).wait()
    each = (time.perf_counter() - start) / len(outs)
    events = [prepared.run([outs[n % 4], source]) for n in range(max(200, min(2000, int(PATIENCE / each))))]
    tile_hal.join(events).wait()
    for out in outs:
        assert download(out, F32)[0] == 1


def test_buffers_may_be_dropped_while_in_use(tile_device: Device) -> None:
    kernels = kernel_list(tile_device, increment())
    prepared = tile_hal.Prepared(tile_device, tile_device.compiler.build(kernels), kernels)
    out, gate = ramp(tile_device), Gate()
    bindings = [out, ramp(tile_device)]
    started = Started(tile_device, lambda: prepared.run(bindings, [gate]))
    time.sleep(0.01)
    bindings.clear()
    gc.collect()
    scribbled = [upload(tile_device, np.full(N, 1e9, np.float32)) for _ in range(50)]
    gate.open()
    started.wait()
    assert download(out, F32).tolist() == [i + 1.0 for i in range(N)]
    assert len(scribbled) == 50


def test_events_may_be_dropped(tile_device: Device) -> None:
    kernel, source, out = build(tile_device, increment()), ramp(tile_device), ramp(tile_device)
    for _ in range(100):
        kernel.run([out, source])
    last = kernel.run([out, source])
    assert download(out, F32, [last])[0] == 1


def concurrently(count: int, work: Callable[[int], None]) -> None:
    """Run `work(0..count-1)` at once; the first error of any."""
    errors: list[Exception] = []

    def guarded(number: int) -> None:
        try:
            work(number)
        except Exception as problem:
            errors.append(problem)

    threads = [threading.Thread(target=guarded, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_threads_share_a_kernel(tile_device: Device) -> None:
    kernel = build(tile_device, increment())

    def work(number: int) -> None:
        source, out = upload(tile_device, np.full(N, number, np.float32)), ramp(tile_device)
        for _ in range(50):
            kernel.run([out, source]).wait()
            assert download(out, F32).tolist() == [number + 1.0] * N

    concurrently(4, work)


def test_threads_compile_at_once(tile_device: Device) -> None:
    def work(number: int) -> None:
        for step in range(3):
            by = float(number * 10 + step)
            got = launch(tile_device, increment(by=by), [np.zeros(N, np.float32), np.zeros(N, np.float32)])[0]
            assert got.tolist() == [by] * N

    concurrently(8, work)


def test_threads_share_a_kernel_list_with_temporaries(tile_device: Device) -> None:
    kernels = chain(tile_device)
    prepared = tile_hal.Prepared(tile_device, tile_device.compiler.build(kernels), kernels)

    def work(number: int) -> None:
        source, out = upload(tile_device, np.full(N, number, np.float32)), ramp(tile_device)
        for _ in range(25):
            prepared.run([source, out]).wait()
            assert download(out, F32).tolist() == [2 * (number * 2.0 + 3)] * N

    concurrently(4, work)


@pytest.mark.takes("semtree")
def test_launches_at_once_have_private_arrays_of_their_own(tile_device: Device) -> None:
    """Each thread's kernel sums its input over and over in a private array, for as long as others may come between."""
    count, rounds = 512, 16
    kernel = build(tile_device, samples.private_sum(count, rounds))

    def work(number: int) -> None:
        source, out = (
            upload(tile_device, np.full(count, number + 1, np.int32)),
            upload(tile_device, np.zeros(count, np.int32)),
        )
        end = time.monotonic() + 0.2
        while True:
            kernel.run([out, source]).wait()
            assert download(out, DType.INT32).tolist() == [(number + 1) * (rounds + 1)] * count
            if time.monotonic() > end:
                return

    concurrently(4, work)


def test_a_kernel_outlives_its_library(tile_device: Device) -> None:
    kernel = build(tile_device, increment())
    gc.collect()
    others = [build(tile_device, increment(by=float(step))) for step in range(5)]
    source, out = ramp(tile_device), ramp(tile_device)
    kernel.run([out, source]).wait()
    assert download(out, F32).tolist() == [i + 1.0 for i in range(N)] and len(others) == 5


def test_libraries_that_are_gone_leave_no_files_mapped(tile_device: Device) -> None:
    maps = Path("/proc/self/maps")
    if not maps.exists():
        pytest.skip("this system does not list mapped files")

    def mapped() -> set[str]:
        return {line.partition("/")[2] for line in maps.read_text().splitlines() if "/" in line}

    build(tile_device, increment())
    before = mapped()
    for step in range(20):
        build(tile_device, increment(by=float(step) + 0.5))
    gc.collect()
    assert len(mapped() - before) < 10, "loaded libraries stay in memory when nothing uses them any more"


def test_many_small_libraries_come_and_go(tile_device: Device) -> None:
    for step in range(40):
        got = launch(tile_device, increment(by=float(step)), [np.zeros(N, np.float32), np.zeros(N, np.float32)])[0]
        assert got[0] == step


def test_an_interrupted_batch_leaves_the_device_usable(tile_device: Device) -> None:
    """The second step of a list is refused: the first has run, nothing hangs, the next submission works."""
    kernels = chain(tile_device)
    library = tile_device.compiler.build(kernels)
    source, out = ramp(tile_device), ramp(tile_device)
    small = tile_device.memory.allocate(4)
    with pytest.raises(TileDeviceError):
        tile_hal.submit(tile_device, library, kernels, {0: source, 1: small}).wait()
    tile_hal.submit(tile_device, library, kernels, {0: source, 1: out}).wait()
    assert download(out, F32).tolist() == [2 * (2.0 * i + 3) for i in range(N)]


def large_buffer(device: Device, count: int) -> Buffer:
    """Room for `count` int32; skips where there is none."""
    if device.memory.size_goal < 8 * count:
        pytest.skip("device has too little memory")
    try:
        return device.memory.allocate(4 * count)
    except TileDeviceError:
        pytest.skip("device has no buffers of two gigabytes")


LARGE = (1 << 29) + 64
"""Elements of four bytes whose offsets pass 2³¹ (64-bit addresses, 32-bit subscripts)."""


@pytest.mark.takes("semtree")
def test_integer_index_arithmetic_of_a_large_buffer(tile_device: Device) -> None:
    """Both ends are written, and nothing between."""
    buffer = large_buffer(tile_device, LARGE)
    item = function([param("x", DType.INT32, LARGE, Access.READWRITE)],
                    store("x", number(LARGE - 1), number(7)), store("x", number(0), number(5)))  # fmt: skip
    build(tile_device, item).run([buffer]).wait()
    view = buffer.map_current()
    assert view[-4:].tobytes() == np.int32(7).tobytes() and view[:4].tobytes() == np.int32(5).tobytes()
    view.release()
    buffer.unmap().wait()


def test_both_ends_of_a_large_buffer_are_read(tile_device: Device) -> None:
    buffer = large_buffer(tile_device, LARGE)
    view = buffer.map_discard()
    view[:4], view[-4:] = np.int32(5).tobytes(), np.int32(7).tobytes()
    view.release()
    buffer.unmap().wait()
    out = upload(tile_device, np.zeros(2, np.int32))
    build(tile_device, samples.both_ends(LARGE)).run([out, buffer]).wait()
    assert download(out, DType.INT32).tolist() == [5, 7]
