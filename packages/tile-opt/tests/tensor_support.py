"""Contractions on matrix instructions: targets, programs, and what their results must be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tile_lang
from explain_support import FRONT, GPU, MULTIPROCESSOR
from lowering_support import execute
from tile_ir.diagnostics import Source
from tile_ir.dtype import DType
from tile_ir.matrix import MATRIX_INSTRUCTIONS, MMA
from tile_ir.program.nodes import Program, TensorType
from tile_ir.semtree.verify import OPTIONAL_NODES
from tile_ir.semtree.verify import verify as verify_function
from tile_ir.stripe.nodes import Block
from tile_ir.stripe.nodes import Program as Stripe
from tile_ir.stripe.walk import blocks_in
from tile_ir.target import Options, PassConfig, Target
from tile_opt.kernel.view import KernelView, open_kernel
from tile_opt.lower_kernels import lower_kernels
from tile_opt.passes.base import kernels_of
from tile_opt.passes.kernels.tensor_tile import TensorTile
from tile_opt.pipeline import optimize, schedule
from tile_opt.plan.plan import Plan
from tile_opt.plan.text import parse_plans
from tile_opt.translate import to_stripe

Array = np.ndarray[Any, Any]


def with_local(target: Target, nbytes: int) -> Target:
    """The target with so many bytes of local memory for a kernel."""
    return replace(target, settings=replace(target.settings, static_local_bytes=nbytes))


SINGLE = tuple(i.name for i in MMA)
"""Instructions of one sub-group."""
TENSOR = replace(
    GPU, name="tensor", nodes=OPTIONAL_NODES - {"TensorCopy"}, matrix=SINGLE, options=Options(reduced_precision=True),
    settings=replace(GPU.settings, static_local_bytes=98304), machine=MULTIPROCESSOR,
    passes=(*FRONT, PassConfig("tensor_tile"), PassConfig("gpu_tile")),
)  # fmt: skip
"""One multiprocessor, so that tiles are as large as the problem allows."""
BUSY = TENSOR.resolved(cores=132)
SMALL = with_local(TENSOR, 18432)
"""Local memory for three steps of the smallest tile, of 32 by 32: quick to interpret, and soon more than one group."""
PORTABLE = OPTIONAL_NODES - {"Mma", "MatrixLoad", "Round", "AsyncCopy", "AsyncWait"}
LAYOUTS = ("nn", "tn", "nt", "tt")
"""Whether A and B are transposed."""
DTYPES = (DType.FLOAT32, DType.BFLOAT16)


def bound(source: str, dtype: DType | Mapping[str, DType], **shapes: tuple[int, ...]) -> Program:
    dtypes = dict.fromkeys(shapes, dtype) if isinstance(dtype, DType) else dtype
    types = {n: TensorType(dtypes[n], s) for n, s in shapes.items()}
    return tile_lang.bind(tile_lang.parse(Source(source, "sample.tile")), types, name="sample")


@dataclass(frozen=True, slots=True)
class Sample:
    """A program whose output R is ``tail(left @ right, inputs)`` of operands made from its inputs."""

    program: Program
    operands: Callable[[Mapping[str, Array]], tuple[Array, Array]]
    tail: Callable[[Array, Mapping[str, Array]], Array] = lambda product, _: product


RELU = "R = (P > 0 ? P : 0);"
BIAS_RELU = "Q = P + V; R = (Q > 0 ? Q : 0);"
TAILS: Mapping[str, Callable[[Array, Mapping[str, Array]], Array]] = {
    "": lambda product, _: product,
    RELU: lambda product, _: np.maximum(product, 0),
    BIAS_RELU: lambda product, x: np.maximum(product + x["V"], 0),
}
"""What follows the product P, with a bias V: statements, and their meaning."""


def matmul(layout: str, dtype: DType, m: int, n: int, k: int, tail: str = "") -> Sample:
    """``op(A) @ op(B)`` and one of `TAILS`."""
    first, left, a = (("A[i, k]", "A[M, K]", (m, k)), ("A[k, i]", "A[K, M]", (k, m)))[layout[0] == "t"]
    second, right, b = (("B[k, j]", "B[K, N]", (k, n)), ("B[j, k]", "B[N, K]", (n, k)))[layout[1] == "t"]
    bias, shapes = (", V[N]", {"A": a, "B": b, "V": (n,)}) if "V" in tail else ("", {"A": a, "B": b})
    source = f"function ({left}, {right}{bias}) -> (R) {{ {'P' if tail else 'R'}[i, j : M, N] = +({first} * {second}); {tail} }}"

    def operands(x: Mapping[str, Array]) -> tuple[Array, Array]:
        return x["A"].T if layout[0] == "t" else x["A"], x["B"].T if layout[1] == "t" else x["B"]

    return Sample(bound(source, dtype, **shapes), operands, TAILS[tail])


def inputs_of(program: Program, seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {p.name: rng.standard_normal(p.type.shape).astype(p.type.dtype.numpy) for p in program.inputs}


def tf32(x: Array) -> Array:
    """Floats rounded to ten mantissa bits, away from zero in a tie, by their bits; 16-bit floats have no more."""
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)


def blocks_of(stripe: Stripe) -> list[Block]:
    """All blocks of all kernels, outermost first."""
    return [b for k in kernels_of(stripe) if isinstance(k, Block) for b in blocks_in(k)]


def instructions(stripe: Stripe) -> set[str]:
    """Names of the instructions that blocks are."""
    return {b.instr.name for b in blocks_of(stripe) if b.instr}


def on_matrix(stripe: Stripe) -> bool:
    """Whether a kernel multiplies by matrix instructions."""
    return not instructions(stripe).isdisjoint(MATRIX_INSTRUCTIONS)


def scheduled(program: Program, target: Target) -> Stripe:
    return optimize(to_stripe(program), target, verify=True)


@dataclass(frozen=True, slots=True)
class Tiles:
    """The numbers of a plan."""

    plan: Plan
    row_loop: str
    rows: int
    columns: int
    """Of a group's tile."""
    warps: int
    instructions: tuple[int, int]
    """Of a sub-group, along rows and columns."""
    step: int
    stages: int


