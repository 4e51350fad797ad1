"""The README's example runs as printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    examples = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert examples
    names = {"__name__": "readme"}  # the later ones go on where the first ended
    for code in examples:
        exec(compile(code, "README.md", "exec"), names)
    assert "Kernel" in capsys.readouterr().out
