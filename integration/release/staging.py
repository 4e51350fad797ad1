"""A package as it is released: a copy with the names and addresses of publishing.toml."""

from __future__ import annotations

import re
import shutil
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
UNDECIDED = "https://example.org/"


@dataclass(frozen=True, slots=True)
class Publishing:
    """The settings of publishing.toml."""

    prefix: str
    repository: str

    @property
    def decided(self) -> bool:
        return not self.repository.startswith(UNDECIDED)


def publishing(root: Path = ROOT) -> Publishing:
    found = tomllib.loads((root / "publishing.toml").read_text("utf-8"))
    return Publishing(found["prefix"], found["repository"].rstrip("/"))


def family(root: Path = ROOT) -> list[str]:
    """The distributions of the repository."""
    return sorted(p.parent.name for p in root.glob("packages/*/pyproject.toml"))


def published(text: str, settings: Publishing, names: list[str], repository: str) -> str:
    """A pyproject.toml with the released names of ours, its own and those that it needs, and with the released address."""
    ours = "|".join(map(re.escape, names))
    renamed = re.sub(rf'"({ours})(?=["\[<>=~! ;])', rf'"{settings.prefix}\1', text)
    return renamed.replace(f'"{repository}', f'"{settings.repository}')


def staged(package: str, settings: Publishing, into: Path, root: Path = ROOT) -> Path:
    """The copy, in a folder of its own."""
    target = into / f"{settings.prefix}{package}"
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "dist", "build", ".pytest_cache", ".hypothesis")
    shutil.copytree(root / "packages" / package, target, ignore=ignored)
    file = target / "pyproject.toml"
    text = file.read_text("utf-8")
    address = tomllib.loads(text)["project"]["urls"]["Source"]
    file.write_text(published(text, settings, family(root), address), "utf-8")
    return target
