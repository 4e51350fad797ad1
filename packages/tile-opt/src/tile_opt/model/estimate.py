"""How long a scheduled kernel takes on a target, and why: read from Stripe alone, so for any schedule whoever made it."""

from __future__ import annotations

from collections.abc import Sequence

from tile_ir.machine import Machine
from tile_ir.ops import Aggregation
from tile_ir.stripe.nodes import Block
from tile_ir.target import Target

from tile_opt.model.causes import Cause, Estimate
from tile_opt.model.multiprocessor import LAUNCH, on_multiprocessors
from tile_opt.model.processor import on_processor
from tile_opt.model.scheduled import Tree, read
from tile_opt.plan.steps.groups.last_group import apart, waits_for_all
from tile_opt.plan.steps.groups.together import parts_of_launch

__all__ = ["Cause", "Estimate", "estimate"]


def estimate(kernel: Block, target: Target) -> Estimate:
    """The predicted time of one run of `kernel`, a scheduled top block, on the machine of `target`, and its causes.

    The kernel is taken to run again and again, so what fits in a cache is there. Sizes must be known.
    """
    machine = target.machine
    if machine.is_gpu and waits_for_all(kernel) is not None:
        return _in_turn([on_multiprocessors(read(b), machine) for b in apart(kernel)], machine, machine.launch.arrival)
    if machine.is_gpu and (parts := parts_of_launch(kernel)):
        return _in_turn([estimate(b, target) for b in parts], machine, 0.0)
    tree = read(kernel)
    return on_multiprocessors(tree, machine) if machine.is_gpu else on_processor(tree, machine)


def _in_turn(parts: Sequence[Estimate], machine: Machine, arrival: float) -> Estimate:
    """One kernel, the groups of whose parts follow one another; a last one may go on so long after all others are done."""
    causes = [c for p in parts for c in p.causes if c.name != LAUNCH]
    causes += [Cause(LAUNCH, machine.launch.kernel + machine.launch.fill)]
    causes += [Cause("arrival", arrival)] if arrival else []
    shown = tuple(sorted(causes, key=lambda c: -c.seconds))
    return Estimate(sum(c.seconds for c in shown), shown, parts[0].traffic)


def least_seconds(kernel: Block, machine: Machine) -> float:
    """Seconds of `kernel`, in normal form, on a CPU: less than the estimate of any schedule.

    What takes part of it is left out: other operations, memory, launches, and sums of several dtypes, whose products some
    machines do several of at once.
    """
    ports, register = machine.ports, machine.vector.native or machine.vector.bytes
    slots = sum(tree.points * _summed_bytes(tree) for tree in read(kernel).walk()) / register
    return slots / max(ports.fma, ports.add) / (machine.clock_ghz * 1e9) / machine.cores


def _summed_bytes(tree: Tree) -> int:
    """Bytes of what one iteration adds to sums."""
    dtypes = {access.dtype for access in tree.accesses.values()}
    sums = [access for access in tree.accesses.values() if access.agg is Aggregation.SUM]
    return sum(access.dtype.bytes for access in sums) if len(dtypes) == 1 and next(iter(dtypes)).is_float else 0
