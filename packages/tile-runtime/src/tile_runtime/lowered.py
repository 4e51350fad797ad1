"""The stages of one compilation, each a value that can be held and printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from tile_hal.interfaces import Device, Library
from tile_ir.deadline import within_time
from tile_ir.diagnostics import Diagnostic, Span, TileTypeError
from tile_ir.kernels import KernelList
from tile_ir.program.nodes import Program
from tile_ir.stripe.nodes import Program as StripeProgram
from tile_ir.target import Target

from tile_runtime.logs import telling
from tile_runtime.programs.executable import Executable
from tile_runtime.programs.lookup import find
from tile_runtime.programs.runnable import Runnable
from tile_runtime.programs.stored import Place, library_of
from tile_runtime.requirements import check_dtypes, check_memory
from tile_runtime.typed import Typed

if TYPE_CHECKING:
    from tile_opt.compiled import Compiled
    from tile_opt.explain import ErrorReport, ProgramReport
    from tile_opt.plan.plan import Plan
    from tile_opt.plan.text import Plans


class StripeText:
    """A Stripe program that prints as its text form; `.program` is the value itself.

    `parts` are the programs that one with loops consists of: then they are what is printed.
    """

    def __init__(self, program: StripeProgram, parts: Sequence[StripeProgram] = ()) -> None:
        self.program = program
        self.parts = tuple(parts)

    def __str__(self) -> str:
        from tile_ir.stripe.printer import print_program

        return "\n".join(map(print_program, self.parts or (self.program,)))

    __repr__ = __str__


class Lowered:
    """`program`, `stripe` (scheduled), `stripe_after(pass)`, `plans`, `kernels`, `source` and `asm` of a bound function."""

    def __init__(
        self,
        typed: Typed,
        device: Device,
        *,
        target: Target | None = None,
        plans: Mapping[str, Plan] | None = None,
    ) -> None:
        """`target` replaces the device's; `plans` go before what the compiler chooses, by kernel name."""
        self._typed = typed
        self.device = device
        self.target = target or device.target
        self.given = plans or {}

    @property
    def typed(self) -> Typed:
        """The function, and the types of its inputs."""
        return self._typed

    @property
    def spans(self) -> Mapping[str, Span]:
        """Where the function's inputs are declared."""
        return self._typed.spans

    @property
    def program(self) -> Program:
        """The typed program."""
        return self._typed.program

    def retargeted(self, target: Target) -> Lowered:
        """The same program compiled for another target of the same device."""
        return Lowered(self._typed, self.device, target=target, plans=self.given)

    def planned(self, plans: Mapping[str, Plan]) -> Lowered:
        """The same program with other plans given."""
        return Lowered(self._typed, self.device, target=self.target, plans=plans)

    @cached_property
    def compiled(self) -> Compiled:
        """The optimizer's result."""
        import tile_opt

        with within_time():
            check_dtypes(self.program, self.device, self._typed.spans)
            return tile_opt.compile(self.program, self.target, plans=self.given)

    @property
    def plans(self) -> Plans:
        """The plan of each kernel by its name: what was given, and what the compiler chose. Prints as text."""
        return self.compiled.plans

    @property
    def stripe(self) -> StripeText:
        """Scheduled Stripe."""
        return StripeText(self.compiled.stripe, [part.stripe for part in self.compiled.parts])

    def stripe_after(self, name: str) -> StripeText:
        """Stripe right after the pass called `name` (or "initial"); TileTypeError lists the passes."""
        from tile_opt.compiler import pass_labels, stripe_after

        try:
            found = stripe_after(self.program, self.target, name, self.given)
        except KeyError:
            message = f"device {self.device.id} has no pass {name!r}"
            hint = f"its passes are {', '.join(('initial', *pass_labels(self.target)))}"
            raise TileTypeError(Diagnostic("TILE-E511", message, hint=hint)) from None
        return StripeText(found[0], found if len(found) > 1 else ())

    @property
    def kernels(self) -> KernelList:
        """What the backend gets: kernels, buffers and steps."""
        return self.compiled.kernels

    @property
    def library(self) -> Library:
        """Compiled code, from the disk cache where it is there."""
        return self._library

    @cached_property
    def _library(self) -> Library:
        with within_time():
            return library_of(self._place, self.compiled)

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
        """The function, ready to run on buffers."""
        with within_time():
            return Executable(self.device, *self.runnable, self._typed)

    @cached_property
    def runnable(self) -> tuple[Runnable, Library]:
        """What runs it; from the disk cache without any of the other stages."""
        with within_time():
            found = find(self._place)
            if found is not None:
                check_memory(found[0].kernels, self.device, lambda: self.program)
                return found
            with telling(self._typed.name, self.device):
                check_memory(self.compiled.kernels, self.device, lambda: self.program)
                return Runnable.of(self.compiled), self.library

    @cached_property
    def _place(self) -> Place:
        return Place(self.device, self.target, self._typed, self.given)

    def explain(self, *, candidates: bool = False, measure: bool = False) -> str:
        """What each kernel does, how it was planned and what it costs.

        `candidates` adds the plans that were weighed, `measure` runs the kernels and shows their times beside the
        predicted ones.
        """
        from tile_opt.explain import explain

        return explain(self.compiled, candidates=candidates, measured=self._measured(measure))

    def _repr_html_(self) -> str:
        """What a notebook shows: the page of `explain_html`, in a frame of its own."""
        from html import escape

        return f'<iframe style="width: 100%; height: 40em; border: 0" srcdoc="{escape(self.explain_html())}"></iframe>'

    def explain_html(self, *, candidates: bool = True, measure: bool = False) -> str:
        """The same as one self-contained HTML page, with the roofline, loop nests, Stripe and semtree."""
        from tile_opt.explain import explain_html

        return explain_html(self.compiled, candidates=candidates, measured=self._measured(measure))

    def report(self, *, candidates: bool = False, measure: bool = False) -> ProgramReport:
        """The same as data."""
        from tile_opt.explain import report

        return report(self.compiled, candidates=candidates, measured=self._measured(measure))

    @cached_property
    def error_bounds(self) -> Mapping[str, ErrorReport]:
        """A certified bound on the rounding error of each output by name; each prints as a sentence (`.text`)."""
        from tile_opt.explain import errors

        return {e.output: e for e in errors(self.compiled)}

    def _measured(self, measure: bool) -> Mapping[str, float] | None:
        from tile_runtime.measuring.measure import kernel_seconds

        return kernel_seconds(self) if measure and self.device.capabilities.executes else None
