"""The page of operations lists what there is, no more and no less, as it runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[1] / "tools" / "operations.py"


@pytest.mark.skipif(not TOOL.exists(), reason="the page is part of the repository, not of the package")
def test_the_page_is_what_there_is() -> None:
    done = subprocess.run([sys.executable, str(TOOL), "--check"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"run {TOOL.name}: {done.stderr}"
