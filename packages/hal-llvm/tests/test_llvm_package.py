"""The README's example runs, and importing the plugin loads no LLVM."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_readme_example() -> None:
    text = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert "[0.0067" in run(example)


def test_plugin_is_found_without_loading_llvm() -> None:
    code = "import sys, hal_llvm.plugin, tile_hal; print(hal_llvm.plugin.tile_hal_driver().name, 'llvmlite' in sys.modules)"
    assert run(code) == "llvm False\n"


def test_doctor_names_the_processor() -> None:
    lines = run("from hal_llvm.driver import LlvmDriver; print(*LlvmDriver().doctor())")
    assert "LLVM" in lines and "dot products" in lines
