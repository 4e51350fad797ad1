"""Persisting what `apply` gave, where it was made."""

from __future__ import annotations

from typing import Any, cast

import dask.array
import dask.base
from dask.highlevelgraph import HighLevelGraph

from tile_dask.graph import Results

da = cast("Any", dask.array)
dask_persist = cast("Any", dask.base.persist)  # pyright: ignore[reportUnknownMemberType]


def persist(*arrays: Any, **options: Any) -> Any:
    """`dask.persist(*arrays, **options)`, where chunks that `apply` gave stay in the memory of the devices that make them.

    What is applied to them next finds them there. Whoever else asks for such a chunk gets a NumPy array, which comes from the
    device then. Tasks are over when their work is on its way to the device: what fails there is raised where a chunk is asked for.
    One array, or as many as there are arguments.
    """
    kept = dask_persist(*map(_kept, arrays), **options)
    found = tuple(_shown(array, there) for array, there in zip(arrays, kept, strict=True))
    return found[0] if len(found) == 1 else found


def _kept(array: Any) -> Any:
    """What a result is a view of: its chunks where they are made; any other collection itself."""
    layer = results(array)
    return array if layer is None else da.Array(array.dask, layer.kept, array.chunks, meta=array._meta)


def _shown(array: Any, kept: Any) -> Any:
    """The result over what is kept of it."""
    layer = results(array)
    if layer is None:
        return kept
    needs = {**kept.dask.dependencies, array.name: {kept.name}}
    graph = HighLevelGraph({**kept.dask.layers, array.name: layer}, needs)
    return da.Array(graph, array.name, array.chunks, meta=array._meta)


def results(array: Any) -> Results | None:
    """The last layer of a result of ours whose chunks may be on a device."""
    known = isinstance(array, da.Array) and isinstance(array.dask, HighLevelGraph)
    layer = array.dask.layers.get(array.name) if known else None
    return layer if isinstance(layer, Results) and layer.kept is not None else None
