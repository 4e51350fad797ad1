"""The thread pool on other operating systems: their calls emulated with this one's, and the code of all of them for all processors.

What is emulated is what the system does; who calls it, when and with what is the code itself.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hal_llvm import binding, pool, systems
from hal_llvm.pool import ThreadPool
from hal_llvm.pool_ir import pool_ir
from hal_llvm.systems import Darwin, Linux, System, Windows
from pool_kernels import BIG, doubling, modules, ready

posix = pytest.mark.skipif(sys.platform != "linux", reason="other systems are emulated with Linux' calls")


class Emulation:
    """The calls of other systems' libraries, by those of this one; handles are addresses of POSIX semaphores."""

    def __init__(self) -> None:
        self.libc = ctypes.CDLL(None)
        self.kept: list[Any] = []
        self.called: dict[str, int] = {}
        for name in ("dispatch_semaphore_create", "CreateSemaphoreW", "CreateThread"):
            setattr(self, name, Made(getattr(self, f"_{name}")))

    def _note(self, name: str) -> None:
        self.called[name] = self.called.get(name, 0) + 1

    def _semaphore(self, posted: int) -> int:
        memory = ctypes.create_string_buffer(64)
        self.kept.append(memory)
        self.libc.sem_init(memory, 0, posted)
        return ctypes.addressof(memory)

    # --- Darwin ----------------------------------------------------------------------------------

    def _dispatch_semaphore_create(self, posted: int) -> int:
        self._note("create")
        return self._semaphore(posted)

    def dispatch_semaphore_signal(self, handle: Any) -> None:
        self._note("signal")
        self.libc.sem_post(handle)

    def __getattr__(self, name: str) -> Any:  # pthread_create and pthread_join
        assert name.startswith("pthread_")
        self._note(name)
        return getattr(self.libc, name)

    # --- Windows ---------------------------------------------------------------------------------

    def _CreateSemaphoreW(self, security: None, posted: int, most: int, name: None) -> int:
        assert security is name is None and most > 1 << 20
        self._note("create")
        return self._semaphore(posted)

    def ReleaseSemaphore(self, handle: Any, count: int, before: None) -> None:
        assert count == 1 and before is None
        self._note("signal")
        self.libc.sem_post(handle)

    def _CreateThread(self, security: None, stack: Any, entry: Any, argument: Any, flags: int, number: None) -> int:
        assert security is number is None and not (stack.value or flags)
        self._note("pthread_create")
        handle = ctypes.c_size_t()
        return 0 if self.libc.pthread_create(ctypes.byref(handle), None, entry, argument) else handle.value

    def WaitForSingleObject(self, thread: Any, milliseconds: Any) -> None:
        assert milliseconds.value == 0xFFFFFFFF
        self._note("pthread_join")
        self.libc.pthread_join(ctypes.c_size_t(thread.value), None)

    def CloseHandle(self, thread: Any) -> None:
        self._note("close")


class Made:
    """A function of a library, whose result's type can be stated."""

    def __init__(self, call: Any) -> None:
        self.call = call

    def __call__(self, *arguments: Any) -> Any:
        return self.call(*arguments)


_CALLS = """
declare i32 @sem_post(ptr)
declare i32 @sem_wait(ptr)
define internal i64 @dispatch_semaphore_signal(ptr %s) {
  %r = call i32 @sem_post(ptr %s)
  ret i64 0
}
define internal i64 @dispatch_semaphore_wait(ptr %s, i64 %time) {
  %r = call i32 @sem_wait(ptr %s)
  ret i64 0
}
define internal i32 @ReleaseSemaphore(ptr %s, i32 %count, ptr %before) {
  %r = call i32 @sem_post(ptr %s)
  ret i32 1
}
define internal i32 @WaitForSingleObject(ptr %s, i32 %time) {
  %r = call i32 @sem_wait(ptr %s)
  ret i32 0
}
"""
"""The native part's calls by those of this system."""


def emulated(kind: type[System]) -> tuple[System, Emulation]:
    """A system whose every call is one of this system."""
    emulation = Emulation()
    ir = _CALLS + re.sub(r"^declare.*$", "", kind.ir, flags=re.MULTILINE)
    return type(kind.__name__, (kind,), {"ir": ir})(emulation), emulation  # type: ignore[call-arg]


@posix
@pytest.mark.parametrize("kind", [Darwin, Windows])
def test_kernels_run_on_the_threads_of_other_systems(
    device: Any, monkeypatch: pytest.MonkeyPatch, kind: type[System]
) -> None:
    system, emulation = emulated(kind)
    own = ThreadPool(3, system)
    monkeypatch.setitem(pool._state, "pool", own)  # pyright: ignore[reportPrivateUsage]
    kernel, buffers, y, x = ready(device, doubling(192 * 64, 64, BIG))
    for start in range(2):  # workers are started again after they were stopped
        for number in range(30):
            y[:] = 0
            kernel.run(buffers)
            assert (y == 2 * x).all()
            if number % 10 == 0:
                time.sleep(0.01)  # they fall asleep, and are woken
        own.close()
        assert emulation.called["pthread_create"] == emulation.called["pthread_join"] == 2 * (start + 1)
    assert emulation.called["create"] == 8 + 2, "semaphores are kept"
    assert emulation.called.get("close", 4) == 4


