"""Running kernels: small ones on the caller, large ones over the thread pool."""

from __future__ import annotations

import ctypes
import math
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NoReturn

import numpy as np
import numpy.typing as npt
from tile_hal.errors import Code, device_error
from tile_hal.events import COMPLETED
from tile_hal.host import ALIGNMENT, HostBuffer, HostExecutor, HostQueue
from tile_hal.interfaces import Buffer, Direct, DirectArray, DirectStep, Event, Kernel, Library, LoopStep, Turning
from tile_ir.kernels import INLINE_SECONDS, SLOW_BYTES
from tile_ir.kernels import Kernel as KernelInfo
from tile_ir.semtree.nodes import Access, Param

from hal_llvm import pool
from hal_llvm.backlog import Backlog
from hal_llvm.compiler import LlvmLibrary
from hal_llvm.direct import Program, direct, scratch, stop_all
from hal_llvm.pool_ir import JOB_PARAMS, JOB_STOP

HOLD_SECONDS = 2e-6
"""Kernels estimated below this keep the interpreter lock: giving it back and waiting for it would cost more."""
CHUNK_SECONDS = 4e-6
"""Least work in a chunk, so that the shared counter is no bottleneck."""
LONG_SECONDS = 0.1
"""Kernels estimated above this can be interrupted: the main thread, which alone hears Ctrl-C, has another one run them."""
LONG_CHUNK_SECONDS = 0.02
"""Most work in a chunk of theirs, unless a group has more: nobody takes another one once they are interrupted. The loops of
long groups ask on the way (`emit.polling`)."""

_HEADER = JOB_PARAMS // 8
_local = threading.local()


def estimated_seconds(info: KernelInfo) -> float:
    """Rough time of one launch on one thread; infinite when the kernel does not say what it does."""
    return info.estimated_seconds or math.inf


class _Job:
    """The native record of one launch: function, groups, grain, wanted workers, scratch, parameters, scratch."""

    __slots__ = ("address", "params", "scratch", "words")

    def __init__(self, fn: int, total: int, grain: int, want: int, params: int) -> None:
        self.words = (ctypes.c_uint64 * (_HEADER + params + 1))(fn, total, grain, want)
        self.address = ctypes.addressof(self.words)
        self.params = self.address + JOB_PARAMS
        self.scratch: npt.NDArray[np.uint8] | None = None
        """What the caller's thread works in, kept until the next launch."""


