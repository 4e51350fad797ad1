"""Releases: names, versions, what the metadata says, and which public names came and went."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from release import names, staging, versions
from release.staging import Publishing
from release.versions import Refused
from stack import PACKAGES, ROOT

SYSTEMS = {"ubuntu-latest", "macos-latest", "windows-latest"}


def project(package: Path) -> dict[str, object]:
    return tomllib.loads((package / "pyproject.toml").read_text("utf-8"))["project"]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda p: p.name)
def test_metadata_is_complete(package: Path) -> None:
    found, address = project(package), staging.publishing().repository
    assert found["license-files"] == ["LICENSE"]
    assert (package / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert found["urls"] == {
        "Source": address,
        "Documentation": f"{address}/docs",
        "Changelog": f"{address}/packages/{package.name}/CHANGELOG.md",
        "Issues": f"{address}/issues",
    }
    classifiers = str(found["classifiers"])
    assert all(word in classifiers for word in ("Development Status", "Operating System", "Python :: 3.11", "Typed"))
    assert found["keywords"] and found["description"] and found["requires-python"] == ">=3.11"


def run(*command: str) -> subprocess.CompletedProcess[str]:
    """A module of integration/, in a process of its own: it imports packages that are not installed."""
    full = [sys.executable, "-m", *command]
    return subprocess.run(full, cwd=ROOT / "integration", capture_output=True, text=True, check=False)


def test_public_names_change_with_a_line_in_the_changelog() -> None:
    assert run("release.names", "--check").stdout == "", "not named in the newest section of CHANGELOG.md"


def test_a_name_that_comes_or_goes_without_a_line_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        names, "listed", lambda _: [*(n for n in names.public("tile-nn") if n != "tile_nn.adamw"), "tile_nn.paint"]
    )
    assert names.changed("tile-nn") == ({"tile_nn.adamw"}, {"tile_nn.paint"})
    assert "tile_nn.paint" in names.unexplained("tile-nn")


def test_a_prefix_is_put_in_front_of_every_name_of_ours() -> None:
    text = (ROOT / "packages" / "tile-runtime" / "pyproject.toml").read_text("utf-8")
    settings = Publishing("acme-", "https://git.example.com/tile")
    found = tomllib.loads(staging.published(text, settings, staging.family(), staging.publishing().repository))[
        "project"
    ]
    assert found["name"] == "acme-tile-runtime" and found["urls"]["Source"] == settings.repository
    needs = [*found["dependencies"], *found["optional-dependencies"]["all"], *found["optional-dependencies"]["opencl"]]
    ours = [need for need in needs if "tile-" in need or "hal-" in need]
    assert len(ours) > 6 and all(need.startswith("acme-") for need in ours) and "typer>=0.12" in needs
    assert found["scripts"] == {"tile": "tile_runtime.cli:main"}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of a small package, as far as versions go."""
    folder = tmp_path / "packages" / "tile-dask"
    source = ROOT / "packages" / "tile-dask"
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("tests", "__pycache__"))
    return folder


def test_a_version_is_stated_everywhere(package: Path) -> None:
    changes = package / "CHANGELOG.md"
    changes.write_text("# Changelog\n\n## Unreleased\n\nSomething new.\n\n## 0.1.0\n\nFirst.\n")
    versions.check(package, "0.1.1")
    versions.state(package, "0.1.1")
    assert versions.current(package) == "0.1.1" and "## 0.1.1 (2" in changes.read_text()
    assert '__version__ = "0.1.1"' in (package / "src" / "tile_dask" / "__init__.py").read_text()


@pytest.mark.parametrize(
    ("version", "why"),
    [("0.2", "is no version"), ("0.0.9", "lies before it"), ("0.1.1", "nothing under '## Unreleased'")],
)
def test_what_cannot_be_released_is_refused(package: Path, version: str, why: str) -> None:
    (package / "CHANGELOG.md").write_text("# Changelog\n\n## 0.1.0\n\nFirst.\n")
    with pytest.raises(Refused, match=why):
        versions.check(package, version)


def test_bounds_that_leave_a_version_out_are_found() -> None:
    assert {*versions.excluded(ROOT / "packages", "tile-lang", "0.2.0")} >= {"tile-runtime", "tile-autodiff"}
    assert not [*versions.excluded(ROOT / "packages", "tile-lang", "0.1.7")]


def test_nothing_is_released_under_the_examples_address() -> None:
    done = run("release", "tile-dask", "0.1.0")
    assert done.returncode == 2 and "publishing.toml" in done.stderr


def test_all_packages_are_checked_before_one_is_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    import release.__main__ as command

    def refused(package: str, *_: object) -> None:
        if package == last:
            raise Refused(f"not {package}")

    last = staging.family()[-1]
    monkeypatch.setattr(command, "_check", refused)
    monkeypatch.setattr(command, "_released", lambda package, *_: pytest.fail(f"{package} was released"))
    assert command.main(["all", "0.1.9"]) == 2


INSTALLED = re.compile(r"pip install (?!-e )[^|\n]*?(?<![\w./-])((?:tile|hal)-[a-z]+)(?![\w/-])")


def test_nobody_is_told_to_install_a_name_that_is_somebody_elses() -> None:
    """docs/publishing.md promises it, and is the one page that shows what not to do."""
    files = {*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("packages/*/*.md")}
    files |= {f for f in ROOT.glob("packages/*/src/**/*") if f.is_file() and f.suffix not in {".pyc", ".so"}}
    found = {(f.name, name) for f in files for name in INSTALLED.findall(f.read_text("utf-8"))}
    assert found == {("publishing.md", "tile-runtime")}


def test_the_workflow_covers_systems_and_versions() -> None:
    text = (ROOT / ".github" / "workflows" / "checks.yml").read_text("utf-8")
    assert all(system in text for system in SYSTEMS) and all(f'"3.{n}"' in text for n in (11, 12, 13, 14))
    assert "python3 dev.py docs" in text and ".ci/run" in text
