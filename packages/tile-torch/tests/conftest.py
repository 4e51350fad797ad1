"""Test modules import the helper modules beside them; a kernel cache of its own for each session."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True, scope="session")
def private_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("kernels")
    patch = pytest.MonkeyPatch()
    patch.setenv("TILE_CACHE_DIR", str(folder))
    patch.delenv("TILE_DEVICE", raising=False)
    yield folder
    patch.undo()
