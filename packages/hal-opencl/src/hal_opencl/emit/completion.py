"""Where what work items store becomes visible to products of teams: a fence of the item behind the last store.

Such products read local memory on a way of their own. What asynchronous copies have brought is there for them behind a wait and
a barrier; what an item has stored is there behind a fence, which waits for all that the item has under way, the copies and
loads of later steps too. So there is none where nothing is stored, and it comes before the next of these begins.
"""

from __future__ import annotations

from collections.abc import Set

from tile_ir.emit.walker import blocks, children, walk_expr, walk_statements
from tile_ir.frozen import replace
from tile_ir.semtree.nodes import (
    AsyncCopy,
    Atomic,
    Barrier,
    Block,
    CallFn,
    Expr,
    For,
    Function,
    If,
    LastGroup,
    Load,
    Space,
    Statement,
    Store,
    TensorCopy,
    Var,
    While,
)

from hal_opencl.emit.copies import asynchronous_bytes, products_of_teams

COMPLETED = Barrier("item")
"""The item waits for nobody else: all that it has stored is there."""


def completed(function: Function, own: Set[str] = frozenset()) -> Function:
    """The function with `COMPLETED` wherever it has to be; what is stored to the arrays of its `own` nobody else reads."""
    factors = _factors(function) - own
    if not factors:
        return function
    helpers = tuple(completed(helper) for helper in function.helpers)
    return replace(function, body=_fenced(function.body, factors, False)[0], helpers=helpers)


def _factors(function: Function) -> set[str]:
    """The arrays that products of teams read; those of which items read their own elements are like any others."""
    products = list(products_of_teams(function))
    read = (v for s in products for v in ((s.b,) if s.rounded else (s.a, s.b)))
    return {v.name for v in read if isinstance(v, Var)}


def _fenced(block: Block, factors: set[str], stored: bool) -> tuple[Block, bool]:
    """The block, and whether something stored is not yet there behind it; `stored` says so of what is in front of it."""
    body: list[Statement] = []
    for statement in block.body:
        if stored and not isinstance(statement, Block) and _begins(statement):
            body.append(COMPLETED)
            stored = False
        made, stored = _statement(statement, factors, stored)
        body.append(made)
    return Block(tuple(body)), stored


def _statement(statement: Statement, factors: set[str], stored: bool) -> tuple[Statement, bool]:
    match statement:
        case Block():
            return _fenced(statement, factors, stored)
        case For(body=body) | While(body=body):
            inside, left = _fenced(body, factors, False)
            if left and _begins(body):  # the next round
                inside, left = Block((*inside.body, COMPLETED)), False
            return replace(statement, body=inside), stored or left
        case If(then=then, other=other):
            first, left = _fenced(then, factors, False)
            second, right = _fenced(other, factors, False) if other is not None else (None, False)
            return replace(statement, then=first, other=second), stored or left or right
        case Store(ptr=ptr) | Atomic(ptr=ptr) | AsyncCopy(dst=ptr):
            asynchronous = isinstance(statement, AsyncCopy) and asynchronous_bytes(statement)
            return statement, stored or (not asynchronous and _may_be(ptr, factors))
        case _:  # what a helper stores is not known
            return statement, stored or isinstance(statement, CallFn)


def _may_be(array: Expr, factors: set[str]) -> bool:
    return array.type.space is Space.LOCAL and (not isinstance(array, Var) or array.name in factors)


def _begins(statement: Statement) -> bool:
    """A barrier of the group is there, or the item begins what a fence would wait for; a helper may do either."""
    return any(
        isinstance(s, (AsyncCopy, CallFn, TensorCopy)) or _meets(s) or _loads(s)
        for s in walk_statements(Block((statement,)))
    )


def _meets(statement: Statement) -> bool:
    return isinstance(statement, LastGroup) or (isinstance(statement, Barrier) and statement.scope == "group")


def _loads(statement: Statement) -> bool:
    nodes = () if blocks(statement) else walk_expr(*children(statement))
    return any(isinstance(n, Load) and n.ptr.type.space is Space.GLOBAL for n in nodes)
