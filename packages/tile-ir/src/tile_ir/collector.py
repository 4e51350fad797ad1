"""Compiling without the garbage collector of cycles.

A compilation makes hundreds of thousands of small immutable objects that live until it ends and form no
cycles, and the collector would walk all of them again and again: a third of the time for long programs.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager

from tile_ir import forking

MUCH = 200_000
"""Objects whose walk takes some tens of milliseconds."""
FEW = 10_000
"""A program that freezes its objects has more; some interpreters begin with hundreds."""


def _grow_old() -> None:
    """If much was made meanwhile it joins the objects that are walked seldom; else all of it would be walked at once."""
    if gc.get_count()[0] > MUCH and gc.get_freeze_count() < FEW:  # what the program has frozen for itself stays so
        gc.freeze()
        gc.unfreeze()


class _Pause:
    """How many compilations run now, in all threads, and whether the first one found the collector enabled."""

    def __init__(self) -> None:
        self.lock = forking.rlock()
        self.running = 0
        self.enabled = False

    def enter(self) -> None:
        """Counted first, so that a compilation in a signal's handler right here leaves the collector to this one."""
        with self.lock:
            self.running += 1
            if self.running == 1:
                self.enabled = gc.isenabled()
                gc.disable()

    def leave(self) -> None:
        with self.lock:
            if self.running == 1 and self.enabled:
                _grow_old()
                gc.enable()
            self.running -= 1


_pause = _Pause()


@contextmanager
def uncollected() -> Generator[None]:
    """While this runs, in any thread, cycles are not collected."""
    pause = _pause
    pause.enter()
    try:
        yield
    finally:
        pause.leave()


def _after_fork_in_child() -> None:
    """Compilations of other threads are not in the child, and never come to their end there."""
    global _pause
    if _pause.running and _pause.enabled:
        gc.enable()
    _pause = _Pause()


forking.at_fork(in_child=_after_fork_in_child)
