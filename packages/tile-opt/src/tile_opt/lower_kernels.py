"""From scheduled Stripe to the kernel list that a backend gets."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from time import perf_counter

from tile_ir.deadline import check
from tile_ir.kernels import Kernel, KernelList
from tile_ir.semtree.nodes import Function
from tile_ir.stripe.nodes import Program as StripeProgram
from tile_ir.target import Target


def lower_kernels(
    program: StripeProgram, target: Target, verify: bool = False, timings: dict[str, float] | None = None
) -> KernelList:
    """Scheduled Stripe to the kernel list a backend gets: lowered, legal for the target, simplified."""
    from tile_opt.lowering import lower
    from tile_opt.semtree import VECTOR_NODES, join_stores, legalise, simplify

    spent: dict[str, float] = {} if timings is None else timings
    with timed(spent, "lower"):
        kernels = lower(program, target)
    with timed(spent, "legalise"):
        kernels = _each_function(kernels, lambda function: legalise(function, target.nodes))
    with timed(spent, "simplify"):
        register = target.machine.vector.bytes if target.nodes >= VECTOR_NODES else 0
        aligned = target.machine.is_gpu
        kernels = _each_function(kernels, lambda function: simplify(join_stores(function, register, aligned)))
    if verify:
        with timed(spent, "verify"):
            _verify(kernels)
    return kernels


def _each_function(kernels: KernelList, work: Callable[[Function], Function]) -> KernelList:
    def apply(kernel: Kernel) -> Kernel:
        check("simplifying", kernel.name)
        return kernel if kernel.function is None else replace(kernel, function=work(kernel.function))

    return replace(kernels, kernels=tuple(apply(k) for k in kernels.kernels))


def _verify(kernels: KernelList) -> None:
    from tile_ir.semtree.verify import verify

    for kernel in kernels.kernels:
        if kernel.function is not None:
            verify(kernel.function, kernels.target.nodes)


@contextmanager
def timed(timings: dict[str, float], stage: str) -> Generator[None]:
    """Adds the seconds that the body takes to those of a stage."""
    start = perf_counter()
    yield
    timings[stage] = timings.get(stage, 0.0) + perf_counter() - start
