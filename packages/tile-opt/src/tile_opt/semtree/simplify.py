"""The semtree simplifier: one pass over a function that folds, propagates and drops.

Expressions go through the rule table (`rules`). Statements: constant conditions choose their branch, loops
that never run vanish, loops that run once become their body, a variable that only renames another or a
literal is replaced by it, and variables that nothing uses are dropped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from tile_ir.emit.walker import children, variables, walk_statements, with_children
from tile_ir.frozen import frozen
from tile_ir.semtree.nodes import (
    Alloc,
    Assign,
    Block,
    Comment,
    Const,
    Expr,
    For,
    Function,
    If,
    Let,
    Statement,
    Var,
    While,
)  # fmt: skip

from tile_opt.semtree.expressions import simplify_expr

Result = tuple[Sequence[Statement], set[str]]
"""Statements that stand for one statement, and the variables they mention."""


def simplify(function: Function) -> Function:
    """An equivalent function; the signature stays."""
    helpers = tuple(simplify(h) for h in function.helpers)
    body, _ = _Simplifier(function).block(function.body)
    return replace(function, body=Block(tuple(body)), helpers=helpers)


@frozen
class _Names:
    """What is known of a function's variables before the pass."""

    unique: frozenset[str]
    """Declared once in the whole function: no shadowing to mind."""
    mutable: frozenset[str]

    @staticmethod
    def of(function: Function) -> _Names:
        declared = [p.name for p in function.params]
        mutable: set[str] = set()
        for statement in walk_statements(function.body):
            match statement:
                case Let(name, _, is_mutable):
                    declared.append(name)
                    if is_mutable:
                        mutable.add(name)
                case Alloc(name) | For(name):
                    declared.append(name)
                case _:
                    pass
        return _Names(frozenset(n for n, c in Counter(declared).items() if c == 1), frozenset(mutable))


class _Simplifier:
    def __init__(self, function: Function) -> None:
        self.names = _Names.of(function)
        self.values: dict[str, Expr] = {}

    def block(self, block: Block) -> Result:
        """Simplify a statement list; variables that later statements do not use go."""
        results = _with_first_values([self.statement(s) for s in block.body])
        kept: list[Statement] = []
        used: set[str] = set()
        for statements, mentioned in reversed(results):
            # What a statement list of several declares is used within the list itself.
            if len(statements) == 1 and isinstance(statements[0], Let):
                let = statements[0]
                if let.name not in used and not let.mutable:
                    continue
            kept.extend(reversed(statements))
            used |= mentioned
        return kept[::-1], used

    def statement(self, statement: Statement) -> Result:
        """What replaces one statement."""
        rewrite = _REWRITES.get(type(statement))
        if rewrite is not None:
            return rewrite(self, statement)
        return self._plain(statement)

    def _plain(self, statement: Statement) -> Result:
        old = children(statement)
        new = [simplify_expr(e, self.values) for e in old]
        if any(a is not b for a, b in zip(old, new, strict=True)):
            statement = with_children(statement, new)
        used: set[str] = set()
        for expr in new:
            _mention(expr, used)
        if isinstance(statement, Assign):
            used.add(statement.name)
        return (statement,), used

    def let(self, statement: Statement) -> Result:
        assert isinstance(statement, Let)
        value = simplify_expr(statement.value, self.values)
        if not statement.mutable and statement.name in self.names.unique and self._fixed(value):
            self.values[statement.name] = value
            return (), set()
        used: set[str] = set()
        _mention(value, used)
        changed = value is not statement.value
        return (Let(statement.name, value, statement.mutable) if changed else statement,), used

    def _fixed(self, value: Expr) -> bool:
        """A literal, or a variable that never changes and that nothing shadows."""
        if isinstance(value, Const):
            return True
        return isinstance(value, Var) and value.name in self.names.unique and value.name not in self.names.mutable

    def nested(self, statement: Statement) -> Result:
        assert isinstance(statement, Block)
        return self._spliced(self.block(statement))

    def _spliced(self, result: Result) -> Result:
        """The statements of a block in its parent, when no name they declare can clash there."""
        body, used = result
        if not body:
            return (), set()
        declared = [s.name for s in body if isinstance(s, (Let, Alloc))]
        if all(name in self.names.unique for name in declared):
            return body, used
        return (Block(tuple(body)),), used

    def branch(self, statement: Statement) -> Result:
        assert isinstance(statement, If)
        cond = simplify_expr(statement.cond, self.values)
        if isinstance(cond, Const):
            chosen = statement.then if cond.value else statement.other
            return ((), set()) if chosen is None else self._spliced(self.block(chosen))
        then, used = self.block(statement.then)
        other, more = ((), set[str]()) if statement.other is None else self.block(statement.other)
        if not then and not other:
            return (), set()
        _mention(cond, used)
        return (If(cond, Block(tuple(then)), Block(tuple(other)) if other else None),), used | more

    def loop(self, statement: Statement) -> Result:
        assert isinstance(statement, For)
        start = simplify_expr(statement.start, self.values)
        stop = simplify_expr(statement.stop, self.values)
        if isinstance(start, Const) and isinstance(stop, Const):
            if start.value >= stop.value:
                return (), set()
            if start.value + statement.step >= stop.value and statement.var in self.names.unique:
                self.values[statement.var] = start
                return self._spliced(self.block(statement.body))
        body, used = self.block(statement.body)
        if not body:
            return (), set()
        _mention(start, used)
        _mention(stop, used)
        return (For(statement.var, start, stop, statement.step, Block(tuple(body)), statement.unroll),), used

    def repeat(self, statement: Statement) -> Result:
        assert isinstance(statement, While)
        cond = simplify_expr(statement.cond, self.values)
        if isinstance(cond, Const) and not cond.value:
            return (), set()
        body, used = self.block(statement.body)
        _mention(cond, used)
        return (While(cond, Block(tuple(body))),), used

    def comment(self, statement: Statement) -> Result:
        return (statement,), set()


def _with_first_values(results: list[Result]) -> list[Result]:
    """A variable that is assigned a literal before anything reads it starts out with that literal."""
    fresh: dict[str, int] = {}
    for position, (statements, mentioned) in enumerate(results):
        match statements:
            case (Let(name, _, True),):
                fresh[name] = position
                continue
            case (Assign(name, Const() as value),) if name in fresh:
                at = fresh.pop(name)
                results[at] = ((Let(name, value, True),), set())
                results[position] = ((), set())
                continue
            case _:
                pass
        if fresh:
            for name in fresh.keys() & mentioned:
                del fresh[name]
    return results


def _mention(expr: Expr, used: set[str]) -> None:
    """Add the variables of an expression; the common small ones without a walk."""
    if isinstance(expr, Var):
        used.add(expr.name)
    elif not isinstance(expr, Const):
        deeper: list[Expr] = []
        for child in children(expr):
            if isinstance(child, Var):
                used.add(child.name)
            elif not isinstance(child, Const):
                deeper.append(child)
        if deeper:
            used |= variables(*deeper)


_REWRITES: dict[type, Callable[[_Simplifier, Statement], Result]] = {
    Let: _Simplifier.let,
    Block: _Simplifier.nested,
    If: _Simplifier.branch,
    For: _Simplifier.loop,
    While: _Simplifier.repeat,
    Comment: _Simplifier.comment,
}
