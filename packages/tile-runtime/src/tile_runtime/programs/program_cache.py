"""Compiled programs of an evaluator, in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import count
from typing import cast

from tile_ir import forking

from tile_runtime.programs.executable import Executable

Signature = tuple[object, ...]
"""A function's key, then (NumPy dtype, shape) of each input."""
_Kind = tuple[object, tuple[int, ...]]


class ProgramCache:
    """Bounded, thread-safe, least recently used first out; each signature is compiled by one thread only.

    A signal's handler may use it on the thread that holds its lock: what is gone through is copied first.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._ready: dict[Signature, Executable] = {}
        self._latest: dict[object, Executable] = {}
        self._making: dict[Signature, threading.RLock] = {}
        self._lock = forking.rlock()
        self._clock = count(1)

    def find(self, signature: Signature) -> Executable | None:
        """The executable, when there is one. Takes no lock: a lookup and two assignments."""
        found = self._ready.get(signature)
        if found is not None:
            found.used = next(self._clock)
            self._latest[signature[0]] = found.expect_more()
        return found

    def latest(self, key: object) -> Executable | None:
        """The executable that was found last for the function of this key: what its next call will want, mostly."""
        found = self._latest.get(key)
        if found is not None:
            found.used = next(self._clock)
        return found

    def make(self, signature: Signature, compile: Callable[[], Executable]) -> Executable:
        """The executable, compiled now unless another thread just did; errors of `compile` leave no trace."""
        with self._lock:
            gate = self._making.setdefault(signature, forking.rlock())
        with gate:
            try:
                found = self.find(signature)
                return self._store(signature, compile()) if found is None else found
            finally:
                with self._lock:
                    self._making.pop(signature, None)

    def _store(self, signature: Signature, made: Executable) -> Executable:
        with self._lock:
            made.used = next(self._clock)
            self._ready[signature] = made
            while len(self._ready) > self.limit:
                self._forget(min([*self._ready], key=self._used))
        return made

    def _used(self, signature: Signature) -> int:
        found = self._ready.get(signature)
        return 0 if found is None else found.used

    def shapes(self, key: object) -> int:
        """For how many shapes of its arguments there are programs of the function of this key."""
        with self._lock:
            found = [cast("tuple[_Kind, ...]", signature[1:]) for signature in [*self._ready] if signature[0] == key]
        return len({tuple(shape for _, shape in kinds) for kinds in found})

    def _forget(self, signature: Signature) -> None:
        gone = self._ready.pop(signature, None)
        if gone is not None and self._latest.get(signature[0]) is gone:
            self._latest.pop(signature[0], None)

    def clear(self) -> None:
        """Forget every program."""
        with self._lock:
            self._ready.clear()
            self._latest.clear()

    def __len__(self) -> int:
        return len(self._ready)
