"""Executes semtree, slowly and with every check: the meaning of a kernel, without any hardware.

`launch` simulates the whole grid in this thread: groups one after the other, the work items of a
group one after the other up to the next barrier or collective, then all of them on from there. Data races, accesses
out of bounds, reads of memory that nothing wrote and barriers that not all threads reach raise
`SemtreeRuntimeError`. A sub-group barrier orders memory of the whole group here, so races between
sub-groups across one go unseen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

from tile_ir import numerics
from tile_ir.emit.walker import walk_statements
from tile_ir.recent import Recent
from tile_ir.semtree import scalars
from tile_ir.semtree.closures import Compiled, Event, Waiting, compile_function
from tile_ir.semtree.closures_matrix import Collective, lanes_product, load_matrices
from tile_ir.semtree.closures_memory import finish_copies
from tile_ir.semtree.errors import SemtreeRuntimeError
from tile_ir.semtree.memory import Memory, Stamp, Thread, share_shadows
from tile_ir.semtree.nodes import (
    Access,
    AsyncCopy,
    Atomic,
    Barrier,
    CallFn,
    Function,
    LastGroup,
    MatrixLoad,
    Mma,
    Param,
    Store,
    SubgroupOp,
    TensorCopy,
    TileStep,
    Var,
)  # fmt: skip
from tile_ir.semtree.verify import verify

Triple = tuple[int, int, int]


def launch(function: Function, groups: Triple, buffers: Sequence[Any], check_races: bool = True) -> None:
    """Run `groups` work groups of a kernel on NumPy buffers, in place.

    `buffers` are one-dimensional arrays, one per parameter and of its dtype. A parameter has
    `Param.elements` elements, or all of the array when that is 0. Axis 0 of the grid varies fastest.
    SemtreeError when the function breaks a rule, SemtreeRuntimeError when running it does.
    """
    compiled = _compiled(function, check_races)
    memories = [_bind(p, b) for p, b in zip(function.params, _counted(function, buffers), strict=True)]
    if check_races and (groups != (1, 1, 1) or function.group_size != (1, 1, 1)):
        share_shadows(memories, _written(function))
    with np.errstate(all="ignore"):
        _Launch(compiled, groups, memories).run()


_CACHE_SIZE = 64
_kept: Recent[tuple[int, bool], tuple[Function, Compiled]] = Recent(_CACHE_SIZE)
"""By the identity of a function, which its entry keeps alive, so that an equal one means the same object."""


def _compiled(function: Function, checked: bool) -> Compiled:
    """Compile once per function object (nodes may be too deep to hash)."""

    def verified() -> tuple[Function, Compiled]:
        verify(function)
        return function, compile_function(function, checked)

    return _kept.get((id(function), checked), verified)[1]


def _counted(function: Function, buffers: Sequence[Any]) -> Sequence[Any]:
    if len(buffers) != len(function.params):
        raise SemtreeRuntimeError(f"{function.name} takes {len(function.params)} buffers, not {len(buffers)}")
    return buffers


def _bind(param: Param, array: Any) -> Memory:
    t = param.type
    if (getattr(array, "ndim", 0), getattr(array, "dtype", None)) != (1, t.dtype.numpy):
        raise SemtreeRuntimeError(f"buffer {param.name} is a one-dimensional {t.dtype} array")
    size = param.elements or len(array) // t.lanes
    if size * t.lanes > len(array):
        raise SemtreeRuntimeError(f"buffer {param.name} has {len(array)} values, the kernel needs {size * t.lanes}")
    if param.access is not Access.READ and not array.flags.writeable:
        raise SemtreeRuntimeError(f"buffer {param.name} is written but is a read-only array")
    return Memory(param.name, array, t, size)


def _written(function: Function) -> set[str]:
    """Names of pointers that the body may write, by itself or through a helper."""
    helpers = {h.name: h for h in function.helpers}
    names: set[str] = set()
    for statement in walk_statements(function.body):
        match statement:
            case Store(Var(name)) | Atomic(_, Var(name)) | AsyncCopy(Var(name)) | TensorCopy(Var(name)):
                names.add(name)
            case TileStep("tile_store", ptr=Var(name)):
                names.add(name)
            case CallFn(name, args) if name in helpers:
                pairs = zip(helpers[name].params, args, strict=True)
                names.update(a.name for p, a in pairs if isinstance(a, Var) and p.access is not Access.READ)
            case _:
                pass
    return names


@dataclass(slots=True)
class _Launch:
    compiled: Compiled
    groups: Triple
    memories: list[Memory]
    stage: int = 0
    arrived: Counter[int] = field(default_factory=Counter[int])
    """Groups that were at the `LastGroup`, of each set."""

    def run(self) -> None:
        gx, gy, gz = self.groups
        for number, (z, y, x) in enumerate(product(range(gz), range(gy), range(gx))):
            self._group(number, (x, y, z))

    def _group(self, number: int, at: Triple) -> None:
        self.stage += 1
        threads = self._threads(number, at)
        if not self.compiled.code.waits:
            for thread in threads:
                self.compiled.code.run(self.compiled.frame(thread, self.memories))
                _finish(thread)
            return
        _LockStep(self, threads).run()

    def arrive(self, which: int, count: int) -> bool:
        """Whether another group is the last one of its set: then what all have done is behind it."""
        self.arrived[which] += 1
        last = self.arrived[which] == count
        if last:
            for memory in self.memories:
                memory.settle()
        return last

    def _threads(self, group: int, at: Triple) -> list[Thread]:
        sx, sy, sz = self.compiled.function.group_size
        arrays: dict[int, Memory] = {}
        common: dict[Any, Any] = {}
        threads: list[Thread] = []
        size = self.compiled.function.subgroup or sx * sy * sz
        for lane, (z, y, x) in enumerate(product(range(sz), range(sy), range(sx))):
            item = group * sx * sy * sz + lane
            stamp = Stamp(self.stage, item, group, lane // size)
            position = (at[0] * sx + x, at[1] * sy + y, at[2] * sz + z)
            threads.append(Thread(item, group, (position, at, (x, y, z)), arrays, stamp, stamp, common=common))
        return threads


def _finish(thread: Thread) -> None:
    for copies in thread.copies.values():
        finish_copies(copies)


@dataclass(slots=True)
class _LockStep:
    """Threads of one group that wait for each other."""

    launch: _Launch
    threads: list[Thread]
    running: dict[int, Waiting] = field(default_factory=dict[int, Waiting])
    events: dict[int, Event] = field(default_factory=dict[int, Event])

    def run(self) -> None:
        compiled = self.launch.compiled
        for lane, thread in enumerate(self.threads):
            self.running[lane] = compiled.code.run(compiled.frame(thread, self.launch.memories))
        replies: dict[int, Any] = dict.fromkeys(self.running)
        while replies:
            for lane, reply in replies.items():
                self._resume(lane, reply)
            replies = self._meet()

    def _resume(self, lane: int, reply: Any) -> None:
        try:
            self.events[lane] = self.running[lane].send(reply)
        except StopIteration:
            del self.running[lane]
            _finish(self.threads[lane])

    def _meet(self) -> dict[int, Any]:
        """Replies for the threads that may go on; empty when all are done."""
        if not self.events:
            return {}
        replies: dict[int, Any] = {}
        for lanes in self._parties():
            nodes = {id(self.events[lane][0]) if lane in self.events else 0 for lane in lanes}
            if len(nodes) == 1 and 0 not in nodes:
                replies.update(self._release(lanes))
        if not replies:
            lane, (node, _) = next(iter(self.events.items()))
            raise SemtreeRuntimeError(
                f"{self.launch.compiled.function.name}: {self.threads[lane]} waits at a {type(node).__name__} "
                f"that {len(self.threads) - len(self.events)} finished and other waiting threads do not reach"
            )
        return replies

    def _parties(self) -> list[range]:
        """Lanes that meet: the whole group at a group barrier, sub-groups otherwise."""
        whole = range(len(self.threads))
        if all(_is_group_barrier(node) for node, _ in self.events.values()):
            return [whole]
        size = self.launch.compiled.function.subgroup or len(whole)
        parties = [whole[i : i + size] for i in range(0, len(whole), size)]
        return [p for p in parties if p[0] in self.events and not _is_group_barrier(self.events[p[0]][0])]

    def _release(self, lanes: range) -> dict[int, Any]:
        node = self.events[lanes[0]][0]
        args = [self.events.pop(lane)[1] for lane in lanes]
        if isinstance(node, Barrier):
            self._pass(node.fence, lanes if node.scope == "subgroup" else None)
            return dict.fromkeys(lanes)
        if isinstance(node, LastGroup):
            self._pass("global")
            return dict.fromkeys(lanes, self.launch.arrive(int(args[0][0]), node.count))
        return dict(zip(lanes, self._collective(node, lanes, args), strict=True))

    def _collective(self, node: Collective, lanes: range, args: list[tuple[Any, ...]]) -> list[Any]:
        match node:
            case MatrixLoad():
                return load_matrices(node, [self.threads[lane] for lane in lanes], args)
            case Mma():
                return lanes_product(node, args)
            case SubgroupOp():
                return _collective(node, args)

    def _pass(self, fence: str, party: range | None = None) -> None:
        """What all threads did, or those of a sub-group, is behind them."""
        self.launch.stage += 1
        self.threads[0].common.clear()
        news = {"stage": self.launch.stage} if party is None else {"step": self.launch.stage}
        for thread in self.threads if party is None else self.threads[party.start : party.stop]:
            if fence in ("local", "all"):
                thread.local = thread.local._replace(**news)
            if fence in ("global", "all"):
                thread.shared = thread.shared._replace(**news)


def _is_group_barrier(node: Barrier | LastGroup | Collective) -> bool:
    return isinstance(node, LastGroup) or (isinstance(node, Barrier) and node.scope == "group")


def _collective(node: SubgroupOp, args: list[tuple[Any, ...]]) -> list[Any]:
    """Each lane's result of a sub-group operation."""
    values = [a[0] for a in args]
    if node.op.startswith("reduce_"):
        return [_reduced(node, values)] * len(values)
    sources = [_SOURCES[node.op](lane, int(a[1])) for lane, a in enumerate(args)]
    if node.op in ("shuffle_up", "shuffle_down"):
        return [values[s] if 0 <= s < len(values) else values[lane] for lane, s in enumerate(sources)]
    wrong = [s for s in sources if not 0 <= s < len(values)]
    if wrong or (node.op == "broadcast" and len(set(sources)) > 1):
        raise SemtreeRuntimeError(f"subgroup {node.op} reads lanes {sorted(set(sources))} of {len(values)}")
    return [values[s] for s in sources]


def _reduced(node: SubgroupOp, values: list[Any]) -> Any:
    """The same tree as `ReduceLanes`; an odd last value joins at its end."""
    dtype, name = node.type.dtype, node.op.removeprefix("reduce_")
    lanes = np.asarray(values, dtype.numpy)
    while len(lanes) > 1:
        half = len(lanes) // 2
        joined = numerics.apply(name, (lanes[:half], lanes[half : 2 * half]), dtype)
        lanes = np.concatenate([joined, lanes[2 * half :]])
    return scalars.value_of(lanes[0], node.type)


_SOURCES: dict[str, Callable[[int, int], int]] = {
    "broadcast": lambda lane, other: other,
    "shuffle": lambda lane, other: other,
    "shuffle_xor": lambda lane, mask: lane ^ mask,
    "shuffle_up": lambda lane, distance: lane - distance,
    "shuffle_down": lambda lane, distance: lane + distance,
}
