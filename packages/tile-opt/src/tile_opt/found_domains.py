"""The flat domains that one compilation has found, shared by all rewrites that ask for them.

Apart from `analysis`, which loads ISL: who begins a compilation need not ask anything.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

_shared: ContextVar[dict[object, object] | None] = ContextVar("shared", default=None)


@contextmanager
def shared_domains() -> Generator[None]:
    """Within it each domain is found once: one rewrite after the other asks for those of all contractions."""
    token = _shared.set({})
    try:
        yield
    finally:
        _shared.reset(token)


def found_domains() -> dict[object, object]:
    """Those found so far, by what they depend on; none outside a compilation."""
    shared = _shared.get()
    return {} if shared is None else shared
