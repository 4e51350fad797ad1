"""``python -m tile_opt.answers``: the process that answers hard questions (`analysis.answering` asks them) until its input ends."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from time import process_time
from typing import Any

from tile_opt.analysis.answering import COUNTED, decoded, encoded
from tile_opt.analysis.integer_sets import Isl


def _proof(*arguments: Any) -> Any:
    from tile_opt.proof.run import answer

    return answer(*arguments)


def _rounding(*arguments: Any) -> Any:
    from tile_opt.rounding.run import answer

    return answer(*arguments)


ANSWERS: dict[str, Callable[..., Any]] = {"prove": _proof, "rounding": _rounding}
"""Who answers a question; those about sets are methods of `Isl`."""

TICK = 0.01
"""The least seconds that processors are counted by."""


def main() -> None:
    """Answer until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who asked
    isl = Isl(0)
    for line in sys.stdin:
        question, packed, seconds = json.loads(line)
        arguments = decoded(packed)
        begin = process_time()
        _end_after(max(seconds, TICK))
        answer = ANSWERS[question](*arguments) if question in ANSWERS else isl.answer(question, arguments)
        _end_after(0)
        sys.stdout.write(json.dumps([encoded(answer), process_time() - begin]) + "\n")
        sys.stdout.flush()


def _end_after(seconds: float) -> None:
    """End this process, in the midst of a call of ISL, too, when it took so much more of a processor; 0 lets it live."""
    if COUNTED:
        signal.setitimer(signal.ITIMER_PROF, seconds)


if __name__ == "__main__":
    main()
