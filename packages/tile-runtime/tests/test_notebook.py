"""What notebooks call: the magic, and how results and errors are shown."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tile_runtime as tile


class Shell:
    """As much of IPython's shell as an extension uses."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {}
        self.magics: dict[str, Callable[[str, str], Any]] = {}

    def push(self, names: dict[str, Any]) -> None:
        self.names |= names

    def register_magic_function(self, function: Callable[[str, str], Any], kind: str, name: str) -> None:
        assert kind == "cell"
        self.magics[name] = function


@pytest.fixture
def shell() -> Shell:
    shell = Shell()
    tile.load_ipython_extension(shell)
    return shell


def test_a_cell_is_a_function(shell: Shell) -> None:
    shell.magics["tile"]("double", "function (A) -> (B) { B = A * 2; }")
    np.testing.assert_array_equal(shell.names["double"](np.ones(3, np.float32)), [2, 2, 2])


@pytest.mark.parametrize("name", ["", "two words", "3"])
def test_a_cell_needs_a_name(shell: Shell, name: str) -> None:
    with pytest.raises(tile.TileSyntaxError, match="%%tile conv"):
        shell.magics["tile"](name, "function (A) -> (B) { B = A; }")


def test_an_error_is_shown_with_its_place_and_no_frames(shell: Shell) -> None:
    with pytest.raises(tile.TileSyntaxError) as caught:
        shell.magics["tile"]("broken", "function (A) -> (B) { B = A +; }")
    shown = "\n".join(caught.value._render_traceback_())
    assert "broken.tile:1:" in shown
    assert "^" in shown
    assert "Traceback" not in shown


def test_notes_of_an_error_cross_processes() -> None:
    error = tile.TileTypeError("wrong")
    error.add_note("in chunk 3")
    copied = pickle.loads(pickle.dumps(error))
    assert copied._render_traceback_()[-1] == "in chunk 3"


def test_a_lowered_function_is_shown_as_its_page() -> None:
    lowered = tile.Function("function (A) -> (B) { B = A * 2; }").lower(tile.placeholder("float32", (8,), "x"))
    assert lowered._repr_html_().startswith("<iframe")


def test_tensors_are_tables() -> None:
    small = tile.asarray(np.arange(6, dtype=np.float32).reshape(2, 3) / 4, device="interp")._repr_html_()
    assert "float32[2, 3] on interp:0" in small and small.count("<td>") == 6 and "<td>1.25</td>" in small
    wide = tile.asarray(np.arange(200, dtype=np.int32), device="interp")._repr_html_()
    assert wide.count("<td>") == 9 and "<td>199</td>" in wide
    for other in (
        np.zeros((2, 2, 2), np.float32),
        np.zeros((), np.float32),
        np.zeros((0, 3), np.float32),
        np.ones(3, bool),
        np.ones(2, np.float16),
    ):
        assert "interp:0" in tile.asarray(other, device="interp")._repr_html_()
    assert tile.asarray(np.zeros(1 << 20, np.float32), device="interp")._repr_html_().startswith("<pre>Tensor(shape=")


def test_devices_say_what_they_are() -> None:
    device = tile.device("interp")
    assert repr(device) == "<device interp:0: Semtree interpreter>"
    page = device._repr_html_()
    assert "Semtree interpreter" in page and "float32" in page and "GiB" in page
    assert "compiles only" in tile.device("null")._repr_html_()
    assert repr(tile.Evaluator("interp")) == "<tile Evaluator on interp:0>"
