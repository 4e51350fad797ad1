"""What a forked child finds: locks that are free, whoever held them, and no import that stopped halfway.

Only the thread that forks lives on in the child, so that a lock which another one held would stay held for ever.
Every lock of these packages is made here, and everything that they do around a fork is said here, too.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from functools import cached_property
from typing import Any
from weakref import WeakSet

Action = Callable[[], object]

IMPORTS_SECONDS = 10.0
"""How long a fork waits for the imports of other threads."""

_locks: WeakSet[Any] = WeakSet()
_actions: list[tuple[Action | None, Action | None, Action | None]] = []
_begun: list[int] = []
"""How many of the actions had their first part, for each fork under way."""


def lock() -> threading.Lock:
    """A `threading.Lock` that is free in a forked child."""
    return _known(threading.Lock())


def rlock() -> threading.RLock:
    """A `threading.RLock` that is free in a forked child: for what a signal's handler may run inside of, on the same thread."""
    return _known(threading.RLock())


def mine(held: threading.RLock) -> bool:
    """This thread has the lock: a signal's handler asks, which may interrupt what changes things under it."""
    return held._is_owned()  # type: ignore[attr-defined, no-any-return]  # pyright: ignore


def condition() -> threading.Condition:
    """A `threading.Condition` that nobody holds or waits for in a forked child."""
    return _known(threading.Condition())


def at_fork(before: Action | None = None, in_parent: Action | None = None, in_child: Action | None = None) -> None:
    """Call `before` ahead of every fork and the others after it, where all locks are free in the child."""
    _actions.append((before, in_parent, in_child))


def _known(made: Any) -> Any:
    _locks.add(made)
    return made


def _run_before() -> None:
    """Also wait until no other thread is importing: the child could never import that module, nor wait for its end."""
    begun = 0
    end = time.monotonic() + IMPORTS_SECONDS
    while True:
        for before, _, _ in _actions[begun:]:
            if before is not None:
                before()
            begun += 1
        if not _others_import() or time.monotonic() > end:
            break
        time.sleep(1e-3)  # what is imported may bring actions of its own
    _begun.append(begun)


def _run_in_parent() -> None:
    for _, in_parent, _ in _actions[: _begun.pop()]:
        if in_parent is not None:
            in_parent()


def _run_in_child() -> None:
    for held in _locks:
        _set_free(held)
    if sys.version_info < (3, 12):
        _free_cached_properties()
    _begun.clear()
    for _, _, in_child in _actions:
        if in_child is not None:
            in_child()


def _set_free(held: Any) -> None:
    """As the standard library does with its own; what this thread holds, where a signal's handler forks, it goes on holding."""
    mine = held._release_save() if getattr(held, "_is_owned", bool)() else None
    held._at_fork_reinit()
    if mine is not None:
        held._acquire_restore(mine)


def _others_import() -> bool:
    """Whether another thread holds the lock of a module; where Python keeps them elsewhere, nobody is seen."""
    known: dict[str, Callable[[], Any]] = getattr(sys.modules.get("_frozen_importlib"), "_module_locks", {})
    found = (reference() for reference in list(known.values()))
    return any(getattr(held, "owner", None) not in (None, threading.get_ident()) for held in found)


def _free_cached_properties() -> None:
    """Before Python 3.12 a cached property holds a lock of its class while it is computed, and a compilation is one."""
    for name, module in list(sys.modules.items()):
        if name.startswith(("tile_", "hal_")):
            classes = [c for c in list(vars(module).values()) if isinstance(c, type) and c.__module__ == name]
            members: list[Any] = [member for c in classes for member in vars(c).values()]
            for member in members:
                if isinstance(member, cached_property):
                    member.__dict__["lock"] = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_run_before, after_in_parent=_run_in_parent, after_in_child=_run_in_child)
