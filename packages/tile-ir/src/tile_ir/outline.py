"""What is needed to run a kernel list whose code is compiled already: everything but the kernels' bodies.

An outline is a record (`tile_ir.record`). As a kernel list it has functions with the same parameters and group sizes, and
no statements.
"""

from __future__ import annotations

from collections.abc import Sequence

from tile_ir.contents import Contents
from tile_ir.frozen import frozen
from tile_ir.kernels import BufferInfo, Kernel, KernelList, Step
from tile_ir.program.nodes import TensorType
from tile_ir.semtree import nodes as semtree
from tile_ir.stripe import nodes as stripe
from tile_ir.target import Target


@frozen
class KernelOutline:
    """One kernel without its body, and without labels, which are not what it is stored for."""

    name: str
    block: str
    """The name of its Stripe block."""
    entry: str
    params: tuple[semtree.Param, ...]
    group_size: tuple[int, int, int]
    subgroup: int
    groups: tuple[int, int, int]
    flops: int
    bytes: int

    @staticmethod
    def of(kernel: Kernel) -> KernelOutline:
        """ValueError for a kernel without a function."""
        function = kernel.function
        if function is None:
            raise ValueError(f"kernel {kernel.name!r} has no semtree, so it has no outline")
        head = (function.name, function.params, function.group_size, function.subgroup)
        return KernelOutline(kernel.name, kernel.stripe.name, *head, kernel.groups, kernel.flops, kernel.bytes)

    def kernel(self) -> Kernel:
        empty = semtree.Block()
        function = semtree.Function(self.entry, self.params, empty, self.group_size, self.subgroup)
        return Kernel(self.name, stripe.Block(self.block), function, self.groups, self.flops, self.bytes)


@frozen
class ConstantOutline:
    """A constant without its bytes."""

    name: str
    type: TensorType


@frozen
class Outline:
    """A kernel list without bodies, constants' bytes and target."""

    kernels: tuple[KernelOutline, ...]
    buffers: tuple[BufferInfo, ...]
    steps: tuple[Step, ...]
    constants: tuple[ConstantOutline, ...]
    arenas: tuple[int, ...]
    inherits: tuple[tuple[int, int], ...]

    @staticmethod
    def of(kernels: KernelList) -> Outline:
        """ValueError where a kernel has no function."""
        constants = tuple(ConstantOutline(c.name, TensorType(c.type.dtype, c.type.sizes)) for c in kernels.constants)
        listed = tuple(map(KernelOutline.of, kernels.kernels))
        return Outline(listed, kernels.buffers, kernels.steps, constants, kernels.arenas, kernels.inherits)

    def kernel_list(self, target: Target, constants: Sequence[Contents]) -> KernelList:
        """The kernel list, with the bytes of each constant, for the target that it was made for."""
        data = tuple(
            stripe.ConstantBuffer(c.name, stripe.TensorType.row_major(c.type.dtype, c.type.shape), content)
            for c, content in zip(self.constants, constants, strict=True)
        )
        kernels = tuple(outline.kernel() for outline in self.kernels)
        return KernelList(kernels, self.buffers, self.steps, target, data, self.arenas, self.inherits)


def is_outline(kernels: KernelList) -> bool:
    """Whether a kernel list has kernels, and none of them says what it does."""
    functions = [k.function for k in kernels.kernels]
    return bool(functions) and all(f is not None and not f.body.body for f in functions)
