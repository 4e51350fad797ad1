"""The README's first command does what it says (on a small convolution)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from stack import ROOT

pytest.importorskip("PIL", reason="the demo saves pictures by Pillow")


def test_demo(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "integration" / "examples" / "demo.py"), "--small", "--output", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    for words in ("GFLOP/s", "llvm:0", "every answer agrees with NumPy", "cumulative sum", "optimize"):
        assert words in done.stdout
    assert [p.name for p in sorted(tmp_path.glob("*.png"))] == [
        "0-photograph.png", "1-blurred.png", "2-edges.png", "3-pooled.png",
    ]  # fmt: skip


def test_a_wrong_answer_fails_the_demo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import convolution
    import demo

    monkeypatch.setattr(demo, "TOLERANCE", -1.0)
    assert convolution.FULL == (32, 224, 224, 64)
    assert demo.main(["--small", "--output", str(tmp_path)]) == 1
