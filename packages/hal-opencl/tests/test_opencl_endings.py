"""The end of a process, and of a forked child: no object of OpenCL is released any more, in whatever order things go."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="knows Linux's drivers")

SCRIPT = """
import ctypes, gc, mmap, os, sys
import tile_hal
from tile_ir.dtype import DType
from tile_ir.kernels import Kernel, KernelList
from tile_ir.semtree.nodes import Access, Block, Const, Function, Param, Space, Store, Type, Var
from tile_ir.stripe import nodes as stripe

HOW = sys.argv[1]
RELEASES = {"Context": 7, "CommandQueue": 11, "MemObject": 18, "Program": 29, "Kernel": 37, "Event": 44}
found = tile_hal.devices("opencl")
if not found:
    sys.exit(77)
device = found[0]


def used():
    pointer = Var("out", Type(DType.FLOAT32, space=Space.GLOBAL, ptr=True))
    store = Store(pointer, Const(0, Type(DType.INT32)), Const(1.0, Type(DType.FLOAT32)))
    function = Function("f", (Param("out", pointer.type, Access.WRITE, 4, 1),), Block((store,)), (1, 1, 1))
    kernels = KernelList((Kernel("f", stripe.Block("f"), function, (1, 1, 1)),), (), (), device.target)
    kernel = device.executor.prepare(device.compiler.build(kernels), 0)
    first, second, third = (device.memory.allocate(n * 4096) for n in (1, 2, 3))
    kernel.run([first]).wait()
    cycle = [second, device.executor.fill(first)]
    cycle[1].wait()
    cycle.append(cycle)
    return {"kernel": kernel, "cycle": cycle, "mapping": third.map_discard(), "buffer": third}


def forbid(name):
    # Each object begins with the address of its driver's functions, which stand in the order of the standard's table.
    libc, size = ctypes.CDLL(None), ctypes.sizeof(ctypes.c_void_p)
    table = ctypes.c_void_p.from_address(device.memory.context.raw.int_ptr).value
    place = table + size * RELEASES[name]
    assert libc.mprotect(ctypes.c_void_p(place & -mmap.PAGESIZE), mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE) == 0
    ctypes.c_void_p.from_address(place).value = ctypes.cast(libc.abort, ctypes.c_void_p).value


kept = used()
child = os.fork() if HOW == "forks" else 0
if child:
    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 0xff)
for name in sys.argv[2:] or RELEASES:
    forbid(name)
if HOW != "ends":
    kept.clear()
    gc.collect()
    device.memory.trim()
sys.exit(3)
"""
ABORTED = -signal.SIGABRT


def ending(how: str, *forbidden: str) -> int:
    """The exit code of a process that used OpenCL and aborts when objects are released, of the given kinds or any: else 3."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TILE_ISOLATE": ""}
    command = [sys.executable, "-c", SCRIPT, how, *forbidden]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    if done.returncode == 77:
        pytest.skip("no OpenCL device")
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode


@pytest.mark.parametrize("kind", ["MemObject", "Program", "Kernel", "Event"])
def test_what_nobody_needs_is_released_meanwhile(kind: str) -> None:
    assert ending("goes on", kind) == ABORTED


def test_a_forked_child_releases_nothing_of_its_parent() -> None:
    assert ending("forks") == 3


def test_nothing_is_released_while_the_interpreter_ends() -> None:
    assert ending("ends") == 3
