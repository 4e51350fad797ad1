"""Level 3, direct calls: a device that offers them gives what the ordinary way gives, and refuses all other arrays."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tile_ir.dtype import DType
from tile_ir.kernels import BufferInfo, BufferKind, KernelList, Step, StepKind

import tile_hal
from tile_hal.conformance import samples
from tile_hal.conformance.kernels import kernel_list, kernel_of
from tile_hal.conformance.samples import N
from tile_hal.interfaces import Device, Direct, DirectArray, Holder

Array = npt.NDArray[Any]
F32 = DType.FLOAT32
READ, WRITTEN = DirectArray((N,), F32), DirectArray((N,), F32, written=True)


def direct(device: Device, kernels: KernelList, arrays: list[DirectArray], buffers: list[int | None]) -> Direct:
    prepared = tile_hal.Prepared(device, device.compiler.build(kernels), kernels)
    found = prepared.direct(arrays, buffers)
    if found is None:
        pytest.skip("device has no direct calls")
    return found


def total(device: Device) -> Direct:
    """``out = in0 + in1``, called with in0, in1, out."""
    return direct(device, kernel_list(device, samples.total()), [READ, READ, WRITTEN], [1, 2, 0])


def ramp(start: int = 0) -> Array:
    return np.arange(start, start + N, dtype=np.float32)


def test_temporaries_and_constants(tile_device: Device) -> None:
    call = direct(tile_device, samples.chain(tile_device), [READ, WRITTEN], [0, 1])
    gc.collect()  # the function is all that is left of the program
    for start in range(5):
        out = np.zeros(N, np.float32)
        assert call.run(ramp(start), out) is True
        np.testing.assert_array_equal(out, 4 * ramp(start) + 6)


def test_arrays_that_no_kernel_reads_are_checked_all_the_same(tile_device: Device) -> None:
    kernels = kernel_list(tile_device, samples.double())
    call = direct(tile_device, kernels, [READ, DirectArray((3, 2), F32), WRITTEN], [1, None, 0])
    out = np.zeros(N, np.float32)
    assert call.run(ramp(), np.zeros((2, 3), np.float32), out) is False
    assert not out.any()
    assert call.run(ramp(), np.zeros((3, 2), np.float32), out) is True
    np.testing.assert_array_equal(out, 2 * ramp())


def test_fills_and_copies(tile_device: Device) -> None:
    """``t = in0 + in1; copied = t; cleared = 0``."""
    kinds = [BufferKind.TEMP, BufferKind.INPUT, BufferKind.INPUT, BufferKind.OUTPUT, BufferKind.OUTPUT]
    buffers = tuple(BufferInfo(n, f"b{n}", kind, (N,), F32, 4 * N) for n, kind in enumerate(kinds))
    steps = (
        Step(StepKind.KERNEL, 0, (0, 1, 2)),
        Step(StepKind.COPY, buffers=(3, 0), deps=(0,)),
        Step(StepKind.FILL, buffers=(4,)),
    )
    kernels = KernelList((kernel_of(tile_device, samples.total()),), buffers, steps, tile_device.target)
    call = direct(tile_device, kernels, [READ, READ, WRITTEN, WRITTEN], [1, 2, 3, 4])
    copied, cleared = np.zeros(N, np.float32), np.ones(N, np.float32)
    assert call.run(ramp(), ramp(7), copied, cleared) is True
    np.testing.assert_array_equal(copied, ramp() + ramp(7))
    assert not cleared.any()


def _read_only(array: Array) -> Array:
    array = array.copy()
    array.flags.writeable = False
    return array


def _unaligned(array: Array) -> Array:
    raw = np.zeros(array.nbytes + 1, np.uint8)
    view = raw[1:].view(array.dtype)
    view[:] = array
    return view


NEITHER: dict[str, Callable[[Array], Any]] = {
    "strided": lambda a: np.repeat(a, 2)[::2],
    "reversed": lambda a: a[::-1],
    "broadcast": lambda a: np.broadcast_to(a[:1], a.shape),
    "unaligned": _unaligned,
    "byte-swapped": lambda a: a.astype(a.dtype.newbyteorder()),
    "another dtype": lambda a: a.astype(np.int32),
    "wider": lambda a: a.astype(np.float64),
    "another shape": lambda a: a[1:].copy(),
    "another rank": lambda a: a.reshape(1, -1),
    "0-d": lambda a: np.array(1, np.float32),
    "empty": lambda a: a[:0],
    "subclass": lambda a: a.view(np.ma.MaskedArray),
    "list": lambda a: a.tolist(),
    "number": lambda a: 1.0,
    "None": lambda a: None,
}  # fmt: skip


@pytest.mark.parametrize("kind", NEITHER)
def test_other_arrays_are_refused_and_nothing_is_changed(tile_device: Device, kind: str) -> None:
    call, fine, out = total(tile_device), ramp(), np.zeros(N, np.float32)
    for inputs in ((NEITHER[kind](ramp()), fine), (fine, NEITHER[kind](ramp()))):
        assert call.run(*inputs, out) is False
    assert not out.any()
    given = NEITHER[kind](ramp())
    assert call.run(fine, fine, given) is False
    assert np.array_equal(np.asarray(given), np.asarray(NEITHER[kind](ramp()))) or given is None


def test_written_arrays_are_writable_and_apart_from_all_others(tile_device: Device) -> None:
    call, memory = total(tile_device), np.zeros(3 * N, np.float32)
    a, between, b = memory[:N], memory[N - 1 : -N - 1], memory[-N:]
    for out in (_read_only(a), a, b, between):
        assert call.run(a, b, out) is False
    assert call.run(a, a, memory[N:-N]) is True  # next to both; inputs may be the same
    assert call.run(_read_only(a), b, memory[N:-N]) is True


class Held:
    __slots__ = ("array", "busy")

    def __init__(self, array: Array, busy: object = None) -> None:
        self.array, self.busy = array, busy


def test_what_holds_an_array_is_taken_or_refused(tile_device: Device) -> None:
    holder = Holder(Held, "array", (("busy", None),))
    arrays = [replace(a, holder=holder) for a in (READ, READ, WRITTEN)]
    call = direct(tile_device, kernel_list(tile_device, samples.total()), arrays, [1, 2, 0])
    out = np.zeros(N, np.float32)
    for given in ((Held(ramp(), 1), ramp(), out), (ramp(), ramp(), Held(out, 1)), (Held(out), ramp(), Held(out))):
        assert call.run(*given) is False
        assert not out.any()
    done = call.run(Held(ramp()), ramp(7), Held(out))
    np.testing.assert_array_equal(out, ramp() + ramp(7) if done else np.zeros(N))


@pytest.mark.parametrize("count", [0, 1, 2, 4])
def test_another_number_of_arrays_is_refused(tile_device: Device, count: int) -> None:
    call = total(tile_device)
    arrays = [ramp() for _ in range(count)]
    assert call.run(*arrays) is False
    assert all(np.array_equal(a, ramp()) for a in arrays)


def test_dtypes_that_are_equal_will_do(tile_device: Device) -> None:
    """Unpickled arrays have dtypes of their own."""
    own = np.dtype("f4", metadata={"mine": 1})
    call, out = total(tile_device), np.zeros(N, np.float32)
    assert call.run(ramp().astype(own), ramp().view(own), out) is True
    np.testing.assert_array_equal(out, 2 * ramp())


def test_many_threads_get_their_own_results(tile_device: Device) -> None:
    """A call may be refused while another thread is in it, never mixed up."""
    call = direct(tile_device, samples.chain(tile_device), [READ, WRITTEN], [0, 1])
    wrong: list[int] = []

    def work(number: int) -> None:
        for start in range(number, number + 200):
            out = np.zeros(N, np.float32)
            done = call.run(ramp(start), out)
            if not np.array_equal(out, 4 * ramp(start) + 6 if done else np.zeros(N)):
                wrong.append(start)

    threads = [threading.Thread(target=work, args=(1000 * n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
