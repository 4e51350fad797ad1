"""Drivers that crash and hang in worker processes: an error, and the next call works."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tile_hal
from tile_hal.conformance import samples
from tile_hal.conformance.buffers import download, upload
from tile_hal.conformance.kernels import kernel_list
from tile_hal.conformance.samples import N
from tile_hal.host_queue import HostEvent
from tile_hal.isolation import process
from tile_hal.isolation.documents import from_document, to_document
from tile_hal.isolation.link import Source, opened
from tile_hal.isolation.shared import Arena
from tile_ir.diagnostics import TileDeviceError, TileSettingError
from tile_ir.dtype import DType
from tile_ir.kernels import KernelList
from tile_ir.settings import Settings

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="worker processes need Unix sockets")

PLUGIN = '''
"""Devices whose kernels do what their names say; number 1 has memory of its own."""
import ctypes, os, signal, time
from dataclasses import replace

import tile_hal
from tile_hal.builtin.interp import InterpCompiler, InterpDriver, InterpExecutor, InterpKernel
from tile_hal.host import HostDevice, HostDeviceSet, HostMemory

WHEN = os.environ.get("FRAIL", "")
DEEDS = {
    "crash": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "leave": lambda: os._exit(3),
    "hang": lambda: time.sleep(1000),
    "deaf": lambda: ctypes.PyDLL(None).sleep(1000),
}


class Distant(tile_hal.Buffer):
    """Bytes that the host reaches by mapping alone."""

    def __init__(self, inner):
        self.inner, self.nbytes, self.maps = inner, inner.nbytes, []

    def map_current(self, dependencies=()):
        for event in dependencies:
            event.wait()
        self.maps.append(bytearray(self.inner.view))
        return memoryview(self.maps[-1])

    def map_discard(self):
        self.maps.append(bytearray(b"\\xee" * self.nbytes))
        return memoryview(self.maps[-1])

    def unmap(self):
        self.inner.view[:] = self.maps.pop()
        return tile_hal.CompletedEvent()


class DistantMemory(HostMemory):
    def allocate(self, nbytes):
        return Distant(super().allocate(nbytes))

    def wrap(self, view):
        return None

    def view(self, buffer, offset, nbytes):
        return Distant(super().view(buffer.inner, offset, nbytes))


def inner(buffer):
    return getattr(buffer, "inner", buffer)


class Kernel(tile_hal.Kernel):
    def __init__(self, kernel, name):
        self.kernel, self.name = kernel, name

    def run(self, params, dependencies=(), *, profile=False):
        if self.name in DEEDS:
            DEEDS[self.name]()
        return self.kernel.run([inner(p) for p in params], dependencies, profile=profile)


class Executor(InterpExecutor):
    def prepare(self, library, index):
        return Kernel(super().prepare(library, index), library.kernels.kernels[index].name)

    def copy(self, src, dst, dependencies=()):
        return super().copy(inner(src), inner(dst), dependencies)

    def fill(self, dst, dependencies=()):
        return super().fill(inner(dst), dependencies)


class Driver(InterpDriver):
    name = "frail"

    def device_sets(self):
        if WHEN in DEEDS:
            DEEDS[WHEN]()
        (group,) = super().device_sets()
        like = group.devices[0]
        made = []
        for number in range(2):
            compiler = InterpCompiler(like.capabilities.nodes)
            made.append(HostDevice(f"frail:{number}", "frail", like.target, like.capabilities, compiler, Executor()))
        made[1].memory = DistantMemory()
        return [HostDeviceSet(made)]

    def doctor(self):
        return (f"asked in process {os.getpid()}",)


@tile_hal.hookimpl
def tile_hal_driver():
    return Driver()
'''


@pytest.fixture(scope="module")
def frail(tmp_path_factory: pytest.TempPathFactory):
    """The two devices of the plugin, each in a worker."""
    folder = tmp_path_factory.mktemp("plugin")
    (folder / "frail_isolated.py").write_text(PLUGIN)
    sys.path.insert(0, str(folder))
    import frail_isolated

    if "frail" not in tile_hal.drivers():
        tile_hal.register(frail_isolated)
    yield [tile_hal.isolated(device) for device in tile_hal.devices("frail")]
    sys.path.remove(str(folder))


@pytest.fixture(params=[0, 1], ids=["shared", "distant"])
def device(request, frail):
    return frail[request.param]


def kernels(device, name: str = "increment"):
    """One kernel that adds 1, called `name`."""
    from dataclasses import replace

    made = kernel_list(device, samples.increment())
    return replace(made, kernels=tuple(replace(k, name=name) for k in made.kernels))


def prepared(device, name: str = "increment"):
    return device.executor.prepare(device.compiler.build(kernels(device, name)), 0)


def ramp(device):
    return upload(device, np.arange(N, dtype=np.float32))


def works(device) -> None:
    out = ramp(device)
    prepared(device).run([out, ramp(device)]).wait()
    assert download(out, DType.FLOAT32).tolist() == [i + 1.0 for i in range(N)]


def test_what_a_device_says_of_itself_is_the_same_in_a_worker(device) -> None:
    plain = tile_hal.device(device.id)
    assert not plain.isolated and device.isolated
    assert (device.id, device.name, device.target) == (plain.id, plain.name, plain.target)
    assert device.capabilities == plain.capabilities
    assert device.compiler.fingerprint == plain.compiler.fingerprint
    assert device.compiler.package == plain.compiler.package == "tile_hal"
    assert tile_hal.isolated(plain) is device is tile_hal.isolated(device)


@pytest.mark.parametrize(
    ("deed", "end"), [("crash", r"died of SIGSEGV \(Segmentation fault\)"), ("leave", "ended with exit code 3")]
)
def test_a_crash_is_an_error_with_the_kernels_name_and_the_next_call_works(device, deed: str, end: str) -> None:
    before = prepared(device)
    bad = prepared(device, deed)
    out, source = ramp(device), ramp(device)
    with pytest.raises(TileDeviceError, match=f"{device.id} {end} while running kernel '{deed}'") as caught:
        bad.run([out, source]).wait()
    assert caught.value.diagnostics[0].code == "TILE-E710"
    # A kernel that was made before is made again, in the new worker.
    out, source = ramp(device), ramp(device)
    before.run([out, source]).wait()
    assert download(out, DType.FLOAT32)[3] == 4
    works(device)


def test_shared_memory_outlives_a_worker(frail) -> None:
    kept = ramp(frail[0])
    with pytest.raises(TileDeviceError):
        prepared(frail[0], "crash").run([ramp(frail[0]), kept]).wait()
    out = ramp(frail[0])
    prepared(frail[0]).run([out, kept]).wait()
    assert download(out, DType.FLOAT32)[5] == 6 and download(kept, DType.FLOAT32)[5] == 5


def test_memory_of_a_device_whose_worker_died_is_an_error(frail) -> None:
    lost = ramp(frail[1])
    with pytest.raises(TileDeviceError):
        prepared(frail[1], "crash").run([ramp(frail[1]), lost]).wait()
    out = ramp(frail[1])
    for use in (lambda: prepared(frail[1]).run([out, lost]).wait(), lost.map_current, lost.map_discard,
                lambda: frail[1].executor.fill(lost).wait()):  # fmt: skip
        with pytest.raises(TileDeviceError, match=r"frail:1 died of SIGSEGV .*: a buffer was in its device's memory"):
            use()
    works(frail[1])


def test_a_program_with_constants_and_temporaries_runs_again(device) -> None:
    made = samples.chain(device)
    run = tile_hal.Prepared(device, device.compiler.build(made), made)

    def right() -> bool:
        source, out = ramp(device), ramp(device)
        run.run([source, out]).wait()
        return download(out, DType.FLOAT32).tolist() == [2 * (2.0 * i + 3) for i in range(N)]

    assert right()
    with pytest.raises(TileDeviceError):
        prepared(device, "crash").run([ramp(device), ramp(device)]).wait()
    assert right()


@pytest.mark.parametrize("deed", ["hang", "deaf"])
def test_a_hang_ends(device, deed: str) -> None:
    bad, out, source = prepared(device, deed), ramp(device), ramp(device)
    device.compiler._link.worker().limit = 0.3  # now, when nothing else is to be done
    with pytest.raises(TileDeviceError, match=f"gave no answer for 0.3 s and was ended while running kernel '{deed}'"):
        bad.run([out, source]).wait()
    works(device)


def test_an_interrupted_wait_ends_what_it_waited_for(device, monkeypatch: pytest.MonkeyPatch) -> None:
    event = prepared(device, "hang").run([ramp(device), ramp(device)])

    def interrupted(self: HostEvent) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(HostEvent, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            event.wait()
    with pytest.raises(TileDeviceError, match="was interrupted and ended while running kernel 'hang'"):
        event.wait()
    works(device)


def test_dependents_of_what_a_crash_took_fail_with_it(device) -> None:
    good, out, source = prepared(device), ramp(device), ramp(device)
    first = prepared(device, "crash").run([out, source])
    second = good.run([source, out], [first])
    with pytest.raises(TileDeviceError, match="SIGSEGV"):
        second.wait()


# --- the ends of processes ---------------------------------------------------------------------------------

START = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
import frail_isolated, tile_hal
tile_hal.register(frail_isolated)
device = tile_hal.isolated(tile_hal.device("frail"))
print(device.compiler._link.worker()._process.pid, flush=True)
"""
KERNEL = """
import numpy as np
from dataclasses import replace
from tile_hal.conformance.buffers import download, upload
from tile_hal.conformance import samples
from tile_hal.conformance.kernels import kernel_list
from tile_ir.dtype import DType
from tile_ir.kernels import KernelList
from tile_ir.settings import Settings
made = kernel_list(device, samples.increment())
def named(name):
    changed = replace(made, kernels=tuple(replace(k, name=name) for k in made.kernels))
    return device.executor.prepare(device.compiler.build(changed), 0)
source, out = (upload(device, np.arange(samples.N, dtype=np.float32)) for _ in range(2))
"""


