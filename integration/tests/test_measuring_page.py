"""The page on time and memory: its examples run."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest
from stack import ROOT


def test_the_examples_of_the_page_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TILE_DEVICE", "llvm")
    caplog.set_level(logging.INFO, "tile")
    text = (ROOT / "docs" / "measuring.md").read_text("utf-8")
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(block, "docs/measuring.md", "exec"), names)
    assert json.loads(Path("trace.json").read_text())["traceEvents"]
    assert "'layer' for llvm:0 is not in the disk cache: what is stored differs in types" in caplog.messages
