"""On worker processes of dask's distributed scheduler, and a device for each: two of one machine, as two graphics processors would be."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import dask
import dask.array
import distributed
import numpy as np
import pytest
import tile_dask
import tile_runtime as tile
from functions import BLUR, MATMUL, numbers
from tile_dask import work
from tile_dask.resident import Resident

da: Any = dask.array


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Two workers, each of which sees PoCL's processor as two devices."""
    cache: Path = tmp_path_factory.mktemp("pocl")
    env = {"POCL_DEVICES": "pthread pthread", "POCL_CACHE_DIR": str(cache)}
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, env=env) as cluster,  # type: ignore[no-untyped-call]
        distributed.Client(cluster) as client,  # type: ignore[no-untyped-call]
    ):
        yield client


# --- a device for each ----------------------------------------------------------------------------------


def _ids() -> Callable[[], list[str]]:
    """What gives the names of a worker's devices. Made here, as all that workers are sent, so that they get it by value."""
    return lambda: [device.id for device in tile.devices()]


def _own() -> Callable[[], str]:
    """What gives a worker's own device, and keeps a note of it there."""

    def own() -> str:
        import distributed

        worker = distributed.get_worker()
        device = f"opencl:{worker.name}"
        worker.devices = getattr(worker, "devices", set()) | {device}  # type: ignore[attr-defined]
        return device

    return own


@pytest.fixture(scope="module")
def two_devices(client: Any) -> None:
    if not all("opencl:1" in ids for ids in client.run(_ids()).values()):
        pytest.skip("no two OpenCL devices: pip install pocl-binary-distribution")


@pytest.mark.usefixtures("two_devices")
@pytest.mark.parametrize("number", [0, 1, None])
def test_every_worker_computes_on_its_own_device(client: Any, number: int | None) -> None:
    """One of the workers alone, then both."""
    found = {w["name"]: address for address, w in client.scheduler_info()["workers"].items()}
    workers = list(found.values()) if number is None else [found[number]]
    a, b = numbers(40, 40), numbers(40, 40, seed=1)
    x = da.from_array(a, (20, 40))
    y = tile_dask.apply(BLUR, x, steps=3, device=_own())
    c = tile_dask.apply(MATMUL, x, da.from_array(b, (20, 40)), device=_own())
    found_y, found_c = client.compute([y, c], workers=workers, sync=True)
    np.testing.assert_array_equal(found_y, BLUR(BLUR(BLUR(a))))
    np.testing.assert_array_equal(found_c, a @ b)
    if number is not None:
        used = client.run(_used(), workers=workers)
        assert used == {workers[0]: {f"opencl:{number}"}}


@pytest.mark.usefixtures("two_devices")
def test_persisted_chunks_are_applied_to_where_they_are(client: Any) -> None:
    """Several outputs, on both workers: pickles of persisted chunks are arrays, and what comes next finds them on their device."""
    a, b = numbers(40, 40), numbers(40, 40, seed=1)
    both = tile.Function("function (A[M, N], B[M, N]) -> (S, D) { S = A + B; D = A - B; }", name="both.tile")
    chunked = [da.from_array(v, (20, 40)) for v in (a, b)]
    total, less = tile_dask.persist(*tile_dask.apply(both, *chunked, device=_own()))
    assert len(total.dask) == 4
    y = tile_dask.persist(tile_dask.apply(BLUR, total, device=_own()))
    np.testing.assert_array_equal(y.compute(), BLUR(a + b))
    np.testing.assert_array_equal(less.compute(), a - b)


def _used() -> Callable[[Any], set[str]]:
    return lambda dask_worker: dask_worker.devices


# --- processes ------------------------------------------------------------------------------------------


def test_chunks_cross_processes(client: Any) -> None:
    x = numbers(40, 40)
    y = tile_dask.apply(BLUR, da.from_array(x, (10, 20)), steps=3)
    np.testing.assert_array_equal(client.compute(y).result(), BLUR(BLUR(BLUR(x))))


def test_a_workers_error_names_function_and_chunk(client: Any) -> None:
    y = tile_dask.apply(BLUR, da.zeros((8, 8), chunks=4, dtype="float32"), device="nowhere")
    with pytest.raises(tile.TileError, match="nowhere"):
        client.compute(y).result()


def test_a_worker_that_dies_costs_nothing_but_time(client: Any) -> None:
    a, b = numbers(20, 20), numbers(20, 20, seed=1)
    da_, db = client.persist([da.from_array(a, (10, 5)), da.from_array(b, (5, 10))])
    c = client.compute(tile_dask.apply(MATMUL, da_, db))
    client.run_on_scheduler(_retire)
    np.testing.assert_array_equal(c.result(timeout=60), a @ b)


