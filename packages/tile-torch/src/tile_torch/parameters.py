"""Parameters and buffers, bound to a program: what it makes of them alone is made once, and again when they change."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from tile_hal.interfaces import Device
from tile_ir import forking
from tile_runtime.tensor import Tensor, sharing

from tile_torch.dtypes import ordered_array
from tile_torch.program import Bindable
from tile_torch.walk import Slot

SETS = 16
"""Sets of parameters for which a program is kept, where modules share a graph; the least recently used gives way."""


@dataclass(slots=True)
class _Seen:
    """A parameter as it was when its Tensor was made."""

    name: str
    slot: Slot
    pointer: int = -1
    version: int = -1
    owner: weakref.ref[torch.Tensor] | None = None


@dataclass(slots=True)
class _Set:
    """A program with one module's parameters, which are followed: in place, and to where they move."""

    composition: Bindable
    seen: list[_Seen]
    tensors: dict[str, Tensor]
    device: Device

    def fits(self, arguments: Sequence[Any]) -> bool:
        """Whether the arguments are these parameters, changed or not."""
        return all(arguments[s.slot.number].data_ptr() == s.pointer for s in self.seen)

    def is_current(self, arguments: Sequence[Any]) -> bool:
        """Whether nothing has changed: asked for every parameter in every call, so that it calls nothing of ours."""
        for seen in self.seen:
            tensor = arguments[seen.slot.number]
            if tensor._version != seen.version or tensor.data_ptr() != seen.pointer:
                return False
        return True

    @property
    def is_orphaned(self) -> bool:
        """Whether a parameter of it is no more."""
        return any(s.owner is not None and s.owner() is None for s in self.seen)

    def follow(self, arguments: Sequence[Any]) -> None:
        """Takes over what has changed."""
        for seen in self.seen:
            tensor = arguments[seen.slot.number]
            if tensor._version != seen.version or tensor.data_ptr() != seen.pointer:
                fresh = sharing(ordered_array(tensor, seen.slot.order), self.device)
                fresh.writes = self.tensors[seen.name].writes + 1
                self.tensors[seen.name] = fresh
                seen.pointer, seen.version, seen.owner = tensor.data_ptr(), tensor._version, weakref.ref(tensor)


@dataclass(slots=True)
class Parameters:
    """The parameters of a program, for every module that shares it. Safe to use from any thread."""

    composition: Bindable
    named: Sequence[tuple[str, Slot]]
    device: Device
    sets: list[_Set] = field(default_factory=list[_Set])
    """The one used last stands first."""
    _lock: Any = field(default_factory=forking.rlock)

    def bound(self, arguments: Sequence[Any]) -> Bindable:
        """The program for the parameters among the arguments of a call, as they are now."""
        sets = self.sets
        if sets and sets[0].is_current(arguments):
            return sets[0].composition
        with self._lock:
            found = self._set(arguments)
            found.follow(arguments)
            self.sets = [found, *(s for s in self.sets if s is not found)]
            return found.composition

    def _set(self, arguments: Sequence[Any]) -> _Set:
        for known in self.sets:
            if known.fits(arguments) or known.is_orphaned:
                return known
        return self._new(arguments) if len(self.sets) < SETS else self.sets[-1]

    def _new(self, arguments: Sequence[Any]) -> _Set:
        tensors = {n: sharing(ordered_array(arguments[s.number], s.order), self.device) for n, s in self.named}
        composition = self.composition.binding(tensors)
        seen = [_Seen(name, slot) for name, slot in self.named]
        return _Set(composition, seen, composition.bound, self.device)  # pyright: ignore[reportArgumentType]
