"""Tile functions over dask arrays: dask arrays in, dask arrays out.

    import tile_dask
    y = tile_dask.apply(conv, d, k)      # lazy; y.compute(), y.persist(), y.visualize() as ever

Which cells of neighbouring chunks a chunk needs, and which partial results are combined and how, follows from the
subscripts of the function, exactly. Importing this package opens no device.
"""

from __future__ import annotations

from tile_dask.apply import apply as apply
from tile_dask.apply import partition as partition

__version__ = "0.1.0"

__all__ = ["apply", "partition"]
