"""Direct calls: the interpreter lock, the pool, fork, and a NumPy that keeps its fields elsewhere.

What they compute and refuse is the conformance suite's business.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hal_llvm import binding, direct_ir
from hal_llvm import direct as module
from hal_llvm.direct import Program, direct, numpy_agrees
from tile_hal.interfaces import Direct, DirectArray, DirectStep, Holder
from tile_ir.dtype import DType
from tile_ir.kernels import Kernel, KernelList, StepKind
from tile_ir.semtree.nodes import (
    Access,
    Alloc,
    Binary,
    Block,
    Const,
    Expr,
    For,
    Function,
    IdKind,
    Load,
    Param,
    Statement,
    Store,
    Type,
    Var,
    WorkId,
)

I64, F32 = Type(DType.INT64), Type(DType.FLOAT32)
GROUPS, EACH = 64, 100
SIZE = GROUPS * EACH
ONE = DirectArray((4,), DType.FLOAT32, written=True)
LONG, BRIEF = 1.0, 1e-6


def calling(step: Any, seconds: float, one: DirectArray = ONE) -> Direct:
    """A direct call on one array, whose only step calls the C function `step` with the array's address."""
    program, words = Program(), (ctypes.c_uint64 * 1)()
    program.place(ctypes.addressof(words), 0)
    program.add(ctypes.cast(step, ctypes.c_void_p).value or 0, ctypes.addressof(words), seconds, words, step)
    made = direct(program, [one], hold=1e-3)
    assert made is not None
    return made


def loop(target: Expr, at: Expr, value: Expr) -> Statement:
    return For("i", Const(0, I64), Const(EACH, I64), 1, Block((Store(target, at, value),)))


def doubling(*, scratch: bool = False) -> Kernel:
    """y = 2 x, by groups that are worth the pool; through private memory with `scratch`."""
    x, y = (Var(name, Type(DType.FLOAT32, ptr=True)) for name in "xy")
    i = Var("i", I64)
    at = Binary("add", Binary("mul", WorkId(IdKind.GROUP, 0, I64), Const(EACH, I64), I64), i, I64)
    value = Load(x, at, F32)
    body = (loop(y, at, Binary("add", value, value, F32)),)
    if scratch:
        t = Var("t", Type(DType.FLOAT32, count=4000))
        again = Load(t, i, F32)
        body = (Alloc("t", t.type), loop(t, i, value), loop(y, at, Binary("add", again, again, F32)))
    params = (Param("y", y.type, Access.WRITE, 4, SIZE), Param("x", x.type, Access.READ, 4, SIZE))
    return Kernel("double", None, Function("double", params, Block(body)), (GROUPS, 1, 1), 10**9)  # type: ignore[arg-type]


def ordinary(device: Any, kernel: Kernel) -> None:
    """Run it the ordinary way, which starts the pool and gets scratch memory for its workers."""
    library = device.compiler.build(KernelList((kernel,), (), (), device.target))
    device.executor.prepare(library, 0).run([device.memory.allocate(4 * SIZE) for _ in range(2)]).wait()


def doubler(device: Any, kernel: Kernel) -> Direct:
    """y = 2 x, called with x, y."""
    library = device.compiler.build(KernelList((kernel,), (), (), device.target))
    assert kernel.function is not None
    y, x = kernel.function.params
    arrays = [DirectArray((p.elements,), DType.FLOAT32, written=p is y) for p in (x, y)]
    step = DirectStep(StepKind.KERNEL, (1, 0), 4 * y.elements, device.executor.prepare(library, 0))
    made = device.executor.direct([step], arrays)
    assert made is not None
    return made


@pytest.mark.parametrize(("seconds", "holds"), [(LONG, 0), (BRIEF, 1)])
def test_long_programs_give_the_interpreter_lock_back(seconds: float, holds: int) -> None:
    check = ctypes.cast(ctypes.pythonapi.PyGILState_Check, ctypes.c_void_p).value
    host = binding.host()
    source = binding.Module(
        f"""define void @note(ptr %words) {{
          %array = load ptr, ptr %words
          %held = call i32 inttoptr (i64 {check} to ptr)()
          %number = sitofp i32 %held to float
          store float %number, ptr %array
          ret void
        }}""",
        binding.target_machine(host),
    )
    code = binding.LoadedCode([source.object_code()], ["note"])
    source.close()
    made = calling(ctypes.c_void_p(code.addresses["note"]), seconds)
    noted = np.full(4, 7, np.float32)
    assert made.brief == bool(holds) and made.run(noted)
    assert noted[0] == holds


@pytest.mark.parametrize("seconds", [LONG, BRIEF])
def test_a_program_that_is_running_refuses_a_second_call(seconds: float) -> None:
    answers: list[bool] = []
    step = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: answers.append(made.run(np.zeros(4, np.float32))))
    made = calling(step, seconds)
    for _ in range(2):
        assert made.run(np.zeros(4, np.float32)) is True
    assert answers == [False, False]


@pytest.mark.parametrize("scratch", [False, True])
def test_the_pool_takes_part_once_it_is_there(device: Any, scratch: bool) -> None:
    kernel = doubling(scratch=scratch)
    made, x, y = doubler(device, kernel), np.ones(SIZE, np.float32), np.zeros(SIZE, np.float32)
    ordinary(device, kernel)
    for turn in range(50):
        x[:] = turn
        assert made.run(x, y) is True
        assert (y == 2 * x).all()


