"""Running tests against a mutant: a copy of its package with the one line changed goes before the installed one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mutants.mutant import ROOT, Mutant

FARM = "integration/tests/test_stack_farm.py"
FOUND = "integration/tests/test_stack_found.py"
QUICK = (FOUND, FARM)
SUITE = "tile_hal.conformance --backend sample --examples 4"
CONFORMANCE = (f"{SUITE} --level 3 -- -x -q", f"{SUITE} -- -x -q")
DEFAULT: dict[str, tuple[str, ...]] = {
    "packages/tile-autodiff/": ("packages/tile-autodiff/tests",),
    "packages/tile-opt/src/tile_opt/semtree/legalise": ("packages/tile-opt/tests/test_dots.py",),
    "packages/tile-opt/src/tile_opt/semtree/": ("packages/tile-opt/tests/test_semopt_simplify.py", *QUICK),
    "packages/tile-opt/src/tile_opt/translate/": (
        "packages/tile-opt/tests/test_to_stripe_language.py",
        "packages/tile-opt/tests/test_to_stripe_kernels.py",
        "packages/tile-opt/tests/test_to_stripe_programs.py",
    ),
    "packages/tile-opt/src/tile_opt/analysis/": (
        "packages/tile-opt/tests/test_analysis_facts.py",
        "packages/tile-opt/tests/test_analysis_properties.py",
        "packages/tile-opt/tests/test_to_stripe_programs.py",
    ),
    "packages/tile-opt/src/tile_opt/program/dots/": ("packages/tile-opt/tests/test_dots.py",),
    "packages/hal-llvm/src/hal_llvm/emit/dots": ("packages/hal-llvm/tests/test_llvm_dots.py",),
    "packages/tile-opt/src/tile_opt/passes/kernels/scan": ("packages/tile-opt/tests/test_scan.py", *QUICK),
    "packages/tile-opt/src/tile_opt/kernel/segments": ("packages/tile-opt/tests/test_segments.py", *QUICK),
    "packages/tile-opt/src/tile_opt/kernel/prefix": ("packages/tile-opt/tests/test_scan.py", *QUICK),
    "packages/tile-opt/src/tile_opt/kernel/rows_in_steps": ("packages/tile-opt/tests/test_rows_in_steps.py",),
    "packages/tile-opt/src/tile_opt/kernel/": (
        "packages/tile-opt/tests/test_pass_conditions.py",
        *QUICK,
        "packages/tile-opt/tests/test_scan.py",
        "packages/tile-opt/tests/test_widen.py",
        "integration/tests/test_stack_random.py",
    ),
    "packages/tile-opt/src/tile_opt/passes/": (
        "packages/tile-opt/tests/test_pass_conditions.py",
        "packages/tile-opt/tests/test_passes.py",
        *QUICK,
        "packages/tile-opt/tests/test_fusion.py",
        "packages/tile-opt/tests/test_widen.py",
        "integration/tests/test_stack_random.py",
    ),
    "packages/tile-opt/src/tile_opt/plan/builders/rows_in_steps": ("packages/tile-opt/tests/test_rows_in_steps.py",),
    "packages/tile-opt/src/tile_opt/plan/": (
        "packages/tile-opt/tests/test_plan_steps.py",
        *QUICK,
        "packages/tile-opt/tests/test_gpu_rows.py",
        "packages/tile-opt/tests/test_plan_given.py",
    ),
    "packages/tile-opt/src/tile_opt/lowering/": (
        "packages/tile-opt/tests/test_lowering_groups.py",
        "packages/tile-opt/tests/test_lowering_points.py",
        "packages/tile-opt/tests/test_lowering_nests.py",
        "packages/tile-opt/tests/test_lowering_features.py",
        *QUICK,
    ),
    "packages/tile-ir/src/tile_ir/emit/": CONFORMANCE,
    "packages/tile-hal/": CONFORMANCE,
    "integration/plugins/tile-sample/": CONFORMANCE,
    "packages/hal-llvm/": ("packages/hal-llvm/tests/test_llvm_operations.py", "packages/hal-llvm/tests/test_llvm_nodes.py", *QUICK),
}  # fmt: skip
"""Tests of the default run by what is mutated, the quickest first."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What noticed a mutant: the tests by name, "" for nothing."""

    mutant: Mutant
    caught_by: str
    seconds: float


def default_tests(mutant: Mutant) -> tuple[str, ...]:
    """The tests that are there for what is mutated."""
    return next(tests for prefix, tests in DEFAULT.items() if mutant.file.startswith(prefix))


def try_default(mutant: Mutant) -> Outcome:
    """The default run's tests, one file after the other, up to the first failure."""
    return try_tests(mutant, default_tests(mutant))


def try_tests(mutant: Mutant, files: Sequence[str], limit: float = 900.0) -> Outcome:
    """Tests one after the other, up to the first failure."""
    start = time.monotonic()
    with Applied(mutant) as environment:
        for tests in files:
            plain = () if tests in CONFORMANCE else ("pytest", "-q", "-x", "-p", "no:cacheprovider")
            if failed((*plain, *tests.split()), environment, limit):
                return Outcome(mutant, tests, time.monotonic() - start)
    return Outcome(mutant, "", time.monotonic() - start)


def try_farm(mutant: Mutant, seconds: float) -> Outcome:
    """The farm, for as long as it takes to find something."""
    start = time.monotonic()
    command = ("farm", "--seed", "7", "--seconds", str(seconds), "--jobs", "1", "--until-failure")
    with Applied(mutant) as environment:
        caught = failed(command, environment, seconds + 300)
    return Outcome(mutant, "the farm" if caught else "", time.monotonic() - start)


class Applied:
    """A copy of the mutated package; gives the environment in which it is imported."""

    def __init__(self, mutant: Mutant) -> None:
        self.mutant = mutant

    def __enter__(self) -> dict[str, str]:
        self.folder = Path(tempfile.mkdtemp(prefix="mutant"))
        copied = self.folder / "src"
        shutil.copytree(self.mutant.folder, copied, ignore=shutil.ignore_patterns("__pycache__"))
        (copied / self.mutant.place).write_text(self.mutant.text(), "utf-8")
        paths = [str(copied), str(ROOT / "integration"), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        own = {"PYTHONPATH": os.pathsep.join(p for p in paths if p), "TILE_CACHE_DIR": str(self.folder / "cache")}
        return {**os.environ, **own, "PYTHONDONTWRITEBYTECODE": "1"}

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def failed(command: Sequence[str], environment: dict[str, str], limit: float) -> bool:
    """Whether a module of Python, run so, fails or does not end in time."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", *command], cwd=ROOT, env=environment, capture_output=True, timeout=limit, check=False
        )
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0
