"""Positions, renaming and what is read again, without a server; and the page of this package."""

from __future__ import annotations

import itertools
import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tile_lang import parse, print_function
from tile_lang.examples import TUTORIAL, Example
from tile_lsp.command import main
from tile_lsp.completion import suggestions
from tile_lsp.document import Document
from tile_lsp.edits import formatted
from tile_lsp.embedded import regions
from tile_lsp.hover import hover
from tile_lsp.names import Role
from tile_lsp.outline import colours, hints, symbols
from tile_lsp.positions import Lines
from tile_lsp.renaming import Refused, renamed

WORDS = st.text(st.sampled_from("ab \t\n\r;é😀\u2028\x0c"), max_size=30)


@given(WORDS, st.sampled_from([("utf-8", "utf-8", 1), ("utf-16", "utf-16-le", 2), ("utf-32", "utf-32-le", 4)]))
def test_positions_are_those_of_the_encoding(text: str, encoding: tuple[str, str, int]) -> None:
    name, codec, size = encoding
    lines = Lines(text, name)
    for offset in range(len(text) + 1):
        line, unit = lines.position(offset)
        if not (text[offset - 1 : offset] == "\r" and text[offset : offset + 1] == "\n"):
            assert lines.offset(line, unit) == offset
        start = max((m.end() for m in re.finditer(r"\r\n|\r|\n", text) if m.end() <= offset), default=0)
        assert unit == len(text[start:offset].encode(codec)) // size
    assert lines.offset(99, 0) == len(text)


def opened(text: str, uri: str = "a.tile") -> Document:
    document = Document(uri)
    document.update(text)
    return document


@pytest.mark.parametrize("example", TUTORIAL, ids=lambda e: e.name)
def test_every_name_can_be_changed_and_back(example: Example) -> None:
    """And nothing else changes: the text is the same function but for the name."""
    names = opened(example.source).texts[0].names
    done: set[tuple[Role, str]] = set()
    for one in names.all:
        if (one.role, one.name) in done or one.role in (Role.FUNCTION, Role.BORDER, Role.ATTRIBUTE):
            continue
        done.add((one.role, one.name))
        new = "other" if one.role is Role.INDEX else "Other"
        changed = _replaced(example.source, [(o.start, o.end) for o in renamed(names, one, new)], new)
        expected = re.sub(rf"(?<!\w){one.name}(?![\w'])", new, print_function(parse(example.source)))
        if one.role is not Role.INDEX:
            assert print_function(parse(changed)) == expected
        back = opened(changed).texts[0].names
        there = next(o for o in back.all if o.name == new)
        assert (
            _replaced(changed, [(o.start, o.end) for o in renamed(back, there, one.name)], one.name) == example.source
        )


def _replaced(text: str, places: list[tuple[int, int]], new: str) -> str:
    for start, end in sorted(places, reverse=True):
        text = text[:start] + new + text[end:]
    return text


TEXT = "function f(X) -> (Y) { Y = X; }\nfunction (A[N, K], K) -> (B) { B[i : N] = +(A[i, j]); C = f(A) + exp(K); }"


@pytest.mark.parametrize(
    ("what", "new", "reason"),
    [
        ("A[", "B", "B has a meaning here already"),
        ("A[", "a", "tensors and sizes begin with a capital letter"),
        ("i :", "I", "indexes begin with a small letter"),
        ("i :", "j", "j has a meaning here already"),
        ("A[", "function", "function is a word of the language"),
        ("A[", "1A", "'1A' is not a name"),
        ("f(X", "exp", "exp has a meaning here already"),
        ("exp", "e", "exp is not defined in this text"),
        ("K]", "L", "K is both a size and a tensor here"),
    ],
)
def test_a_name_that_would_change_the_meaning_is_refused(what: str, new: str, reason: str) -> None:
    names = opened(TEXT).texts[0].names
    one = names.at(TEXT.index(what))
    assert one is not None
    with pytest.raises(Refused, match=re.escape(reason)):
        renamed(names, one, new)


def test_colours_are_in_order_and_do_not_overlap() -> None:
    text = TEXT + "  // 😀\n"
    found = colours(opened(text).texts[0])
    assert all(a.end <= b.start for a, b in itertools.pairwise(found))
    assert {text[c.start : c.end] for c in found} >= {"function", "A", "i", "+", "exp", "// 😀"}


def test_layout_is_one_edit_of_what_differs() -> None:
    text = "function (A) -> (B) {\n    C = A;\n  B=C;\n}\n"
    (edit,) = formatted(text)
    assert text[: edit.start] + edit.text + text[edit.end :] == text.replace("  B=C", "    B = C")
    assert formatted("function (A) -> (B) {\n    B = A;\n}\n") == []


