"""Each package is complete, and what the README files show works."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from forked import Forge
from stack import PACKAGES, ROOT

HOST = re.compile(r"https?://(?:\w+\.)*(?:" + "|".join(["py" + "pi", "python" + "hosted", "npm" + "js"]) + r")\b")
EXAMPLE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
FOREIGN = re.compile(r"^import (torch|jax|dask)\b", re.MULTILINE)
"""Pages about PyTorch, JAX and dask: the packages whose tests have them installed run those."""


@pytest.mark.parametrize("package", PACKAGES, ids=lambda p: p.name)
def test_package_is_complete(package: Path) -> None:
    project = tomllib.loads((package / "pyproject.toml").read_text("utf-8"))
    module = package.name.replace("-", "_")
    assert project["build-system"]["build-backend"] == "hatchling.build"
    assert project["project"]["license"] == "Apache-2.0"
    assert (package / "src" / module / "py.typed").exists()
    version = project["project"]["version"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", version)
    assert version in (package / "CHANGELOG.md").read_text("utf-8"), "the changelog lacks this version"
    assert list(package.glob("tests/test_*.py")), "no tests"


@pytest.mark.parametrize("package", PACKAGES, ids=lambda p: p.name)
def test_versions_agree(package: Path) -> None:
    """A module that states its version states the distribution's."""
    version = tomllib.loads((package / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    text = (package / "src" / package.name.replace("-", "_") / "__init__.py").read_text("utf-8")
    stated = re.search(r'^__version__ = "(.*)"', text, re.MULTILINE)
    assert stated is None or stated[1] == version


def runs_its_examples(package: Path) -> bool:
    """Whether a package's own tests run what its README shows, with nothing but its needs installed."""
    tests = [file.read_text("utf-8") for file in (package / "tests").glob("test_*.py")]
    return any('"README.md"' in text and "```python" in text for text in tests)


@pytest.fixture(scope="module")
def forge() -> Iterator[Forge]:
    started = Forge()
    yield started
    started.close()


@pytest.mark.parametrize(
    "readme",
    [folder / "README.md" for folder in (ROOT, *PACKAGES) if folder == ROOT or not runs_its_examples(folder)],
    ids=lambda p: p.parent.name,
)
def test_readme_examples_run(readme: Path, tmp_path: Path, forge: Forge) -> None:
    """All Python examples of a README, one after the other."""
    text = readme.read_text("utf-8")
    if FOREIGN.search(text):
        pytest.skip("the tests of the package that has it installed run it")
    examples = EXAMPLE.findall(text)
    assert examples, f"{readme.parent.name}/README.md has no Python example"
    script = tmp_path / "readme.py"
    script.write_text("\n\n".join(examples), "utf-8")
    failure = forge.run(script)
    assert failure is None, failure


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda p: p.name)
def test_examples_of_the_documentation_run(page: Path, tmp_path: Path, forge: Forge) -> None:
    if EXAMPLE.search(page.read_text("utf-8")):
        test_readme_examples_run(page, tmp_path, forge)


def tracked() -> list[Path]:
    listing = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    return [
        ROOT / line for line in listing.splitlines() if line.endswith((".py", ".md", ".toml", ".json", ".tile", "run"))
    ]


def test_no_file_names_a_package_registry() -> None:
    wrong = [str(p) for p in tracked() if p.exists() and HOST.search(p.read_text("utf-8", errors="replace"))]
    assert not wrong


def test_no_text_refers_to_what_is_not_there() -> None:
    """Neither to the documents of whoever designed it, nor to decisions by their numbers."""
    absent = re.compile(r"ARCHITECTURE\b|SCHEDULING\.md|design/[A-Z]|\b[Dd]ecision \d|facts[/ ]\d")
    shipped = [p for p in tracked() if p.suffix in (".py", ".md") and p != Path(__file__) and p.exists()]
    assert [str(p) for p in shipped if absent.search(p.read_text("utf-8", errors="replace"))] == []


def test_links_between_pages_lead_somewhere() -> None:
    link = re.compile(r"\]\((?!https?:|#)([^)#]+)")
    missing: list[str] = []
    for page in tracked():
        if page.suffix == ".md" and page.exists():
            targets = link.findall(page.read_text("utf-8"))
            missing += [f"{page.relative_to(ROOT)} -> {t}" for t in targets if not (page.parent / t).exists()]
    assert not missing
