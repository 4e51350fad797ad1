"""``python -m tile_opt.answers``: the process that answers hard questions (`analysis.answering` asks them) until its input ends."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from typing import Any

from tile_opt.analysis.answering import decoded, encoded
from tile_opt.analysis.integer_sets import Isl


def _proof(*arguments: Any) -> Any:
    from tile_opt.proof.run import answer

    return answer(*arguments)


def _rounding(*arguments: Any) -> Any:
    from tile_opt.rounding.run import answer

    return answer(*arguments)


ANSWERS: dict[str, Callable[..., Any]] = {"prove": _proof, "rounding": _rounding}
"""Who answers a question; those about sets are methods of `Isl`."""


def main() -> None:
    """Answer until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who asked
    isl = Isl(0)
    for line in sys.stdin:
        question, packed = json.loads(line)
        arguments = decoded(packed)
        answer = ANSWERS[question](*arguments) if question in ANSWERS else isl.answer(question, arguments)
        sys.stdout.write(json.dumps(encoded(answer)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
