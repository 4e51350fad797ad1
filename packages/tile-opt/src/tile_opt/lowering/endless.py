"""Kernels that would run for hours or for ever are refused, with how much they would compute."""

from __future__ import annotations

from math import prod

from tile_ir.diagnostics import Diagnostic, TileLimitError
from tile_ir.kernels import Kernel, KernelList
from tile_ir.program.nodes import Contraction, Program

MOST_OPERATIONS = 10**16
"""Of one launch: minutes on the fastest devices there are."""
MOST_PER_BYTE = 10**7
"""Operations for each byte that is read or written, from `MANY` on. A product of matrices of 10^5 rows has 10^4, all pairs
of a million points 10^6; what has more was hardly meant."""
MANY = 10**11
"""Operations that take minutes on one slow processor."""


def refuse_endless(kernels: KernelList, program: Program) -> None:
    """TileLimitError for the first kernel that computes too much; it names the largest contraction of `program`."""
    for kernel in kernels.kernels:
        if is_endless(kernel):
            raise TileLimitError(_refusal(kernel, program))


def is_endless(kernel: Kernel) -> bool:
    """Whether a launch of a kernel would take hours, or for ever."""
    much = kernel.flops > MANY and kernel.flops > MOST_PER_BYTE * max(kernel.bytes, 1)
    return much or kernel.flops > MOST_OPERATIONS


def _refusal(kernel: Kernel, program: Program) -> Diagnostic:
    from tile_opt.analysis import Sets, analyze

    sets = Sets()
    contractions = [op for op in program.ops if isinstance(op, Contraction)]
    largest = max(contractions, key=lambda op: prod(analyze(op, sets).ranges), default=None)
    name = f"the contraction {largest.name}" if largest else f"the kernel {kernel.name}"
    return Diagnostic(
        "TILE-E304",
        f"{name} would take {_count(kernel.flops)} operations on {_count(kernel.bytes)} bytes",
        largest.origin if largest else None,
        "bound its indexes more tightly; TILE_LONG_KERNELS=1 allows it",
    )


def _count(number: int) -> str:
    """In digits where that is readable: ``1200``, ``1.1e12``."""
    return str(number) if number < 10**6 else f"{number:.2g}".replace("e+", "e")
