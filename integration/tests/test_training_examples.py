"""The examples of training learn what they are there to learn."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))


@pytest.mark.slow
def test_digits_are_recognised() -> None:
    pytest.importorskip("sklearn")
    import digits

    assert digits.main(["--epochs", "8"]) == 0


@pytest.mark.slow
def test_characters_are_learned() -> None:
    import characters

    assert characters.main(["--steps", "40", "--size", "32", "--write", "8"]) == 0
