"""The thread pool of the process: native threads that take chunks of work groups.

Workers are plain threads of the operating system (`systems`) that run jitted code only (`pool_ir`): they hold no interpreter lock,
spin briefly after work and then sleep on a semaphore.
"""

from __future__ import annotations

import atexit
import ctypes
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from tile_ir import forking
from tile_ir.settings import Settings

from hal_llvm import pool_ir as layout
from hal_llvm import systems
from hal_llvm.cpu import available_cpus, thread_count
from hal_llvm.systems import System

NATIVE = systems.current() is not None
"""Whether this system's threads and semaphores are known."""

SPIN = 3000
"""Pauses (about 10-20 ns each) before a worker, or a caller that waits for one, sleeps."""

PIN_LIMIT = 8
"""Processors up to which a woken worker is kept off its caller's: with few of them the scheduler would put it there."""


class ThreadPool:
    """`threads` threads, counting the caller: ``threads - 1`` workers start with the first job."""

    def __init__(self, threads: int, system: System | None = None) -> None:
        """On `system`, this process's by default; where that has no threads for it, there is the caller's alone."""
        self._system = system or systems.current()
        self.threads = threads if self._system is not None else 1
        self._lock = forking.lock()
        self._started = False
        self._handles: list[int] = []
        self._scratch: list[npt.NDArray[np.uint8]] = []
        self._scratch_bytes = 0
        self._memory, self.address = _aligned(layout.WORKERS_AT + self.threads * layout.WORKER_BYTES)
        self._memory[:] = 0
        self._header(layout.RESERVED, np.uint64)[0] = 1

    @property
    def workers(self) -> int:
        return self.threads - 1

    def run(self, job: int) -> None:
        """Run the job at address `job` (see `pool_ir`) and return when it is complete; several threads may call at once."""
        if not self._started:
            self._start()
        _native(self._system).run(self.address, job)

    def reserve(self, nbytes: int) -> None:
        """Give each worker at least `nbytes` of scratch memory."""
        with self._lock:
            if nbytes <= self._scratch_bytes:
                return
            self._scratch_bytes = size = max(nbytes, 2 * self._scratch_bytes)
            for worker in range(self.workers):
                # A worker may still use the old block, so blocks are kept: at most twice what the largest needs.
                block, address = _aligned(size)
                self._scratch.append(block)
                self._field(worker, layout.SCRATCH, np.uint64)[0] = address
            self._header(layout.RESERVED, np.uint64)[0] = size + 1

    def _field(self, worker: int, offset: int, dtype: npt.DTypeLike) -> npt.NDArray[np.generic]:
        start = layout.WORKERS_AT + worker * layout.WORKER_BYTES + offset
        return self._memory[start : start + np.dtype(dtype).itemsize].view(dtype)

    def _header(self, offset: int, dtype: npt.DTypeLike = np.int32) -> npt.NDArray[np.generic]:
        return self._memory[offset : offset + np.dtype(dtype).itemsize].view(dtype)

    def _start(self) -> None:
        with self._lock:
            if self._started:
                return
            system = self._system
            cpus = available_cpus() if system is not None and system.pins else []
            self._header(layout.WORKERS)[0] = self.workers
            self._header(layout.SPIN)[0] = SPIN
            self._header(layout.PIN)[0] = int(1 < len(cpus) <= PIN_LIMIT and max(cpus) < 8 * layout.MASK_BYTES)
            for cpu in cpus:
                if cpu < 8 * layout.MASK_BYTES:
                    self._memory[layout.MASK_AT + cpu // 8] |= 1 << cpu % 8
            if system is not None:
                for slot in range(layout.SLOTS):
                    system.semaphore(self.address + layout.SLOTS_AT + slot * layout.SLOT_BYTES + layout.SLOT_SEM)
                with system.quiet():  # signals go to Python's threads, never to workers
                    self._launch(system)
            self._header(layout.RUN, np.uint64)[0] = _native(system).run_address
            self._started = True
            if _state.get("pool") is self:
                shared.value = self.address

    def _launch(self, system: System) -> None:
        for worker in range(self.workers):
            start = self.address + layout.WORKERS_AT + worker * layout.WORKER_BYTES
            self._field(worker, layout.POOL, np.uint64)[0] = self.address
            self._field(worker, layout.EXCLUDED, np.int32)[0] = -1
            system.semaphore(start + layout.WORKER_SEM)
            handle = system.start(start + layout.THREAD, _native(system).worker, start)
            if handle is None:
                self._header(layout.WORKERS)[0] = worker
                break
            self._handles.append(handle)

    def close(self) -> None:
        """Stop and join the workers; the pool starts them again with its next job."""
        with self._lock:
            if not self._started:
                return
            if shared.value == self.address:
                shared.value = 0
            self._header(layout.STOP)[0] = 1
            for worker, handle in enumerate(self._handles):
                assert self._system is not None
                self._system.post(self.address + layout.WORKERS_AT + worker * layout.WORKER_BYTES + layout.WORKER_SEM)
                self._system.join(handle)
            self._handles.clear()
            self._header(layout.STOP)[0] = 0
            self._started = False


class _Native:
    """The jitted functions of a system, compiled once per process."""

    def __init__(self, system: System | None) -> None:
        from hal_llvm import binding

        host = binding.host()
        ir = layout.pool_ir(host.triple, systems.ALONE if system is None else system.ir)
        module = binding.Module(ir, binding.target_machine(host))
        self._code = binding.LoadedCode([module.object_code()], ["pool.run", "pool.worker"])
        module.close()
        self.worker = self._code.addresses["pool.worker"]
        self.run_address = self._code.addresses["pool.run"]
        run_type = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
        self.run: Callable[[int, int], None] = run_type(self.run_address)


shared = ctypes.c_uint64(0)
"""Address of the process's pool while it has its workers, for native code that runs jobs; 0 otherwise."""
_state: dict[str, ThreadPool] = {}
_natives: dict[System | None, _Native] = {}
_state_lock = forking.lock()


def _native(system: System | None) -> _Native:
    if system not in _natives:
        _natives[system] = _Native(system)
    return _natives[system]


def current() -> ThreadPool:
    """The process's pool, made at first use with the number of threads of `Settings` or of the machine."""
    pool = _state.get("pool")
    if pool is not None:
        return pool
    with _state_lock:
        if "pool" not in _state:
            _state["pool"] = ThreadPool(Settings.from_environment().num_threads or thread_count())
        return _state["pool"]


def resize(threads: int) -> None:
    """Another number of threads for kernels that are prepared from now on; nothing may be running."""
    with _state_lock:
        old = _state.pop("pool", None)
        if old is not None:
            old.close()
            _forgotten.append(old)
        _state["pool"] = ThreadPool(threads)


def _aligned(nbytes: int) -> tuple[npt.NDArray[np.uint8], int]:
    """Bytes at a 64-byte aligned address."""
    raw = np.empty(nbytes + 64, np.uint8)
    start = -raw.__array_interface__["data"][0] % 64
    block = raw[start : start + nbytes]
    return block, int(block.__array_interface__["data"][0])


def _after_fork() -> None:
    """A child has none of the parent's threads: it begins with a fresh pool."""
    shared.value = 0
    old = _state.pop("pool", None)
    if old is not None:
        _forgotten.append(old)


_forgotten: list[ThreadPool] = []
"""Pools of parent processes, and those before others; kept, so that their memory is not freed under a job in flight."""


def _at_exit() -> None:
    pool = _state.get("pool")
    if pool is not None:
        pool.close()


forking.at_fork(in_child=_after_fork)
atexit.register(_at_exit)
