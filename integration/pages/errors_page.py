"""Every code with an example: those of the language from its own golden files, the others from docs/errors.md, run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tile_lang.codes import CODES

from pages.markdown import fenced
from pages.mistakes import PAGE, ROOT, Mistake, mistakes, said

GOLDEN = ROOT / "packages" / "tile-lang" / "tests" / "errors"
SENTENCE = "Codes below 200 are those of the language: `tile_lang.CODES` lists them.\n"
LANGUAGE = "## The language\n"


def page() -> str:
    """docs/errors.md with the language's codes and with what every example says."""
    text = PAGE.read_text("utf-8").replace(SENTENCE, "Examples in Python begin with these names.\n")
    for mistake in mistakes():
        text = text.replace(f"{mistake.example}```\n", f"{mistake.example}```\n{_said(mistake)}", 1)
    before, texts, after = text.partition("## Texts\n")
    return "".join([before, LANGUAGE, *_language(), texts, after])


def _said(mistake: Mistake) -> str:
    """What running it says; nothing where its framework is not installed, or it takes broken hardware."""
    if mistake.language != "python" or mistake.framework is not None:
        return ""
    text = said(mistake)
    assert mistake.code in text, f"the example of {mistake.code} says {text!r}"
    return f"\n{fenced(_shortened(text), 'text')}"


def _shortened(text: str) -> str:
    """Without folders of this machine."""
    return re.sub(r"(/[\w.-]+)+/(?=[\w.-]+)", "…/", text)


def _language() -> Iterator[str]:
    examples = golden()
    below = {mistake.code for mistake in mistakes()}
    for code, meaning in CODES.items():
        if code in below:
            continue
        yield f"\n### {code}\n{meaning[0].upper()}{meaning[1:]}.\n\n"
        case = examples[code]
        yield fenced(case.read_text("utf-8"), "tile") + "\n"
        yield fenced(case.with_suffix(".txt").read_text("utf-8"), "text")
    yield "\n"


def golden() -> dict[str, Path]:
    """For each code the shortest program that a test of tile-lang expects it of, alone."""
    found: dict[str, Path] = {}
    for expected in sorted(GOLDEN.glob("*.txt"), key=lambda file: (file.stat().st_size, file.name)):
        codes = set(re.findall(r"(?:error|warning) (TILE-[EW]\d{3})", expected.read_text("utf-8")))
        if len(codes) == 1:
            found.setdefault(codes.pop(), expected.with_suffix(".tile"))
    return found
