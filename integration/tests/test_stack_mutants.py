"""The tables of mutants fit the sources that they mutate; the nightly session runs them."""

from __future__ import annotations

import subprocess
import sys

import pytest
from mutants import compiler, sample
from mutants.mutant import ROOT, Mutant
from mutants.run import DEFAULT, Applied, default_tests

TABLES = {"compiler": (compiler.MUTANTS, 60), "sample": (sample.MUTANTS, 40)}


@pytest.mark.parametrize("name", TABLES)
def test_every_old_text_stands_once_in_its_file_and_what_it_becomes_is_code(name: str) -> None:
    mutants, least = TABLES[name]
    assert len({(m.file, m.old, m.new) for m in mutants}) == len({m.breaks for m in mutants}) == len(mutants) >= least
    for mutant in mutants:
        text = mutant.text()
        if mutant.file.endswith(".py"):
            compile(text, mutant.file, "exec")


@pytest.mark.parametrize("name", TABLES)
def test_every_mutant_has_tests(name: str) -> None:
    for mutant in TABLES[name][0]:
        for tests in default_tests(mutant):
            assert (ROOT / tests.split()[0]).exists() or not tests.startswith(("packages", "integration"))


def test_a_mutant_is_what_its_tests_import() -> None:
    mutant = Mutant("nothing", "packages/tile-ir/src/tile_ir/names.py", "def fresh(", "MUTATED = True\n\n\ndef fresh(")
    with Applied(mutant) as environment:
        code = "import tile_ir.names; print(tile_ir.names.MUTATED)"
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


def test_what_tests_are_chosen_by_is_there() -> None:
    """A file that moves would be left to tests that never meet it."""
    assert not [place for place in DEFAULT if not [*ROOT.glob(f"{place.rstrip('/')}*")]]
