"""The run of all checks ends, whatever its sessions do."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="groups of processes")
ROOT = Path(__file__).parents[2]
CHILD = "import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])"
HANGS = f"{CHILD}; print(child.pid, flush=True); import faulthandler, time; faulthandler.enable(); time.sleep(600)"
LEAVES = f"{CHILD}; print(child.pid)"


def dev(name: str = "dev") -> Any:
    """A module of the repository's root."""
    spec = importlib.util.spec_from_file_location(name, ROOT / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def ended(code: str, monkeypatch: pytest.MonkeyPatch, **limits: float) -> tuple[int, str]:
    """Exit code and output of a session that is Python `code`, under other limits."""
    run = dev()
    monkeypatch.setattr(run, "FAREWELL", 0.5)
    monkeypatch.setattr(run, "SESSION", limits.get("session", 600.0))
    monkeypatch.setattr(run, "_command", lambda *_: [sys.executable, "-c", code])  # pyright: ignore
    done = run._session("tests(it)", [], time.monotonic() + limits.get("whole", 600.0))
    return done.returncode, done.stdout


def runs(pid: int) -> bool:
    """Whether the process is there and no zombie, now and for some time."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        stat = Path(f"/proc/{pid}/stat")
        if not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] in "ZX":
            return False
        time.sleep(0.02)
    return True


def test_a_session_that_hangs_is_ended_with_all_that_it_started(monkeypatch: pytest.MonkeyPatch) -> None:
    status, said = ended(HANGS, monkeypatch, session=5.0)
    assert status == 124
    assert "-s tests(it): not through in time, and ended" in said
    assert "Current thread" in said  # where it was
    assert not runs(int(said.split()[0]))


def test_no_session_goes_on_when_the_whole_run_has_had_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ended(HANGS, monkeypatch, whole=0.0)[0] == 124


def test_what_a_session_leaves_behind_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    status, said = ended(LEAVES, monkeypatch)
    assert status == 0
    assert not runs(int(said))


def test_a_session_that_fails_says_what_repeats_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sessions' file with another nox, which need not be here."""

    class Failed(Exception):
        pass

    monkeypatch.setitem(sys.modules, "nox", MagicMock())
    monkeypatch.setitem(sys.modules, "nox.command", SimpleNamespace(CommandFailed=Failed))
    session = MagicMock(posargs=["-k", "scan or fold"])
    session.name = "tests(tile-opt)"
    session.run.side_effect = Failed
    with pytest.raises(Failed):
        dev("noxfile").repeatable(lambda s: s.run("pytest"))(session)
    session.warn.assert_called_once_with("to repeat it: python3 dev.py 'tests(tile-opt)' -k 'scan or fold'")


def no_environment(*_: object, **__: object) -> None:
    raise subprocess.CalledProcessError(1, ["ensurepip"])


def empty_environment(home: Path, **_: object) -> None:
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "python").write_text("#!/bin/sh\nexit 1\n")
    (home / "bin" / "python").chmod(0o755)


@pytest.mark.parametrize(
    ("create", "says"), [(no_environment, "apt install python3-venv"), (empty_environment, "nox.* cannot be installed")]
)
def test_a_machine_without_venv_or_network_is_told_in_a_sentence(
    create: Any, says: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = dev()
    monkeypatch.setattr(run, "HOME", tmp_path / "env")
    monkeypatch.setattr(run.venv, "create", create)
    with pytest.raises(SystemExit, match=says):
        run._python()
    assert not (tmp_path / "env" / "ready").exists()
