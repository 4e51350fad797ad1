"""What the parts of one device share: its description, its OpenCL context, its queues and its memory."""

from __future__ import annotations

import sys
from collections import deque
from contextlib import suppress

import numpy as np
from tile_hal.errors import Code, device_error
from tile_ir import forking
from tile_ir.semtree.nodes import MOST_COUNTS

from hal_opencl import binding
from hal_opencl.emit import tensors
from hal_opencl.endings import owner
from hal_opencl.events import Guard, Lanes
from hal_opencl.pool import Block, Pool

IDLE_SHARE, SHARED_IDLE_SHARE = 4, 16
"""This part of the device's memory may wait for its next use: of its own, and of memory that it shares with the host."""
USABLE = 0.95
"""Part of the device's memory that allocations may count on."""


COUNT_BYTES = 4 * (MOST_COUNTS + tensors.PLACES * tensors.WORDS)
"""Of counts of groups, and of the descriptors behind them."""


@owner
class DeviceContext:
    """Made when the device is listed; the OpenCL context and the queues come with their first use."""

    def __init__(self, info: binding.DeviceInfo) -> None:
        self.info = info
        self._raw: dict[str, object] = {}
        self._lingering = deque[Block]()
        """Blocks that nobody holds any more, but for commands."""
        alone: Guard | None = forking.rlock() if "oclgrind" in info.platform.lower() else None
        """oclgrind crashes when two threads are in it."""
        self.maps_for_free = self.is_pocl and self.shares_host_memory
        """Kernels work on the very bytes the host sees, so that a mapping is only a wait (PoCL on a CPU): each map and
        unmap command would cost a wake-up of the device's thread, about 20 µs."""
        self.pool = self._new_pool()
        self.lanes = Lanes(self._make_queue, alone, self.pool.trim, prompt=self._is_nvidia)
        self.guard = self.lanes.guard
        self._arrivals: dict[binding.RawQueue, binding.RawBuffer] = {}
        self.alignment = info.alignment

    def arrivals(self, queue: binding.RawQueue) -> binding.RawBuffer:
        """Counts that kernels on this queue leave at zero (`hal_opencl.emit.arrivals`); the queue's lock is held."""
        found = self._arrivals.get(queue)
        if found is None:
            found = binding.make_buffer(self.raw, COUNT_BYTES)
            binding.fill(queue, found, COUNT_BYTES, None)
            self._arrivals[queue] = found
        return found

    def _new_pool(self) -> Pool:
        total, shared = self.info.global_bytes, self.info.unified
        most = total // (SHARED_IDLE_SHARE if shared else IDLE_SHARE)
        return Pool(
            self._make_block, self.drop, most, self.info.max_allocation,
            None if shared else int(total * USABLE), self.settle,
        )  # fmt: skip

    def _make_queue(self, profiling: bool) -> binding.RawQueue:
        return binding.make_queue(self.raw, self.info.raw, profiling)

    @property
    def raw(self) -> object:
        """The OpenCL context."""
        # One for all threads, and for a signal's handler that comes in here.
        return self._raw.get("context") or self._raw.setdefault("context", binding.make_context(self.info.raw))

    def _make_block(self, size: int) -> Block:
        try:
            if self.maps_for_free:
                return self._over_host_memory(size)
            with self.guard:
                return Block(binding.make_buffer(self.raw, size), size)
        except (MemoryError, binding.cl_error) as problem:
            raise device_error(Code.MEMORY, f"{self.info.name} has no {size} bytes left: {problem}") from problem

    def _over_host_memory(self, size: int) -> Block:
        alignment = self.info.alignment
        memory = np.empty(size + alignment, np.uint8)
        start = -int(memory.__array_interface__["data"][0]) % alignment
        host = memory[start : start + size]
        return Block(binding.wrap_array(self.raw, host), size, host)

    def drop(self, block: Block) -> None:
        """Let a block go, once no queued command uses it: a driver keeps its own memory that long, but not the host's, and
        NVIDIA's has crashed over its own.

        From any thread, a finalizer too.
        """
        self._lingering.append(block)
        self._let_go()

    def settle(self) -> None:
        """Wait for the queued commands, so that all blocks that were dropped are gone."""
        if self._lingering:
            with suppress(binding.cl_error):  # a lost device uses nothing
                self.lanes.finish()
            self._let_go()

    def _let_go(self) -> None:
        while self._lingering:
            try:
                block = self._lingering.popleft()
            except IndexError:  # another thread was quicker
                return
            if any(not event.over for event in block.uses.values()):
                self._lingering.appendleft(block)
                return

    @property
    def _is_nvidia(self) -> bool:
        """Its driver begins with what is enqueued within a millisecond (tried on Linux), and a flush costs 1.3 µs."""
        return self.info.kind == "gpu" and "nvidia" in self.info.platform.lower() and sys.platform == "linux"

    @property
    def survives(self) -> bool:
        """Its compiler has had hundreds of thousands of random kernels and never ended the process: NVIDIA's. PoCL's has."""
        return "nvidia" in self.info.platform.lower()

    @property
    def is_pocl(self) -> bool:
        return "pocl" in self.info.platform_version.lower()

    @property
    def kernels_of_a_program(self) -> int:
        """Kernels that are built together: PoCL takes 20 ms to begin with a program."""
        return 8 if self.is_pocl else 1

    @property
    def declares_too_much(self) -> bool:
        """PoCL, on processors: it declares all of OpenCL C in every program unless told not to (`hal_opencl.emit.declarations`)."""
        return self.is_pocl and self.info.kind == "cpu"

    @property
    def shares_host_memory(self) -> bool:
        """Buffers over host memory are used in place."""
        return self.info.kind == "cpu" and self.info.unified

    @property
    def wrap_alignment(self) -> int:
        """Alignment in bytes of host memory that is used in place; PoCL takes any."""
        return 1 if self.is_pocl else 4096
