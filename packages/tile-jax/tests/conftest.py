"""The platform `tile` with several devices, beside JAX's own CPU; a kernel cache of its own for each session."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from tempfile import mkdtemp

sys.path.insert(0, str(Path(__file__).parent))

DEVICES = ("llvm", "llvm", "interp", "sample")
os.environ["TILE_JAX_DEVICES"] = ",".join(DEVICES)
os.environ["TILE_CACHE_DIR"] = mkdtemp(prefix="kernels")
os.environ.pop("JAX_PLATFORMS", None)

import tile_jax  # noqa: E402

tile_jax.register()
