"""Asynchronous copies as PTX has them: which can be, and how semtree's counted copies become commit groups.

PTX waits until at most so many of the latest commit groups are unfinished, semtree until at most so many of the
latest copies of a group are. One commit group holds one run: copies of one semtree group that follow each other.
"""

from __future__ import annotations

from collections.abc import Iterator

from tile_ir.emit.walker import blocks, walk_functions, walk_statements
from tile_ir.semtree.nodes import AsyncCopy, Block, Comment, Function, Let, Space

from hal_opencl.emit.ptx import COPIES


def asynchronous_bytes(node: AsyncCopy) -> int:
    """How many bytes the one PTX instruction of this copy moves; 0 when there is none for it."""
    source, target = node.src.type, node.dst.type
    if (source.space, target.space) != (Space.GLOBAL, Space.LOCAL) or (source.lanes, target.lanes) != (1, 1):
        return 0
    nbytes, align = node.count * source.dtype.bytes, node.align or source.dtype.bytes
    return nbytes if nbytes in COPIES and align % nbytes == 0 else 0


class CommitGroups:
    """Commits and waits of a kernel with its helpers, which share the work item's sequence of commit groups."""

    def __init__(self, function: Function) -> None:
        runs = [run for part in walk_functions(function) for block in _blocks(part.body) for run in _runs(block)]
        self._ends = {id(run[-1]) for run in runs}
        self._longest = max(map(len, runs), default=0)
        self._mixed = len({run[0].group for run in runs}) > 1

    def ends(self, node: AsyncCopy) -> bool:
        """Its commit group ends with this copy."""
        return id(node) in self._ends

    def pending(self, copies: int) -> int | None:
        """How many commit groups may be unfinished for at most so many copies to be; None: nothing to wait for."""
        if not self._longest:
            return None
        # No commit group holds more copies than the longest run, so these groups never hold more than `copies`. Groups
        # of two kinds are in one sequence, and which come last is not known.
        return 0 if self._mixed else copies // self._longest


def _blocks(body: Block) -> Iterator[Block]:
    yield body
    for statement in walk_statements(body):
        yield from (statement,) if isinstance(statement, Block) else blocks(statement)


def _runs(block: Block) -> list[list[AsyncCopy]]:
    """Maximal rows of asynchronous copies of one group, with nothing but declarations and other copies between."""
    runs: list[list[AsyncCopy]] = [[]]
    for statement in block.body:
        if isinstance(statement, AsyncCopy):
            if runs[-1] and runs[-1][0].group != statement.group:
                runs.append([])
            if asynchronous_bytes(statement):
                runs[-1].append(statement)
        elif not isinstance(statement, (Let, Comment)):
            runs.append([])
    return [run for run in runs if run]
