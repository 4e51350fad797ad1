"""Options of the language's tests."""

import sys
from pathlib import Path

import pytest

# Test modules import the helper modules beside them.
sys.path.insert(0, str(Path(__file__).parent))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the expected files of the golden tests")
