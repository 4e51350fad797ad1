"""What no schedule of a kernel can be faster than: its sums, one in every lane of every port of every core in each cycle."""

from __future__ import annotations

from tile_ir.machine import Machine
from tile_ir.ops import Aggregation
from tile_ir.stripe.nodes import Block

from tile_opt.model.scheduled import Tree, read


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
