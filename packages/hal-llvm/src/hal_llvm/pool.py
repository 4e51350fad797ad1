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
        self._lock = forking.rlock()
        self._begun = False
        """Its workers are being started, or there: until then, as in a signal's handler meanwhile, the caller works alone."""
        self._started = False
        self._handles: list[int] = []
        self._scratch: list[_Scratch] = []
        """All that there were: a worker may still use the old, which are together no larger than twice the newest."""
        self._memory, self.address = _aligned(layout.WORKERS_AT + self.threads * layout.WORKER_BYTES)
        self._memory[:] = 0
        self._header(layout.RESERVED, np.uint64)[0] = 1
        if self._system is not None:
            for slot in range(layout.SLOTS):
                self._system.semaphore(self.address + layout.SLOTS_AT + slot * layout.SLOT_BYTES + layout.SLOT_SEM)

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
        reserved = self._header(layout.RESERVED, np.uint64)
        with self._lock:
            if int(reserved[0]) > nbytes:
                return
            size = max(nbytes, 2 * int(reserved[0]))
            self._scratch.append(_Scratch(size, self.workers))
            given = 0
            while given < (largest := max(self._scratch)).nbytes:  # a signal's handler may add larger ones meanwhile
                given = largest.nbytes
                for worker, address in enumerate(largest.addresses):
                    self._field(worker, layout.SCRATCH, np.uint64)[0] = address
            reserved[0] = given + 1

    def _field(self, worker: int, offset: int, dtype: npt.DTypeLike) -> npt.NDArray[np.generic]:
        start = layout.WORKERS_AT + worker * layout.WORKER_BYTES + offset
        return self._memory[start : start + np.dtype(dtype).itemsize].view(dtype)

    def _header(self, offset: int, dtype: npt.DTypeLike = np.int32) -> npt.NDArray[np.generic]:
        return self._memory[offset : offset + np.dtype(dtype).itemsize].view(dtype)

    def _start(self) -> None:
        with self._lock:
            if self._begun:
                return
            self._begun = True
            try:
                self._prepare()
            except BaseException:
                self._begun = False
                raise

    def _prepare(self) -> None:
        system = self._system
        native = _native(system)
        cpus = available_cpus() if system is not None and system.pins else []
        self._header(layout.SPIN)[0] = SPIN
        self._header(layout.PIN)[0] = int(1 < len(cpus) <= PIN_LIMIT and max(cpus) < 8 * layout.MASK_BYTES)
        for cpu in cpus:
            if cpu < 8 * layout.MASK_BYTES:
                self._memory[layout.MASK_AT + cpu // 8] |= 1 << cpu % 8
        started = 0
        if system is not None:
            with system.quiet():  # signals go to Python's threads, never to workers
                started = self._launch(system, native)
        self._header(layout.WORKERS)[0] = started
        self._header(layout.RUN, np.uint64)[0] = native.run_address
        self._started = True
        if _state.get("pool") is self:
            shared.value = self.address

    def _launch(self, system: System, native: _Native) -> int:
        """How many workers there are."""
        while (worker := len(self._handles)) < self.workers:
            start = self.address + layout.WORKERS_AT + worker * layout.WORKER_BYTES
            self._field(worker, layout.POOL, np.uint64)[0] = self.address
            self._field(worker, layout.EXCLUDED, np.int32)[0] = -1
            system.semaphore(start + layout.WORKER_SEM)
            handle = system.start(start + layout.THREAD, native.worker, start)
            if handle is None:
                break
            self._handles.append(handle)
        return len(self._handles)

    def close(self) -> None:
        """Stop and join the workers; the pool starts them again with its next job."""
        with self._lock:
            if not self._started:
                return
            if shared.value == self.address:
                shared.value = 0
            self._header(layout.STOP)[0] = 1
            for worker in range(len(self._handles)):
                assert self._system is not None
                self._system.post(self.address + layout.WORKERS_AT + worker * layout.WORKER_BYTES + layout.WORKER_SEM)
            while self._handles:
                assert self._system is not None
                self._system.join(self._handles.pop())
            self._header(layout.STOP)[0] = 0
            self._started = self._begun = False


class _Scratch:
    """Memory of one size for each worker; the larger comes later in order."""

    def __init__(self, nbytes: int, workers: int) -> None:
        self.nbytes = nbytes
        self._blocks = [_aligned(nbytes) for _ in range(workers)]
        self.addresses = [address for _, address in self._blocks]

    def __lt__(self, other: _Scratch) -> bool:
        return self.nbytes < other.nbytes


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
_state_lock = forking.rlock()


def _native(system: System | None) -> _Native:
    return _natives.get(system) or _natives.setdefault(system, _Native(system))


def current() -> ThreadPool:
    """The process's pool, made at first use with the number of threads of `Settings` or of the machine."""
    pool = _state.get("pool")
    if pool is not None:
        return pool
    with _state_lock:
        return _state.setdefault("pool", ThreadPool(Settings.from_environment().num_threads or thread_count()))


def resize(threads: int) -> None:
    """Another number of threads for kernels that are prepared from now on; nothing may be running."""
    with _state_lock:
        made, old = ThreadPool(threads), _state.get("pool")
        _state["pool"] = made
        if old is not None:
            _forgotten.append(old)
            old.close()


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
