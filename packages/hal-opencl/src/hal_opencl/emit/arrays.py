"""Local arrays of a kernel: those of branches that exclude each other lie in the same bytes.

OpenCL C declares them for a whole kernel. Kernels that begin by one launch are branches of one, and each group has one of them.
Where the items of a group part ways some have the arrays of one branch while others have those of the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tile_ir.emit.walker import blocks, walk_expr, walk_statements
from tile_ir.frozen import frozen, replace
from tile_ir.semtree.nodes import Alloc, Block, Compare, Const, Expr, Function, IdKind, If, Space, WorkId


@frozen
class Arrays:
    """Where local arrays lie: the byte of each, by the identity of its node."""

    places: Mapping[int, int]
    nbytes: int
    align: int

    def shares(self, function: Function) -> bool:
        """Some lie where others do."""
        return sum(map(bytes_of, local_arrays(function))) > self.nbytes


def local_arrays(function: Function) -> Iterator[Alloc]:
    return (s for s in walk_statements(function.body) if isinstance(s, Alloc) and s.type.space is Space.LOCAL)


def bytes_of(node: Alloc) -> int:
    return max(1, node.type.count) * node.type.lanes * node.type.dtype.bytes


def arrays_of(function: Function) -> Arrays:
    places = dict[int, int]()
    nbytes = _placed(function.body, 0, places)
    return Arrays(places, nbytes, max((a.align for a in local_arrays(function)), default=1))


def branches(function: Function) -> Iterator[Function]:
    """What different groups do: the kernels that begin by one launch, or the function as it is."""
    match function.body.body:
        case (If(cond, then, Block() as other),) if _is_by_group(cond):
            for branch in (then, other):
                yield from branches(replace(function, body=branch))
        case _:
            yield function


def _placed(block: Block, first: int, places: dict[int, int]) -> int:
    """The end of the arrays of a block that begin at `first`, whose places are added."""
    for statement in block.body:
        match statement:
            case Alloc() if statement.type.space is Space.LOCAL:
                places[id(statement)] = -(-first // statement.align) * statement.align
                first = places[id(statement)] + bytes_of(statement)
            case If(cond, then, other) if _is_by_group(cond):
                first = max(_placed(branch, first, places) for branch in (then, other or Block()))
            case _:
                for inner in blocks(statement):
                    first = _placed(inner, first, places)
    return first


def _is_by_group(cond: Expr) -> bool:
    """All items of a group take the same branch, by its number."""
    return all(
        isinstance(n, (Compare, Const)) or (isinstance(n, WorkId) and n.kind is IdKind.GROUP) for n in walk_expr(cond)
    )