PYTHON = r"""
x = 'it''s' + "function" # tile.Function("function (A) -> (B) { B = A; }")
a = tile.Function("function (A) -> (B) { B = ")
b = tile.Function('''function''')
c = f"function (A) -> (B) { B = A; }"
d = rb'function (A) -> (B) { B = A; }'
e = R'function (A) -> (B) { B = "\d"; }'
f = '''// first
function f(A) -> (B) { B = A; }'''
g = "a function (A) -> (B)"
h = 'function of x -> y'
i = "unterminated
j = "function (A) -> (C) { C = A; }"
k = '''function (A) -> (D) {
"""


def test_tile_in_strings() -> None:
    found = regions(PYTHON)
    assert [r.text.split("\n")[0] for r in found] == [
        "function (A) -> (B) { B = ",
        "function",
        'function (A) -> (B) { B = "\\d"; }',
        "// first",
        "function (A) -> (C) { C = A; }",
    ]
    assert all(PYTHON[r.start : r.start + len(r.text)] == r.text for r in found)


def long_text(lines: int) -> str:
    """A function of so many statements, half of them contractions."""
    body = ["function (T0[N, M], B[N, M]) -> (R) {"]
    for k in range(lines // 2 - 1):
        body.append(f"    S{k}[i, j : N, M] = +(T{k}[i + a - 1, j] * B[i, j]), a < 3;   // number {k}")
        body.append(f"    T{k + 1} = S{k} > 0 ? exp(S{k} - {k}) / (1 + abs(S{k})) : sqrt(T0 * 2 + B);")
    return "\n".join([*body, f"    R = T{lines // 2 - 1};", "}"])


def text_of_calls(lines: int) -> str:
    """Functions of five lines, thirty of which call one another in turn, all called by the last."""
    count = lines // 5 - 1
    body = "\n".join(
        f"function f{k}(X[N, M], Y[M]) -> (Z) {{\n    S[i : N] = +(X[i, j] * Y[j]);\n    T = exp(S) / (1 + S);\n"
        f"    Z = T + {f'f{k - 1}(X, Y)' if k % 30 else 'S'};\n}}"
        for k in range(count)
    )
    return (
        f"{body}\nfunction (X[N, M], Y[M]) -> (Z) {{\n    Z = {' + '.join(f'f{k}(X, Y)' for k in range(count))};\n}}\n"
    )


def opening(text: str) -> float:
    """Seconds of the processor in which a text is opened: 0.15 to 0.3 for 500 lines, as fast as the machine is. The best of some."""
    times: list[float] = []
    for _ in range(3):
        start = time.process_time()
        opened(text)
        times.append(time.process_time() - start)
    return min(times)


PART = 1 / 2
"""Of the time of opening a text, which reads all of it, that an answer may take: a tenth is usual."""


def test_a_key_in_a_text_of_calls_takes_a_part_of_opening_it() -> None:
    """In a function that others call, and those in turn: processor time, the best of some."""
    text = text_of_calls(500)
    document = opened(text)
    place = text.index("exp", text.index("function f20("))
    times: list[float] = []
    for typed in ("2 *", "2 * S +", "2 * S + 1 *", "2 * S + 1 -"):
        start = time.process_time()
        document.update(f"{text[:place]}{typed} {text[place:]}")
        times.append(time.process_time() - start)
        assert document.texts[0].diagnostics == ()
    assert min(times) < PART * opening(text)


def test_a_key_in_five_hundred_lines_takes_a_part_of_opening_them() -> None:
    """Processor time per key, in the middle of the text: the mistakes and shapes of the whole; the best of some, for a busy machine."""
    text = long_text(500)
    document, most = opened(text), PART * opening(text)
    before, after = text.split("S120 - 120")
    times: list[float] = []
    for typed in ("S120 - 12", "S120 - 1", "S120 - ", "S120 -", "S120", "S12", "S120", "S120 + 1"):
        start = time.process_time()
        document.update(before + typed + after)
        times.append(time.process_time() - start)
    assert document.texts[0].diagnostics == ()
    assert min(times) < most
    offset = len(before)
    for question in (colours, symbols, hints, lambda t: hover(t, offset), lambda t: suggestions(t, offset)):
        times = []
        for number in range(3):
            document.update(f"{before}S120 + {number}{after}")
            _ = document.texts[0].names
            start = time.process_time()
            assert question(document.texts[0])
            times.append(time.process_time() - start)
        assert min(times) < most


def test_wrong_usage_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--tcp", "here"])
    assert stopped.value.code == 2 and "'here' is not like 127.0.0.1:2087" in capsys.readouterr().err


def test_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[1] / "README.md").read_text("utf-8")
    for program in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(compile(program, "README.md", "exec"), {})
    shown = capsys.readouterr().out
    assert "Q is not defined" in shown and "C[M, N]" in shown
