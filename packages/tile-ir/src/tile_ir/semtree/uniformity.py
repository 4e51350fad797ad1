"""Which barriers threads of one group may disagree about, judged by structure alone.

A value is divergent when it depends on the work item's own number, on private memory, or on an
assignment made under divergent control, or when it comes from a collective of lanes: each has a part
of its own. Values loaded from shared memory at a uniform index are taken as uniform: every thread
reads the same cell.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tile_ir.emit.walker import blocks, children, variables, walk_expr, walk_statements
from tile_ir.semtree.nodes import (
    Assign,
    Barrier,
    Block,
    CallFn,
    Expr,
    For,
    Function,
    IdKind,
    If,
    LastGroup,
    Let,
    Load,
    MatrixLoad,
    Mma,
    Return,
    Space,
    Statement,
    SubgroupOp,
    TeamMma,
    Var,
    While,
    WorkId,
)  # fmt: skip


def divergent_barriers(function: Function) -> list[Statement]:
    """Barriers (or calls of helpers with barriers) under control flow that may differ between threads.

    A divergent Return makes every barrier of the function divergent. Empty for groups of one.
    """
    synchronising = helpers_with_barriers(function)
    found = [s for s in walk_statements(function.body) if _synchronises(s, synchronising)]
    if function.group_size == (1, 1, 1) or not found:
        return []
    analysis = _Analysis()
    while analysis.visit(function.body):
        pass
    if any(isinstance(s, Return) and id(s) in analysis.under for s in walk_statements(function.body)):
        return found
    return [s for s in found if id(s) in analysis.under]


def helpers_with_barriers(function: Function) -> set[str]:
    """Names of the helpers that (or whose helpers) contain a barrier."""
    names: set[str] = set()
    for helper in function.helpers:
        inner = helpers_with_barriers(helper) | names
        if any(_synchronises(s, inner) for s in walk_statements(helper.body)):
            names.add(helper.name)
    return names


def _synchronises(statement: Statement, helpers: set[str]) -> bool:
    return isinstance(statement, (Barrier, LastGroup)) or (isinstance(statement, CallFn) and statement.name in helpers)


@dataclass(slots=True)
class _Analysis:
    divergent: set[str] = field(default_factory=set[str])
    under: set[int] = field(default_factory=set[int])
    """Identities of statements under divergent control."""

    def visit(self, body: Block) -> bool:
        """One pass over the statements; True when it learned something."""
        before = len(self.divergent) + len(self.under)
        stack: list[tuple[Statement, bool]] = [(s, False) for s in reversed(body.body)]
        while stack:
            statement, control = stack.pop()
            if control:
                self.under.add(id(statement))
            self._define(statement, control)
            inner = control or (isinstance(statement, (If, For, While)) and self._diverges(*children(statement)))
            parts = statement.body if isinstance(statement, Block) else blocks(statement)
            stack.extend((part, inner) for part in reversed(parts))
        return len(self.divergent) + len(self.under) > before

    def _define(self, statement: Statement, control: bool) -> None:
        match statement:
            case Let(name) | For(name):
                if self._diverges(*children(statement)):
                    self.divergent.add(name)
            case TeamMma():
                self.divergent |= variables(*statement.c)
            case Assign(name):
                if control or self._diverges(*children(statement)):
                    self.divergent.add(name)
            case _:
                pass

    def _diverges(self, *roots: Expr) -> bool:
        return any(self._source(node) for node in walk_expr(*roots))

    def _source(self, node: Expr) -> bool:
        match node:
            case WorkId(kind):
                return kind is not IdKind.GROUP
            case Var(name):
                return name in self.divergent
            case Load(ptr):
                return ptr.type.space is Space.PRIVATE
            case _:
                return isinstance(node, (SubgroupOp, MatrixLoad, Mma))
