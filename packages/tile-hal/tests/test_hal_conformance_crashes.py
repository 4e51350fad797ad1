"""The suite outlives what it tests: plugins that crash or hang are reported, and the process always ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PLUGIN = """
import ctypes, os, sys, time
import tile_hal
from tile_hal.host import HostDevice, HostDeviceSet
from tile_hal.builtin.interp import InterpCompiler, InterpDriver, InterpExecutor, InterpKernel

HOW = os.environ["HOW"]
if HOW == "import":
    raise RuntimeError("no such card")
if HOW == "import-crash":
    ctypes.string_at(0)

class Never(tile_hal.Event):
    done = False
    def wait(self):
        time.sleep(1000)

class Compiler(InterpCompiler):
    def build(self, kernels):
        if HOW == "build" and kernels.kernels:
            raise ValueError("vendor code 17")
        return super().build(kernels)

class Kernel(InterpKernel):
    def __init__(self, inner):
        self.inner = inner
    def run(self, params, dependencies=(), *, profile=False):
        if HOW == "run":
            raise ValueError("vendor code 18")
        if HOW == "wrong":
            event = self.inner.run(params, dependencies, profile=profile)
            event.wait()
            params[0].array.view("int8")[-1] ^= 1
            return event
        if HOW == "crash" and not dependencies:
            ctypes.string_at(0)
        if HOW == "deaf":  # blocks with the interpreter lock held: no signal gets through
            ctypes.PyDLL(None).sleep(1000)
        return Never() if HOW == "never" else self.inner.run(params, dependencies, profile=profile)

class Executor(InterpExecutor):
    def prepare(self, library, index):
        return Kernel(super().prepare(library, index))

class Driver(InterpDriver):
    name = "frail"
    def device_sets(self):
        (group,) = super().device_sets()
        like = group.devices[0]
        compiler = Compiler(like.capabilities.nodes)
        device = HostDevice("frail:0", "frail", like.target, like.capabilities, compiler, Executor())
        if HOW == "half":
            del device.capabilities
        return [HostDeviceSet([device])]

@tile_hal.hookimpl
def tile_hal_driver():
    return Driver()
"""
TESTS = "level2 and (kernel or fill or timed)"


def run(folder: Path, how: str, *more: str) -> subprocess.CompletedProcess[str]:
    (folder / "frail.py").write_text(PLUGIN)
    command = [sys.executable, "-m", "tile_hal.conformance", "--backend=frail", "--plugin=frail", "--level=2", *more]
    return subprocess.run(
        command, cwd=folder, env=os.environ | {"HOW": how}, capture_output=True, text=True, timeout=120
    )


def alone(level: int) -> str:
    """The argument of pytest with which only the files of a level are collected, anew in the process behind each that dies."""
    return f"--ignore-glob=/*test_level[!{level}]*"


def failures(folder: Path) -> dict[str, str]:
    report = json.loads((folder / "r.json").read_text())
    return {c["name"]: c["reason"] for c in report["cases"] if c["outcome"] == "failed"}


def test_a_crash_fails_its_test_alone(tmp_path):
    done = run(tmp_path, "crash", "--json=r.json", "--markdown=r.md", "--", "-k", TESTS, alone(2))
    assert done.returncode == 1, done.stdout + done.stderr
    failed = failures(tmp_path)
    assert failed and all("Segmentation fault (SIGSEGV)" in reason for reason in failed.values()), failed
    assert "test_kernel_runs_and_is_timed_when_asked" in failed
    assert "test_copy_and_fill[100]" not in failed
    assert "test_kernel_runs_and_is_timed_when_asked" in (tmp_path / "r.md").read_text()


@pytest.mark.parametrize("how", ["never", "deaf"])
def test_what_hangs_is_ended(tmp_path, how):
    """Three tests that hang end the level; the report is written all the same."""
    done = run(tmp_path, how, "--timeout=0.5", "--json=r.json", "--", "-k", TESTS, alone(2))
    assert done.returncode == 1, done.stdout + done.stderr
    failed = failures(tmp_path)
    assert len(failed) == 3 and all("no end after 0.5 s" in reason for reason in failed.values()), failed


@pytest.mark.parametrize(
    ("how", "says"),
    [("build", "ValueError: vendor code 17"), ("run", "ValueError: vendor code 18"), ("wrong", "elements differ: ")],
)
def test_what_a_device_does_wrong_stands_in_the_report(tmp_path, how, says):
    """With the test's name; of a wrong result, with the elements, what they are and what they should be."""
    name = "test_unary[neg-int32]"
    more = ("--level=3", "--json=r.json", "--markdown=r.md", "--", "-k", "unary and neg and int32 and not uint32")
    done = run(tmp_path, how, *more, alone(3))
    assert done.returncode == 1, done.stdout + done.stderr
    assert says in failures(tmp_path)[name]
    (line,) = [line for line in (tmp_path / "r.md").read_text().splitlines() if line.startswith("- failed ")]
    assert name in line and says in line


def test_half_a_device_fails_level_0_with_what_is_missing(tmp_path):
    done = run(tmp_path, "half", "--json=r.json", "--markdown=r.md")
    assert done.returncode == 1 and "Traceback" not in done.stdout + done.stderr, done.stdout + done.stderr
    assert failures(tmp_path) == {"test_device_is_whole": "it has no attribute 'capabilities'"}
    assert (
        "frail:0: reached no level" in done.stdout and "no attribute 'capabilities'" in (tmp_path / "r.md").read_text()
    )


@pytest.mark.parametrize(
    ("how", "sentence"), [("import", "does not import: RuntimeError: no such card"), ("import-crash", "SIGSEGV")]
)
def test_a_plugin_that_does_not_import_is_a_sentence(tmp_path, how, sentence):
    done = run(tmp_path, how)
    assert done.returncode == 2
    assert sentence in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr and "INTERNALERROR" not in done.stdout + done.stderr
