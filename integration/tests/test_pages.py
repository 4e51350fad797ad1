"""What the pages of the documentation are made of is complete; `python3 dev.py docs` builds them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pages import builtins_page, commands_page, errors_page, settings_page
from pages.mistakes import Mistake, mistakes, said
from pages.sources import ROOT, turned
from tile_lang.builtins import BUILTINS
from tile_lang.codes import CODES
from tile_lang.reference import GROUPS
from tile_opt.passes import PASSES
from tile_runtime.cli.app import app


def test_every_builtin_and_operator_has_a_section_with_an_example() -> None:
    page = builtins_page.page()
    for entries in GROUPS.values():
        for name, entry in entries.items():
            assert f"### `{name}` {{:" in page and entry.source in page


def test_the_pages_in_the_repository_name_every_builtin_and_every_pass() -> None:
    pages = [(ROOT / "docs" / name).read_text("utf-8") for name in ("language.md", "operations.md", "architecture.md")]
    named = {word for page in pages for word in re.findall(r"\w+", page)}
    assert BUILTINS.keys() - {"assert_"} <= named and "`assert_…(x)`" in pages[0]
    assert PASSES.keys() <= named


def test_every_variable_of_the_sources_is_on_the_page() -> None:
    named = settings_page.read_in(ROOT / "packages")
    assert len(named) > 10 and named <= {*re.findall(r"TILE_[A-Z_]+", settings_page.page())}


MISTAKES = mistakes()
UNSPECIFIC = "TILE-E000"
"""What errors say that are made without a code: those of others' plugins."""


def test_every_code_of_the_sources_has_one_example() -> None:
    sources = [file.read_text("utf-8") for file in ROOT.glob("packages/*/src/**/*.py")]
    used = {code for text in sources for code in re.findall(r"TILE-[EW]\d{3}", text)} - {UNSPECIFIC}
    shown = [m.code for m in MISTAKES]
    assert len(shown) == len({*shown})
    assert used == {*shown} | CODES.keys() and CODES.keys() <= {*shown} | errors_page.golden().keys()


@pytest.mark.parametrize("mistake", [m for m in MISTAKES if m.language == "python"], ids=lambda m: m.code)
def test_the_example_of_a_code_makes_its_error(mistake: Mistake) -> None:
    if mistake.framework is not None:
        pytest.skip(f"the tests of tile-{mistake.framework} run it")
    assert mistake.code in said(mistake)


def test_few_codes_are_shown_without_being_made() -> None:
    """Those that take hardware or drivers that fail, or another version of JAX."""
    assert {m.code[-4:] for m in MISTAKES if m.language != "python"} == {
        "E523", "E647", "E649", "E701", "E706", "E709", "E710", "E951", "E953", "E954",
    }  # fmt: skip


def test_every_command_is_on_the_page() -> None:
    page = commands_page.page()
    names = [command.name for command in app.registered_commands]
    assert len(names) > 10 and all(f"## tile {name}\n" in page for name in names)
    assert "--reduced-precision" in page


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("[a](docs/loops.md#b)", "[a](loops.md#b)"),
        ("[a](LICENSE)", "[a](files/LICENSE.txt)"),
        ("[a](integration/examples)", "a"),
        ("[two\nlines](docs/loops.md)", "[two\nlines](loops.md)"),
        ("[x](https://e.org/y.md)", "[x](https://e.org/y.md)"),
    ],
)
def test_links_lead_to_the_place_in_the_site(
    text: str, seen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = ROOT / "README.md"
    monkeypatch.setattr("pathlib.Path.read_text", lambda *_: text)
    pages = {source: "index.md", ROOT / "docs" / "loops.md": "loops.md"}
    assert turned(source, "index.md", pages, tmp_path) == seen


def test_the_speeds_of_the_readme_are_those_that_were_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "integration" / "bench"))
    import readme

    found = json.loads(readme.RESULTS.read_text("utf-8"))
    assert readme.block(found) in (ROOT / "README.md").read_text("utf-8")
    assert readme.PLOT.read_text("utf-8") == readme.plot(readme.classes(found)) and len(found["rows"]) > 20


INSIDE = re.compile(
    r"\b(the (slides|seeds)|an? slide|(the |an? )?blog\w*|decision \d+|issues? #?\d+|the article)\b", re.IGNORECASE
)
"""What means something to those who made it, and to nobody who reads."""


def test_pages_and_sources_have_no_words_of_the_house() -> None:
    files = [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("integration/examples/*"),
        *ROOT.glob("packages/*/*.md"),
    ]
    files += ROOT.glob("packages/*/src/**/*.py")
    wrong = [
        (file.name, found[0]) for file in files if file.is_file() for found in INSIDE.finditer(file.read_text("utf-8"))
    ]
    assert not wrong
