"""The README's Python examples run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_example_runs(block):
    exec(compile(block, "README.md", "exec"), {"__name__": "readme"})


def test_there_are_examples():
    assert len(BLOCKS) == 2
