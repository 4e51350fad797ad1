"""Registers on NVIDIA's devices: for kernels that arithmetic bounds as many as an item can have.

A kernel that states the size of its group gets registers by the compiler's guess at how many groups are to run at once, and the
option for their number means nothing to it. With a hint at the size alone the option counts, and the assembler orders
instructions freely: products of matrices take up to a tenth less time. What memory bounds rather has more groups at once.
"""

from __future__ import annotations

from math import prod

from tile_ir.emit.walker import walk_statements
from tile_ir.kernels import Kernel
from tile_ir.semtree.nodes import Barrier, For, Function, Space, Store, TeamMma

from hal_opencl.emit.arrays import arrays_of, branches
from hal_opencl.emit.copies import each_is_awaited, sums_of_teams
from hal_opencl.emit.dialect import Dialect
from hal_opencl.emit.tensors import local_bytes

OPERATIONS = 4
"""Operations for each byte that is moved, from which on a kernel is bound by arithmetic."""
ITEMS = 256
"""Items of a group that can all have `MOST` registers."""
MOST = 255
CORE_REGISTERS = 65536
BESIDE_SUMS, BESIDE_HELD = 70, 40
"""Of an item beside the sums of products of teams: scores on their way to weights, rows, addresses; and where straight code makes
weights in registers, to which scores make room (behind branches the assembler spilled some: 88 µs were 132)."""
CORE_BYTES, GROUP_BYTES = 228 << 10, 1 << 10
"""Of a core's local memory, and what the driver takes of it for each group."""
STATED, HINTED = "reqd_work_group_size", "work_group_size_hint"
OPTION = f"-cl-nv-maxrregcount={MOST}"
"""For the text of a kernel whose size is `HINTED`."""


def size_attribute(kernel: Kernel, function: Function, dialect: Dialect) -> str:
    """How a kernel says what groups it has."""
    free = dialect.ptx and prod(function.group_size) <= ITEMS and not function.subgroup
    heavy = kernel.flops > OPERATIONS * kernel.bytes > 0
    return HINTED if free and heavy and _is_straight(function) else STATED


def groups_of_core(function: Function, straight: bool = False) -> int:
    """Groups that a core may have at once of a kernel whose loop waits for each of its products of teams; 0 for other kernels.

    The compiler takes a few registers more than it needs where it is not told, and one group has no place. Weights in
    registers may be made by `straight` code (`held`).
    """
    loops = (s for s in walk_statements(function.body) if isinstance(s, For))
    if not any(isinstance(s, TeamMma) for loop in loops for s in walk_statements(loop.body)):
        return 0
    if not each_is_awaited(function):
        return 0
    sums = max(sum(v.type.lanes for v in sums_of_teams(part)) for part in branches(function))
    local = arrays_of(function).nbytes + local_bytes(function) + GROUP_BYTES
    items = prod(function.group_size) * (sums + (BESIDE_HELD if straight else BESIDE_SUMS))
    return min(CORE_REGISTERS // items, CORE_BYTES // local)


def _is_straight(function: Function) -> bool:
    """One loop of steps that items take together, with straight-line code: with edges to ask about, more groups were better.

    So they were where a loop fills local memory for what follows it: groups compute while others load.
    """
    loops = [s for s in walk_statements(function.body) if isinstance(s, For)]
    steps = [loop for loop in loops if any(isinstance(s, Barrier) for s in loop.body.body)]
    if any(map(_fills, loops)):
        return False
    return len(steps) <= 1 and not any(isinstance(s, For) for step in steps for s in walk_statements(step.body))


def _fills(loop: For) -> bool:
    """It stores to local memory, and nobody waits in it."""
    inside = tuple(walk_statements(loop.body))
    waits = any(isinstance(s, Barrier) for s in inside)
    return not waits and any(isinstance(s, Store) and s.ptr.type.space is Space.LOCAL for s in inside)
