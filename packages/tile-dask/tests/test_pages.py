"""The programs of the documentation run."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "integration"))


@pytest.mark.parametrize("page", ["docs/dask.md", "packages/tile-dask/README.md"])
def test_the_program_of_the_page(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text("utf-8"), re.DOTALL)
    exec(compile(program, page, "exec"), {})
    assert capsys.readouterr().out


def test_examples_of_error_codes() -> None:
    from pages.mistakes import mistakes, said

    found = [m for m in mistakes() if m.framework == "dask"]
    assert len(found) == 3
    assert all(mistake.code in said(mistake) for mistake in found)
