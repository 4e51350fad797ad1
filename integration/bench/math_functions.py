"""Time per element of the llvm device's float32 math functions, on 64 K elements in cache and one thread.

Run ``python integration/bench/math_functions.py``.
"""

from __future__ import annotations

import time

import numpy as np
import tile_hal
from tile_ir.dtype import DType
from tile_ir.kernels import Kernel, KernelList
from tile_ir.ops import OPS, Signature
from tile_ir.semtree.nodes import Access, Block, Call, Const, For, Function, Load, Param, Store, Type, Var

NAMES = [name for name, op in OPS.items() if op.signature is Signature.MATH]
COUNT = 1 << 16
INDEX, POINTER = Type(DType.INT64), Type(DType.FLOAT32, ptr=True)


def kernel(name: str, lanes: int) -> Kernel:
    """y[i] = name(x[i]) over all elements."""
    vector, i = Type(DType.FLOAT32, lanes), Var("i", INDEX)
    load = Load(Var("x", POINTER), i, vector)
    store = Store(Var("y", POINTER), i, Call(name, (load,) * OPS[name].arity, vector))
    loop = For("i", Const(0, INDEX), Const(COUNT, INDEX), lanes, Block((store,)))
    params = (Param("y", POINTER, Access.WRITE, 64, COUNT), Param("x", POINTER, Access.READ, 64, COUNT))
    return Kernel(name, None, Function(name, params, Block((loop,))), (1, 1, 1), COUNT)  # type: ignore[arg-type]


def main() -> None:
    device = tile_hal.device("llvm")
    lanes = device.target.settings.vec_size
    library = device.compiler.build(KernelList(tuple(kernel(n, lanes) for n in NAMES), (), (), device.target))
    y, x = (device.memory.allocate(4 * COUNT) for _ in range(2))
    np.frombuffer(x.map_discard(), np.float32)[:] = np.random.default_rng(0).uniform(0.1, 0.9, COUNT)
    for number, name in enumerate(NAMES):
        runner = device.executor.prepare(library, number)
        best = float("inf")
        for _ in range(60):
            started = time.perf_counter()
            runner.run([y, x]).wait()
            best = min(best, time.perf_counter() - started)
        print(f"{name:6s} {best / COUNT * 1e9:6.3f} ns per element ({lanes} lanes)")


if __name__ == "__main__":
    main()
