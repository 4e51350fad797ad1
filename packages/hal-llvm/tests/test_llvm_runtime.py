"""The thread pool, the compiler's bytes, events, and what happens at fork, exit and Ctrl-C."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import threading
import time
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hal_llvm import pool
from hal_llvm.compiler import LlvmLibrary
from hal_llvm.cpu import cgroup_quota, thread_count
from hal_llvm.objects import object_files
from hal_llvm.pool import ThreadPool
from pool_kernels import BIG, doubling, modules, ready
from tile_hal.host_queue import HostEvent
from tile_ir.diagnostics import TileDeviceError
from tile_ir.kernels import KernelList


@pytest.mark.parametrize("threads", [1, 2, 5, 16])
@pytest.mark.parametrize("groups", [1, 3, 64])
def test_every_group_runs_once(device: Any, monkeypatch: pytest.MonkeyPatch, threads: int, groups: int) -> None:
    own = ThreadPool(threads)
    monkeypatch.setitem(pool._state, "pool", own)  # pyright: ignore[reportPrivateUsage]
    kernel, buffers, y, x = ready(device, doubling(192, groups, BIG))
    for _ in range(50):
        y[:] = 0
        kernel.run(buffers)
        assert (y == 2 * x).all()
    own.close()


def test_large_private_arrays_are_per_thread(device: Any) -> None:
    kernel, buffers, y, x = ready(device, doubling(64 * 1000, 64, BIG, scratch=40_000))
    for _ in range(20):
        y[:] = 0
        kernel.run(buffers)
        assert (y == 2 * x).all()


def test_several_threads_submit_at_once(device: Any) -> None:
    made = [ready(device, doubling(64 * 100, 64, BIG, 3), seed) for seed in range(12)]
    wrong: list[int] = []

    def work(number: int) -> None:
        kernel, buffers, y, x = made[number]
        for _ in range(60):
            y[:] = 0
            kernel.run(buffers).wait()
            if not (y == 2 * x).all():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(len(made))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_one_kernel_in_several_threads(device: Any) -> None:
    kernel, _, _, _ = ready(device, doubling(4096, 8, BIG))
    wrong: list[int] = []

    def work(number: int) -> None:
        buffers = [device.memory.allocate(4 * 4096) for _ in range(2)]
        y, x = (b.as_array(np.float32) for b in buffers)
        for turn in range(100):
            x[:] = number * 1000 + turn
            kernel.run(buffers)
            if not (y == 2 * x).all():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_workers_sleep_and_wake(device: Any) -> None:
    kernel, buffers, y, x = ready(device, doubling(6400, 64, BIG))
    for _ in range(5):
        kernel.run(buffers)
        time.sleep(0.02)
        y[:] = 0
        kernel.run(buffers)
        assert (y == 2 * x).all()


def test_runs_wait_for_their_dependencies(device: Any) -> None:
    kernel, buffers, y, x = ready(device, doubling(64, 1, 1))
    gate = HostEvent()
    event = kernel.run(buffers, [gate])
    assert not event.done
    assert (y == 0).all()
    gate.set()
    event.wait()
    assert (y == 2 * x).all()
    assert kernel.run(buffers, [event], profile=True).wait().seconds is not None


def test_failed_dependencies_fail_their_dependents(device: Any) -> None:
    kernel, buffers, y, _ = ready(device, doubling(64, 1, 1))
    gate = HostEvent()
    first = kernel.run(buffers, [gate])
    second = device.executor.copy(buffers[0], buffers[1], [first])
    gate.fail(RuntimeError("broken"))
    for event in (first, second):
        with pytest.raises(TileDeviceError, match="broken"):
            event.wait()
    assert (y == 0).all()


def test_wrong_parameters_are_named(device: Any) -> None:
    kernel, buffers, y, _ = ready(device, doubling(64, 1, 1))
    readonly = device.memory.wrap(memoryview(bytes(256)))
    for wrong, text in (
        ([buffers[0]], "takes 2 buffers, not 1"),
        ([buffers[0], device.memory.allocate(4)], "parameter 1 .* needs 256 bytes"),
        ([readonly, buffers[1]], "parameter 0 .* read-only"),
        ([device.memory.wrap(memoryview(bytearray(300))[3:259]), buffers[1]], "parameter 0 .* multiple of 64"),
    ):
        with pytest.raises(TileDeviceError, match=text):
            kernel.run(wrong)
    assert (y == 0).all()


def test_serialized_code_runs_again(device: Any) -> None:
    info = doubling(64, 1, 1)
    kernels = KernelList((info,), (), (), device.target)
    data = device.compiler.build(kernels).serialize()
    library = device.compiler.deserialize(kernels, data)
    _, buffers, y, x = ready(device, info)
    device.executor.prepare(library, 0).run(buffers)
    assert (y == 2 * x).all()
    assert "define" in library.source()
    assert "vadd" in library.assembly() or "add" in library.assembly()


@pytest.mark.parametrize("damage", [lambda d: b"junk", lambda d: d[:40], lambda d: d[:-9], lambda d: d[:-1] + b"?", lambda d: d.replace(b"hal-llvm", b"hal-llvn", 1)])  # fmt: skip
def test_damaged_code_is_refused(device: Any, damage: Any) -> None:
    kernels = KernelList((doubling(64, 1, 1),), (), (), device.target)
    data = device.compiler.build(kernels).serialize()
    with pytest.raises(ValueError, match="compiled"):
        device.compiler.deserialize(kernels, damage(data))


def test_fingerprint_names_its_parts(device: Any) -> None:
    parts = device.compiler.fingerprint
    assert "llvmlite" in parts
    assert device.compiler.processor.cpu in parts


def test_sources_that_are_not_installed_have_a_fingerprint(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("hal_llvm.compiler.version", missing)
    assert device.compiler.fingerprint.startswith("hal-llvm llvmlite")


def test_eight_threads_compile(device: Any) -> None:
    wrong: list[int] = []

    def work(size: int) -> None:
        kernel, buffers, y, x = ready(device, doubling(64 * size, 4, 1))
        kernel.run(buffers)
        if not (y == 2 * x).all():
            wrong.append(size)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("threads", [2, 5])
def test_object_files_are_the_same_on_any_number_of_threads(device: Any, threads: int) -> None:
    sources, processor = modules(device, 9), device.compiler.processor
    assert len(sources) == 9
    assert object_files(sources, processor, threads) == object_files(sources, processor, 1)


def test_a_bad_module_among_good_ones_is_an_error(device: Any) -> None:
    good, processor = modules(device, 6), device.compiler.processor
    with pytest.raises(RuntimeError, match="expected"):
        object_files([*good, "define nonsense", *good], processor, 2)


def test_library_of_several_modules(device: Any) -> None:
    infos = tuple(doubling(64 * n, 4, 1) for n in range(1, 100))
    kernels = KernelList(infos, (), (), device.target)
    data = device.compiler.build(kernels).serialize()
    assert len(json.loads(data.split(b"\n")[1])["objects"]) > 1
    library = device.compiler.deserialize(kernels, data)
    for number in (0, 50, 98):
        _, buffers, y, x = ready(device, infos[number])
        device.executor.prepare(library, number).run(buffers)
        assert (y == 2 * x).all()


def test_code_memory_is_freed(device: Any) -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def compile_some(count: int) -> None:
        for n in range(count):
            ready(device, doubling(64 + 4 * n, 4, 1))[0].run(ready(device, doubling(64 + 4 * n, 4, 1))[1])

    compile_some(20)
    before = resident()
    compile_some(60)
    assert resident() - before < 12 << 20


def test_calls_are_cheap(device: Any) -> None:
    kernel, buffers, _, _ = ready(device, doubling(8, 1, 8))
    best = float("inf")
    for _ in range(200):
        start = time.perf_counter()
        for _ in range(50):
            kernel.run(buffers)
        best = min(best, (time.perf_counter() - start) / 50)
    assert best < 10e-6  # about 1 us on a quiet machine


def run_script(text: str, **env: str) -> subprocess.CompletedProcess[str]:
    prelude = f"""
        import os, sys, time, signal, threading
        import numpy as np
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        import pool_kernels as t
        from hal_llvm.objects import object_files
        from hal_llvm.driver import LlvmDevice
        device = LlvmDevice()
        kernel, buffers, y, x = t.ready(device, t.doubling(6400, 64, t.BIG))
        def good():
            y[:] = 0
            kernel.run(buffers)
            return bool((y == 2 * x).all())
    """
    script = textwrap.dedent(prelude) + textwrap.dedent(text)
    full = {**os.environ, "TILE_NUM_THREADS": "3", **env}
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, env=full, check=False
    )


def test_exit_with_workers_spinning_or_asleep() -> None:
    for pause in ("0", "0.05"):
        done = run_script(f"assert good(); time.sleep({pause}); print('end')")
        assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


def test_fork_gives_the_child_a_fresh_pool() -> None:
    done = run_script("""
        assert good()
        pid = os.fork()
        if pid == 0:
            os._exit(0 if good() and good() else 7)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert good()
        print('end')
    """)
    assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr


def test_fork_while_modules_compile_at_once() -> None:
    done = run_script("""
        stop = []
        sources = t.modules(device, 8)
        make = lambda: object_files(sources, device.compiler.processor, 3)
        wanted = make()
        def busy():
            while not stop:
                make()
        threads = [threading.Thread(target=busy) for _ in range(2)]
        [thread.start() for thread in threads]
        for _ in range(5):
            pid = os.fork()
            if pid == 0:
                os._exit(0 if make() == wanted else 7)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        stop.append(1)
        [thread.join() for thread in threads]
        print('end')
    """)
    assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr


def test_fork_while_other_threads_compile_and_run() -> None:
    done = run_script("""
        stop = []
        def busy():
            while not stop:
                k, b, _, _ = t.ready(device, t.doubling(640, 8, t.BIG))
                k.run(b)
        threads = [threading.Thread(target=busy) for _ in range(2)]
        [thread.start() for thread in threads]
        for _ in range(5):
            pid = os.fork()
            if pid == 0:
                k, b, yy, xx = t.ready(device, t.doubling(640, 8, t.BIG))
                k.run(b)
                os._exit(0 if (yy == 2 * xx).all() else 7)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        stop.append(1)
        [thread.join() for thread in threads]
        print('end')
    """)
    assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr


def test_interrupt_is_raised_when_a_short_kernel_is_complete() -> None:
    done = run_script("""
        signal.signal(signal.SIGINT, signal.default_int_handler)  # background shells ignore it
        long, b, yy, xx = t.ready(device, t.doubling(640000, 64, t.BIG, 900))

        def interrupt():
            while not yy.any():
                time.sleep(0.001)
            os.kill(os.getpid(), signal.SIGINT)  # in the kernel, or after it

        threading.Thread(target=interrupt).start()
        try:
            long.run(b)
            while True:
                time.sleep(0.01)
        except KeyboardInterrupt:
            print('interrupted', (yy == 2 * xx).all())
        assert good()
    """)
    assert (done.returncode, done.stdout) == (0, "interrupted True\n"), done.stderr


@pytest.mark.parametrize("threads", ["1", "3"])
def test_a_long_kernel_ends_between_its_groups_when_it_is_interrupted(threads: str) -> None:
    done = run_script("""
        signal.signal(signal.SIGINT, signal.default_int_handler)
        long, b, yy, xx = t.ready(device, t.doubling(640000, 6400, 10**13, 10**6))  # a minute or more

        def interrupt():
            while not yy.any():
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt).start()
        try:
            long.run(b)
            print('complete')
        except KeyboardInterrupt:
            print('interrupted', (yy == 2 * xx).all())
        assert good()
    """, TILE_NUM_THREADS=threads)  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "interrupted False\n"), done.stderr


@pytest.mark.parametrize("threads", ["1", "3"])
def test_a_long_group_ends_when_it_is_interrupted(threads: str) -> None:
    done = run_script("""
        signal.signal(signal.SIGINT, signal.default_int_handler)
        long, b, yy, xx = t.ready(device, t.doubling(64000, 1, 1, 10**8))  # an hour or more, which its flops do not tell
        assert long.library.polls == (True,)

        def interrupt():
            while not yy.any():
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt).start()
        try:
            long.run(b)
            print('complete')
        except KeyboardInterrupt:
            print('interrupted')
        assert good()
    """, TILE_NUM_THREADS=threads)  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "interrupted\n"), done.stderr


@pytest.mark.parametrize("runs", [True, False])
def test_an_interrupt_meets_the_start_of_the_long_kernels_thread(runs: bool) -> None:
    done = run_script("""
        long, b, yy, xx = t.ready(device, t.doubling(64000, 1, 1, 10**8))  # an hour or more
        start, ended = threading.Thread.start, []

        def interrupted(thread):
            if RUNS:
                start(thread)
                while not yy.any():
                    time.sleep(0.01)
            ended.append(thread)
            raise KeyboardInterrupt

        threading.Thread.start = interrupted
        try:
            long.run(b)
            print('complete')
        except KeyboardInterrupt:
            print('interrupted')
        threading.Thread.start = start
        if RUNS:
            ended[0].join(20)  # it has only to say that it is done
            assert not ended[0].is_alive()
        assert good()
    """.replace("RUNS", str(runs)))  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "interrupted\n"), done.stderr


def test_what_goes_wrong_beside_a_long_kernel_is_raised(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    long, buffers, _, _ = ready(device, doubling(64000, 1, 1, 10**8))
    run, caller = ThreadPool.run, threading.get_ident()

    def fails_elsewhere(self: ThreadPool, job: int) -> None:
        if threading.get_ident() != caller:
            raise MemoryError("no memory for a thread")
        run(self, job)

    monkeypatch.setattr(ThreadPool, "run", fails_elsewhere)
    with pytest.raises(MemoryError, match="no memory for a thread"):
        long.run(buffers)


def test_libraries_from_bytes_know_their_long_groups(device: Any) -> None:
    library = device.compiler.build(KernelList((doubling(64, 1, 1, 10**8), doubling(64, 1, 1)), (), (), device.target))
    assert isinstance(library, LlvmLibrary)
    again = device.compiler.load(library.kernels, library.serialize())
    assert isinstance(again, LlvmLibrary) and again.polls == library.polls == (True, False)


def test_thread_count_follows_the_setting() -> None:
    done = run_script("""
        from hal_llvm import pool
        before = len(os.listdir('/proc/self/task'))
        good()
        print(pool.current().threads, len(os.listdir('/proc/self/task')) - before)
    """, TILE_NUM_THREADS="4")  # fmt: skip
    assert done.stdout == "4 3\n", done.stderr


def test_quota_is_read_from_the_system(tmp_path: Path) -> None:
    assert cgroup_quota(tmp_path) is None
    (tmp_path / "sys/fs/cgroup/box").mkdir(parents=True)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/box\n")
    (tmp_path / "sys/fs/cgroup/cpu.max").write_text("max 100000\n")
    assert cgroup_quota(tmp_path) is None
    (tmp_path / "sys/fs/cgroup/box/cpu.max").write_text("50000 100000\n")
    assert cgroup_quota(tmp_path) == 0.5
    assert thread_count(tmp_path) == 1
