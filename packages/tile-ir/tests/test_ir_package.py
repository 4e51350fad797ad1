"""The package as a whole: its README runs, its names resolve, and importing it is cheap."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import tile_ir
import tile_ir.stripe

README = Path(__file__).parents[1] / "README.md"


def test_the_readme_example_runs() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.S)
    exec(compile(code, str(README), "exec"), {})


@pytest.mark.parametrize("package", [tile_ir, tile_ir.stripe])
def test_every_public_name_resolves(package: object) -> None:
    for name in package.__all__:
        assert getattr(package, name) is not None
    assert not hasattr(package, "no_such_name")


def test_importing_the_data_model_imports_no_parser() -> None:
    modules = "tile_ir.stripe.interpret, tile_ir.stripe.printer, tile_ir.stripe.verify, tile_ir.stripe.parser, tile_ir.kernels"
    code = f"import sys, tile_ir, {modules}; print([m for m in ('lark', 'islpy', 'llvmlite', 'ml_dtypes') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_importing_the_package_imports_not_even_numpy() -> None:
    code = "import sys, tile_ir; print('numpy' in sys.modules, tile_ir.DType.INT8.bytes)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "1"]
