"""Threads and semaphores of operating systems: what the pool's native part calls of them, and how Python starts and joins threads.

Each has IR that defines ``post(ptr semaphore)`` and ``wait(ptr semaphore)`` and two that have to do with where threads run:
``aside(ptr pool, ptr worker)`` keeps a worker off its caller's processor, ``release(ptr pool)`` takes that back.
"""

from __future__ import annotations

import ctypes
import signal
import sys
from abc import ABC, abstractmethod
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from typing import Any, ClassVar

_FREE = """
define internal void @aside(ptr %pool, ptr %worker) nounwind {
  ret void
}

define internal void @release(ptr %pool) nounwind {
  ret void
}
"""
"""Of systems where threads run where the system says."""
ALONE = (
    """
define internal void @post(ptr %sem) nounwind {
  ret void
}

define internal void @wait(ptr %sem) nounwind {
  ret void
}
"""
    + _FREE
)
"""Where there are no workers, nobody waits."""


class System(ABC):
    """What the pool asks of an operating system; addresses are those of fields of the pool's memory."""

    ir: ClassVar[str]
    pins: ClassVar[bool] = False
    """Whether threads can be kept off a processor."""

    @abstractmethod
    def semaphore(self, address: int) -> None:
        """Have a semaphore there; one that nobody has posted, or that was there before."""

    @abstractmethod
    def post(self, address: int) -> None:
        """Wake whoever waits for the semaphore there."""

    @abstractmethod
    def start(self, place: int, entry: int, argument: int) -> int | None:
        """A thread that calls the native function `entry`, its handle also put at `place`; None where there can be no more."""

    @abstractmethod
    def join(self, thread: int) -> None:
        """Wait until a thread has ended."""

    @contextmanager
    def quiet(self) -> Generator[None]:
        """A stretch in which threads are started that no signal goes to."""
        yield


class Posix(System):
    """Threads of POSIX."""

    def __init__(self, library: Any = None) -> None:
        self.library: Any = library or ctypes.CDLL(None)

    def start(self, place: int, entry: int, argument: int) -> int | None:
        problem = self.library.pthread_create(
            ctypes.c_void_p(place), None, ctypes.c_void_p(entry), ctypes.c_void_p(argument)
        )
        return None if problem else int(ctypes.c_size_t.from_address(place).value)

    def join(self, thread: int) -> None:
        self.library.pthread_join(ctypes.c_size_t(thread), None)

    @contextmanager
    def quiet(self) -> Generator[None]:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Linux(Posix):
    """POSIX's semaphores, in the pool's own memory, and threads that can be kept off a processor."""

    pins = True
    ir = """
declare i32 @sem_post(ptr)
declare i32 @sem_wait(ptr)
declare i32 @sched_getcpu()
declare i32 @pthread_setaffinity_np(i64, i64, ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define internal void @post(ptr %sem) nounwind {
  %ignored = call i32 @sem_post(ptr %sem)
  ret void
}

define internal void @wait(ptr %sem) nounwind {
  %ignored = call i32 @sem_wait(ptr %sem)
  ret void
}

; Let a sleeping worker run on any allowed processor but the caller's, where it would queue behind the caller.
define internal void @aside(ptr %pool, ptr %worker) nounwind {
  %cpu = call i32 @sched_getcpu()
  %mask = alloca [#MASK_BYTES# x i8], align 16
  %excluded = getelementptr i8, ptr %worker, i64 #EXCLUDED#
  %old = load i32, ptr %excluded
  %same = icmp eq i32 %old, %cpu
  %bad = icmp uge i32 %cpu, 1024
  %skip = or i1 %same, %bad
  br i1 %skip, label %done, label %change
change:
  store i32 %cpu, ptr %excluded
  %allowed = getelementptr i8, ptr %pool, i64 #MASK_AT#
  call void @llvm.memcpy.p0.p0.i64(ptr %mask, ptr %allowed, i64 #MASK_BYTES#, i1 false)
  %byte = lshr i32 %cpu, 3
  %byte.wide = zext i32 %byte to i64
  %place = getelementptr i8, ptr %mask, i64 %byte.wide
  %bit = and i32 %cpu, 7
  %one = shl i32 1, %bit
  %one.byte = trunc i32 %one to i8
  %keep = xor i8 %one.byte, -1
  %current = load i8, ptr %place
  %new = and i8 %current, %keep
  store i8 %new, ptr %place
  %thread.p = getelementptr i8, ptr %worker, i64 #THREAD#
  %thread = load i64, ptr %thread.p
  call i32 @pthread_setaffinity_np(i64 %thread, i64 #MASK_BYTES#, ptr %mask)
  br label %done
done:
  ret void
}

; Let every worker run anywhere again: the caller is about to leave its processor idle.
define internal void @release(ptr %pool) nounwind {
  %workers.p = getelementptr i8, ptr %pool, i64 #WORKERS#
  %count32 = load i32, ptr %workers.p
  %count = zext i32 %count32 to i64
  %base = getelementptr i8, ptr %pool, i64 #WORKERS_AT#
  %allowed = getelementptr i8, ptr %pool, i64 #MASK_AT#
  %any = icmp ne i64 %count, 0
  br i1 %any, label %look, label %done
look:
  %w = phi i64 [ 0, %0 ], [ %w.next, %following ]
  %offset = mul i64 %w, #WORKER_BYTES#
  %worker = getelementptr i8, ptr %base, i64 %offset
  %excluded = getelementptr i8, ptr %worker, i64 #EXCLUDED#
  %old = load i32, ptr %excluded
  %free = icmp eq i32 %old, -1
  br i1 %free, label %following, label %change
change:
  store i32 -1, ptr %excluded
  %thread.p = getelementptr i8, ptr %worker, i64 #THREAD#
  %thread = load i64, ptr %thread.p
  call i32 @pthread_setaffinity_np(i64 %thread, i64 #MASK_BYTES#, ptr %allowed)
  br label %following
following:
  %w.next = add i64 %w, 1
  %more = icmp ult i64 %w.next, %count
  br i1 %more, label %look, label %done
done:
  ret void
}
"""

    def semaphore(self, address: int) -> None:
        self.library.sem_init(ctypes.c_void_p(address), 0, 0)

    def post(self, address: int) -> None:
        self.library.sem_post(ctypes.c_void_p(address))


