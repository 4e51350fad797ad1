"""The programs of the documentation run."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[3] / "docs"
sys.path.insert(0, str(DOCS.parent / "integration"))


def program(page: str, title: str) -> str:
    """The code that a page calls by a title, or that begins with it."""
    text = (DOCS / page).read_text("utf-8")
    found = re.search(rf'```python title="{re.escape(title)}"\n(.*?)```', text, re.DOTALL)
    return found[1] if found else re.findall(r"```python\n(.*?)```", text, re.DOTALL)[int(title)]


def test_training_on_the_sample_plugin(capsys: pytest.CaptureFixture[str]) -> None:
    found: dict[str, Any] = {}
    exec(compile(program("on-your-chip.md", "train_jax.py"), "train_jax.py", "exec"), found)
    assert found["losses"][-1] < 0.5 * found["losses"][0]
    assert "sample:0" in capsys.readouterr().out


def test_the_first_program_of_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(program("jax.md", "0"), "jax.md", "exec"), {})
    assert capsys.readouterr().out.count("[") == 3


def test_examples_of_error_codes() -> None:
    from pages.mistakes import mistakes, said

    found = [m for m in mistakes() if m.framework == "jax"]
    assert len(found) == 3
    assert all(mistake.code in said(mistake) for mistake in found)
