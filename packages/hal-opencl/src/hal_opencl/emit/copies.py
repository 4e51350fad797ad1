"""Asynchronous copies as PTX has them: which can be, and how its one sequence of commit groups serves the batches.

A wait of semtree closes a batch of copies, a commit of PTX closes a commit group, and both count the latest of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from tile_ir.emit.walker import blocks, walk_functions, walk_statements
from tile_ir.semtree.nodes import (
    PRODUCTS,
    AsyncCopy,
    AsyncWait,
    Binary,
    Block,
    Const,
    Expr,
    Function,
    Space,
    TeamMma,
    Var,
)  # fmt: skip

from hal_opencl.emit.ptx import COPIES


def asynchronous_bytes(node: AsyncCopy) -> int:
    """How many bytes the one PTX instruction of this copy moves; 0 when there is none for it."""
    source, target = node.src.type, node.dst.type
    if (source.space, target.space) != (Space.GLOBAL, Space.LOCAL) or (source.lanes, target.lanes) != (1, 1):
        return 0
    nbytes, align = node.count * source.dtype.bytes, node.align or source.dtype.bytes
    return nbytes if nbytes in COPIES and align % nbytes == 0 else 0


def ending(index: Expr, period: int = 1) -> tuple[Expr, int]:
    """An index without the constant of whole periods that it ends in, and this: added to an address, instructions absorb it."""
    match index:
        case Binary("add", rest, Const(behind), t) if t.dtype.is_signed and int(behind) % period == 0:
            return rest, int(behind)
        case _:
            return index, 0


def products_of_teams(function: Function) -> Iterator[TeamMma]:
    """Those of the function and its helpers."""
    for part in walk_functions(function):
        yield from (s for s in walk_statements(part.body) if isinstance(s, TeamMma))


def sums_of_teams(function: Function) -> tuple[Expr, ...]:
    """The variables that products of teams add to, in the function and its helpers."""
    return tuple({v.name: v for s in products_of_teams(function) for v in s.c if isinstance(v, Var)}.values())


def each_is_awaited(function: Function) -> bool:
    """All products are waited for in the block that starts them: none go on around a loop, or beside a branch."""
    return not function.helpers and _under_way(function.body, False) is False


def _under_way(block: Block, started: bool) -> bool | None:
    """Whether products go on behind the block; None where some go on across what may be passed by, or repeated."""
    for statement in block.body:
        match statement:
            case TeamMma():
                started = True
            case AsyncWait(group, pending) if group == PRODUCTS:
                started = started and pending > 0
            case Block():
                inside = _under_way(statement, started)
                if inside is None:
                    return None
                started = inside
            case _:
                parts = blocks(statement)
                if parts and (started or any(_under_way(part, False) is not False for part in parts)):
                    return None
    return started


def copy_groups(function: Function) -> frozenset[int]:
    """The groups in which the function or a helper starts copies that are asynchronous in PTX."""
    copies = (s for part in walk_functions(function) for s in walk_statements(part.body) if isinstance(s, AsyncCopy))
    return frozenset(s.group for s in copies if asynchronous_bytes(s))