def script(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    (folder / "frail_isolated.py").write_text(PLUGIN)
    command = [sys.executable, "-c", START + text, str(folder)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)


def ended(pid: int) -> bool:
    """Whether a process is gone, at the latest soon."""
    for _ in range(600):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("raise SystemExit(5)", 5),
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
        (KERNEL + "named('hang').run([out, source]); os._exit(6)", 6),
    ],
    ids=["exit", "kill", "hang"],
)
def test_no_worker_outlives_its_process(tmp_path: Path, text: str, code: int) -> None:
    done = script(tmp_path, text)
    assert done.returncode == code, done.stderr
    assert ended(int(done.stdout.split()[0]))


def test_a_forked_child_has_memory_and_a_worker_of_its_own(tmp_path: Path) -> None:
    text = """
def run():
    kernel.run([out, source]).wait()
    return download(out, DType.FLOAT32).tolist() == [i + 1.0 for i in range(samples.N)]
kernel = named("increment")
assert run()
child = os.fork()
if child == 0:
    before = download(out, DType.FLOAT32)[1] == 2
    source.map_current()[:] = bytes(source.nbytes)
    kernel.run([out, source]).wait()
    os._exit(0 if before and set(download(out, DType.FLOAT32).tolist()) == {1.0} else 1)
assert os.waitpid(child, 0)[1] == 0
assert download(source, DType.FLOAT32)[1] == 1 and download(out, DType.FLOAT32)[1] == 2
assert run()
"""
    done = script(tmp_path, KERNEL + text)
    assert done.returncode == 0, done.stderr


