"""Closures of the statements and expressions that touch memory (see `tile_ir.semtree.closures`).

The scalar paths check bounds themselves and call `Memory` only where something is watched: they are
most of what a kernel does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import numpy as np

from tile_ir.semtree import scalars
from tile_ir.semtree.memory import Memory, Thread, allocate
from tile_ir.semtree.nodes import Alloc, AsyncCopy, Atomic, Load, Space, Store

Frame = list[Any]
Evaluate = Callable[[Frame], Any]
Run = Callable[[Frame], None]

_keys = count()


def load(node: Load, args: Sequence[Evaluate]) -> Evaluate:
    """``ptr[index]``, masked lanes being zero."""
    pointer, index, *mask = args
    if node.type.lanes == 1 and not mask:
        return _load_scalar(pointer, index, node.type.dtype.is_float)
    if not mask:
        return _load_vector(pointer, index, node.type.lanes)
    t, zero = node.type, node.type.dtype.numpy.type(0)

    def run(f: Frame) -> Any:
        memory: Memory = pointer(f)
        active = np.atleast_1d(mask[0](f))
        at = memory.locate(index(f), t.lanes, active, f[0], "read")
        memory.on_read(at, f[0])
        values = np.full(t.lanes, zero, t.dtype.numpy)
        values[active] = memory.data[at]
        return scalars.value_of(values, t)

    return run


def _load_scalar(pointer: Evaluate, index: Evaluate, is_float: bool) -> Evaluate:
    def run(f: Frame) -> Any:
        memory: Memory = pointer(f)
        i = index(f)
        if not 0 <= i < memory.size:
            memory.locate(i, 1, None, f[0], "read")
        if memory.shadow is not None or memory.known is not None:
            memory.on_read(range(i, i + 1), f[0])
        return memory.data[i] if is_float else memory.data.item(i)

    return run


def _load_vector(pointer: Evaluate, index: Evaluate, lanes: int) -> Evaluate:
    def run(f: Frame) -> Any:
        memory: Memory = pointer(f)
        i = index(f) * memory.unit
        if not 0 <= i <= memory.size * memory.unit - lanes:
            memory.locate(i // memory.unit, lanes, None, f[0], "read")
        if memory.shadow is not None or memory.known is not None:
            memory.on_read(range(i, i + lanes), f[0])
        return memory.data[i : i + lanes].copy()

    return run


def store(node: Store, args: Sequence[Evaluate]) -> Run:
    """``ptr[index] = value``."""
    pointer, index, value, *mask = args
    lanes = node.value.type.lanes

    def run(f: Frame) -> None:
        memory: Memory = pointer(f)
        active = np.atleast_1d(mask[0](f)) if mask else None
        at = memory.locate(index(f), lanes, active, f[0], "write")
        if memory.shadow is not None or memory.known is not None:
            memory.on_write(at, f[0])
        if isinstance(at, range):
            memory.data[at.start : at.stop] = value(f)
        else:
            memory.data[at] = np.atleast_1d(value(f))[active]

    return run


def alloc(node: Alloc, slot: int, checked: bool) -> Run:
    """A fresh private array each time, or the group's one local array of this statement."""
    key = next(_keys)

    def private(f: Frame) -> None:
        f[slot] = allocate(node.name, node.type, checked)

    def local(f: Frame) -> None:
        arrays: dict[int, Memory] = f[0].locals
        if key not in arrays:
            arrays[key] = allocate(node.name, node.type, checked)
        f[slot] = arrays[key]

    return local if node.type.space is Space.LOCAL else private


def atomic(node: Atomic, args: Sequence[Evaluate]) -> Run:
    """``ptr[index] = agg(ptr[index], value)``."""
    pointer, index, value = args
    merge, t = scalars.merge(node.agg, node.value.type), node.value.type

    def run(f: Frame) -> None:
        memory: Memory = pointer(f)
        (at,) = memory.locate(index(f), 1, None, f[0], "atomic update")
        memory.on_atomic(at, f[0])
        memory.data[at] = merge(scalars.value_of(memory.data[at], t), value(f))

    return run


def async_copy(node: AsyncCopy, args: Sequence[Evaluate]) -> Run:
    """Reads now, fills the target when waited for; in between the target counts as unwritten."""
    dst, to, src, start, *guard = args
    group = node.group

    def run(f: Frame) -> None:
        there = not guard or guard[0](f)
        if not there and not node.fill:
            return
        target, source, thread = dst(f), src(f), f[0]
        filled = target.locate(to(f), node.count, None, thread, "write")
        values = 0
        if there:
            read = source.locate(start(f), node.count, None, thread, "read")
            source.on_read(read, thread)
            values = source.data[read.start : read.stop].copy()
        begin_copy(group, target, filled, values, thread)

    return run


def begin_copy(group: int, target: Memory, filled: range, values: Any, thread: Thread) -> None:
    """Into the open batch. The hardware may write from now on until the wait: a race with either end is one."""
    target.on_write(filled, thread)
    if target.known is not None:
        target.known[filled.start : filled.stop] = bytes(len(filled))

    def complete() -> None:
        target.on_write(filled, thread)
        target.data[filled.start : filled.stop] = values

    thread.copies.setdefault(group, [[]])[-1].append(complete)


def async_wait(group: int, pending: int) -> Run:
    """Close the group's open batch and complete the oldest ones until `pending` are left."""

    def run(f: Frame) -> None:
        batches = f[0].copies.setdefault(group, [[]])
        batches.append([])
        finish_copies(batches, pending + 1)

    return run


def finish_copies(batches: list[list[Callable[[], None]]], left: int = 0) -> None:
    """Complete batches of copies, oldest first, until `left` are left."""
    while len(batches) > left:
        for complete in batches.pop(0):
            complete()
