"""The page on loops: its examples run, and come to what it says."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from stack import ROOT


def test_the_examples_of_the_page_run() -> None:
    text = (ROOT / "docs" / "loops.md").read_text("utf-8")
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(block, "docs/loops.md", "exec"), names)
    rows = names["signal"]
    average = np.zeros(8, np.float32)
    for row in rows:
        average = np.float32(0.9) * average + np.float32(0.1) * row
    np.testing.assert_allclose(names["last"], average, rtol=1e-5, atol=1e-6)
    assert names["slope"].shape == (64, 64) and np.abs(names["slope"]).max() > 0
