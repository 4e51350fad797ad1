"""Events, the host queue and `submit`."""

from __future__ import annotations

import gc
import os
import threading
import time
import weakref

import numpy as np
import pytest
import tile_hal
from python_device import PyDevice, PyExecutor, PyKernel, PyLibrary, add, buffer_of, double, info, kernels
from tile_hal.events import COMPLETED, FailedEvent, JoinedEvent, flatten, join
from tile_hal.host import HostEvent, HostQueue
from tile_hal.submission import Prepared
from tile_ir.contents import Contents
from tile_ir.diagnostics import TileDeviceError, TileInternalError
from tile_ir.dtype import DType
from tile_ir.kernels import BufferKind, KernelList, Step, StepKind
from tile_ir.stripe.nodes import ConstantBuffer, TensorType
from tile_ir.target import Target

ONE = KernelList(
    kernels(1),
    (info(7, BufferKind.INPUT), info(3, BufferKind.OUTPUT)),
    (Step(StepKind.KERNEL, 0, (3, 7)),),
    Target("py"),
)

# kept = 2 * const, once; out = kept + a
ONCE = KernelList(
    kernels(2),
    (info(0, BufferKind.INPUT), info(1, BufferKind.OUTPUT), info(2, BufferKind.CONST), info(3, BufferKind.KEPT)),
    (Step(StepKind.KERNEL, 0, (3, 2), once=True), Step(StepKind.KERNEL, 1, (1, 0, 3), (0,))),
    Target("py"),
    (ConstantBuffer("b2", TensorType.row_major(DType.FLOAT32, (4,)), Contents(np.full(4, 2.5, np.float32).tobytes())),),
)

TWO_FIVE = np.array([2.5] * 4, np.float32).tobytes()
# t1 = 2a; t2 = t1 + const; out = t1 + t2, then copied; `zero` filled
MANY = KernelList(
    kernels(2),
    (
        info(0, BufferKind.INPUT),
        info(1, BufferKind.OUTPUT),
        info(2, BufferKind.TEMP, arena=0, offset=0),
        info(3, BufferKind.TEMP, arena=0, offset=64),
        info(4, BufferKind.CONST),
        info(5, BufferKind.OUTPUT),
        info(6, BufferKind.OUTPUT),
    ),
    (
        Step(StepKind.KERNEL, 0, (2, 0)),
        Step(StepKind.KERNEL, 1, (3, 2, 4), (0,)),
        Step(StepKind.KERNEL, 1, (1, 2, 3), (0, 1)),
        Step(StepKind.COPY, buffers=(5, 1), deps=(2,)),
        Step(StepKind.FILL, buffers=(6,)),
    ),
    Target("py"),
    (ConstantBuffer("b4", TensorType.row_major(DType.FLOAT32, (4,)), Contents(TWO_FIVE)),),
    (128,),
)


@pytest.fixture(params=[True, False], ids=["inline", "deferred"])
def device(request):
    return PyDevice(request.param)


# --- events and the queue ------------------------------------------------------------------------------


def test_join_waits_for_all_and_raises_the_first_error():
    late = HostEvent()
    joined = join([FailedEvent(ValueError("first")), late])
    assert not joined.done
    late.set(0.5)
    with pytest.raises(TileDeviceError, match="first"):
        joined.wait()
    assert join([]) is COMPLETED
    assert join([late]) is late
    assert JoinedEvent([late, late]).wait().seconds == 1.0
    assert flatten([JoinedEvent([late, joined])]) == [late, *joined.parts]


def test_work_waits_for_its_dependencies_and_inherits_their_errors():
    queue, gate, ran = HostQueue(), HostEvent(), []
    first = queue.run(lambda: ran.append(1), [gate])
    second = queue.run(lambda: ran.append(2), [first, JoinedEvent([gate])])
    time.sleep(0.02)
    assert ran == [] and not second.done
    gate.set()
    second.wait()
    assert ran == [1, 2]
    broken = queue.run(lambda: 1 / 0, [])
    after = queue.run(lambda: ran.append(3), [broken])
    for event in (broken, after, after):
        with pytest.raises(TileDeviceError, match="ZeroDivisionError"):
            event.wait()
    assert ran == [1, 2]


