"""One clock for compiling a program, whoever does a part of it: `within_time` starts it, `check` looks at it.

What works through operations or kernels one by one names each before it begins with it. A look at the clock takes less
than a microsecond, so that it costs nothing beside any of them.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic

from tile_ir.diagnostics import Diagnostic, Span, TileLimitError
from tile_ir.settings import Settings

_ends: ContextVar[tuple[float, float] | None] = ContextVar("ends", default=None)
"""When time is up, and how much there was, in seconds."""


@contextmanager
def within_time() -> Generator[None]:
    """All that is compiled within has TILE_COMPILE_SECONDS together; one inside another shares the outer one's time."""
    seconds = Settings.from_environment().compile_seconds
    if not seconds or _ends.get() is not None:
        yield
        return
    token = _ends.set((monotonic() + seconds, seconds))
    try:
        yield
    finally:
        _ends.reset(token)


def check(doing: str, what: str, origin: Span | None = None) -> None:
    """TileLimitError (TILE-E305) when time is up, which says that it was `doing` `what`, an operation or a kernel."""
    given = _ends.get()
    if given is None or monotonic() < given[0]:
        return
    message = f"compiling takes longer than {given[1]:g} seconds, and has come to {doing} {what}"
    hint = "split the program, or set TILE_COMPILE_SECONDS higher (0: as long as it takes)"
    raise TileLimitError(Diagnostic("TILE-E305", message, origin, hint))
