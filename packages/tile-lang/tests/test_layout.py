"""Printer, formatter and command line."""

import importlib.util
import io
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tile_lang import ast
from tile_lang.__main__ import main
from tile_lang.formatter import WIDTH, format_source
from tile_lang.parser import parse
from tile_lang.printer import print_function, print_node


def _strategies() -> object:
    spec = importlib.util.spec_from_file_location("strategies_ast", Path(__file__).with_name("strategies_ast.py"))
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FUNCTIONS: st.SearchStrategy[ast.Function] = _strategies().FUNCTIONS  # type: ignore[attr-defined]

UNTIDY = """// top

function (D[N,X,Y,CI],K[I,J,CO,CI],#q[])->(R){ // header


  // own line
    O[n,x,y,co:N,X,Y,CO]=+(D[n,x+i-1,y+2j-1,ci]*K[i,j,co,ci]),i<2,j+1<N/2 no_defract default Z;//behind


  [[pid(a,B)]]R=(O>0?-O*(3--2):~0); S[]=>(R[i,j,k,l]);Sq[:]= =(A[i]==B[j]?C[]);
  E = A // inner
    // inner, own line
      + B;
  // last
}
// end
"""
TIDY = """// top

function (D[N, X, Y, CI], K[I, J, CO, CI], #q[]) -> (R) {  // header
    // own line
    O[n, x, y, co : N, X, Y, CO] =
            +(D[n, x + i - 1, y + 2j - 1, ci] * K[i, j, co, ci]), i < 2, j + 1 < N / 2 no_defract
            default Z;  //behind

    [[pid(a, B)]] R = (O > 0 ? -O * (3 - -2) : ~0);
    S[] = >(R[i, j, k, l]);
    Sq[:] = =(A[i] == B[j] ? C[]);
    E = A  // inner
            // inner, own line
            + B;
    // last
}
// end
"""


def test_canonical_layout() -> None:
    assert format_source(UNTIDY) == TIDY
    assert format_source(TIDY) == TIDY


@settings(max_examples=80)
@given(FUNCTIONS)
def test_printing_and_parsing_are_inverse(function: ast.Function) -> None:
    assert parse(print_function(function)) == function


@settings(max_examples=100)
@given(FUNCTIONS, st.integers(0, 30), st.sampled_from(["// c", "\n// c\n", "\n\n", "  ", "\t// a // b\n\n"]))
def test_formatting_is_idempotent_and_keeps_meaning(function: ast.Function, blank: int, filler: str) -> None:
    words = print_function(function).split(" ")
    place = min(blank, len(words) - 1)
    text = " ".join(words[:place]) + " " + filler + ("\n" if "//" in filler else " ") + " ".join(words[place:])
    once = format_source(text)
    assert format_source(once) == once
    assert parse(once) == function
    assert once.count("// ") == text.count("// ")


def test_long_lines_break_within_the_width() -> None:
    text = "function (A) -> (O) { O = " + " + ".join(["exp(A)"] * 80) + "; }"
    lines = format_source(text).splitlines()
    assert len(lines) > 5 and max(map(len, lines)) <= WIDTH


def test_deep_chains_print() -> None:
    text = "function (A) -> (O) {\n    O = A" + " + A" * 10_000 + ";\n}\n"
    assert print_function(parse(text)) == text


def test_nodes_show_their_text() -> None:
    function = parse("function (A[N]) -> (O) { O[i : N] = +(A[i + 1]), i < 2 * (N + 1); }")
    (statement,) = function.statements
    assert repr(statement) == "<Contraction O[i : N] = +(A[i + 1]), i < 2 * (N + 1);>"
    assert print_node(function.inputs[0]) == "A[N]"


GOOD = "function (A) -> (O) {\n    O = A + 1;\n}\n"


def test_check_reports_findings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = tmp_path / "good.tile", tmp_path / "bad.tile"
    good.write_text(GOOD)
    bad.write_text(GOOD.replace("1;", "1"))
    assert main(["check", str(good)]) == 0
    assert main(["check", str(good), str(bad)]) == 1
    assert "bad.tile:2:13: error TILE-E005" in capsys.readouterr().out
    assert main(["check", "--json", str(bad)]) == 1
    assert '"line": 2, "column": 13, "code": "TILE-E005"' in capsys.readouterr().out


def test_unreadable_files_and_wrong_usage(tmp_path: Path) -> None:
    assert main(["check", str(tmp_path / "none.tile")]) == 2
    (tmp_path / "latin.tile").write_bytes(b"\xff\xfe")
    assert main(["fmt", str(tmp_path / "latin.tile")]) == 2
    with pytest.raises(SystemExit) as caught:
        main(["frobnicate"])
    assert caught.value.code == 2


def test_fmt_rewrites_or_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "f.tile"
    path.write_text("function(A)->(O){O=A+1;}")
    assert main(["fmt", "--check", str(path)]) == 1
    assert "would be reformatted" in capsys.readouterr().out
    assert main(["fmt", str(path)]) == 0
    assert path.read_text() == GOOD
    assert main(["fmt", "--check", str(path)]) == 0


def test_fmt_reads_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("function(A)->(O){O=A+1;}"))
    assert main(["fmt", "-"]) == 0
    assert capsys.readouterr().out == GOOD


def test_a_file_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(self: Path, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    path = tmp_path / "loose.tile"
    path.write_text("function (A) -> (B) {B=A;}")
    monkeypatch.setattr(Path, "write_text", refuse)
    assert main(["fmt", str(path)]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    path = tmp_path / "marked.tile"
    path.write_text("function (A) -> (B) { B = A; }", encoding="utf-8-sig")
    assert main(["check", str(path)]) == 0
    assert main(["fmt", str(path)]) == 0
    assert path.read_text(encoding="utf-8").startswith("function")
