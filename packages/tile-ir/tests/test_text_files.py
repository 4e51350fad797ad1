"""Texts that users name are read whole, and one that never ends is not."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from tile_ir import text_files
from tile_ir.text_files import read_standard_input, read_text


def test_a_text_without_the_mark_of_its_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.tile"
    file.write_bytes("\ufeffB = A; // é".encode())
    assert read_text(file) == read_text(str(file)) == "B = A; // é"
    monkeypatch.setattr(sys, "stdin", io.StringIO("\ufeffB"))
    assert read_standard_input() == "B"


def test_what_never_ends_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_files, "LONGEST", 9)
    file = tmp_path / "a.tile"
    file.write_text("x" * 9)
    assert read_text(file) == "x" * 9
    file.write_text("x" * 10)
    monkeypatch.setattr(sys, "stdin", io.StringIO("x" * 10))
    endless = [Path("/dev/zero")] if Path("/dev/zero").exists() else []
    for path in (file, *endless):
        with pytest.raises(OSError, match="large"):
            read_text(path)
    with pytest.raises(OSError, match="large"):
        read_standard_input()


def test_a_closed_standard_input_is_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(OSError, match="standard input"):
        read_standard_input()
