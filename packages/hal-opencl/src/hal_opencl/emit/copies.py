"""Asynchronous copies as PTX has them: which can be, and how its one sequence of commit groups serves the batches.

A wait of semtree closes a batch of copies, a commit of PTX closes a commit group, and both count the latest of them.
"""

from __future__ import annotations

from tile_ir.emit.walker import walk_functions, walk_statements
from tile_ir.semtree.nodes import AsyncCopy, Binary, Const, Expr, Function, Space, Type

from hal_opencl.emit.ptx import COPIES

NEAR = {Space.LOCAL: 1 << 16, Space.GLOBAL: 1 << 11}
"""Bytes that a distance within an instruction stays below: the assembler adds longer ones to 64-bit addresses, each in two steps."""


def asynchronous_bytes(node: AsyncCopy) -> int:
    """How many bytes the one PTX instruction of this copy moves; 0 when there is none for it."""
    source, target = node.src.type, node.dst.type
    if (source.space, target.space) != (Space.GLOBAL, Space.LOCAL) or (source.lanes, target.lanes) != (1, 1):
        return 0
    nbytes, align = node.count * source.dtype.bytes, node.align or source.dtype.bytes
    return nbytes if nbytes in COPIES and align % nbytes == 0 else 0


def copy_groups(function: Function) -> frozenset[int]:
    """The groups in which the function or a helper starts copies that are asynchronous in PTX."""
    copies = (s for part in walk_functions(function) for s in walk_statements(part.body) if isinstance(s, AsyncCopy))
    return frozenset(s.group for s in copies if asynchronous_bytes(s))


def apart(index: Expr, to: Type) -> tuple[Expr, int]:
    """The index of an element of memory `to`, and the bytes from there that an instruction can add by itself."""
    match index:
        case Binary("add", rest, Const(number)) if abs(number * to.dtype.bytes) < NEAR[to.space]:
            return rest, int(number * to.dtype.bytes)
        case _:
            return index, 0
