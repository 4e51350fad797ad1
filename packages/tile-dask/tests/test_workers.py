"""On worker processes of dask's distributed scheduler."""

from __future__ import annotations

from collections.abc import Iterator
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
def client() -> Iterator[Any]:
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,  # type: ignore[no-untyped-call]
        distributed.Client(cluster) as client,  # type: ignore[no-untyped-call]
    ):
        yield client


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


def _retire(dask_scheduler: Any) -> None:
    """Take one worker's connection away."""
    worker = next(iter(dask_scheduler.workers))
    dask_scheduler.stream_comms[worker].abort()
