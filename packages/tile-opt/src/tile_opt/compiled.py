"""What a compilation gives: its result and every stage on the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from tile_ir.frozen import frozen
from tile_ir.kernels import KernelList
from tile_ir.stripe.nodes import Program as StripeProgram
from tile_ir.target import PassConfig

if TYPE_CHECKING:
    from tile_ir.program.nodes import Program

    from tile_opt.passes import Pass
    from tile_opt.passes.choosing import Choice
    from tile_opt.passes.scheduling import Decision
    from tile_opt.plan.text import Plans
    from tile_opt.proof import Report


@frozen
class Compiled:
    """Every stage of one compilation."""

    program: Program
    """After the program rewrites."""
    stripe_initial: StripeProgram
    """Unscheduled."""
    stripe: StripeProgram
    """Scheduled."""
    kernels: KernelList
    timings: Mapping[str, float]
    """Seconds per stage, in order; passes as ``pass:<label>``."""
    passes: tuple[PassConfig | Pass, ...] = ()
    """What was run on the unscheduled program, in order."""
    decisions: Mapping[str, Decision] = field(default_factory=dict[str, "Decision"])
    """What was decided for each kernel, by the name of its block."""
    choices: tuple[Choice, ...] = ()
    """What was fused, tiled together, computed again or stored, and why."""
    proof: Report | None = None
    """What was proved of the schedule, where that was asked for (TILE_VERIFY=prove)."""
    parts: tuple[Compiled, ...] = ()
    """Of a program with loops the parts without, and the loops' bodies, in the order of the kernels."""

    @property
    def plans(self) -> Plans:
        """The plan of each kernel by its name, as `compile` takes them; prints as text."""
        from tile_opt.plan.text import Plans

        plans = {name: decision.plan for name, decision in self.decisions.items()}
        return Plans(plans, remarks={name: decision.remarks for name, decision in self.decisions.items()})
