"""The programs of the documentation run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("page", ["docs/dask.md", "packages/tile-dask/README.md"])
def test_the_program_of_the_page(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text("utf-8"), re.DOTALL)
    exec(compile(program, page, "exec"), {})
    assert capsys.readouterr().out