@posix
def test_workers_take_part(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not only the caller: a long kernel's groups meet several scratch memories."""
    system, _ = emulated(Windows)
    own = ThreadPool(2, system)
    monkeypatch.setitem(pool._state, "pool", own)  # pyright: ignore[reportPrivateUsage]
    kernel, buffers, y, x = ready(device, doubling(64 * 1000, 64, BIG, scratch=4_000))
    for _ in range(20):
        y[:] = 0
        kernel.run(buffers)
        assert (y == 2 * x).all()
    own.close()


@posix
@pytest.mark.parametrize("kind", [Darwin, Windows])
def test_a_system_without_more_threads_is_no_failure(
    device: Any, monkeypatch: pytest.MonkeyPatch, kind: type[System]
) -> None:
    system, _ = emulated(kind)
    monkeypatch.setattr(system, "start", lambda *_: None)
    own = ThreadPool(4, system)
    monkeypatch.setitem(pool._state, "pool", own)  # pyright: ignore[reportPrivateUsage]
    kernel, buffers, y, x = ready(device, doubling(192, 3, BIG))
    kernel.run(buffers)
    assert (y == 2 * x).all()
    own.close()


def test_unknown_systems_have_the_callers_thread(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systems, "current", lambda: None)
    own = ThreadPool(4)
    assert own.threads == 1
    monkeypatch.setitem(pool._state, "pool", own)  # pyright: ignore[reportPrivateUsage]
    kernel, buffers, y, x = ready(device, doubling(192, 3, BIG))
    kernel.run(buffers)
    assert (y == 2 * x).all()


TRIPLES = {
    "x86_64-unknown-linux-gnu": (Linux, b"\x7fELF", ("sem_post", "sem_wait", "sched_getcpu", "pthread_setaffinity_np")),
    "aarch64-unknown-linux-gnu": (
        Linux,
        b"\x7fELF",
        ("sem_post", "sem_wait", "sched_getcpu", "pthread_setaffinity_np"),
    ),
    "x86_64-apple-darwin": (Darwin, b"\xcf\xfa\xed\xfe", ("_dispatch_semaphore_signal", "_dispatch_semaphore_wait")),
    "arm64-apple-darwin": (Darwin, b"\xcf\xfa\xed\xfe", ("_dispatch_semaphore_signal", "_dispatch_semaphore_wait")),
    "x86_64-pc-windows-msvc": (Windows, b"\x64\x86", ("ReleaseSemaphore", "WaitForSingleObject")),
    "aarch64-pc-windows-msvc": (Windows, b"\x64\xaa", ("ReleaseSemaphore", "WaitForSingleObject")),
}
CALLS = {name for _, _, names in TRIPLES.values() for name in names}


def object_of(triple: str, ir: str) -> bytes:
    machine = binding.target_machine(binding.Processor(triple, "x86-64" if triple.startswith("x86") else "generic", ""))
    module = binding.Module(ir, machine)
    code = module.object_code()
    module.close()
    return code


@pytest.mark.parametrize("triple", TRIPLES)
def test_the_pools_code_calls_its_system_and_no_other(triple: str) -> None:
    kind, magic, names = TRIPLES[triple]
    code = object_of(triple, pool_ir(triple, kind.ir))
    assert code.startswith(magic)
    others = {n for n in CALLS if n.encode() in code}
    assert others >= {*names} and {n.lstrip("_") for n in others} == {n.lstrip("_") for n in names}
    assert b"pool.run" in code and b"pool.worker" in code


@pytest.mark.parametrize("triple", [t for t in TRIPLES if "linux" not in t])
def test_kernels_compile_for_other_systems(device: Any, triple: str) -> None:
    (kernel,) = modules(device, 1)
    assert b"kernel0" in object_of(triple, kernel)


WITHOUT_POSIX = """
import os, signal, sys
for module, names in ((os, ("register_at_fork", "fork", "sched_getaffinity", "setsid", "killpg")), (signal, ("pthread_sigmask", "setitimer", "SIGALRM"))):
    for name in names:
        delattr(module, name)
sys.modules |= dict.fromkeys(("fcntl", "resource", "termios", "pwd", "grp"))
sys.path.insert(0, sys.argv[1])
from hal_llvm import pool, systems
from hal_llvm.driver import LlvmDevice
from pool_kernels import BIG, doubling, ready
from test_llvm_systems import Windows, emulated
own = pool._state["pool"] = pool.ThreadPool(2, emulated(Windows)[0])
kernel, buffers, y, x = ready(LlvmDevice(), doubling(192, 3, BIG))
kernel.run(buffers)
print((y == 2 * x).all(), own.threads)
"""
"""What Windows' Python lacks is gone before anything is imported."""


@posix
def test_nothing_needs_what_other_systems_lack() -> None:
    script = [sys.executable, "-c", WITHOUT_POSIX, str(Path(__file__).parent)]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["True", "2"], done.stderr
