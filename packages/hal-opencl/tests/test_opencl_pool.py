"""The pool of device memory, and the order of commands on memory that is used again: against a model, without a device."""

from __future__ import annotations

import gc
import os
import signal
import threading
import weakref
from types import SimpleNamespace
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hal_opencl.context import DeviceContext
from hal_opencl.events import DeviceEvent
from hal_opencl.memory import DeviceBuffer, DeviceMemory
from hal_opencl.pool import Block, Pool, rounded
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tile_hal.errors import Code, device_error
from tile_ir.diagnostics import TileDeviceError

SIZES = st.one_of(st.integers(0, 5000), st.integers(0, 1 << 34))
QUEUED, COMPLETE = 3, 0


@given(SIZES, SIZES)
def test_blocks_are_of_few_sizes_that_are_little_too_large(small: int, large: int) -> None:
    small, large = sorted((small, large))
    assert small <= rounded(small) <= rounded(large) == rounded(rounded(large))
    assert rounded(large) - large <= max(512, min(large // 7, 2 << 20))


class PoolMachine(RuleBasedStateMachine):
    """Any order of taking, giving up and running out of memory."""

    MOST, TOTAL = 1 << 16, 1 << 18

    def __init__(self) -> None:
        super().__init__()
        self.pool = Pool(self.make, self.drop, self.MOST, self.TOTAL, None)
        self.alive = set[Block]()
        self.taken: list[Block] = []

    def make(self, size: int) -> Block:
        if sum(b.nbytes for b in self.alive) + size > self.TOTAL:
            raise device_error(Code.MEMORY, "none left")
        block = Block(None, size)
        self.alive.add(block)
        return block

    def drop(self, block: Block) -> None:
        assert block not in self.taken
        self.alive.discard(block)

    @rule(nbytes=st.integers(0, 1 << 16))
    def take(self, nbytes: int) -> None:
        in_use = sum(b.nbytes for b in self.taken)
        try:
            block = self.pool.take(nbytes)
        except TileDeviceError:
            assert in_use + rounded(nbytes) > self.TOTAL, "memory that waits would have done"
            return
        assert block.nbytes >= nbytes
        assert all(block is not other for other in self.taken)
        self.taken.append(block)

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def give(self, data: st.DataObject) -> None:
        self.pool.give(self.taken.pop(data.draw(st.integers(0, len(self.taken) - 1))))

    @precondition(lambda self: self.taken)
    @rule()
    def lose(self) -> None:
        block = self.taken.pop()
        block.lost = True
        self.pool.give(block)
        self.alive.discard(block)

    @rule()
    def trim(self) -> None:
        self.pool.trim()
        assert self.pool.idle == 0

    @invariant()
    def counts(self) -> None:
        assert self.pool.used == sum(b.nbytes for b in self.taken)
        assert self.pool.held == sum(b.nbytes for b in self.alive)
        assert self.pool.idle <= self.MOST


TestPool = PoolMachine.TestCase
TestPool.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_what_comes_back_is_taken_again() -> None:
    made: list[int] = []
    pool = Pool(lambda n: made.append(n) or Block(None, n), lambda block: None, 1 << 20, 1 << 30)
    for _ in range(100):
        for block in [pool.take(n) for n in (100, 5000, 100)]:
            pool.give(block)
    assert len(made) == pool.made == 3


def test_idle_memory_goes_before_the_device_is_full() -> None:
    dropped: list[Block] = []
    pool = Pool(lambda n: Block(None, n), dropped.append, 1 << 30, 1 << 30, capacity=4096)
    first = pool.take(2048)
    pool.give(first)
    pool.take(4096)
    assert dropped == [first] and pool.held == 4096


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_counts_what_comes_back_whatever_another_thread_was_doing() -> None:
    inside, over = threading.Event(), threading.Event()

    def drop(block: Block) -> None:
        inside.set()
        over.wait()

    pool = Pool(lambda n: Block(None, n), drop, 1 << 20, 1 << 30)
    pool.give(pool.take(512))
    other = threading.Thread(target=pool.trim)
    other.start()
    inside.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # rather than hang
        pool.give(pool.take(4096))
        os._exit(1 if pool.used else 0)
    over.set()
    other.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# --- the order of commands ---------------------------------------------------------------------------------


class FakeEvent:
    """A command of a fake queue: what it comes after, and whether it is over."""

    def __init__(self, after: set[FakeEvent]) -> None:
        self.command_execution_status = QUEUED
        self.after = after


class FakeQueue:
    """In order, as OpenCL's are."""

    def __init__(self) -> None:
        self.commands: list[FakeEvent] = []

    def add(self, waits: Any) -> FakeEvent:
        previous = [*self.commands[-1:], *(waits or ())]
        event = FakeEvent({e for p in previous for e in (p, *p.after)})
        self.commands.append(event)
        return event

    def flush(self) -> None:
        pass

    def finish(self) -> None:
        for event in self.commands:
            event.command_execution_status = COMPLETE


class Raw:
    """A memory object."""


class Context(DeviceContext):
    """A device that does nothing."""

    def __init__(self) -> None:
        self.queues: list[FakeQueue] = []
        super().__init__(
            SimpleNamespace(
                global_bytes=1 << 20, max_allocation=1 << 16, unified=False, platform="", platform_version="", kind="gpu",
                alignment=64,
            )  # type: ignore[arg-type]
        )  # fmt: skip

    def _make_block(self, size: int) -> Block:
        return Block(object(), size, np.empty(size, np.uint8))

    def _make_queue(self, profiling: bool) -> Any:
        self.queues.append(FakeQueue())
        return self.queues[-1]


class OrderMachine(RuleBasedStateMachine):
    """Buffers come, are used and go, while the device is behind: nobody touches memory before its earlier users are done."""

    def __init__(self) -> None:
        super().__init__()
        self.context = Context()
        self.memory = DeviceMemory(self.context)
        self.buffers: list[DeviceBuffer] = []
        self.last: dict[DeviceBuffer, DeviceEvent] = {}
        self.lives: dict[Block, list[list[FakeEvent]]] = {}
        """For each block the commands of each of its owners."""

    @rule(nbytes=st.sampled_from([0, 100, 600, 5000]))
    def allocate(self, nbytes: int) -> None:
        buffer = self.memory.allocate(nbytes)
        assert all(buffer.block is not other.block for other in self.buffers)
        self.buffers.append(buffer)
        self.lives.setdefault(buffer.block, []).append([])

    @precondition(lambda self: self.buffers)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        self.last.pop(self.buffers.pop(data.draw(st.integers(0, len(self.buffers) - 1))), None)

    @precondition(lambda self: self.buffers)
    @rule(data=st.data(), profile=st.booleans(), dependent=st.booleans())
    def run(self, data: st.DataObject, profile: bool, dependent: bool) -> None:
        numbers = data.draw(st.lists(st.integers(0, len(self.buffers) - 1), min_size=1, max_size=3, unique=True))
        used = [self.buffers[n] for n in numbers]
        earlier = [self.last[b] for b in used if b in self.last] if dependent else []
        event = self.context.lanes.submit(lambda queue, buffers, waits: queue.add(waits), used, earlier, profile)
        assert isinstance(event, DeviceEvent)
        self.check(event.raw, [e.raw for e in earlier], "a dependency")
        for buffer in used:
            self.last[buffer] = event
            *before, mine = self.lives[buffer.block]
            self.check(event.raw, [e for life in before for e in life], "an earlier user of the memory")
            mine.append(event.raw)

    def check(self, event: FakeEvent, earlier: list[FakeEvent], what: str) -> None:
        for other in earlier:
            assert other in event.after or other.command_execution_status == COMPLETE, f"{what} may still run"

    @precondition(lambda self: any(q.commands for q in self.context.queues))
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        queue = data.draw(st.sampled_from([q for q in self.context.queues if q.commands]))
        command = data.draw(st.sampled_from(queue.commands))
        for event in (*command.after, command):
            event.command_execution_status = COMPLETE

    @invariant()
    def bounded(self) -> None:
        gc.collect(0)
        assert self.memory.usage.used == sum({b.block: b.block.nbytes for b in self.buffers}.values())


TestOrder = OrderMachine.TestCase
TestOrder.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)


def test_a_chain_stays_on_one_queue_and_needs_two_blocks() -> None:
    context = Context()
    memory = DeviceMemory(context)
    value, event = memory.allocate(100), None
    for _ in range(50):
        result = memory.allocate(100)
        waits = [event] if event else []
        event = context.lanes.submit(lambda queue, buffers, waits: queue.add(waits), (result, value), waits)
        value = result
    assert memory.usage.allocations == 2
    assert [len(q.commands) for q in context.queues] == [50]


def test_independent_work_is_spread_until_memory_is_used_again() -> None:
    context = Context()
    memory = DeviceMemory(context)
    for _ in range(8):
        kept = [memory.allocate(100) for _ in range(4)]
        for buffer in kept:
            context.lanes.submit(lambda queue, buffers, waits: queue.add(waits), (buffer,))
    assert [len(q.commands) for q in context.queues] == [8] * 4
    assert all(e.after <= set(q.commands) for q in context.queues for e in q.commands), "one queue waits for another"


def test_mapped_memory_is_not_used_again() -> None:
    context = Context()
    context.maps_for_free = True
    memory = DeviceMemory(context)
    shown = memory.allocate(100).map_discard()
    assert memory.usage.held == 0 and len(shown) == 100


@pytest.mark.parametrize("full", [False, True])
def test_memory_goes_back_to_the_device_when_no_queued_command_uses_it(full: bool) -> None:
    context = Context()
    memory = DeviceMemory(context)
    raws: list[weakref.ref[Raw]] = []

    def make(size: int) -> Block:
        if full and raws and any(raw() is not None for raw in raws):
            raise device_error(Code.MEMORY, "none left")
        raw = Raw()
        raws.append(weakref.ref(raw))
        return Block(raw, size)

    context.pool._make = make
    buffer = memory.allocate(100)
    event = context.lanes.submit(lambda queue, buffers, waits: queue.add(waits), (buffer,))
    del buffer
    context.pool.most = 0
    assert context.pool.used == context.pool.held == 0 and raws[0]() is not None, "a command uses it still"
    other = memory.allocate(5000) if full else memory.trim()
    assert event.done and raws[0]() is None
    del other


def test_a_queue_waits_for_each_later_command_of_another_once() -> None:
    context = Context()
    buffer = DeviceMemory(context).allocate(100)
    waited: list[int] = []

    def command(queue: FakeQueue, buffers: Any, waits: Any) -> FakeEvent:
        waited.append(len(waits or ()))
        return queue.add(waits)

    first = context.lanes.submit(command, (buffer,))
    second = context.lanes.submit(command, (buffer,), [first])
    for earlier in (first, first, second, second, first):
        context.lanes.submit(command, (buffer,), [earlier], profile=True)
    assert waited == [0, 0, 1, 0, 1, 0, 0]
