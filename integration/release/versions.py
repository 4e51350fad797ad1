"""A package's version, in every place that states it, and what a new one asks of the changelog and of the packages beside it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from datetime import date
from pathlib import Path

VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")
UNRELEASED = "## Unreleased"


class Refused(Exception):
    """A release that cannot be; the sentence says why."""


def parsed(version: str) -> tuple[int, ...]:
    found = VERSION.fullmatch(version)
    if not found:
        raise Refused(f"{version!r} is no version such as 0.2.0")
    return tuple(map(int, found.groups()))


def current(folder: Path) -> str:
    return tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]["version"]


def check(folder: Path, version: str) -> None:
    """Refused unless the version is new and the changelog says what it brings."""
    old, new = parsed(current(folder)), parsed(version)
    changes = (folder / "CHANGELOG.md").read_text("utf-8")
    if new < old:
        raise Refused(f"{folder.name} is at {current(folder)}, {version} lies before it")
    if new == old and f"## {version}" not in changes:
        raise Refused(f"CHANGELOG.md of {folder.name} has no section {version}")
    if new > old and not _unreleased(changes).strip():
        raise Refused(f"CHANGELOG.md of {folder.name} has nothing under {UNRELEASED!r}")


def _unreleased(changes: str) -> str:
    return changes.partition(UNRELEASED)[2].partition("\n## ")[0]


def state(folder: Path, version: str) -> None:
    """Write the version into pyproject.toml, ``__version__`` and the changelog."""
    old = current(folder)
    _replace(folder / "pyproject.toml", f'version = "{old}"', f'version = "{version}"')
    for module in folder.glob("src/*/__init__.py"):
        _replace(module, f'__version__ = "{old}"', f'__version__ = "{version}"')
    _replace(folder / "CHANGELOG.md", UNRELEASED, f"## {version} ({date.today():%Y-%m-%d})")


def _replace(file: Path, old: str, new: str) -> None:
    text = file.read_text("utf-8")
    if old in text:
        file.write_text(text.replace(old, new, 1), "utf-8")


def excluded(packages: Path, package: str, version: str) -> Iterator[str]:
    """Packages of the family whose bounds leave this version out."""
    new = parsed(version)
    for file in sorted(packages.glob("*/pyproject.toml")):
        for low, high in re.findall(
            rf'"{re.escape(package)}(?:\[[^\]]*\])?>=([\d.]+),<([\d.]+)"', file.read_text("utf-8")
        ):
            if not _padded(low) <= new < _padded(high):
                yield file.parent.name


def _padded(bound: str) -> tuple[int, ...]:
    parts = [*map(int, bound.split(".")), 0, 0]
    return tuple(parts[:3])
