"""What is logged and warned of: compilations, why the cache had none, and functions of many shapes; memory that is counted."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path

import numpy as np
import pytest
import tile_runtime as tile
from tile_runtime.evaluator import MANY_SHAPES

pytestmark = pytest.mark.skipif(
    "llvm:0" not in [d.id for d in tile.devices()], reason="the llvm device is not installed"
)


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.LogCaptureFixture:
    monkeypatch.setenv("TILE_CACHE_DIR", str(tmp_path))
    caplog.set_level(logging.INFO, "tile")
    return caplog


def scaling() -> tile.Function:
    return tile.Function("function (A) -> (B) { B = A * 2; }", name="scaling.tile")


def run(size: int, function: tile.Function | None = None, **options: bool) -> None:
    tile.Evaluator("llvm", **options)(function or scaling(), np.ones(size, np.float32))


def test_compilations_and_misses_say_why(log: pytest.LogCaptureFixture) -> None:
    run(3)
    assert log.messages[0] == "'scaling' for llvm:0 is not in the disk cache: nothing of this function is stored"
    assert log.messages[1].startswith("compiled 'scaling' for llvm:0 in ")
    run(3)
    assert log.messages[2:] == ["'scaling' for llvm:0 is in the disk cache"]
    run(4)
    assert log.messages[3] == "'scaling' for llvm:0 is not in the disk cache: what is stored differs in types"
    run(4, fast_math=True)
    assert log.messages[5] == "'scaling' for llvm:0 is not in the disk cache: what is stored differs in target"


def test_nobody_listens_nothing_is_said(log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger("tile"), "level", logging.WARNING)
    logging.getLogger("tile").manager._clear_cache()  # type: ignore[attr-defined]
    run(5)
    assert log.messages == []


def test_a_function_of_many_shapes_is_named_once() -> None:
    function, evaluator = scaling(), tile.Evaluator("llvm")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", tile.TileShapeWarning)
        for size in range(1, MANY_SHAPES):
            evaluator(function, np.ones(size, np.float32))
        assert not caught
        for size in range(MANY_SHAPES, MANY_SHAPES + 3):
            evaluator(function, np.ones(size, np.float32))
    (warning,) = caught
    assert "scaling (A) -> (B) has been compiled for its 10th shape (A float32[10])" in str(warning.message)
    assert warning.filename == __file__


def test_memory_in_use_and_its_peak_are_counted() -> None:
    evaluator, n = tile.Evaluator("llvm"), 1 << 20
    before = evaluator.memory
    a = tile.asarray(np.ones(n, np.float32), "llvm")
    b = evaluator(scaling(), a).wait()
    during = evaluator.memory
    del a, b
    tile.synchronize("llvm")
    after = evaluator.memory
    assert before and during and after
    assert during.used - before.used == 2 * 4 * n
    assert during.peak is not None and during.peak >= during.used
    assert after.used == before.used and after.peak == during.peak
    assert after.held >= after.used


def test_a_profile_shows_itself() -> None:
    with tile.profile() as p:
        run(6)
    assert repr(p).startswith(f"<tile Profile of {len(p.launches)} steps in ")
    assert p._repr_html_().startswith("<pre> kernel")
