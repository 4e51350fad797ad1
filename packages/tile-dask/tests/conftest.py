"""A kernel cache of its own for each session; dask's plain scheduler unless a test asks for another; the compiler's random programs."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from tempfile import mkdtemp

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tile-opt" / "tests"))
sys.path.insert(0, str(Path(__file__).parent))
os.environ["TILE_CACHE_DIR"] = mkdtemp(prefix="kernels")

import dask

dask.config.set(scheduler="synchronous")  # pyright: ignore[reportUnknownMemberType]