def test_a_foreign_event_holds_back_and_fails_work():
    class Foreign(tile_hal.Event):
        def __init__(self):
            self.flag, self.error = threading.Event(), None

        def wait(self):
            self.flag.wait()
            if self.error:
                raise self.error
            return tile_hal.Result()

        @property
        def done(self):
            return self.flag.is_set()

    queue, gate = HostQueue(), Foreign()
    before = threading.active_count()
    events = [queue.run(lambda: None, [gate]) for _ in range(50)]
    assert threading.active_count() - before <= 2  # a worker and one watcher
    assert not any(e.done for e in events)
    gate.error = TileDeviceError("lost")
    gate.flag.set()
    for event in events:
        with pytest.raises(TileDeviceError, match="lost"):
            event.wait()


@pytest.mark.parametrize("fails", [False, True])
def test_a_chain_of_thousands_is_no_recursion(fails):
    queue, gate = HostQueue(), HostEvent()
    event = gate
    for _ in range(5000):
        event = queue.run(lambda: None, [event])
    if fails:
        gate.fail(RuntimeError("down"))
        with pytest.raises(TileDeviceError, match="down"):
            event.wait()
    else:
        gate.set()
        event.wait()


def test_profile_measures_deferred_and_inline_work():
    queue = HostQueue()
    for inline in (True, False):
        assert queue.run(lambda: time.sleep(0.01), profile=True, inline=inline).wait().seconds >= 0.009
        assert queue.run(lambda: None, inline=inline).wait().seconds is None


def test_independent_work_overlaps():
    queue, barrier = HostQueue(2), threading.Barrier(2, timeout=10)
    events = [queue.run(barrier.wait, inline=False) for _ in range(2)]
    for event in events:
        event.wait()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_gets_a_working_queue_and_failed_old_work():
    queue, gate = HostQueue(), HostEvent()
    old = queue.run(lambda: None, [gate])
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            queue.run(lambda: None, inline=False).wait()
            try:
                old.wait()
            except TileDeviceError:
                code = 0
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    gate.set()
    old.wait()


# --- submit --------------------------------------------------------------------------------------------


def test_one_kernel(device):
    library = PyLibrary([double])
    a, out = buffer_of(device, [1, 2, 3, 4]), device.memory.allocate(16)
    event = tile_hal.submit(device, library, ONE, {7: a, 3: out})
    event.wait()
    assert out.as_array(np.float32).tolist() == [2, 4, 6, 8]
    assert tile_hal.prepare(device, library, ONE) is tile_hal.prepare(device, library, ONE)
    assert tile_hal.prepare(device, library, ONE).order == (7, 3)
    assert tile_hal.submit(device, library, ONE, {7: a, 3: out}, profile=True).wait().seconds >= 0


def test_steps_temporaries_constants_copy_and_fill(device):
    library = PyLibrary([double, add])
    a = buffer_of(device, [1, 2, 3, 4])
    outs = [buffer_of(device, [9] * 4) for _ in range(3)]
    bindings = {0: a, 1: outs[0], 5: outs[1], 6: outs[2]}
    for _ in range(3):
        tile_hal.submit(device, library, MANY, bindings).wait()
    for out in outs[:2]:
        assert out.as_array(np.float32).tolist() == [6.5, 10.5, 14.5, 18.5]
    assert outs[2].as_array(np.float32).tolist() == [0] * 4


def test_temporaries_are_reused_but_not_while_in_use():
    device = PyDevice(inline=False)
    prepared = tile_hal.Prepared(device, PyLibrary([double, add]), MANY)
    allocated = []
    allocate = device.memory.allocate
    device.memory.allocate = lambda n: allocated.append(n) or allocate(n)
    gate = HostEvent()
    inputs = [buffer_of(device, [i] * 4) for i in range(5)]
    outs = [[allocate(16) for _ in range(3)] for _ in inputs]
    allocated.clear()
    events = [prepared.run([a, *o], [gate]) for a, o in zip(inputs, outs, strict=True)]
    assert allocated == [128] * 5
    gate.set()
    for event in events:
        event.wait()
    for _ in range(5):
        prepared.run([inputs[0], *outs[0]]).wait()
    assert allocated == [128] * 5
    assert [o[0].as_array(np.float32)[0] for o in outs] == [4 * i + 2.5 for i in range(5)]


def test_too_many_pending_runs_wait_for_the_oldest(monkeypatch):
    monkeypatch.setattr("tile_hal.workspaces.MAX_WORKSPACES", 2)
    device = PyDevice(inline=False)
    prepared = tile_hal.Prepared(device, PyLibrary([double, add]), MANY)
    gate = HostEvent()
    a, outs = buffer_of(device, [1] * 4), [device.memory.allocate(16) for _ in range(3)]
    timer = threading.Timer(0.05, gate.set)
    timer.start()
    first = [prepared.run([a, *outs], [gate]) for _ in range(2)]
    assert not first[0].done
    third = prepared.run([a, *outs])
    assert first[0].done
    third.wait()
    timer.join()


