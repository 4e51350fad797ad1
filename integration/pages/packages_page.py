"""The index of the packages: what each is for, what it needs, and its pages."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

from pages.markdown import table

HEAD = """\
# Packages

Each is installable alone: `python3 dev.py install NAME`, in the repository, builds it and those of its family that it needs.
"""


def page() -> str:
    return f"{HEAD}\n{table(('package', 'holds', 'needs', ''), _rows())}"


def _rows() -> Iterator[tuple[str, str, str, str]]:
    for file in sorted((Path(__file__).parents[2] / "packages").glob("*/pyproject.toml")):
        project = tomllib.loads(file.read_text("utf-8"))["project"]
        name = project["name"]
        needs = ", ".join(need.partition(">")[0].partition("=")[0] for need in project.get("dependencies", ()))
        yield f"[{name}]({name}.md)", project["description"], needs, f"[changes]({name}-changes.md)"
