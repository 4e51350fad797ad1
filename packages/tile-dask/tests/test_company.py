"""Beside the libraries that dask arrays come from and go to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.array
import numpy as np
import tile_dask
import xarray
from functions import BLUR, numbers

da: Any = dask.array


def test_xarray_hands_over_dask_arrays() -> None:
    x = numbers(8, 6)
    data = xarray.DataArray(da.from_array(x, (4, 3)), dims=("row", "column"), coords={"row": np.arange(8)})
    found = xarray.apply_ufunc(lambda a: tile_dask.apply(BLUR, a), data, dask="allowed")
    assert found.chunks == ((4, 4), (3, 3))
    np.testing.assert_array_equal(found.compute().values, BLUR(x))
    assert list(found.coords) == ["row"]


def test_zarr_in_and_out_chunk_by_chunk(tmp_path: Path) -> None:
    x = numbers(8, 6)
    da.from_array(x, (4, 3)).to_zarr(str(tmp_path / "x"))
    tile_dask.apply(BLUR, da.from_zarr(str(tmp_path / "x"))).to_zarr(str(tmp_path / "y"))
    np.testing.assert_array_equal(da.from_zarr(str(tmp_path / "y")).compute(), BLUR(x))
