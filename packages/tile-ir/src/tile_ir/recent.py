"""Values that are kept by what they were made for, the latest ones only."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from tile_ir import forking

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """At most `limit` values: the one that was asked for longest ago goes first.

    For any number of threads: where several make the value of one key, all get the first one that was ready.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._values: OrderedDict[K, V] = OrderedDict()
        self._lock = forking.rlock()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: K, make: Callable[[], V]) -> V:
        """The value of this key, made now where it is not kept; errors of `make` leave no trace."""
        with self._lock:
            try:
                self._values.move_to_end(key)
                return self._values[key]
            except KeyError:  # also where a signal's handler drops it right now
                pass
        made = make()
        with self._lock:
            found = self._values.setdefault(key, made)
            while len(self._values) > self.limit:
                self._values.popitem(last=False)
        return found