def test_a_run_that_was_interrupted_before_it_began_holds_nobody_up(monkeypatch):
    """Nor does one that a signal's handler interrupts with a run of its own: each has a set to itself."""
    monkeypatch.setattr("tile_hal.workspaces.MAX_WORKSPACES", 1)
    device = PyDevice(inline=False)
    prepared = tile_hal.Prepared(device, PyLibrary([double, add]), MANY)
    taken = prepared._workspaces.acquire()
    other = prepared._workspaces.acquire()
    assert not {id(b) for b in taken.buffers.values()} & {id(b) for b in other.buffers.values()}
    prepared.run([buffer_of(device, [1] * 4), *(device.memory.allocate(16) for _ in range(3))]).wait()


def test_dependencies_hold_back_and_fail_submissions(device):
    gate = HostEvent()
    for library, kernel_list in ((PyLibrary([double]), ONE), (PyLibrary([double, add]), MANY)):
        gate = HostEvent()
        bindings = {b.id: buffer_of(device, [1] * 4) for b in kernel_list.buffers}
        event = tile_hal.submit(device, library, kernel_list, bindings, [gate])
        later = tile_hal.submit(device, library, kernel_list, bindings, [event])
        assert not event.done and not later.done
        gate.fail(RuntimeError("no"))
        for failed in (event, later):
            with pytest.raises(TileDeviceError, match="no"):
                failed.wait()
        tile_hal.submit(device, library, kernel_list, bindings).wait()


def test_buffers_live_until_the_work_is_done():
    device, gate = PyDevice(inline=False), HostEvent()
    a, out = buffer_of(device, [1] * 4), device.memory.allocate(16)
    watched = weakref.ref(a)
    done = threading.Event()

    def kernel(o, x):
        double(o, x)
        done.set()

    prepared = tile_hal.Prepared(device, PyLibrary([kernel]), ONE)
    prepared.run([a, out], [gate])
    view = out.as_array(np.float32)
    del a, out
    gc.collect()
    assert watched() is not None
    gate.set()
    assert done.wait(10)
    for _ in range(100):
        if tile_hal.release_finished() == 0:
            break
        time.sleep(0.01)
    gc.collect()
    assert watched() is None
    assert view.tolist() == [2] * 4


def test_wrong_bindings_are_named(device):
    library = PyLibrary([double])
    a, small = buffer_of(device, [1] * 4), device.memory.allocate(15)
    with pytest.raises(TileDeviceError, match="no buffer is bound to 'b3'"):
        tile_hal.submit(device, library, ONE, {7: a})
    with pytest.raises(TileDeviceError, match=r"'b3' \(float32 4\) needs 16 bytes, the one given has 15"):
        tile_hal.submit(device, library, ONE, {7: a, 3: small})
    with pytest.raises(TileDeviceError, match=r"takes 2 buffers \(b7, b3\), not 3"):
        tile_hal.prepare(device, library, ONE).run([a, a, a])


def test_malformed_kernel_lists_are_internal_errors(device):
    backwards = KernelList((), (), (Step(StepKind.FILL, buffers=(), deps=(0,)),), Target("py"))
    with pytest.raises(TileInternalError, match="earlier"):
        tile_hal.Prepared(device, PyLibrary([]), backwards)
    lost = KernelList((), (info(0, BufferKind.CONST),), (), Target("py"))
    with pytest.raises(TileInternalError, match="no data"):
        tile_hal.Prepared(device, PyLibrary([]), lost)


def test_a_kernel_that_refuses_its_buffers_leaves_the_device_usable(device):
    calls = []

    def refuse(*_):
        calls.append(1)
        raise ValueError("refused")

    library = PyLibrary([double, refuse])
    bindings = {b.id: buffer_of(device, [1] * 4) for b in MANY.buffers}
    with pytest.raises(TileDeviceError, match="refused"):
        tile_hal.submit(device, library, MANY, bindings).wait()
    assert calls == [1]
    tile_hal.submit(device, PyLibrary([double, add]), MANY, bindings).wait()


