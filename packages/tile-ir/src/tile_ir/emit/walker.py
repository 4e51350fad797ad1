"""Visiting and rewriting semtree, iteratively: neither depth nor shared subtrees hurt.

Expressions may share subtrees by identity (they are immutable); every walk here visits a shared
node once, and rewriting keeps the sharing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from operator import attrgetter, is_
from typing import Any, TypeVar, cast

from tile_ir.dtype import same_number
from tile_ir.frozen import frozen, replace
from tile_ir.semtree.nodes import Alloc, Assign, Block, Expr, For, Function, LastGroup, Let, Statement, TeamMma, Var

Node = TypeVar("Node", bound=Expr | Statement)
Made = TypeVar("Made")


class _ByClass(dict[type, Made]):
    """What `make` gives for each class, made once; unlike a cached function it calls nothing for what is there."""

    def __init__(self, make: Callable[[type], Made]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, cls: type) -> Made:
        return self.setdefault(cls, self._make(cls))


@frozen
class _Shape:
    """Which fields of a node class hold expressions and blocks."""

    single: tuple[str, ...]
    many: tuple[str, ...]
    blocks: tuple[str, ...]


def _shape(cls: type) -> _Shape:
    kinds = [(f.name, str(f.type)) for f in fields(cls)]
    return _Shape(
        tuple(name for name, kind in kinds if kind in ("Expr", "Expr | None")),
        tuple(name for name, kind in kinds if kind == "tuple[Expr, ...]"),
        tuple(name for name, kind in kinds if kind in ("Block", "Block | None")),
    )


_SHAPES = _ByClass(_shape)


def children(node: Expr | Statement) -> tuple[Expr, ...]:
    """The expressions directly inside an expression or statement, in field order; blocks are not entered."""
    return _GETTERS[type(node)](node)


def _getter(cls: type) -> Callable[[Any], tuple[Expr, ...]]:
    """The function behind `children`, made once per class: it is what every walk spends its time in."""
    shape = _SHAPES[cls]
    if any(f.name in shape.single and f.type != "Expr" for f in fields(cls)):
        return lambda node: _gathered(shape, node)
    match shape.single, shape.many:
        case (), ():
            return lambda node: ()
        case (), (name,):
            return attrgetter(name)
        case (name,), ():
            get_one = attrgetter(name)
            return lambda node: (get_one(node),)
        case names, ():
            return attrgetter(*names)
        case _:
            return lambda node: _gathered(shape, node)


_GETTERS = _ByClass(_getter)


def _gathered(shape: _Shape, node: Any) -> tuple[Expr, ...]:
    found: list[Expr] = [e for name in shape.single if (e := getattr(node, name)) is not None]
    for name in shape.many:
        found.extend(getattr(node, name))
    return tuple(found)


def blocks(statement: Statement) -> tuple[Block, ...]:
    """The blocks directly inside a statement: both branches of an If, the body of a loop."""
    names = _SHAPES[type(statement)].blocks
    return tuple(block for name in names if (block := getattr(statement, name)) is not None) if names else ()


def with_children(node: Node, new: Sequence[Expr]) -> Node:
    """`node` with its `children` replaced, in the same order; the node itself when nothing changed."""
    old = children(node)
    if len(old) == len(new) and all(map(is_, old, new)):
        return node
    shape, rest, changes = _SHAPES[type(node)], iter(new), dict[str, Any]()
    for name in shape.single:
        if getattr(node, name) is not None:
            changes[name] = next(rest)
    for name in shape.many:
        changes[name] = tuple(next(rest) for _ in getattr(node, name))
    return replace(node, **changes)


def walk_expr(*roots: Expr) -> Iterator[Expr]:
    """Every distinct node of the expressions, operands before their users."""
    done: set[int] = set()
    # None stands on a node whose operands have been visited.
    stack: list[Any] = [*reversed(roots)]
    while stack:
        expr = stack.pop()
        if expr is None:
            expr = stack.pop()
        elif id(expr) in done:
            continue
        elif below := _GETTERS[type(expr)](expr):
            stack += (expr, None)
            stack += below[::-1]
            continue
        done.add(id(expr))
        yield expr


def map_expr(expr: Expr, rewrite: Callable[[Expr], Expr]) -> Expr:
    """Rebuild an expression bottom-up: `rewrite` sees each node with its operands already rewritten."""
    results: dict[int, Expr] = {}
    for node in walk_expr(expr):
        results[id(node)] = rewrite(with_children(node, [results[id(child)] for child in children(node)]))
    return results[id(expr)]


def walk_statements(block: Block) -> Iterator[Statement]:
    """Every statement below `block` in text order, a compound statement before its parts.

    The body of a loop or branch is no statement of its own; a Block among statements is.
    """
    stack: list[Statement] = list(reversed(block.body))
    while stack:
        statement = stack.pop()
        yield statement
        for part in reversed((statement,) if isinstance(statement, Block) else blocks(statement)):
            stack.extend(reversed(part.body))


def walk_functions(function: Function) -> Iterator[Function]:
    """The function and all its helpers, outermost first."""
    stack = [function]
    while stack:
        current = stack.pop()
        yield current
        stack.extend(reversed(current.helpers))


def walk_all(function: Function) -> Iterator[Expr]:
    """Every expression node of the function's own body, statement by statement."""
    for statement in walk_statements(function.body):
        yield from walk_expr(*children(statement))


