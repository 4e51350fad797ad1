"""Programs that must fail: errors/NAME.tile, and in errors/NAME.txt the diagnostics, position and text.

A first line ``// shapes: A=float32[3,4] B=int32[]`` asks for binding with these types when the text parses.
``pytest --update-golden`` rewrites the expected files; look at the difference before you commit it.
"""

import re
from pathlib import Path

import pytest
from tile_ir.diagnostics import Source, TileError
from tile_ir.dtype import DType
from tile_ir.program.nodes import TensorType
from tile_lang.codes import CODES
from tile_lang.parser import parse

FOLDER = Path(__file__).parent / "errors"
CASES = sorted(path.stem for path in FOLDER.glob("*.tile"))
SHAPE = re.compile(r"(\w+'?)=(\w+)\[([\d,\s]*)\]")


def shapes(text: str) -> dict[str, TensorType] | None:
    """The types in a case's first line, or None when it has no such line."""
    first = text.partition("\n")[0]
    if not first.startswith("// shapes:"):
        return None
    types = {}
    for name, dtype, sizes in SHAPE.findall(first):
        types[name] = TensorType(DType(dtype), tuple(int(s) for s in sizes.split(",") if s.strip()))
    return types


def diagnose(name: str) -> TileError:
    """The error that a case causes."""
    text = (FOLDER / f"{name}.tile").read_text()
    types = shapes(text)
    with pytest.raises(TileError) as caught:
        function = parse(Source(text, f"{name}.tile"))
        if types is not None:
            from tile_lang import bind

            bind(function, types)
    return caught.value


@pytest.mark.parametrize("name", CASES)
def test_diagnostics_are_as_expected(name: str, request: pytest.FixtureRequest) -> None:
    error = diagnose(name)
    rendered = "\n".join(d.render() for d in error.diagnostics) + "\n"
    expected = FOLDER / f"{name}.txt"
    if request.config.getoption("--update-golden", default=False):
        expected.write_text(rendered)
    assert expected.read_text() == rendered
    assert {d.code for d in error.diagnostics} <= CODES.keys()
    assert all(d.span is not None for d in error.diagnostics)


def test_every_expected_file_has_a_program() -> None:
    assert {p.stem for p in FOLDER.glob("*.txt")} <= set(CASES)


def test_enough_different_syntax_mistakes() -> None:
    assert sum(shapes((FOLDER / f"{n}.tile").read_text()) is None for n in CASES) >= 35
