"""Tile functions over dask arrays: dask arrays in, dask arrays out.

    import tile_dask
    y = tile_dask.apply(conv, d, k)      # lazy; y.compute(), y.persist(), y.visualize() as ever

Which cells of neighbouring chunks a chunk needs, and which partial results are combined and how, follows from the
subscripts of the function, exactly. Importing this package opens no device, and dask only when it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tile_dask.applying import apply as apply
    from tile_dask.applying import partition as partition
    from tile_dask.persisting import persist as persist

__version__ = "0.1.0"

__all__ = ["apply", "partition", "persist"]
_MODULES = {"apply": "applying", "partition": "applying", "persist": "persisting"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"tile_dask.{_MODULES[name]}"), name)
    return value
