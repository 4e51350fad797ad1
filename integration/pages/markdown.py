"""Pieces of Markdown that generated pages are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; bars in cells are escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


def fenced(text: str, language: str = "") -> str:
    """A block of code."""
    return f"```{language}\n{text.rstrip()}\n```\n"


def details(title: str, body: str) -> str:
    """What is folded away until somebody opens it."""
    indented = "\n".join(f"    {line}" if line else "" for line in body.splitlines())
    return f'??? note "{title}"\n\n{indented}\n'


def anchor(name: str) -> str:
    """An identifier for a heading that has characters of its own."""
    kept = "".join(c if c.isalnum() or c == "_" else f"-{ord(c):x}" for c in name)
    return kept.strip("-")