def test_what_is_cancelled_leaves_the_workers_to_others(client: Any) -> None:
    x = da.random.default_rng(0).random((400, 400), chunks=20).astype("float32")
    going = client.compute(tile_dask.apply(BLUR, x, steps=20, exchange=1))
    going.cancel()
    with pytest.raises(CancelledError):
        going.result(timeout=60)
    y = numbers(8, 8)
    np.testing.assert_array_equal(client.compute(tile_dask.apply(BLUR, da.from_array(y, 4))).result(60), BLUR(y))


def test_chunks_that_memory_cannot_hold_go_to_disk_and_back(tmp_path: Path) -> None:
    """A worker that writes chunks to disk from 2 MB on."""
    limits = {"target": 0.002, "spill": False, "pause": False, "terminate": False}
    spill = {f"distributed.worker.memory.{what}": limit for what, limit in limits.items()}
    x = numbers(1200, 1200)
    with (
        dask.config.set({**spill, "temporary-directory": str(tmp_path)}),
        distributed.LocalCluster(1, processes=False, memory_limit="1GB", dashboard_address=None) as cluster,  # type: ignore[no-untyped-call]
        distributed.Client(cluster) as client,  # type: ignore[no-untyped-call]
    ):
        kept = client.persist(tile_dask.apply(BLUR, da.from_array(x, 600)))
        distributed.wait(kept)  # type: ignore[no-untyped-call]
        (worker,) = cluster.workers.values()
        assert len(worker.data.disk) > 0
        np.testing.assert_array_equal(tile_dask.apply(BLUR, kept).compute(), BLUR(BLUR(x)))


@pytest.mark.parametrize("what", ["edge", "result"])
def test_who_waits_for_a_device_leaves_the_thread_to_others(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker of one thread computes something else while an edge or a result is yet to be made, and then goes on as before."""
    over = threading.Event()
    monkeypatch.setattr(Resident, "part", lambda self, part: self)  # pyright: ignore[reportUnknownLambdaType]
    monkeypatch.setattr(Resident, "ready", property(lambda _: over.is_set()))  # pyright: ignore[reportUnknownLambdaType]
    monkeypatch.setattr(Resident, "copied", lambda _: over.wait(60))  # pyright: ignore[reportUnknownLambdaType]
    monkeypatch.setattr(Resident, "__array__", lambda *_: np.array(over.wait(60)))  # pyright: ignore[reportUnknownLambdaType]
    monkeypatch.setattr(work, "held", Resident(tile.asarray([1.0]), "in chunk"), raising=False)
    tasks: dict[str, Any] = {
        "edge": lambda: work.edge(work.held, (slice(0, 1),)),  # type: ignore[attr-defined]
        "result": lambda: work.result(work.held),  # type: ignore[attr-defined]
    }
    with (
        distributed.LocalCluster(1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,  # type: ignore[no-untyped-call]
        distributed.Client(cluster) as client,  # type: ignore[no-untyped-call]
    ):
        waiting: Any = client.submit(tasks[what])
        assert client.submit(lambda: "other", pure=False).result(60) == "other" and not waiting.done()
        over.set()
        assert waiting.result(60) and client.submit(lambda: "then", pure=False).result(60) == "then"


def test_edges_come_to_the_hosts_memory_for_other_workers_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks read an edge where the chunk beside it is: on the same worker, nobody waits for it or copies it."""
    copies: list[Resident] = []
    monkeypatch.setattr(Resident, "part", lambda self, part: self)  # pyright: ignore[reportUnknownLambdaType]
    monkeypatch.setattr(Resident, "copied", lambda self: copies.append(self))  # pyright: ignore[reportUnknownLambdaType]
    monkeypatch.setattr(work, "held", Resident(tile.asarray([1.0]), "in chunk"), raising=False)

    def cut(beside: str) -> bool:
        return work.edge(work.held, (slice(0, 1),), [beside]) is work.held  # type: ignore[attr-defined]

    with (
        distributed.LocalCluster(n_workers=2, processes=False, dashboard_address=None) as cluster,  # type: ignore[no-untyped-call]
        distributed.Client(cluster) as client,  # type: ignore[no-untyped-call]
    ):
        one, other = [worker.address for worker in cluster.workers.values()]
        chunks = [client.submit(int, key=f"on {at}", workers=[at]) for at in (one, other)]
        distributed.wait(chunks)  # type: ignore[no-untyped-call]
        assert client.submit(cut, f"on {one}", workers=[one]).result(60) and not copies
        assert not client.submit(cut, f"on {other}", workers=[one]).result(60) and len(copies) == 1


def _retire(dask_scheduler: Any) -> None:
    """Take one worker's connection away."""
    worker = next(iter(dask_scheduler.workers))
    dask_scheduler.stream_comms[worker].abort()
