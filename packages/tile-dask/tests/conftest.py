"""A kernel cache of its own for each session; dask's plain scheduler unless a test asks for another."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from tempfile import mkdtemp

sys.path.insert(0, str(Path(__file__).parent))
os.environ["TILE_CACHE_DIR"] = mkdtemp(prefix="kernels")

import dask

dask.config.set(scheduler="synchronous")  # pyright: ignore[reportUnknownMemberType]