class Darwin(Posix):
    """Semaphores of Grand Central Dispatch: macOS has none of POSIX that lie in a process's memory."""

    ir = (
        """
declare i64 @dispatch_semaphore_signal(ptr)
declare i64 @dispatch_semaphore_wait(ptr, i64)

define internal void @post(ptr %sem) nounwind {
  %handle = load ptr, ptr %sem
  %ignored = call i64 @dispatch_semaphore_signal(ptr %handle)
  ret void
}

define internal void @wait(ptr %sem) nounwind {
  %handle = load ptr, ptr %sem
  %ignored = call i64 @dispatch_semaphore_wait(ptr %handle, i64 -1)
  ret void
}
"""
        + _FREE
    )

    def semaphore(self, address: int) -> None:
        place = ctypes.c_void_p.from_address(address)
        if not place.value:
            create = self.library.dispatch_semaphore_create
            create.restype, create.argtypes = ctypes.c_void_p, [ctypes.c_long]
            place.value = create(0)

    def post(self, address: int) -> None:
        self.library.dispatch_semaphore_signal(ctypes.c_void_p.from_address(address))


class Windows(System):
    """Semaphores and threads of the Windows kernel."""

    ir = (
        """
declare i32 @ReleaseSemaphore(ptr, i32, ptr)
declare i32 @WaitForSingleObject(ptr, i32)

define internal void @post(ptr %sem) nounwind {
  %handle = load ptr, ptr %sem
  %ignored = call i32 @ReleaseSemaphore(ptr %handle, i32 1, ptr null)
  ret void
}

define internal void @wait(ptr %sem) nounwind {
  %handle = load ptr, ptr %sem
  %ignored = call i32 @WaitForSingleObject(ptr %handle, i32 -1)
  ret void
}
"""
        + _FREE
    )
    _MOST = 0x7FFFFFFF
    _FOREVER = 0xFFFFFFFF

    def __init__(self, library: Any = None) -> None:
        self.library: Any = library or ctypes.CDLL("kernel32")
        for made in (self.library.CreateSemaphoreW, self.library.CreateThread):
            made.restype = ctypes.c_void_p

    def semaphore(self, address: int) -> None:
        place = ctypes.c_void_p.from_address(address)
        if not place.value:
            place.value = self.library.CreateSemaphoreW(None, 0, self._MOST, None)

    def post(self, address: int) -> None:
        self.library.ReleaseSemaphore(ctypes.c_void_p.from_address(address), 1, None)

    def start(self, place: int, entry: int, argument: int) -> int | None:
        handle = self.library.CreateThread(
            None, ctypes.c_size_t(0), ctypes.c_void_p(entry), ctypes.c_void_p(argument), 0, None
        )
        ctypes.c_void_p.from_address(place).value = handle
        return int(handle) if handle else None

    def join(self, thread: int) -> None:
        self.library.WaitForSingleObject(ctypes.c_void_p(thread), ctypes.c_uint32(self._FOREVER))
        self.library.CloseHandle(ctypes.c_void_p(thread))


SYSTEMS: dict[str, type[System]] = {"linux": Linux, "darwin": Darwin, "win32": Windows}
"""By `sys.platform`; elsewhere kernels run on the calling thread."""


@cache
def current() -> System | None:
    """This process's system."""
    found = SYSTEMS.get(sys.platform)
    return None if found is None else found()
