"""Hard questions about sets are answered by a process of their own, which can be given up.

A call of ISL cannot be interrupted from Python, and its operation limit counts operations that may take milliseconds
each. The process (`tile_opt.answers`) reads one question a line from its input and writes one answer a line to its
output, as JSON; it ends with its input, and where a question takes more of a processor than it may. So what can be
answered does not depend on how busy the machine is.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from typing import Any, cast
from weakref import finalize

from tile_ir.stripe.affine import Affine

PATIENCE, STARTED = 20.0, 60.0
"""Seconds that pass while a busy machine gives the process one of its own, and those in which it has begun."""
COUNTED = hasattr(signal, "setitimer")
"""Whether a process can end itself after so much of a processor; where it cannot, all seconds that pass count."""


class Unanswered(Exception):
    """The deadline passed, or the process failed."""


class Answerer:
    """The process, started with the first question; `close` or the end of this object ends it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.spent = 0.0
        """Seconds of a processor that the last question took."""

    def ask(self, question: str, arguments: tuple[Any, ...], seconds: float) -> Any:
        """The answer of `Isl.question(*arguments)`, with lists for tuples; Unanswered when it takes more of a processor."""
        self.spent = seconds
        if seconds <= 0:
            raise Unanswered
        process = self._running()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps([question, encoded(arguments), seconds]) + "\n")
            process.stdin.flush()
            answer = self._answers.get(timeout=STARTED + PATIENCE * seconds if COUNTED else seconds)
        except (queue.Empty, OSError):
            answer = ""
        except BaseException:  # Ctrl-C: a late answer must not meet the next question
            self.close()
            raise
        if not answer:
            self.close()
            raise Unanswered
        found, self.spent = json.loads(answer)
        return decoded(found)

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            command = [sys.executable, "-P", "-m", "tile_opt.answers"]
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
            try:
                process = subprocess.Popen(command, **pipes, text=True, env=_environment())
            except OSError as problem:  # an embedded Python has no interpreter to start
                raise Unanswered from problem
            self._process, self._answers = process, queue.SimpleQueue()
            threading.Thread(target=_read, args=(process, self._answers), name="tile-answers", daemon=True).start()
            finalize(self, _end, process, os.getpid())
        return self._process

    def close(self) -> None:
        """End the process; the next question starts another one."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()


def _end(process: subprocess.Popen[str], owner: int) -> None:
    if os.getpid() == owner:  # not a forked child of whoever asks
        process.kill()


def _environment() -> dict[str, str]:
    """This process's, with the folders that its modules come from."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def _read(process: subprocess.Popen[str], answers: queue.SimpleQueue[str]) -> None:
    """Hand over each line, then the empty one of the end."""
    assert process.stdout is not None
    for line in process.stdout:
        answers.put(line)
    answers.put("")


def encoded(value: Any) -> Any:
    """A value for JSON: forms become objects with an empty key, tuples lists."""
    if isinstance(value, Affine):
        return {"": value.terms, "const": value.const}
    if isinstance(value, dict):
        table = cast("dict[str, Any]", value)
        return {name: encoded(item) for name, item in table.items()}
    if isinstance(value, list | tuple):
        return [encoded(item) for item in cast("tuple[Any, ...]", value)]
    return value


def decoded(value: Any) -> Any:
    """What `encoded` made of it, with lists for tuples."""
    if isinstance(value, dict):
        table = cast("dict[str, Any]", value)
        if "" in table:
            return Affine(tuple((name, c) for name, c in table[""]), table["const"])
        return {name: decoded(item) for name, item in table.items()}
    if isinstance(value, list):
        return [decoded(item) for item in cast("list[Any]", value)]
    return value