def view_of(sample: Sample, target: Target) -> KernelView:
    """The sample's only kernel before it is scheduled."""
    (kernel,) = kernels_of(optimize(to_stripe(sample.program), target, passes=FRONT))
    view = open_kernel(kernel) if isinstance(kernel, Block) else None
    assert view is not None
    return view


def optimize_given(sample: Sample, target: Target, plans: str) -> Stripe:
    """The sample scheduled by plans of its user's."""
    return schedule(to_stripe(sample.program), target, verify=True, plans=parse_plans(plans)).program


def plans_of(sample: Sample, target: Target) -> list[Tiles]:
    """What the pass would plan for the sample's only kernel, best first."""
    view = view_of(sample, target)
    return [_tiles(plan, view.ranges) for plan in TensorTile().candidates(view, target)]


def plan_of(sample: Sample, target: Target) -> Tiles | None:
    """The plan of the pass's own choice."""
    return next(iter(plans_of(sample, target)), None)


def _tiles(plan: Plan, ranges: Mapping[str, int]) -> Tiles:
    assert plan.instruction is not None
    m, n, k = (loop for _, loop in plan.instruction.loops)
    group, warp, step, one = ({x: plan.tile(x, level, ranges[x]) for x in (m, n, k)} for level in range(4))
    warps = group[m] // warp[m] * (group[n] // warp[n])
    each = warp[m] // one[m], warp[n] // one[n]
    return Tiles(plan, m, group[m], group[n], warps, each, step[k], plan.stagings[0].versions)


def run_kernels(stripe: Stripe, target: Target, inputs: Mapping[str, Array]) -> Array:
    """R of the verified kernels of the scheduled program, on the semtree interpreter."""
    kernels = lower_kernels(stripe, target)
    for kernel in kernels.kernels:
        assert kernel.function is not None
        verify_function(kernel.function, target.nodes)
    return execute(kernels, inputs)["R"]


def near(
    got: Array, sample: Sample, inputs: Mapping[str, Array], rounding: Callable[[Array], Array], share: float
) -> None:
    """`got` is the sample's meaning for rounded operands.

    Within a share of ``|left| @ |right|``, and roundings of the product and the result.
    """
    left, right = (rounding(x) for x in sample.operands(inputs))
    product, size = left @ right, np.abs(left) @ np.abs(right)
    want = sample.tail(product, {n: x.astype(np.float64) for n, x in inputs.items()})
    step = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}[str(got.dtype)]
    wrong = ~(np.abs(got.astype(np.float64) - want) <= share * size + step * (np.abs(want) + 2 * np.abs(product)))
    assert not wrong.any(), f"{np.argwhere(wrong)[:4].tolist()}: {got[wrong][:4]} instead of {want[wrong][:4]}"


def whole(x: Array) -> Array:
    return x.astype(np.float64)


def agree(sample: Sample, target: Target, seed: int = 0) -> Stripe:
    """The sample is one kernel of matrix instructions, and right; the scheduled program."""
    inputs = inputs_of(sample.program, seed)
    stripe = scheduled(sample.program, target)
    assert on_matrix(stripe) and len(kernels_of(stripe)) == 1
    near(run_kernels(stripe, target, inputs), sample, inputs, tf32, 1e-6)
    return stripe


def walk_instr(stripe: Stripe, start: str) -> Iterator[Block]:
    """Blocks whose instruction starts so."""
    yield from (b for b in blocks_of(stripe) if b.instr and b.instr.name.startswith(start))
