"""The pages' examples run as printed."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[3]
CHIP = ROOT / "docs" / "on-your-chip.md"
sys.path.insert(0, str(ROOT / "integration"))
PAGES = [Path(__file__).parents[1] / "README.md", ROOT / "docs" / "torch.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_the_examples_run(page: Path) -> None:
    examples = re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    assert examples
    for code in examples:
        torch._dynamo.reset()
        torch.manual_seed(0)
        exec(compile(code, page.name, "exec"), {"__name__": "example"})


def test_training_on_the_sample_plugin() -> None:
    found = re.search(r'```python title="train_torch.py"\n(.*?)```', CHIP.read_text("utf-8"), re.DOTALL)
    assert found
    values: dict[str, list[float]] = {}
    torch._dynamo.reset()
    exec(compile(found[1], "train_torch.py", "exec"), values)
    assert values["losses"][-1] < 0.8 * values["losses"][0]


def test_examples_of_error_codes() -> None:
    from pages.mistakes import mistakes, said

    found = [m for m in mistakes() if m.framework == "torch"]
    assert len(found) == 3
    for mistake in found:
        torch._dynamo.reset()
        assert mistake.code in said(mistake)
