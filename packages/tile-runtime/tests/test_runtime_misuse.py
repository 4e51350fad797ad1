"""Wrong uses: each is one of the project's errors, with a code and what to do, and changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tile_runtime as tile

SOURCE = "function (A) -> (B) { B = A + 1; }"


@pytest.mark.parametrize(
    ("source", "name", "message", "hint"),
    [
        (3, None, "not int 3", "a string"),
        (None, None, "not NoneType None", "a string"),
        (SOURCE.encode(), None, "not bytes", "decode"),
        (Path("f.tile"), None, "not (Posix|Windows)Path", "from_file"),
        (SOURCE, 7, "the name of a function is text, not int 7", "a string"),
    ],
)
def test_a_source_that_is_no_text(source: Any, name: Any, message: str, hint: str) -> None:
    with pytest.raises(tile.TileTypeError, match=message) as error:
        tile.Function(source, name)
    (found,) = error.value.diagnostics
    assert found.code == "TILE-E515"
    assert hint in (found.hint or "")


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "plus.tile"
    path.write_text(SOURCE, encoding="utf-8-sig")
    assert tile.Function.from_file(path).source == SOURCE
    path.write_text(SOURCE, encoding="utf-16")
    with pytest.raises(tile.TileSyntaxError, match="not UTF-8 text") as error:
        tile.Function.from_file(path)
    assert "save it as UTF-8" in str(error.value)
    with pytest.raises(tile.TileSyntaxError, match="byte-order mark") as error:
        tile.Function("\ufeff" + SOURCE)
    assert "utf-8-sig" in (error.value.diagnostics[0].hint or "")