class LlvmKernel(Kernel):
    """One kernel of a library; safe to run from several threads at once."""

    def __init__(self, library: LlvmLibrary, index: int, executor: LlvmExecutor) -> None:
        info = library.kernels.kernels[index]
        assert info.function is not None
        self.library = library  # keeps the code loaded
        self.info = info
        self._executor = executor
        self._needs = tuple(
            (place, p.elements * p.type.dtype.bytes, p.access is not Access.READ, _alignment(p) - 1)
            for place, p in enumerate(info.function.params, _HEADER)
        )
        """For each parameter: its word in a job, bytes, whether it is written, address bits that must be zero."""
        self._count = len(self._needs)
        self._entry = library.code.addresses[f"kernel{index}"]
        self._scratch = library.scratch[index]
        self._total = math.prod(info.groups)
        self._seconds = estimated_seconds(info)
        if library.polls[index]:
            self._seconds = max(self._seconds, 2 * LONG_SECONDS)
        kind = ctypes.PYFUNCTYPE if self._seconds < HOLD_SECONDS else ctypes.CFUNCTYPE
        self._whole = library.code.addresses[f"kernel{index}.all"]
        self._all: Callable[[int], None] = kind(None, ctypes.c_void_p)(self._whole)
        divided = self._total > 1 or library.polls[index]
        self._long = LONG_SECONDS < self._seconds < math.inf and divided and pool.NATIVE
        alone = pool.current().threads == 1 and not self._long
        self._inline = not self._long and (self._total <= 1 or self._seconds < INLINE_SECONDS or alone)
        self._free: list[_Job] = []

    def run(self, params: Sequence[Buffer], dependencies: Sequence[Event] = (), *, profile: bool = False) -> Event:
        if profile or any(event is not COMPLETED for event in dependencies):
            return self._run_later(tuple(params), dependencies, profile)
        self._launch(params)
        return COMPLETED

    def _run_later(self, params: tuple[Buffer, ...], dependencies: Sequence[Event], profile: bool) -> Event:
        self._check(params)
        return self._executor.queue.run(lambda: self._launch(params), dependencies, profile=profile)

    def _launch(self, params: Sequence[Buffer]) -> None:
        if not self._total:
            return
        job = self._free.pop() if self._free else self._new_job()
        words = job.words
        if len(params) != self._count:
            self._reject(params)
        for buffer, (place, needed, written, odd) in zip(params, self._needs, strict=True):
            if not isinstance(buffer, HostBuffer) or buffer.nbytes < needed or (written and buffer.readonly):
                self._reject(params)
            address = buffer.address
            if address & odd and needed:
                self._reject(params)
            words[place] = address
        if self._scratch:
            self._give_scratch(job)
        if self._inline:
            self._all(job.params)
        elif self._long:
            self._run_long(job)
        else:
            pool.current().run(job.address)
        self._free.append(job)

    def _run_long(self, job: _Job) -> None:
        if threading.current_thread() is threading.main_thread():
            _run_interruptibly(job)
            return
        running = self._executor.running
        running.add(job)
        try:
            pool.current().run(job.address)
        finally:
            running.discard(job)

    def enlist(self, program: Program, params: Sequence[Buffer | int | Turning]) -> None:
        """Add a launch on `params` to a program of direct calls."""
        if not self._total:
            return
        job = self._new_job()
        for buffer, (place, _, _, odd) in zip(params, self._needs, strict=True):
            program.place(job.address + 8 * place, buffer, odd)
        if self._scratch:
            address, block = scratch(self._scratch)
            job.words[_HEADER - 1] = job.words[_HEADER + self._count] = address
            program.whole.kept.append(block)
        if self._inline:
            program.add(self._whole, job.params, self._seconds, job, self.library)
        else:
            program.whole.scratch = max(program.whole.scratch, self._scratch + 1)
            program.add(0, job.address, self._seconds, job, self.library)

    def _new_job(self) -> _Job:
        threads = pool.current().threads if not self._inline else 1
        grain = self._grain(threads)
        helpers = min(threads - 1, -(-self._total // grain) - 1)
        return _Job(self._entry, self._total, grain, helpers, self._count)

    def _grain(self, threads: int) -> int:
        """Groups per chunk: about eight chunks a thread, none shorter than `CHUNK_SECONDS`."""
        even = self._total / (threads * 8)
        if math.isfinite(self._seconds) and self._seconds > 0:
            least = self._total * CHUNK_SECONDS / self._seconds
            even = min(max(even, least), self._total / threads)
        if self._long:
            even = min(even, self._total * LONG_CHUNK_SECONDS / self._seconds)
        return max(1, math.ceil(even))

    def _give_scratch(self, job: _Job) -> None:
        if not self._inline:
            pool.current().reserve(self._scratch)
        # A signal's handler may run others while a long one is at work on another thread.
        job.scratch = block = _fresh(self._scratch) if self._long else _caller_scratch(self._scratch)
        address = int(block.__array_interface__["data"][0])
        job.words[_HEADER - 1] = job.words[_HEADER + self._count] = address + -address % ALIGNMENT

    def _reject(self, params: Sequence[Buffer]) -> NoReturn:
        self._check(params)
        raise AssertionError("the parameters fit after all")

    def _check(self, params: Sequence[Buffer]) -> None:
        """TileDeviceError for the first parameter that does not fit."""
        if len(params) != self._count:
            raise device_error(
                Code.PARAMETERS, f"kernel {self.info.name!r} takes {self._count} buffers, not {len(params)}"
            )
        for buffer, (place, needed, written, odd) in zip(params, self._needs, strict=True):
            problem = _misfit(buffer, needed, written, odd)
            if problem:
                code, text = problem
                raise device_error(code, f"parameter {place - _HEADER} of kernel {self.info.name!r} {text}")


def _alignment(param: Param) -> int:
    """Bytes that an address is a multiple of. What is only read may be narrow numbers as words, which lie as these do."""
    return param.align if param.access is Access.READ else max(param.align, param.type.dtype.bytes)


def _run_interruptibly(job: _Job) -> None:
    """Run a job on the pool; an interrupt comes through when the chunks in hand are complete, or their loops have asked."""
    done = threading.Event()
    owner: dict[str, bool] = {}
    """Whether the thread runs the job: the first to say so decides."""
    problems: list[BaseException] = []

    def work() -> None:
        try:
            if owner.setdefault("thread", True):
                pool.current().run(job.address)
        except BaseException as problem:
            problems.append(problem)
        finally:
            done.set()

    try:
        # The interrupt may come in here as well, before the thread runs and after.
        threading.Thread(target=work, name="hal-llvm-long", daemon=True).start()
        done.wait()
    except BaseException:
        _wait_stopped(job, owner, done)
        raise
    if problems:
        raise problems[0]


def _wait_stopped(job: _Job, owner: dict[str, bool], done: threading.Event) -> None:
    """Nobody works on the job any more when this returns, however often it is interrupted."""
    while True:
        with suppress(KeyboardInterrupt):
            job.words[JOB_STOP // 8] = 1
            if owner.setdefault("thread", False):
                done.wait()
            return


def _misfit(buffer: Buffer, needed: int, written: bool, odd: int) -> tuple[Code, str] | None:
    if not isinstance(buffer, HostBuffer):
        return Code.PARAMETERS, f"is a {type(buffer).__name__}, not a host buffer"
    if buffer.nbytes < needed:
        return Code.SIZE_MISMATCH, f"needs {needed} bytes, the buffer has {buffer.nbytes}"
    if written and buffer.readonly:
        return Code.READ_ONLY, "is written, but the buffer wraps read-only memory"
    if buffer.address & odd and needed:
        return Code.PARAMETERS, f"needs an address that is a multiple of {odd + 1}, not {buffer.address:#x}"
    return None


def _caller_scratch(nbytes: int) -> npt.NDArray[np.uint8]:
    """This thread's own scratch memory, with at least `nbytes` from its first aligned address on."""
    block: npt.NDArray[np.uint8] | None = getattr(_local, "block", None)
    if block is None or block.nbytes < nbytes + ALIGNMENT:
        _local.block = block = _fresh(nbytes)
    return block


def _fresh(nbytes: int) -> npt.NDArray[np.uint8]:
    return np.empty(nbytes + ALIGNMENT, np.uint8)


class LlvmExecutor(HostExecutor):
    """Runs kernels on the host's threads and copies in host memory."""

    def __init__(self) -> None:
        stop = _weakly(self)
        super().__init__(HostQueue(2, "hal-llvm", stop))
        self._calls = HostQueue(1, "hal-llvm-calls", stop)
        """Whole programs, one after the other: each uses all cores, and one thread at a time has a direct call of it."""
        self.running: set[_Job] = set()
        """Long jobs of other threads than the main one."""
        self._backlog = Backlog()

    def stop(self) -> None:
        """Have what other threads work on end soon; its results are of no use."""
        for job in tuple(self.running):
            job.words[JOB_STOP // 8] = 1
        stop_all()

    def finish(self) -> None:
        self._calls.finish()
        super().finish()

    def defer(self, work: Callable[[], None], dependencies: Sequence[Event] = (), nbytes: int = 0) -> Event:
        self._backlog.make_room(nbytes)
        event = self._calls.run(work, dependencies, inline=False)
        self._backlog.add(event, nbytes)
        return event

    def prepare(self, library: Library, index: int) -> LlvmKernel:
        if not isinstance(library, LlvmLibrary):
            raise device_error(Code.PARAMETERS, f"a library of {type(library).__name__} was not built for llvm")
        count = len(library.kernels.kernels)
        if not 0 <= index < count:
            raise device_error(Code.PARAMETERS, f"the library has {count} kernels, none is number {index}")
        return LlvmKernel(library, index, self)

    def direct(self, steps: Sequence[DirectStep | LoopStep], arrays: Sequence[DirectArray]) -> Direct | None:
        program = Program()
        _enlist(program, steps)
        if LONG_SECONDS < program.unbroken < math.inf:
            return None  # it could not be interrupted
        # What runs on the caller keeps the interpreter lock: it is over before another thread would have got it.
        return direct(program, arrays, hold=INLINE_SECONDS)


def _weakly(executor: LlvmExecutor) -> Callable[[], None]:
    """Stops the executor, which is not kept for it."""
    found = weakref.ref(executor)

    def stop() -> None:
        there = found()
        if there is not None:
            there.stop()

    return stop


def _enlist(program: Program, steps: Sequence[DirectStep | LoopStep]) -> None:
    for step in steps:
        if isinstance(step, LoopStep):
            body = Program(program)
            _enlist(body, step.steps)
            program.loop(step.count, body)
        elif isinstance(step.kernel, LlvmKernel):
            step.kernel.enlist(program, step.buffers)
        else:
            program.move(step.kind.value, step.buffers, step.nbytes, step.nbytes / SLOW_BYTES)
