"""A device whose "kernels" are Python functions over float32 arrays."""

from __future__ import annotations

import numpy as np
import tile_hal
from tile_hal.host import HostExecutor, HostMemory, HostQueue
from tile_ir.dtype import DType
from tile_ir.kernels import BufferInfo, Kernel
from tile_ir.stripe.nodes import Block
from tile_ir.target import Capabilities, Target


class PyLibrary(tile_hal.Library):
    def __init__(self, functions):
        self.functions = functions


class PyKernel(tile_hal.Kernel):
    def __init__(self, function, queue):
        self.function, self.queue = function, queue

    def run(self, params, dependencies=(), *, profile=False):
        return self.queue.run(
            lambda: self.function(*[p.as_array(np.float32) for p in params]),
            dependencies,
            profile=profile,
            inline=self.queue.inline,
        )


class Queue(HostQueue):
    inline = True


class PyExecutor(HostExecutor):
    def prepare(self, library, index):
        return PyKernel(library.functions[index], self.queue)


class PyDevice(tile_hal.Device):
    id, name, target, capabilities = "py:0", "Python", Target("py"), Capabilities()
    compiler = None

    def __init__(self, inline=True):
        queue = Queue(2)
        queue.inline = inline
        self.executor = PyExecutor(queue)
        self.memory = HostMemory()


def info(number, kind, n=4, **more):
    return BufferInfo(number, f"b{number}", kind, (n,), DType.FLOAT32, 4 * n, **more)


def kernels(count):
    return tuple(Kernel(f"k{i}", Block(f"k{i}"), None, (1, 1, 1)) for i in range(count))


def double(out, a):
    out[:] = 2 * a


def add(out, a, b):
    out[:] = a + b


def buffer_of(device, values):
    buffer = device.memory.allocate(4 * len(values))
    buffer.as_array(np.float32)[:] = values
    return buffer
