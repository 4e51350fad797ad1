"""The sources of the site: hand-written pages with their links turned, pages made of tables, and the files they point to."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath

from pages import (
    api_pages,
    builtins_page,
    commands_page,
    errors_page,
    gallery,
    kernel_page,
    notebooks,
    packages_page,
    settings_page,
)

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"(!?\[[^\]]*\])\((?!https?:|mailto:|#)([^)\s#]+)(#[^)\s]*)?\)")
MADE: Mapping[str, Callable[[], str]] = {
    "reference/builtins.md": builtins_page.page,
    "reference/environment.md": settings_page.page,
    "reference/commands.md": commands_page.page,
    "errors.md": errors_page.page,
    "packages/index.md": packages_page.page,
}
"""Pages made of tables."""


def write(folder: Path) -> list[Path]:
    """All sources in a folder, which is made anew; the pages."""
    shutil.rmtree(folder, ignore_errors=True)
    pages = dict(_hand_written())
    for source, place in pages.items():
        _put(folder / place, turned(source, place, pages, folder))
    for place, page in MADE.items():
        _put(folder / place, page())
    _put(folder / "kernel.md", kernel_page.page(folder))
    _put(folder / "gallery.md", gallery.page(folder))
    notebooks.write(folder)
    modules = api_pages.available()
    for module in modules:
        _put(folder / f"api/{module}.md", api_pages.page(module))
    _put(folder / "api/index.md", api_pages.index(modules))
    shutil.copytree(ROOT / "docs" / "assets", folder / "assets", dirs_exist_ok=True)
    return sorted(folder.rglob("*.md"))


def _hand_written() -> Iterator[tuple[Path, str]]:
    """Pages of the repository, and where they stand in the site."""
    yield ROOT / "README.md", "index.md"
    for page in sorted((ROOT / "docs").glob("*.md")):
        yield page, page.name
    for name in ("CONTRIBUTING", "SECURITY", "CODE_OF_CONDUCT", "RELEASING"):
        if (ROOT / f"{name}.md").exists():
            yield ROOT / f"{name}.md", f"project/{name.lower().replace('_', '-')}.md"
    for readme in sorted(ROOT.glob("packages/*/README.md")):
        yield readme, f"packages/{readme.parent.name}.md"
    for changes in sorted(ROOT.glob("packages/*/CHANGELOG.md")):
        yield changes, f"packages/{changes.parent.name}-changes.md"


def turned(source: Path, place: str, pages: Mapping[Path, str], folder: Path) -> str:
    """A page's text with the links that it has in the site; files that it points to are copied there."""
    here = PurePosixPath(place).parent

    def turn(found: re.Match[str]) -> str:
        label, target, fragment = found[1], (source.parent / found[2]).resolve(), found[3] or ""
        goal = pages.get(target) or _copied(target, folder)
        return f"{label}({os.path.relpath(goal, here)}{fragment})" if goal else label.strip("[]")

    return LINK.sub(turn, source.read_text("utf-8"))


def _copied(target: Path, folder: Path) -> str | None:
    """A file of the repository as a file of the site; None for folders, of which the name alone is left."""
    if not target.is_file() or not target.is_relative_to(ROOT):
        return None
    inside = target.relative_to(ROOT / "docs") if target.is_relative_to(ROOT / "docs") else target.relative_to(ROOT)
    goal = (
        str(inside) if inside.parts[0] == "assets" else f"files/{inside}" + ("" if inside.suffix in SHOWN else ".txt")
    )
    (folder / goal).parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(target, folder / goal)
    return goal


SHOWN = {".png", ".svg", ".jpg", ".html", ".json", ".ipynb"}
"""Files that browsers show by themselves; others are shown as text."""


def _put(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, "utf-8")
