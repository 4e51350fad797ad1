"""What is correct and probably not meant: warnings of `tile check`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tile_ir.diagnostics import Diagnostic, Severity

from tile_lang import ast


def lint(function: ast.Function) -> list[Diagnostic]:
    """The warnings about a function's text, and about those in front of it, in source order."""
    found = [*_never_called(function)]
    for part in (*function.functions, function):
        for statement in part.statements:
            if isinstance(statement, ast.Contraction):
                found += _runaways(statement)
    return sorted(found, key=lambda d: d.span.start if d.span else 0)


def _never_called(function: ast.Function) -> Iterator[Diagnostic]:
    called = {name for part in (*function.functions, function) for name in _calls(part)}
    for local in function.functions:
        if local.name not in called:
            message = f"the function {local.name} is never called"
            yield Diagnostic("TILE-W151", message, local.name_span, "remove it", (), Severity.WARNING)


def _calls(function: ast.Function) -> Iterator[str]:
    """The names of functions that statements call, in sizes and bounds too."""
    for statement in function.statements:
        for expression in _expressions(statement):
            yield from (node.function for node in ast.postorder(expression) if isinstance(node, ast.Call))


def _expressions(statement: ast.Statement) -> list[ast.Expr]:
    if isinstance(statement, ast.Contraction):
        return [*(statement.target.sizes or ()), *(c.bound for c in statement.constraints)]
    return [statement.value]


def _runaways(statement: ast.Contraction) -> Iterator[Diagnostic]:
    """Indexes that stand in one formula alone, and beside another there: whatever that is, all values are taken."""
    subscripts = [*statement.target.indexes, *statement.body.accesses]
    formulas = [*ast.formulas(subscripts), *(c.formula for c in statement.constraints)]
    uses = [_indexes(f) for f in formulas]
    count = Counter(name for names in uses for name in names)
    for names in uses:
        alone = [name for name in names if count[name] == 1]
        if len(names) > 1 and alone:
            place = names[alone[0]]
            others = " and ".join(n for n in names if n != alone[0])
            message = f"whatever {others} is, {alone[0]} takes every value that keeps this subscript inside"
            hint = f"add a constraint, such as {alone[0]} < 3, if a window is meant"
            yield Diagnostic("TILE-W152", message, place.span, hint, (), Severity.WARNING)


def _indexes(formula: ast.Poly) -> dict[str, ast.IndexName]:
    """The indexes of a formula, where each of them first stands."""
    found: dict[str, ast.IndexName] = {}
    for node in ast.postorder(formula):
        if isinstance(node, ast.IndexName):
            found.setdefault(node.id, node)
    return found
