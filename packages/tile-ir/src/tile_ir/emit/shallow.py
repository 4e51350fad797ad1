"""Expressions cut to what one line can say: deep and shared parts become variables before the statement.

An expression may be a graph of any depth, whose text without names for its shared parts can be astronomically long;
compilers limit nested brackets, too (clang at 256).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tile_ir.emit.walker import assigned, children, map_block, walk_expr, with_children
from tile_ir.semtree.nodes import (
    Alloc,
    Assign,
    Block,
    Comment,
    Const,
    Expr,
    For,
    Function,
    Insert,
    Let,
    Limit,
    Statement,
    Var,
    While,
    WorkId,
)  # fmt: skip

MAX_DEPTH = 20
"""Levels of an expression in one statement."""
_LEAVES = (Const, Var, Limit, WorkId)


def shallow(function: Function, apart: Callable[[Expr], bool] = lambda expr: False) -> Function:
    """The function with every part that is used twice, nests too deeply or stands `apart` in a variable of its own.

    A loop's bound that is no literal becomes a variable as well: C would evaluate it in every iteration. Helpers stay.
    """
    return replace(function, body=_Hoister(function, apart).run())


class _Hoister:
    def __init__(self, function: Function, apart: Callable[[Expr], bool]) -> None:
        self._block, self._apart = function.body, apart
        self._used = assigned(function.body) | {p.name for p in function.params}
        self._count = 0

    def run(self) -> Block:
        return map_block(self._block, None, self._statement)

    def _statement(self, statement: Statement) -> Sequence[Statement]:
        if isinstance(statement, (Alloc, Comment, Block)):
            return (statement,)
        lets: list[Statement] = []
        # Alone in its statement what stands apart does so already.
        alone = id(statement.value) if isinstance(statement, (Let, Assign)) else 0
        new = self._shallow(list(children(statement)), lets, alone)
        if isinstance(statement, For) and not isinstance(new[1], Const):
            new[1] = self._let(new[1], lets)
        if isinstance(statement, While) and lets:
            return (self._loop(statement, lets, new[0]),)
        return (*lets, with_children(statement, new))

    def _loop(self, statement: While, lets: list[Statement], cond: Expr) -> Statement:
        """A condition that needs statements of its own: computed before the loop and again at its end."""
        flag = self._fresh()
        again = Block((*lets, Assign(flag, cond)))
        body = Block((*statement.body.body, again))
        return Block((*lets, Let(flag, cond, True), While(Var(flag, cond.type), body)))

    def _shallow(self, roots: list[Expr], lets: list[Statement], alone: int) -> list[Expr]:
        order = list(walk_expr(*roots))
        apart = {id(node) for node in order if self._apart(node)} - {alone}
        if len(order) <= 3 and not apart:
            return roots
        uses: dict[int, int] = {}
        for node in order:
            for child in children(node):
                uses[id(child)] = uses.get(id(child), 0) + 1
        result: dict[int, tuple[Expr, int]] = {}
        for node in order:
            parts = [result[id(child)] for child in children(node)]
            new = with_children(node, [part for part, _ in parts])
            depth = _depth(node, [d for _, d in parts])
            named = depth >= MAX_DEPTH or uses.get(id(node), 0) > 1 or id(node) in apart
            if named and not isinstance(node, _LEAVES):
                new, depth = self._let(new, lets), 0
            result[id(node)] = new, depth
        return [result[id(root)][0] for root in roots]

    def _let(self, value: Expr, lets: list[Statement]) -> Expr:
        if isinstance(value, Var) and value.type.ptr:
            return value
        name = self._fresh()
        lets.append(Let(name, value))
        return Var(name, value.type)

    def _fresh(self) -> str:
        while True:
            self._count += 1
            name = f"t{self._count}"
            if name not in self._used:
                return name


def _depth(node: Expr, below: list[int]) -> int:
    if isinstance(node, Insert):  # a chain of them is written as one list of lanes
        return max(below[0], below[1] + 1)
    return 1 + max(below, default=0)