def test_a_driver_that_crashes_when_probed_hides_no_other(tmp_path: Path) -> None:
    (tmp_path / "frail_isolated.py").write_text(PLUGIN)
    text = """
import sys, warnings
sys.path.insert(0, sys.argv[1])
import frail_isolated, tile_hal
tile_hal.register(frail_isolated)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    assert "interp:0" in [d.id for d in tile_hal.devices()]
(one,) = [str(w.message) for w in caught if w.category is tile_hal.TilePluginWarning]
assert "frail" in one and "died of SIGSEGV" in one and "while probing" in one, one
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TILE_ISOLATE": "frail", "FRAIL": "crash"}
    done = subprocess.run([sys.executable, "-c", text, str(tmp_path)], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_driver_is_asked_in_its_worker(tmp_path: Path) -> None:
    (tmp_path / "frail_isolated.py").write_text(PLUGIN)
    text = """
import os, sys
sys.path.insert(0, sys.argv[1])
import frail_isolated, tile_hal
tile_hal.register(frail_isolated)
(report,) = [r for r in tile_hal.doctor() if r.plugin.driver == "frail"]
assert report.devices == ("frail:0", "frail:1")
said = next(line for line in report.lines if line.startswith("asked"))
assert int(said.split()[-1]) != os.getpid()
assert all(tile_hal.device(id).isolated for id in report.devices)
assert tile_hal.device("frail:1") is tile_hal.isolated(tile_hal.device("frail:1"))
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TILE_ISOLATE": "frail"}
    done = subprocess.run([sys.executable, "-c", text, str(tmp_path)], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("asked", [tile_hal.devices, tile_hal.default_device])
def test_a_misspelt_driver_is_a_warning(asked: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILE_ISOLATE", name := f"interpp_{asked.__name__}")
    with pytest.warns(tile_hal.TilePluginWarning, match=rf"TILE_ISOLATE names '{name}', .* there are .*interp"):
        asked()


@pytest.mark.parametrize("given", ["a b", "a,,b", "-llvm", "0"])
def test_a_malformed_list_of_drivers_is_an_error(given: str) -> None:
    with pytest.raises(TileSettingError, match="TILE_ISOLATE must be names of drivers"):
        Settings.from_environment({"TILE_ISOLATE": given})
    assert Settings.from_environment({"TILE_ISOLATE": " opencl, llvm"}).isolate == ("opencl", "llvm")


def test_an_unknown_driver_cannot_be_isolated() -> None:
    with pytest.raises(TileDeviceError, match="frial"):
        opened(Source("frial"))


# --- the parts ---------------------------------------------------------------------------------------------


def test_documents_keep_everything(frail) -> None:
    for made in (kernels(frail[0]), samples.chain(frail[0])):
        assert from_document(KernelList, *to_document(made)) == made


@pytest.mark.parametrize(
    "nodes",
    [[], [["tuple", 1]], [["os.system", "true"]], [["semtree.Const", 1]], [["tuple", [5]]], [["bytes", 3]], [[]],
     [["target", "{}"]], [["dtype.DType", "float1"]], [["kernels.KernelList"]]],
)  # fmt: skip
def test_no_other_document_is_read(nodes) -> None:
    with pytest.raises(ValueError):
        from_document(KernelList, nodes)


def test_pieces_of_shared_memory_are_apart_and_come_back() -> None:
    arena, rng = Arena(), np.random.default_rng(0)
    live: list[tuple[np.ndarray, int]] = []
    for step in range(400):
        array, _ = arena.allocate(int(rng.choice([0, 1, 64, 65, 4095, 4096, 70_000])))
        assert array.__array_interface__["data"][0] % 64 == 0 or not array.nbytes
        array[:] = step % 256
        live.append((array, step % 256))
        if rng.random() < 0.6:
            live.pop(int(rng.integers(len(live))))
    assert all((array == value).all() for array, value in live)
    assert len(arena.segments) == 1
    del array
    live.clear()
    arena.allocate(1)
    assert sum(size for _, size in next(iter(arena.segments.values()))._holes) == (1 << 26) - 64


def test_shared_memory_that_nobody_uses_goes_back() -> None:
    arena = Arena()
    kept, _ = arena.allocate(1 << 20)
    assert (arena.usage.used, arena.usage.held) == (kept.nbytes, 1 << 26)
    del kept
    assert arena.usage.used == 0
    for _ in range(3):
        arena.allocate(100 << 20)
    assert len(arena.segments) <= 2


def test_processes_are_bounded_in_time(tmp_path: Path) -> None:
    (tmp_path / "slow_isolated.py").write_text("import time; time.sleep(1000)")
    (tmp_path / "quick_isolated.py").write_text("import sys; print(sys.stdin.read()[::-1])")
    (tmp_path / "bad_isolated.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGABRT)")
    sys.path.insert(0, str(tmp_path))
    try:
        assert process.run("slow_isolated", seconds=0.2).problem == "gave no answer for 0.2 s"
        assert process.run("quick_isolated", seconds=60, data=b"abc").output.strip() == b"cba"
        assert process.run("bad_isolated", seconds=60).problem.startswith("died of SIGABRT (")
    finally:
        sys.path.remove(str(tmp_path))