def test_concurrent_submissions_do_not_share_temporaries():
    device = PyDevice()
    prepared = tile_hal.Prepared(device, PyLibrary([double, add]), MANY)
    wrong = []

    def work(value):
        a, outs = buffer_of(device, [value] * 4), [device.memory.allocate(16) for _ in range(3)]
        for _ in range(200):
            prepared.run([a, *outs]).wait()
            if outs[0].as_array(np.float32)[0] != 4 * value + 2.5:
                wrong.append(value)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_single_kernel_costs_little_python():
    class Instant(PyKernel):
        def run(self, params, dependencies=(), *, profile=False):
            return COMPLETED

    class Executor(PyExecutor):
        def prepare(self, library, index):
            return Instant(None, None)

    device = PyDevice()
    device.executor = Executor()
    prepared = tile_hal.Prepared(device, PyLibrary([]), ONE)
    bindings = (buffer_of(device, [1] * 4), device.memory.allocate(16))
    best = float("inf")
    for _ in range(20):
        start = time.perf_counter()
        for _ in range(500):
            prepared.run(bindings)
        best = min(best, (time.perf_counter() - start) / 500)
    assert best < 3e-6


def test_steps_on_constants_are_run_once_and_their_results_kept():
    device, runs = PyDevice(), []

    def counted(out, a):
        runs.append(1)
        double(out, a)

    prepared = Prepared(device, PyLibrary([counted, add]), ONCE)
    for value in (1, 2, 3):
        a, out = buffer_of(device, [value] * 4), buffer_of(device, [0] * 4)
        prepared.run([a, out]).wait()
        np.testing.assert_array_equal(out.as_array(np.float32), [5 + value] * 4)
    assert len(runs) == 1


def test_a_constant_that_only_such_steps_read_is_let_go():
    device = PyDevice()
    made = []
    allocate = device.memory.allocate
    device.memory.allocate = lambda size: made.append(weakref.ref(buffer := allocate(size))) or buffer
    prepared = Prepared(device, PyLibrary([double, add]), ONCE)
    gc.collect()
    assert sorted(ref() is not None for ref in made) == [False, True], "the constant, what was made of it"
    assert prepared.order == (0, 1)


def test_of_a_list_that_is_seldom_run_no_temporaries_stay():
    device, made = PyDevice(), []
    prepared = Prepared(device, PyLibrary([double, add]), MANY)
    bindings = {0: buffer_of(device, [3] * 4)} | {n: buffer_of(device, [7] * 4) for n in prepared.order if n}
    allocate = device.memory.allocate
    device.memory.allocate = lambda size: made.append(weakref.ref(buffer := allocate(size))) or buffer
    for _ in range(2):
        prepared.run_once([bindings[n] for n in prepared.order])
        np.testing.assert_array_equal(bindings[1].as_array(np.float32), [14.5] * 4)
    gc.collect()
    assert len(made) == 4 and not any(ref() for ref in made)


def test_such_constants_are_in_memory_one_after_the_other():
    device, made, most = PyDevice(), [], 0
    allocate = device.memory.allocate

    def counted(size):
        nonlocal most
        made.append(weakref.ref(buffer := allocate(size)))
        most = max(most, sum(ref() is not None for ref in made))
        return buffer

    device.memory.allocate = counted
    many = range(2, 10)
    prepared = Prepared(device, PyLibrary([double, add]), _doubled_constants(many))
    assert most == len(many) + 1, "the results, and the last constant"
    a, out = buffer_of(device, [0] * 4), buffer_of(device, [0] * 4)
    prepared.run([a, out]).wait()
    np.testing.assert_array_equal(out.as_array(np.float32), [18] * 4)


def _doubled_constants(numbers):
    """kept[n] = 2 * const[n], once each; out = the last of them + a, and each is read."""
    constants = tuple(
        ConstantBuffer(
            f"b{n}", TensorType.row_major(DType.FLOAT32, (4,)), Contents(np.full(4, n, np.float32).tobytes())
        )
        for n in numbers
    )
    once = [Step(StepKind.KERNEL, 0, (20 + n, n), once=True) for n in numbers]
    reads = [Step(StepKind.KERNEL, 1, (1, 0, 20 + n), (k,)) for k, n in enumerate(numbers)]
    buffers = [info(n, BufferKind.CONST) for n in numbers] + [info(20 + n, BufferKind.KEPT) for n in numbers]
    users = [info(0, BufferKind.INPUT), info(1, BufferKind.OUTPUT)]
    return KernelList(kernels(2), (*users, *buffers), (*once, *reads), Target("py"), constants)