def map_block(
    block: Block,
    rewrite_expr: Callable[[Expr], Expr] | None = None,
    rewrite_statement: Callable[[Statement], Sequence[Statement]] | None = None,
) -> Block:
    """Rebuild a block bottom-up.

    Every expression goes through `map_expr` with `rewrite_expr`; then `rewrite_statement` sees each
    statement, its parts already rewritten, and gives what stands in its place (none, one, several).
    The blocks of an If or a loop are rewritten inside but stay blocks.
    """
    finished: dict[int, Block] = {}
    for current in _blocks_inner_first(block):
        body: list[Statement] = []
        for statement in current.body:
            new = _rebuilt(statement, finished, rewrite_expr)
            body.extend((new,) if rewrite_statement is None else rewrite_statement(new))
        same = len(body) == len(current.body) and all(a is b for a, b in zip(body, current.body, strict=True))
        finished[id(current)] = current if same else Block(tuple(body))
    return finished[id(block)]


def _blocks_inner_first(block: Block) -> list[Block]:
    order, stack = list[Block](), [block]
    while stack:
        current = stack.pop()
        order.append(current)
        for statement in current.body:
            stack.extend((statement,) if isinstance(statement, Block) else blocks(statement))
    return order[::-1]


def _rebuilt(
    statement: Statement, finished: dict[int, Block], rewrite_expr: Callable[[Expr], Expr] | None
) -> Statement:
    if isinstance(statement, Block):
        return finished[id(statement)]
    changes: dict[str, Any] = {}
    for name in _SHAPES[type(statement)].blocks:
        old = getattr(statement, name)
        if old is not None and finished[id(old)] is not old:
            changes[name] = finished[id(old)]
    new = cast(Statement, replace(statement, **changes)) if changes else statement
    if rewrite_expr is None:
        return new
    return with_children(new, [map_expr(child, rewrite_expr) for child in children(new)])


def variables(*roots: Expr) -> set[str]:
    """Names of the variables that the expressions mention."""
    return {node.name for node in walk_expr(*roots) if isinstance(node, Var)}


def assigned(block: Block) -> set[str]:
    """Names that some statement below `block` declares or changes."""
    names: set[str] = set()
    for statement in walk_statements(block):
        if isinstance(statement, For):
            names.add(statement.var)
        elif isinstance(statement, (Let, Assign, Alloc)):
            names.add(statement.name)
        elif isinstance(statement, TeamMma):
            names |= variables(*statement.c)
        elif isinstance(statement, LastGroup):
            names |= variables(statement.flag)
    return names


def same(left: object, right: object) -> bool:
    """Structural equality of two nodes at any depth (the generated ``==`` recurses); NaN equals NaN."""
    seen: set[tuple[int, int]] = set()
    stack: list[tuple[object, object]] = [(left, right)]
    while stack:
        a, b = stack.pop()
        if a is b or (id(a), id(b)) in seen:
            continue
        seen.add((id(a), id(b)))
        x, y = _parts(a), _parts(b)
        if type(a) is not type(b) or (x is None and not _same_leaf(a, b)):
            return False
        if x is not None and y is not None:
            if len(x) != len(y):
                return False
            stack.extend(zip(x, y, strict=True))
    return True


def _same_leaf(left: Any, right: Any) -> bool:
    return same_number(left, right) if isinstance(left, float) else left == right


def _parts(value: Any) -> tuple[Any, ...] | None:
    """Elements of a tuple, fields of a node; None for a leaf."""
    if isinstance(value, tuple):
        return cast("tuple[Any, ...]", value)
    return tuple(getattr(value, f.name) for f in fields(value)) if is_dataclass(value) else None
