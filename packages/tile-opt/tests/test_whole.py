"""What an interrupt finds half imported is imported to its end."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest
from tile_opt.analysis.whole import loaded

SOURCE = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nDONE = sum(range(100_000))\n"


def test_an_interrupt_does_not_reach_an_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "once_in_a_process.py").write_text(SOURCE)
    monkeypatch.setitem(sys.modules, "once_in_a_process", None)
    monkeypatch.delitem(sys.modules, "once_in_a_process")
    with pytest.raises(KeyboardInterrupt):
        loaded("once_in_a_process")
    for thread in [t for t in threading.enumerate() if t.name == "import once_in_a_process"]:
        thread.join()
    assert sum(range(100_000)) == loaded("once_in_a_process").DONE


def test_what_is_not_there_is_told() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_module_here"):
        loaded("no_such_module_here")
