"""Labels for what is applied: whoever builds a composition says what its parts are."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

from tile_ir.diagnostics import TileError

from tile_runtime.names import checked_name

_current: ContextVar[str] = ContextVar("tile_provenance", default="")


@contextmanager
def provenance(label: str) -> Generator[None]:
    """Let applications of functions that are made inside carry `label`, any text::

        with tile.provenance("block3/conv1"):
            y = relu(conv(x, w))

    Errors inside, `explain`, profiles, errors of devices and the comments of emitted source name it; nested labels
    are joined, as in ``If_3 > Conv_12``. What is computed and compiled does not depend on labels.
    """
    outer = _current.get()
    inside = " ".join(checked_name("what is applied", label).split())
    joined = f"{outer} > {inside}" if outer and inside else outer or inside
    token = _current.set(joined)
    try:
        yield
    except TileError as problem:
        if joined:
            problem.name_application(joined)
        raise
    finally:
        _current.reset(token)


def current_label() -> str:
    """The label for what is applied now; "" for none."""
    return _current.get()
