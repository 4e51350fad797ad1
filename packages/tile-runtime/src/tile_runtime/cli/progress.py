"""What a terminal shows while something takes longer than two seconds; nothing anywhere else."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from threading import Timer

PATIENCE = 2.0
"""Seconds until something is shown."""


@contextmanager
def waiting(what: str) -> Generator[None]:
    """Say `what` is done, when it takes long."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    status = Console(stderr=True).status(f"{what} …")
    timer = Timer(PATIENCE, status.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        status.stop()


@contextmanager
def measuring(seconds: float) -> Generator[Callable[[float], None]]:
    """A bar for something that takes `seconds`; what is yielded takes those that have passed."""
    if seconds <= PATIENCE or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("measuring", total=seconds)
        yield lambda passed: progress.update(bar, completed=min(passed, seconds))
