"""Level 2: copies, fills and kernels, and that dependency events really hold them back."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from tile_ir.diagnostics import TileDeviceError
from tile_ir.dtype import DType

import tile_hal
from tile_hal.conformance import samples
from tile_hal.conformance.buffers import download, upload
from tile_hal.conformance.gate import PATIENCE, Gate, Started
from tile_hal.conformance.kernels import build, kernel_list
from tile_hal.conformance.samples import N
from tile_hal.interfaces import Buffer, Device

F32 = DType.FLOAT32


def increment(device: Device) -> tile_hal.Kernel:
    """``out[i] = in[i] + 1``."""
    return build(device, samples.increment())


def ramp(device: Device, start: int = 0) -> Buffer:
    return upload(device, np.arange(start, start + N, dtype=np.float32))


def content(buffer: Buffer) -> list[float]:
    return download(buffer, F32).tolist()


@pytest.mark.parametrize("size", [0, 1, 100, 1 << 20])
def test_copy_and_fill(tile_device: Device, size: int) -> None:
    data = np.random.default_rng(1).integers(1, 256, size, dtype=np.uint8)
    source, target = upload(tile_device, data), tile_device.memory.allocate(size)
    tile_device.executor.copy(source, target).wait()
    assert bytes(target.map_current()) == data.tobytes()
    target.unmap().wait()
    event = tile_device.executor.fill(target)
    assert bytes(target.map_current([event])) == bytes(size)
    target.unmap().wait()
    assert bytes(source.map_current()) == data.tobytes()
    source.unmap().wait()


def test_copy_between_different_sizes_is_refused(tile_device: Device) -> None:
    small, large = tile_device.memory.allocate(8), tile_device.memory.allocate(16)
    with pytest.raises(TileDeviceError):
        tile_device.executor.copy(small, large).wait()


def test_events_stay_done_and_answer_every_thread(tile_device: Device) -> None:
    event = tile_device.executor.fill(tile_device.memory.allocate(1 << 16))
    results: list[tile_hal.Result] = []
    threads = [threading.Thread(target=lambda: results.append(event.wait())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert event.done and len(results) == 4
    assert event.wait() == results[0]


def test_kernel_runs_and_is_timed_when_asked(tile_device: Device) -> None:
    kernel, source, out = increment(tile_device), ramp(tile_device), ramp(tile_device)
    result = kernel.run([out, source], profile=True).wait()
    assert content(out) == [i + 1.0 for i in range(N)]
    assert result.seconds is not None and 0 <= result.seconds < 60


@pytest.mark.parametrize("what", ["kernel", "copy", "fill"])
def test_work_waits_for_its_dependency(tile_device: Device, what: str) -> None:
    kernel, executor = increment(tile_device), tile_device.executor
    source, out, gate = ramp(tile_device, 10), ramp(tile_device), Gate()
    run = {
        "kernel": lambda: kernel.run([out, source], [gate]),
        "copy": lambda: executor.copy(source, out, [gate]),
        "fill": lambda: executor.fill(out, [gate]),
    }[what]
    started = Started(tile_device, run)
    tile_device.executor.flush()
    time.sleep(PATIENCE)
    assert not started.done
    assert content(out) == [float(i) for i in range(N)], f"the {what} did not wait for its dependency"
    gate.open()
    started.wait()
    expected = {"kernel": 11.0, "copy": 10.0, "fill": 0.0}[what]
    assert content(out)[0] == expected


def test_all_dependencies_count(tile_device: Device) -> None:
    kernel, source, out = increment(tile_device), ramp(tile_device, 10), ramp(tile_device)
    gates = [Gate(), Gate(), Gate()]
    started = Started(tile_device, lambda: kernel.run([out, source], gates))
    for gate in gates:
        time.sleep(PATIENCE / 3)
        assert not started.done
        gate.open()
    started.wait()
    assert content(out)[0] == 11


def test_copy_of_an_output_waits_for_its_kernel(tile_device: Device) -> None:
    kernel, gate = increment(tile_device), Gate()
    source, out, saved = ramp(tile_device, 10), ramp(tile_device), ramp(tile_device)

    def both() -> tile_hal.Event:
        return tile_device.executor.copy(out, saved, [kernel.run([out, source], [gate])])

    started = Started(tile_device, both)
    time.sleep(PATIENCE)
    assert content(saved)[0] == 0
    gate.open()
    started.wait()
    assert content(saved) == [i + 11.0 for i in range(N)]


def test_map_current_waits_for_its_dependencies(tile_device: Device) -> None:
    kernel, gate = increment(tile_device), Gate()
    source, out = ramp(tile_device, 10), ramp(tile_device)
    threading.Timer(PATIENCE, gate.open).start()
    event = kernel.run([out, source], [gate])
    assert download(out, F32, [event])[0] == 11


def test_independent_work_overtakes_what_is_held_back(tile_device: Device) -> None:
    if not tile_device.capabilities.is_async:
        pytest.skip("synchronous device")
    kernel, gate = increment(tile_device), Gate()
    source, held, free = ramp(tile_device, 10), ramp(tile_device), ramp(tile_device)
    slow = kernel.run([held, source], [gate])
    fast = kernel.run([free, source])
    tile_device.executor.flush()
    fast.wait()
    assert content(free)[0] == 11 and not slow.done
    gate.open()
    slow.wait()
    assert content(held)[0] == 11


def test_a_long_chain_runs_in_order(tile_device: Device) -> None:
    kernel = build(tile_device, samples.halve_and_increment())
    source, out = (upload(tile_device, np.zeros(N, np.float32)) for _ in range(2))
    event, expected = None, 0.0
    for _ in range(30):
        event = kernel.run([out, source], [event] if event else [])
        source, out = out, source
        expected = expected * 0.5 + 1
    assert download(source, F32, [event] if event else [])[0] == np.float32(expected)


def test_a_failed_dependency_fails_the_work_without_running_it(tile_device: Device) -> None:
    kernel, gate = increment(tile_device), Gate()
    source, out = ramp(tile_device, 10), ramp(tile_device)
    first = Started(tile_device, lambda: kernel.run([out, source], [gate]))
    gate.fail("the test says so")
    with pytest.raises(TileDeviceError, match="the test says so"):
        first.wait()
    failed = Gate()
    failed.fail("already failed")
    for submit in (lambda: kernel.run([out, source], [failed]), lambda: tile_device.executor.fill(out, [failed])):
        with pytest.raises(TileDeviceError, match="already failed"):
            tile_device.executor.copy(out, source, [submit()]).wait()
    assert content(out) == [float(i) for i in range(N)]
    kernel.run([out, source]).wait()
    assert content(out)[0] == 11


def test_joined_events_are_dependencies(tile_device: Device) -> None:
    kernel = increment(tile_device)
    source, outs = ramp(tile_device), [ramp(tile_device, 9) for _ in range(3)]
    joined = tile_hal.join([kernel.run([out, source]) for out in outs])
    last = kernel.run([source, outs[2]], [joined])
    last.wait()
    assert content(source)[0] == 2 and [content(o)[0] for o in outs] == [1, 1, 1]


def test_submit_runs_a_kernel_list(tile_device: Device) -> None:
    kernels = kernel_list(tile_device, samples.increment())
    library = tile_device.compiler.build(kernels)
    source, out, gate = ramp(tile_device), ramp(tile_device, 5), Gate()
    started = Started(tile_device, lambda: tile_hal.submit(tile_device, library, kernels, {0: out, 1: source}, [gate]))
    time.sleep(PATIENCE)
    assert content(out)[0] == 5
    gate.open()
    started.wait()
    assert content(out)[:3] == [1, 2, 3]
