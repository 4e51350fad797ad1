"""The kernels of a program, of which some become part of later ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set

from tile_ir.stripe.nodes import Block, Program, Statement

from tile_opt.blocks.buffers import fixed_kernels, temporaries, users, wholes
from tile_opt.blocks.tree import kernels_of
from tile_opt.kernel.view import KernelView, open_kernel
from tile_opt.passes.choosing import Choice


class Kernels:
    """What a pass that joins them knows: what each is, who names which buffer, and what it chose."""

    def __init__(self, program: Program, opened: Callable[[Block], KernelView | None] = open_kernel) -> None:
        """Those that `opened` opens may join; those that run less often than others stay."""
        self.program = program
        self.kernels: list[Statement | None] = list(kernels_of(program))
        """None where a kernel has become part of a later one."""
        self.fixed = fixed_kernels(program)
        self.views = [
            opened(k) if isinstance(k, Block) and n not in self.fixed else None for n, k in enumerate(self.kernels)
        ]
        self.users: Mapping[str, Set[int]] = users(program)
        self.temps, self.wholes = temporaries(program), wholes(program)
        self.choices: list[Choice] = []

    def _view(self, number: int) -> KernelView:
        view = self.views[number]
        assert view is not None
        return view
