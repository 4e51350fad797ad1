"""Tensors: mapping, conversion, and the order of work on them, on a device that takes its time."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
from typing import Any

import numpy as np
import pytest
import tile_hal
import tile_runtime as tile

STEP = tile.Function("function (A) -> (B) { B = A * 2 + 1; }")


@pytest.fixture(params=["interp", "llvm", "late", "opencl"])
def device(request: pytest.FixtureRequest, late: tile_hal.Device) -> Any:
    if request.param == "opencl" and not any(d.id == "opencl:0" for d in tile.devices()):
        pytest.skip("no OpenCL device here")
    return late if request.param == "late" else tile.device(request.param)


def test_calls_with_arrays_and_tensors(device: Any) -> None:
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    results = [STEP(v, device=device) for v in (a, a.T, a[:, ::-2], 2.5, a[:0])]
    gc.collect()  # results outlive the buffers they came from
    for got, value in zip(results, (a, a.T, a[:, ::-2], 2.5, a[:0]), strict=True):
        np.testing.assert_array_equal(got, np.multiply(value, 2) + 1)
    out = np.zeros((3, 2), np.float32)
    assert STEP(a.T, out=out, device=device) is out
    np.testing.assert_array_equal(out, a.T * 2 + 1)
    t = tile.asarray(a, device)
    for _ in range(5):
        t = STEP(t)
    assert t.device is tile.device(device)
    np.testing.assert_array_equal(t.numpy(), a * 32 + 31)


def test_mapping(device: Any) -> None:
    t = tile.Tensor(device, shape=(2, 3), dtype="float32")
    with t.mmap_discard() as view:
        view[:] = 1.0
    with t.mmap_current() as view:
        assert view.shape == (2, 3) and view.dtype == np.float32
        np.testing.assert_array_equal(view, 1)
        view[1] = 5
    np.testing.assert_array_equal(t.numpy(), [[1] * 3, [5] * 3])
    assert (t.size, t.nbytes, t.ndim, len(t)) == (6, 24, 2, 2)
    shown = "Tensor([[1., 1., 1.],\n        [5., 5., 5.]]"
    assert repr(t) == f"{shown}, shape=(2, 3), dtype=float32, device='{device.id}')"


@pytest.mark.parametrize(
    "value", [np.float64(3), np.zeros((0, 4), np.int8), np.arange(6).reshape(2, 3).T, [True, False]]
)
def test_conversions(value: Any) -> None:
    t = tile.asarray(value, device="interp")
    want = np.asarray(value)
    assert (t.shape, str(t.dtype)) == (want.shape, want.dtype.name)
    np.testing.assert_array_equal(t.numpy(), want)
    np.testing.assert_array_equal(np.asarray(t), want)
    assert np.asarray(t, np.float64).dtype == np.float64
    np.testing.assert_array_equal(np.from_dlpack(t), want)
    assert tile.asarray(t) is t
    moved = tile.asarray(t, device="llvm")
    assert moved.device.id == "llvm:0" and str(moved.dtype) == want.dtype.name
    np.testing.assert_array_equal(moved.numpy(), want)
    twin = copy.deepcopy(t)
    assert twin.buffer is not t.buffer
    np.testing.assert_array_equal(twin.numpy(), want)


def test_what_tensors_refuse() -> None:
    t = tile.Tensor("interp", (2,), "int8")
    with pytest.raises(TypeError, match=r"pickle tensor\.numpy\(\)"):
        pickle.dumps(t)
    with pytest.raises(ValueError, match="mmap_current"):
        np.array(t, copy=False)
    with pytest.raises(TypeError):
        len(tile.Tensor("interp", (), "int8"))


@pytest.mark.parametrize(
    ("shape", "dtype", "message"),
    [
        ((2, -1), "int8", "negative"), ((2.5,), "int8", "sequence of integers"), (3, "int8", "sequence of integers"),
        ((2,), "complex64", "complex64"), ((2,), "nonsense", "nonsense"), ((2,), object, "object"),
    ],
)  # fmt: skip
def test_bad_shapes_and_dtypes(shape: Any, dtype: Any, message: str) -> None:
    with pytest.raises(tile.TileTypeError, match=message):
        tile.Tensor("interp", shape, dtype)


def test_tensors_of_another_device_are_named() -> None:
    a, b = tile.Tensor("interp", (2,), "int8"), tile.Tensor("llvm", (2,), "int8")
    add = tile.Function("function (A, B) -> (C) { C = A + B; }")
    with pytest.raises(tile.TileDeviceError, match="tensor 'B' is on device llvm:0, the call runs on interp:0"):
        add(a, b)
    with pytest.raises(tile.TileDeviceError, match="tensor 'A' is on device interp:0"):
        add(a, np.zeros(2, np.int8), device="llvm")


def test_calls_return_before_the_work_is_done(late: Any) -> None:
    t = tile.asarray(np.zeros(3, np.float32), late)
    STEP(t).wait()
    results = [t := STEP(t) for _ in range(8)]
    assert results[-1].wait() is results[-1]
    np.testing.assert_array_equal(results[-1].numpy(), 255)
    np.testing.assert_array_equal(results[2].numpy(), 7)


def test_write_after_read_and_write_after_write(late: Any) -> None:
    a, b = (tile.asarray(np.full(4, v, np.float32), late) for v in (1, 10))
    out = tile.Tensor(late, (4,), "float32")
    for _ in range(3):
        STEP(a, out=out)  # reads a
        STEP(b, out=a)  # must not overwrite a before it is read
        STEP(a, out=b)
        STEP(out, out=tile.Tensor(late, (4,), "float32"))
        with a.mmap_discard() as view:
            view[:] = 1
        with b.mmap_discard() as view:
            view[:] = 10
        np.testing.assert_array_equal(out.numpy(), 3)


def test_dropped_tensors_stay_until_their_work_is_done(late: Any) -> None:
    t = tile.asarray(np.ones(1000, np.float32), late)
    for _ in range(4):
        t = STEP(t)
        gc.collect()
    np.testing.assert_array_equal(t.numpy(), 31)


def test_failures_reach_what_depends_on_them(late: Any) -> None:
    a = tile.asarray(np.ones(4, np.float32), late)
    STEP(a).wait()
    late.executor.queue.fail.set()
    try:
        broken = STEP(a)
        with pytest.raises(tile.TileDeviceError, match="broke"):
            broken.wait()
    finally:
        late.executor.queue.fail.clear()
    with pytest.raises(tile.TileDeviceError, match="broke"):
        STEP(broken).numpy()  # also when the failure is history
    np.testing.assert_array_equal(STEP(a).numpy(), 3)
    with broken.mmap_discard() as view:
        view[:] = 5
    np.testing.assert_array_equal(STEP(broken).numpy(), 11)
    STEP(a, out=broken)
    np.testing.assert_array_equal(broken.numpy(), 3)


@pytest.mark.parametrize("where", ["llvm", "late"])
def test_threads_that_share_tensors(late: Any, where: str) -> None:
    """Each thread turns one shared tensor by an exact step: a lost or torn update would show in the sum."""
    device = late if where == "late" else tile.device("llvm")
    shared = tile.asarray(np.ones(64, np.float32), device)
    bump = tile.Function("function (A) -> (B) { B = A + 1; }")
    seen: list[float] = []

    def work() -> None:
        for _ in range(5):
            value = bump(shared).numpy()
            assert (value == value[0]).all()
            seen.append(float(value[0]))

    def write() -> None:
        for n in range(5):
            bump(tile.asarray(np.full(64, n, np.float32), device), out=shared)

    threads = [threading.Thread(target=f) for f in (work, write, work, write)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 10 and set(seen) <= {float(n) for n in range(2, 8)}
