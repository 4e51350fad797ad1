"""The stages of one compilation, each a value that can be held and printed."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from tile_hal.interfaces import Device, Library
from tile_ir.kernels import KernelList
from tile_ir.stripe.nodes import Program as StripeProgram
from tile_lang.program import Program

from tile_runtime.executable import Executable
from tile_runtime.requirements import check_dtypes

if TYPE_CHECKING:
    from tile_opt.compiler import Compiled


class StripeText:
    """A Stripe program that prints as its text form; `.program` is the value itself."""

    def __init__(self, program: StripeProgram) -> None:
        self.program = program

    def __str__(self) -> str:
        from tile_ir.stripe.printer import print_program

        return print_program(self.program)


class Lowered:
    """`program`, `stripe` (scheduled), `stripe_after(pass)`, `kernels`, `source` and `asm` of a bound function."""

    def __init__(self, program: Program, device: Device) -> None:
        self.program = program
        self.device = device

    @cached_property
    def compiled(self) -> Compiled:
        """The optimizer's result."""
        import tile_opt

        check_dtypes(self.program, self.device)
        return tile_opt.compile(self.program, self.device.target)

    @property
    def stripe(self) -> StripeText:
        """Scheduled Stripe."""
        return StripeText(self.compiled.stripe)

    def stripe_after(self, name: str) -> StripeText:
        """Stripe right after the pass called `name` (or "initial"); KeyError lists the passes."""
        import tile_opt

        seen: dict[str, StripeProgram] = {}
        tile_opt.compile(
            self.program, self.device.target, callback=lambda _, label, stripe: seen.__setitem__(label, stripe)
        )
        if name not in seen:
            raise KeyError(f"no pass {name!r}; there are {', '.join(seen)}")
        return StripeText(seen[name])

    @property
    def kernels(self) -> KernelList:
        return self.compiled.kernels

    @cached_property
    def library(self) -> Library:
        """Compiled code, from the disk cache where it is there."""
        from tile_runtime.cache import build

        return build(self.device, self.kernels)

    @property
    def source(self) -> str:
        """What the backend compiled (LLVM IR, OpenCL C…)."""
        return self.library.source()

    @property
    def asm(self) -> str:
        """Machine code as text."""
        return self.library.assembly()

    @cached_property
    def executable(self) -> Executable:
        return Executable(self.device, self.compiled, self.library)

    def explain(self) -> str:
        """What each kernel does, how it was tiled and what it costs."""
        from tile_opt.explain import explain

        return explain(self.compiled)
