"""Which group arrives last: counts in memory that belongs to the queue, and is zero whenever no kernel runs.

The kernel has it as one more parameter, behind those of its function; who runs it binds it (`DeviceContext.arrivals`).
"""

from __future__ import annotations

from tile_ir.emit.walker import walk_statements
from tile_ir.semtree.nodes import Function, LastGroup, TensorCopy

FENCE = "mem_fence(CLK_GLOBAL_MEM_FENCE);"
PTX_FENCE = 'asm volatile("fence.acq_rel.gpu;" ::: "memory");'
"""What the group has stored is seen by whoever counts after it, and what those before it have stored is seen here."""


def arrives(function: Function) -> bool:
    """Whether the kernel asks which group is the last, or publishes descriptors behind the counts."""
    return any(isinstance(s, (LastGroup, TensorCopy)) for s in walk_statements(function.body))


def last_arrives(function: Function) -> bool:
    """Whether the kernel asks which group is the last."""
    return any(isinstance(s, LastGroup) for s in walk_statements(function.body))


def arrive(name: str, ptx: bool) -> str:
    """Count a group; 1 for the last of so many, which sets the count back."""
    fence = PTX_FENCE if ptx else FENCE
    return f"""uint {name}(volatile global uint* count, uint groups) {{
    {fence}
    const uint last = atomic_inc(count) == groups - 1;
    if (last) atomic_xchg(count, 0);
    {fence}
    return last;
}}"""
