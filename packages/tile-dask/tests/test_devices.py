"""A device for each worker: two of one machine, as two graphics processors would be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask.array
import distributed
import numpy as np
import pytest
import tile_dask
import tile_runtime as tile
from functions import BLUR, MATMUL, numbers

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
        if not all("opencl:1" in ids for ids in client.run(_ids()).values()):
            pytest.skip("no two OpenCL devices: pip install pocl-binary-distribution")
        yield client


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
