"""16-bit floats on their way from memory: they wait as bits, for converting a value waits for its load."""

from __future__ import annotations

from collections.abc import Iterator

from tile_ir.emit.walker import children, walk_expr, walk_statements
from tile_ir.semtree.nodes import (
    Alloc,
    Assign,
    Const,
    Expr,
    For,
    Function,
    Let,
    Load,
    Space,
    Splat,
    Statement,
    Store,
    Var,
)

from hal_opencl.emit.types import HALVES


def waiting(function: Function) -> frozenset[str]:
    """Variables that hold values as memory has them: all that is ever assigned to them was loaded, or is zero.

    A value waits in variables that change; a constant one must hand it on to other variables or to memory, and to nobody else.
    """
    if not any(p.type.dtype in HALVES for p in function.params):
        return frozenset()
    statements = list(walk_statements(function.body))
    defined = _definitions(function, statements)
    constant = {s.name for s in statements if isinstance(s, Let) and not s.mutable}
    constant -= _handed_on(statements) - _operands(statements)
    found = {n for n, values in defined.items() if n not in constant and all(v.type.dtype in HALVES for v in values)}
    while True:
        kept = {n for n in found if all(_as_in_memory(v, found) for v in defined[n])}
        if kept == found:
            return frozenset(kept)
        found = kept


def _definitions(function: Function, statements: list[Statement]) -> dict[str, list[Expr]]:
    """Every variable with what is assigned to it; none whose name stands for something else, too."""
    found: dict[str, list[Expr]] = {}
    others = {p.name for p in function.params}
    for statement in statements:
        if isinstance(statement, (Let, Assign)):
            found.setdefault(statement.name, []).append(statement.value)
        elif isinstance(statement, (Alloc, For)):
            others.add(statement.var if isinstance(statement, For) else statement.name)
    return {n: values for n, values in found.items() if n not in others}


def _handed_on(statements: list[Statement]) -> set[str]:
    """Variables that some statement copies."""
    return {name for s in statements if (name := _copied(s)) is not None}


def _operands(statements: list[Statement]) -> set[str]:
    """Variables that some statement computes with."""
    named = ((s, {n.name for n in _nodes(s) if isinstance(n, Var)}) for s in statements)
    return {n for s, names in named for n in names if n != _copied(s)}


def _copied(statement: Statement) -> str | None:
    """The variable that a statement hands on as it is: to another one, or to memory."""
    match statement:
        case Assign(value=Var(name)) | Let(value=Var(name)):
            return name
        case Store(ptr, _, Var(name) as value, mask=None):
            return name if ptr.type.lanes == 1 and value.type.dtype is ptr.type.dtype else None
        case _:
            return None


def _nodes(statement: Statement) -> Iterator[Expr]:
    return walk_expr(*children(statement))


def _as_in_memory(value: Expr, found: set[str]) -> bool:
    match value:
        case Load(ptr, mask=None):
            return ptr.type.space is Space.LOCAL or (ptr.type.ptr and ptr.type.space in (Space.GLOBAL, Space.CONST))
        case Const(number) | Splat(Const(number)):
            return number == 0
        case Var(name):
            return name in found
        case _:
            return False
