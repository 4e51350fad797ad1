"""Barriers of a loop that order nothing: what is left of those around arrays that have become registers."""

from __future__ import annotations

from collections.abc import Sequence, Set

from tile_ir.emit.walker import children, map_block, walk_expr, walk_statements
from tile_ir.frozen import replace
from tile_ir.semtree.nodes import (
    PRODUCTS,
    AsyncCopy,
    AsyncWait,
    Atomic,
    Barrier,
    Block,
    CallFn,
    For,
    LastGroup,
    Space,
    Statement,
    Store,
    TensorCopy,
    Var,
)  # fmt: skip


def without_barriers(block: Block, own: Set[str]) -> Block:
    """The block without the barriers behind stores to these arrays, of which an item reads what it has stored itself.

    Others stay that order anything else, and so do the first of each loop.
    """
    return map_block(block, None, lambda s: (_loop(s, own),) if isinstance(s, For) else (s,))


def _loop(loop: For, own: Set[str]) -> For:
    body = loop.body.body
    places = [k for k, s in enumerate(body) if _meets(s)]
    if sum(map(_meets, walk_statements(loop.body))) > len(places):
        return loop
    ends = [*places[1:], len(body)]
    gone = {
        k
        for before, k, end in zip(places, places[1:], ends[1:], strict=False)
        if _stores(body[before:k], own)
        and not _ordered(body[before:k], [*body[k:end], *(body[: places[0]] if end == len(body) else ())], own)
    }
    return replace(loop, body=Block(tuple(s for k, s in enumerate(body) if k not in gone)))


def _meets(statement: Statement) -> bool:
    return isinstance(statement, Barrier) and statement.scope == "group"


def _stores(part: Sequence[Statement], own: Set[str]) -> bool:
    return any(isinstance(s, Store) and isinstance(s.ptr, Var) and s.ptr.name in own for s in _all(part))


def _ordered(before: Sequence[Statement], behind: Sequence[Statement], own: Set[str]) -> bool:
    """The barrier between them orders two accesses, or what arrives; copies that nothing has waited for it does not order."""
    unknown = (Atomic, CallFn, LastGroup, TensorCopy)
    waits = any(isinstance(s, AsyncWait) and s.group != PRODUCTS for s in _all(before))
    if waits or any(isinstance(s, unknown) for s in _all([*before, *behind])):
        return True
    written = [_written(part, own) for part in (before, behind)]
    copied = {s.dst.name for s in _all(behind) if isinstance(s, AsyncCopy) and isinstance(s.dst, Var)}
    return bool(written[0] & _named(behind) or (written[1] | copied) & _named(before))


def _written(part: Sequence[Statement], own: Set[str]) -> set[str]:
    """Memory that items share."""
    stores = (s.ptr for s in _all(part) if isinstance(s, Store) and s.ptr.type.space is not Space.PRIVATE)
    return {n.name for ptr in stores for n in walk_expr(ptr) if isinstance(n, Var)} - own


def _named(part: Sequence[Statement]) -> set[str]:
    """What any statement mentions, but the targets of copies that go on."""
    mentioned = (
        walk_expr(*(e for e in children(s) if not (isinstance(s, AsyncCopy) and e is s.dst))) for s in _all(part)
    )
    return {n.name for nodes in mentioned for n in nodes if isinstance(n, Var)}


def _all(part: Sequence[Statement]) -> list[Statement]:
    return list(walk_statements(Block(tuple(part))))
