"""recompute: what several kernels read from memory is computed by each of them, where that takes less than to store and read it.

`inline` comes before kernels are fused: there an exponential that a sum and a quotient read is kept, because one kernel
over rows keeps it in a cache. Rows that no cache holds stay kernels apart, between which everything goes through memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from tile_ir.target import Target

from tile_opt.kernel.view import KernelView, Use
from tile_opt.kernel.work import carries, is_heavy
from tile_opt.model.fusion import forecast
from tile_opt.passes.choosing import Choice, Chosen, results
from tile_opt.passes.kernels.inline import Inline, Readers, Times, flat_seconds


@dataclass(frozen=True)
class Recompute(Inline):
    """A producer of at most `max_cost` operations moves into two to `most` kernels, none of them a contraction or a scan.

    Together they must be expected to take less than `margin` of the time before.
    """

    most: int = 4
    max_cost: int = 32
    margin: float = 0.9

    def opened(self, view: KernelView) -> KernelView:
        """A view of one stage has all loops in it: nothing else shares them."""
        return view.unshared() or view

    def judged(self, view: KernelView, producer: Use, readers: Readers, times: Times) -> Choice:
        loads = [(r, s) for r in readers.values() for s in r.stages for u in s.uses if u.buffer == producer.buffer]
        names = producer.buffer, results(readers.values())
        if not 2 <= len(loads) <= self.most or any(is_heavy(r, s) or carries(s) for r, s in loads):
            return Choice(Chosen.STORED, *names, reason="it stays where it is")
        together, apart = times.compared(view, producer, readers, _seconds)
        return Choice(Chosen.INLINED if together < self.margin * apart else Chosen.STORED, *names, together, apart)


def _seconds(view: KernelView, target: Target) -> float:
    return forecast(view, target.machine).seconds if view.loops else flat_seconds(view, target)
