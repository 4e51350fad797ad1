"""What a kernel's accesses do to set-associative caches: the accesses in the interpreter's order, and an LRU simulator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
from tile_ir.machine import Cache
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Bind, Block, Direction, Index, Load, Store

Array = np.ndarray[Any, np.dtype[np.int64]]
GAP = 1 << 26
"""Bytes between the starts of buffers: more than any of them has."""


@dataclass(frozen=True, slots=True)
class _View:
    start: Array
    strides: tuple[int, ...]


def trace(kernel: Block) -> Array:
    """Byte addresses of all loads and stores to memory, in the order of the interpreter, every buffer in its own place."""
    places: dict[str, int] = {}
    views = {r.source: _View(_place(places, r.source), ()) for r in kernel.refs if r.source}
    return np.concatenate([np.zeros(0, np.int64), *_trace(kernel, {}, views, places)])


def _place(places: dict[str, int], name: str) -> Array:
    return np.array(places.setdefault(name, (len(places) + 1) * GAP))


def _trace(
    block: Block, outer: Mapping[str, Any], parents: Mapping[str, _View], places: dict[str, int]
) -> Iterator[Array]:
    if any(int(form.evaluate(outer)) < 0 for form in block.guard):
        return
    given = {i.name: i.value.evaluate(outer) for i in block.indexes if i.value is not None}
    own = [i for i in block.indexes if i.value is None]
    if not any(isinstance(s, Block) for s in block.body):
        yield _leaf(block, given, own, parents, places)
        return
    for point in np.ndindex(*(i.range for i in own)):
        env = given | {i.name: value for i, value in zip(own, point, strict=True)}
        if all(int(form.evaluate(env)) >= 0 for form in block.constraints):
            views = _views(block, env, parents, places)
            for statement in block.body:
                if isinstance(statement, Block):
                    yield from _trace(statement, env, views, places)


def _leaf(
    block: Block, given: Mapping[str, Any], own: Sequence[Any], parents: Mapping[str, _View], places: dict[str, int]
) -> Array:
    values = [_values(i, block) for i in own]
    grids = np.meshgrid(*values, indexing="ij")
    env = given | {i.name: grid.reshape(-1) for i, grid in zip(own, grids, strict=True)}
    count = int(np.prod([len(v) for v in values]))
    views = _views(block, env, parents, places)
    columns = [np.broadcast_to(_address(s, views, env), count) for s in block.body if _in_memory(s, block)]
    rows = np.stack(columns, 1) if columns else np.zeros((count, 0), np.int64)
    keep = np.ones(count, np.bool_)
    for form in block.constraints:
        keep &= np.asarray(form.evaluate(env)) >= 0
    return rows[keep].reshape(-1)


def _values(index: Index, block: Block) -> Array:
    """All values of a loop; of each register of a vector that is contiguous wherever it moves, the first and the last lane."""
    lanes = index.lanes
    strides = {
        form.coefficient(index.name) * stride
        for ref in block.refs
        for form, stride in zip(ref.access, ref.type.strides, strict=True)
        if isinstance(form, Affine)
    }
    everything = np.arange(index.range)
    if index.bind is not Bind.VECTOR or lanes < 3 or not strides <= {0, 1}:
        return everything
    return everything[(everything % lanes == 0) | (everything % lanes == lanes - 1)]


def _in_memory(statement: Any, block: Block) -> bool:
    match statement:
        case Load(src=name) | Store(dst=name):
            return block.ref(name).loc.unit != "REG"
        case _:
            return False


def _address(statement: Load | Store, views: Mapping[str, _View], env: Mapping[str, Any]) -> Array:
    view = views[statement.src if isinstance(statement, Load) else statement.dst]
    offsets = (form.evaluate(env) * stride for form, stride in zip(statement.at, view.strides, strict=False))  # type: ignore[union-attr]
    return np.asarray(view.start + sum(offsets))


def _views(
    block: Block, env: Mapping[str, Any], parents: Mapping[str, _View], places: dict[str, int]
) -> dict[str, _View]:
    views: dict[str, _View] = {}
    for ref in block.refs:
        strides = tuple(s * ref.type.dtype.bytes for s in ref.type.strides)
        if ref.dir is Direction.ALLOC:
            views[ref.into] = _View(_place(places, ref.into), strides)
        else:
            moved = sum(form.evaluate(env) * stride for form, stride in zip(ref.access, strides, strict=True))
            views[ref.into] = _View(np.asarray(parents[ref.source].start + moved), strides)
    return views


def in_random_pages(addresses: Array, page: int, seed: int = 0) -> Array:
    """The addresses with each page somewhere else, as the physical addresses of small pages are."""
    pages, inverse = np.unique(addresses // page, return_inverse=True)
    frames = np.array(Random(seed).sample(range(1 << 24), len(pages)), np.int64)
    return frames[inverse] * page + addresses % page


def misses(addresses: Array, caches: Sequence[Cache], runs: int = 2) -> list[int]:
    """Lines that each level has to fetch in the last of so many runs over the addresses, each level asked for those of the nearer one."""
    sets = [Sets(cache) for cache in caches]
    counts: list[int] = []
    touched = _lines(addresses, caches[0].line)
    for _ in range(runs):
        lines, counts = touched, []
        for one in sets:
            lines = one.fetched(lines)
            counts.append(len(lines))
    return counts


def _lines(addresses: Array, line: int) -> list[int]:
    """Lines in order, a line touched twice in a row once."""
    lines = addresses // line
    return lines[np.concatenate(([True], lines[1:] != lines[:-1]))].tolist() if len(lines) else []


class Sets:
    """A cache that replaces the line of a set that was not used for longest."""

    def __init__(self, cache: Cache) -> None:
        self.ways, self.count = cache.ways, cache.bytes // cache.line // cache.ways
        self.sets: list[dict[int, None]] = [{} for _ in range(self.count)]

    def fetched(self, lines: Iterable[int]) -> list[int]:
        """Those of the lines that are not there when they are asked for, in order."""
        found: list[int] = []
        for line in lines:
            held = self.sets[line % self.count]
            if line in held:
                del held[line]
            else:
                found.append(line)
                if len(held) == self.ways:
                    del held[next(iter(held))]
            held[line] = None
        return found
