"""Environment variables that hold nonsense: an error of ours, or a program that runs; never a traceback."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import tile_runtime as tile
from tile_hal import discovery
from tile_hal.discovery import Registry, installed
from tile_ir.diagnostics import TileError
from tile_ir.settings import Settings

VARIABLES = sorted(set(re.findall(r"TILE_[A-Z]+(?:_[A-Z]+)*", inspect.getsource(Settings))))
NONSENSE = {
    "empty": "", "blank": " \t", "negative": "-1", "zero": "0", "long": "999999999.999999999", "huge": "9" * 400,
    "not finite": "1e9999", "not a number": "nan", "text": "text", "unicode": "ünïcode ☃ ٣", "not UTF-8": "\udcff\udc80",
    "file as a folder": "/dev/null/folder", "missing folder": "./no/such/folder", "too long a name": "x" * 5000,
    "NUL as text": "\\x00", "lines": "a\nb", "separators": ",;:,", "template": "{} %s%n $HOME",
}  # fmt: skip
SOURCE = "function (A[N]) -> (O) { O = A + 1; }"


def test_every_setting_has_its_variable() -> None:
    assert len(VARIABLES) >= len(Settings.__dataclass_fields__) - 1, "prove is a value of TILE_VERIFY"


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("variable", VARIABLES)
def test_nonsense_is_refused_or_harmless(variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for value in NONSENSE.values():
        monkeypatch.setattr(discovery, "_registry", Registry(installed))
        monkeypatch.setattr(sys.modules["tile_runtime.devices"], "_known", {})
        monkeypatch.setenv(variable, value)
        try:
            result = tile.Evaluator()(tile.Function(SOURCE), np.ones(7, np.float32))
        except TileError as refusal:
            str(refusal).encode()
            assert variable in str(refusal) or variable in ("TILE_DEVICE", "TILE_PLUGINS")
        else:
            assert (result == 2).all()
