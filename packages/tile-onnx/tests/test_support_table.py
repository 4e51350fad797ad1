"""docs/onnx.md says what the registry and the lists of cases say."""

from __future__ import annotations

import support_table


def test_the_page_is_up_to_date() -> None:
    assert support_table.PAGE.read_text(encoding="utf-8") == support_table.text(), "run tests/support_table.py"


def test_every_operator_is_there_or_refused() -> None:
    assert not [op for op in support_table.operators() if support_table.how(op)[0] == "not supported"]
