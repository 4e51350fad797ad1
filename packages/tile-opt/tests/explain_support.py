"""Programs and targets for the tests of explain."""

from __future__ import annotations

from collections.abc import Mapping

from tile_ir.diagnostics import Source
from tile_ir.dtype import DType
from tile_ir.machine import Bandwidths, Cache, LocalMemory, Machine, Memory, Occupancy, Ports, VectorUnit
from tile_ir.program.nodes import TensorType
from tile_ir.target import HardwareSettings, PassConfig, Target
from tile_opt.compiled import Compiled
from tile_opt.plan.plan import Plan

NODES = frozenset({"Barrier", "Extract", "Fma", "Insert", "Iota", "ReduceLanes", "Return", "Shuffle", "Splat", "While"})
FRONT = tuple(PassConfig(name) for name in ("inline", "fuse", "merge", "accumulate"))
CPU = Target(
    "cpu", HardwareSettings(registers=16, vector_bytes=32, goal_flops_per_byte=8), nodes=NODES,
    passes=(*FRONT, PassConfig("stream"), PassConfig("schedule_kernels")),
)  # fmt: skip
MULTIPROCESSOR = Machine(
    clock_ghz=1.9,
    vector=VectorUnit(registers=255, bytes=16, native=4),
    ports=Ports(fma=4, add=4, load=1, store=1, issue=4),
    caches=(
        Cache(1, 1 << 17, 4, line=128, sector=32, latency=35),
        Cache(2, 50 << 20, 16, line=128, sector=32, latency=270, bandwidth=24),
    ),
    memory=Memory(latency=550, all_cores=Bandwidths(read=4200, write=4200)),
    local=LocalMemory(bytes=228 << 10),
    occupancy=Occupancy(),
)
"""One of an NVIDIA GPU's."""
GPU = Target(
    "gpu",
    HardwareSettings(
        threads=256, vec_size=4, use_global=False, mem_width=128, max_mem=49152, max_regs=65536, goal_groups=2,
        goal_flops_per_byte=12, registers=128, buffer_align=128, index_bits=32,
    ),
    machine=MULTIPROCESSOR, nodes=NODES, passes=(*FRONT, PassConfig("group_tile"), PassConfig("gpu_tile")),
)  # fmt: skip

CONV = """function (D[N, X, Y, CI], K[I, J, CO, CI]) -> (R) {
    O[n, x, y, co : N, X, Y, CO] = +(D[n, x+i-1, y+j-1, ci] * K[i, j, co, ci]);
    R = (O > 0 ? O : 0);
}
"""
CONV_SHAPES = {"D": (1, 16, 16, 8), "K": (3, 3, 16, 8)}
MATMUL = "function (A[M, K], B[K, N]) -> (C) { C[i, j : M, N] = +(A[i, k] * B[k, j]); }\n"
SOFTMAX = """function (A[M, N]) -> (S) {
    X[m, 0 : M, 1] = >(A[m, n]);
    E = exp(A - X);
    T[m, 0 : M, 1] = +(E[m, n]);
    S = E / T;
}
"""
COPY = "function (A[M, N]) -> (B) { B[n, m : N, M] = =(A[m, n]); }\n"


def compiled(
    source: str,
    target: Target,
    name: str = "sample",
    plans: Mapping[str, Plan] | None = None,
    **shapes: tuple[int, ...],
) -> Compiled:
    """The function in `source` for float32 inputs of these shapes."""
    import tile_lang
    import tile_opt

    types = {n: TensorType(DType.FLOAT32, s) for n, s in shapes.items()}
    program = tile_lang.bind(tile_lang.parse(Source(source, f"{name}.tile")), types, name=name)
    return tile_opt.compile(program, target, plans=plans)
