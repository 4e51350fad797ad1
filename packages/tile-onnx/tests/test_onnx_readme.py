"""The README's examples run as printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest


def test_the_examples_run(capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    examples = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(examples) == 2
    for code in examples:
        exec(compile(code, "README.md", "exec"), {"__name__": "readme"})
    assert "A program of 1 kernel" in capsys.readouterr().out
