"""Every link of a built site is followed: to its file, and to its anchor there. Addresses elsewhere are left alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ADDRESSES = ("href", "src", "data-src")


@dataclass(slots=True)
class Page:
    """What a page of HTML points to, and what can be pointed to in it."""

    targets: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page = Page()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ADDRESSES and value:
                self.page.targets.append(value)
            if name == "id" or (name == "name" and tag == "a"):
                self.page.anchors.add(value or "")


def read(file: Path) -> Page:
    reader = _Reader()
    reader.feed(file.read_text("utf-8"))
    return reader.page


def broken(site: Path) -> Iterator[str]:
    """``page -> target`` for each link that leads nowhere."""
    pages = {file.resolve(): read(file) for file in sorted(site.rglob("*.html"))}
    for file, page in pages.items():
        for target in dict.fromkeys(page.targets):
            if not _leads_somewhere(site.resolve(), file, target, pages):
                yield f"{file.relative_to(site.resolve())} -> {target}"


def _leads_somewhere(site: Path, file: Path, target: str, pages: dict[Path, Page]) -> bool:
    parts = urlsplit(target)
    if parts.scheme or parts.netloc:
        return True
    if file.name == "404.html":
        # It is shown at any address, so that its links are absolute.
        parts = parts._replace(path=parts.path.lstrip("/"))
    path = (file.parent / unquote(parts.path)).resolve() if parts.path else file
    if path.is_dir():
        path /= "index.html"
    if not path.is_relative_to(site) or not path.exists():
        return False
    known = pages.get(path)
    return not parts.fragment or known is None or _has(known, unquote(parts.fragment))


def _has(page: Page, fragment: str) -> bool:
    return fragment in page.anchors or fragment.startswith("__")
