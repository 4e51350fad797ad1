"""One server for all tests of a session."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from client import Editor


@pytest.fixture(scope="session")
def editor() -> Iterator[Editor]:
    editor = Editor()
    yield editor
    assert editor.close() == 0
