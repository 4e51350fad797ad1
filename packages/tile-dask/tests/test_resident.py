"""Chunks stay in the memory of a device that has its own: what goes there and comes back is counted."""

from __future__ import annotations

import pickle
from typing import Any

import dask.array
import numpy as np
import pytest
import tile_dask
import tile_runtime as tile
from functions import BLUR, numbers
from tile_dask import graph
from tile_dask.boxes import Piece, Read
from tile_dask.resident import Resident, boxes, with_room
from tile_hal.errors import Code, device_error
from tile_hal.host import HostEvent
from tile_ir.diagnostics import TileDeviceError
from tile_runtime import hazards

da: Any = dask.array
X = numbers(24, 16)
EDGES = 2 * 16 * 4
"""Bytes of the rows on either side of the border between its two chunks."""


@pytest.fixture(scope="module")
def device() -> Any:
    """PoCL's, whose memory is the host's, but not NumPy's."""
    found = {d.id: d for d in tile.devices()}.get("opencl:0")
    if found is None:
        pytest.skip("no OpenCL device: pip install pocl-binary-distribution")
    return found


@pytest.fixture
def moved(device: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Bytes that were written to the device and read from it; every edge is a task of its own."""
    monkeypatch.setattr(graph, "THIN", 0)
    counts = {"there": 0, "back": 0}
    read, write = device.memory.read, device.memory.write

    def counted(what: str, transfer: Any) -> Any:
        def move(buffer: Any, *rest: Any) -> Any:
            counts[what] += buffer.nbytes
            return transfer(buffer, *rest)

        return move

    monkeypatch.setattr(device.memory, "read", counted("back", read))
    monkeypatch.setattr(device.memory, "write", counted("there", write))
    return counts


def test_between_steps_nothing_leaves_the_device(moved: dict[str, int]) -> None:
    """The array goes there once, with its edges; of what steps make nothing comes back, as there are no other workers, but the result."""
    y = tile_dask.apply(BLUR, da.from_array(X, (12, 16)), steps=5, exchange=1, device="opencl:0")
    found, want = y.compute(), X
    for _ in range(5):
        want = BLUR(want)
    np.testing.assert_array_equal(found, want)
    assert type(found) is np.ndarray
    assert moved == {"there": X.nbytes + EDGES, "back": X.nbytes}


def test_between_functions_neither(moved: dict[str, int]) -> None:
    """Unless the first one's result is asked for itself; it is an array then."""
    y = tile_dask.apply(BLUR, da.from_array(X, (12, 16)), device="opencl:0")
    z = tile_dask.apply(BLUR, y, device="opencl:0")
    np.testing.assert_array_equal(z.compute(), BLUR(BLUR(X)))
    assert moved["back"] == X.nbytes
    both = dask.compute(y, z)  # type: ignore[attr-defined]
    assert moved["back"] == 3 * X.nbytes and [type(a) for a in both] == [np.ndarray] * 2


def test_what_is_persisted_stays_on_the_device(moved: dict[str, int]) -> None:
    """It and what is applied to it next: nothing comes back until somebody asks for cells."""
    x = tile_dask.apply(BLUR, da.from_array(X, (12, 16)), device="opencl:0")
    x, plain = tile_dask.persist(x, da.from_array(X, (12, 16)) + 1)
    assert moved == {"there": X.nbytes + EDGES, "back": 0}
    y = tile_dask.persist(tile_dask.apply(BLUR, x, steps=2, exchange=1, device="opencl:0"))
    assert moved == {"there": X.nbytes + EDGES, "back": 0}
    np.testing.assert_array_equal(y.compute(), BLUR(BLUR(BLUR(X))))
    np.testing.assert_array_equal(plain.compute(), X + 1)
    np.testing.assert_array_equal((x[:3] + y[:3]).compute(), (BLUR(X) + BLUR(BLUR(BLUR(X))))[:3])
    assert moved["there"] == X.nbytes + EDGES and type(y.compute()) is np.ndarray
    assert tile_dask.persist(y).dask.layers[y.name] is y.dask.layers[y.name]


@pytest.fixture
def resident(device: Any) -> Resident:
    return Resident(tile.asarray(X, device), "in chunk (0, 0) of blur, Y")


def test_a_pickle_and_numpy_see_an_array(resident: Resident) -> None:
    """By a pickle of protocol 5 without a copy of its bytes."""
    buffers: list[pickle.PickleBuffer] = []
    sent = pickle.dumps(resident, protocol=5, buffer_callback=buffers.append)
    assert len(sent) < X.nbytes == buffers[0].raw().nbytes
    for array in (pickle.loads(sent, buffers=buffers), np.asarray(resident)):
        assert type(array) is np.ndarray
        np.testing.assert_array_equal(array, X)


def test_dask_reckons_with_all_of_its_bytes(resident: Resident) -> None:
    from dask.sizeof import sizeof

    assert X.nbytes <= sizeof(resident) < X.nbytes + 200


def test_boxes_are_put_together_of_what_is_there_and_what_is_brought(device: Any, resident: Resident) -> None:
    """A part of a chunk on the device, beside a part of one that is not, and a chunk that has left it."""
    away = Resident(tile.asarray(2 * X, device), "")
    away.leave()
    pieces = (
        Piece((slice(0, 3), slice(0, 5)), (slice(20, 23), slice(4, 9))),
        Piece((slice(3, 5), slice(0, 5)), (slice(1, 3), slice(0, 5))),
        Piece((slice(5, 29), slice(0, 5)), (slice(0, 24), slice(11, 16))),
    )
    read = Read((29, 5), np.dtype("f4"), pieces)
    (box,) = boxes([read], [resident, 3 * X, away], device)
    np.testing.assert_array_equal(box.numpy(), np.concatenate([X[20:23, 4:9], 3 * X[1:3, :5], 2 * X[:, 11:]]))
    (whole,) = boxes([Read(X.shape, X.dtype, (Piece(pieces[0].into, None),))], [resident], device)
    assert whole is resident.on(device)


def test_where_the_devices_memory_is_out_chunks_leave_it(device: Any) -> None:
    chunks = [Resident(tile.asarray(n * X, device), "") for n in range(4)]
    tries: list[int] = []

    def work() -> str:
        tries.append(sum(chunk.on(device) is not None for chunk in chunks))
        if tries[-1] > 1:
            raise device_error(Code.MEMORY, "out of memory")
        return "done"

    assert with_room(device, work) == "done"
    assert tries[0] == 4 and tries[-1] <= 1 and tries == sorted(tries, reverse=True)
    for n, chunk in enumerate(chunks):
        np.testing.assert_array_equal(np.asarray(chunk), n * X)


def test_where_nothing_can_leave_it_is_an_error(device: Any) -> None:
    def work() -> None:
        raise device_error(Code.MEMORY, "out of memory")

    with pytest.raises(TileDeviceError, match="out of memory"):
        with_room(device, work)


def test_memory_for_what_is_being_made_is_made_ready(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the device works; what is there already needs none before it is read."""
    ready: list[int] = []
    work = HostEvent()
    chunk = tile.asarray(np.arange(1 << 17, dtype=np.float32), device).wait()
    monkeypatch.setattr(device.memory, "prepare", lambda into: (ready.append(into.nbytes), work.set()))  # type: ignore[misc]
    np.asarray(Resident(chunk, ""))
    assert not ready
    hazards.enter(work, (), (chunk,))
    np.testing.assert_array_equal(np.asarray(Resident(chunk, "")), np.arange(1 << 17))
    assert ready == [1 << 19]


def test_work_that_fails_later_names_its_chunk(resident: Resident, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: Any) -> Any:
        raise device_error(Code.EXECUTION, "the device reports a failure")

    monkeypatch.setattr(tile.Tensor, "numpy", fails)
    with pytest.raises(TileDeviceError) as caught:
        np.asarray(resident)
    assert caught.value.__notes__ == ["in chunk (0, 0) of blur, Y"]


def test_edges_are_brought_before_chunks(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind one they would wait for the chunks of other tasks, too."""
    sizes: list[int] = []
    write = device.memory.write

    def counted(buffer: Any, data: memoryview) -> Any:
        sizes.append(data.nbytes)
        return write(buffer, data)

    monkeypatch.setattr(device.memory, "write", counted)
    parts = [np.full(n, n, np.float32) for n in (2, 40, 3)]
    pieces = tuple(Piece((slice(a, b),), None) for a, b in ((0, 2), (2, 42), (42, 45)))
    (box,) = boxes([Read((45,), np.dtype(np.float32), pieces)], parts, device)
    np.testing.assert_array_equal(box.numpy(), np.concatenate(parts))
    assert sizes == [8, 12, 160]