class Held:
    __slots__ = ("array", "owner", "state")

    def __init__(self, array: Any, owner: object, state: object = None) -> None:
        self.array, self.owner, self.state = array, owner, state


class Other(Held):
    __slots__ = ()


@pytest.mark.parametrize("seconds", [LONG, BRIEF])
def test_brief_programs_take_what_holds_an_array(seconds: float) -> None:
    owner, array = object(), np.zeros(4, np.float32)
    one = replace(ONE, holder=Holder(Held, "array", (("owner", owner), ("state", None))))
    step = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: array.fill(1))
    made = calling(step, seconds, one)
    assert made.run(Held(array, owner)) is (seconds == BRIEF)
    assert array.any() == (seconds == BRIEF)
    array[:] = 0
    unset = Held(array, owner)
    del unset.array
    refused = [Held(array, one), Held(array, owner, 1), Held([1.0], owner), Held(array[1:], owner), Other(array, owner)]
    assert not any(map(made.run, [*refused, unset]))
    assert not array.any()
    assert made.run(array)


@pytest.mark.parametrize("field", ["TYPE", "DATA", "DIMENSIONS", "DESCRIPTOR", "ARRAY_FLAGS", "ELEMENT", "ARRAY_SIZE"])
def test_a_numpy_with_other_fields_is_noticed(device: Any, monkeypatch: pytest.MonkeyPatch, field: str) -> None:
    assert numpy_agrees()
    moved = 1000 if field == "ARRAY_SIZE" else getattr(direct_ir, field) + (4 if field == "DIMENSIONS" else -8)
    monkeypatch.setattr(direct_ir, field, moved)
    assert not numpy_agrees.__wrapped__()
    monkeypatch.setattr(module, "numpy_agrees", numpy_agrees.__wrapped__)
    assert device.executor.direct([], [ONE]) is None


@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_empty_arrays_may_lie_anywhere(device: Any, shape: tuple[int, int]) -> None:
    call = device.executor.direct(
        [], [DirectArray(shape, DType.FLOAT32), DirectArray(shape, DType.FLOAT32, written=True)]
    )
    kept = np.zeros((3, 3), np.float32)
    assert call.run(kept[: shape[0], : shape[1]], np.empty(shape, np.float32))
    assert call.run(kept[1:1] if shape[0] == 0 else kept[:, 3:], np.empty(shape, np.float32))
    assert not call.run(kept, np.empty(shape, np.float32))


def run_script(text: str) -> subprocess.CompletedProcess[str]:
    prelude = f"""
        import ctypes, os, sys, threading, time
        import numpy as np
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        import test_llvm_direct as t
        from hal_llvm.driver import LlvmDevice
        device = LlvmDevice()
    """
    script = textwrap.dedent(prelude) + textwrap.dedent(text)
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "TILE_NUM_THREADS": "3"},
    )  # fmt: skip


def test_a_child_takes_the_ordinary_way_until_it_has_a_pool() -> None:
    done = run_script("""
        kernel = t.doubling(scratch=True)
        made, x, y = t.doubler(device, kernel), np.ones(t.SIZE, np.float32), np.zeros(t.SIZE, np.float32)
        assert not made.run(x, y) and not y.any()
        t.ordinary(device, kernel)
        assert made.run(x, y) and (y == 2).all()
        pid = os.fork()
        if pid == 0:
            x[:] = 5
            before = made.run(x, y), set(y)
            t.ordinary(device, kernel)
            after = made.run(x, y), set(y)
            os._exit(0 if (before, after) == ((False, {2.0}), (True, {10.0})) else 7)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        print('end')
    """)
    assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr


def test_a_child_may_call_what_was_running_at_the_fork() -> None:
    done = run_script("""
        inside, leave = threading.Event(), threading.Event()
        calls = []
        def work(_):
            calls.append(os.getpid())
            if len(calls) == 1:
                inside.set()
                leave.wait()
        step = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(work)
        made = t.calling(step, t.LONG)
        thread = threading.Thread(target=made.run, args=(np.zeros(4, np.float32),))
        thread.start()
        inside.wait()
        assert not made.run(np.zeros(4, np.float32))
        pid = os.fork()
        if pid == 0:
            done = made.run(np.zeros(4, np.float32))
            os._exit(0 if done and calls[-1] == os.getpid() else 7)
        leave.set()
        thread.join()
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert made.run(np.zeros(4, np.float32))
        print('end')
    """)
    assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr


def test_code_that_two_threads_made_at_once_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """The functions that the slower one has made already are in its code."""
    monkeypatch.setattr(module, "_natives", [])
    quicker: list[object] = []

    class Slower(module._Native):
        def __init__(self) -> None:
            super().__init__()
            if not quicker:
                quicker.append(self)
                quicker.append(module._native())  # what another thread does meanwhile

    monkeypatch.setattr(module, "_Native", Slower)
    first = module._native()
    assert module._native() is first
    assert set(map(id, quicker)) == set(map(id, module._natives))
