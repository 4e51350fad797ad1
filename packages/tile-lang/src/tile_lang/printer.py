"""Syntax tree to Tile text: ``parse(print_function(f)) == f``. Parentheses stand only where they are needed."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tile_lang import ast
from tile_lang.lexer import KEYWORDS

_LEVELS = (("|",), ("^",), ("&",), ("==", "!="), ("<", ">", "<=", ">="), ("<<", ">>"), ("+", "-"), ("*", "/"))
LEVEL = {op: level for level, ops in enumerate(_LEVELS, start=1) for op in ops}
"""Binding strength of the binary operators; ``?:`` has 0, prefix operators `PREFIX`, all else binds tighter."""

PREFIX = 9
_ATOM = 10
_NOT_CHAINED = {"==", "!=", "<", ">", "<=", ">="}
_BOUND = LEVEL["+"]
_UPPER = re.compile(r"[A-Z][A-Za-z0-9_]*'?")
_LOWER = re.compile(r"[a-z][A-Za-z0-9_]*'?")

_Part = str | tuple[ast.Expr | ast.Subscript, int]


def print_function(function: ast.Function) -> str:
    """The text of a function, one statement a line; `tile_lang.format_source` also breaks long lines."""
    before = [print_function(f) + "\n" for f in function.functions]
    lines = [_header(function)]
    lines += ["    " + print_statement(s) for s in function.statements]
    return "".join(before) + "\n".join([*lines, "}", ""])


def print_statement(statement: ast.Statement) -> str:
    """One statement with its attributes and semicolon, on one line."""
    attributes = "".join(_attribute(a) + " " for a in statement.attributes)
    match statement:
        case ast.Assign(target, value):
            return f"{attributes}{print_name(target.id)} = {print_expression(value)};"
        case ast.Unpack(targets, value):
            return f"{attributes}{_names(targets)} = {print_expression(value)};"
        case ast.Contraction():
            return attributes + _contraction(statement) + ";"


def print_expression(expr: ast.Expr | ast.Subscript, level: int = 0) -> str:
    """An expression or index formula; in parentheses when it binds weaker than `level`."""
    out: list[str] = []
    stack: list[_Part] = [(expr, level)]
    while stack:
        part = stack.pop()
        if isinstance(part, str):
            out.append(part)
        else:
            stack.extend(reversed(_parts(*part)))
    return "".join(out)


def _parts(expr: ast.Expr | ast.Subscript, level: int) -> list[_Part]:
    own, parts = _pieces(expr)
    return ["(", *parts, ")"] if own < level else parts


def _pieces(expr: ast.Expr | ast.Subscript) -> tuple[int, list[_Part]]:
    """Binding strength and parts of a node."""
    match expr:
        case ast.IntLiteral(text) | ast.FloatLiteral(text):
            return _ATOM, [text]
        case ast.Name(id):
            return _ATOM, [print_name(id)]
        case ast.IndexName(id):
            return _ATOM, [print_index(id)]
        case ast.Call(function, args):
            return _ATOM, [print_word(function), "(", *_joined(args), ")"]
        case ast.Border(mode, formula):
            return _ATOM, [print_index(mode), "(", (formula, 0), ")"]
        case ast.Ref(name, indexes):
            return _ATOM, [print_name(name.id), "[", *_joined(indexes), "]"]
        case ast.Unary(op, operand):
            return PREFIX, [op, (operand, PREFIX)]
        case ast.Conditional(test, then, otherwise):
            return 0, [(test, 1), " ? ", (then, 0), " : ", (otherwise, 0)]
        case ast.Binary(op, left, right):
            level = LEVEL[op]
            return level, [(left, level + (op in _NOT_CHAINED)), f" {op} ", (right, level + 1)]


def _joined(exprs: Iterable[ast.Expr | ast.Subscript]) -> list[_Part]:
    parts: list[_Part] = []
    for expr in exprs:
        parts += [", ", (expr, 0)]
    return parts[1:]


def print_name(name: str) -> str:
    """A tensor or dimension name, escaped with ``#`` where it does not look like one."""
    return name if _UPPER.fullmatch(name) else "#" + name


def print_index(name: str) -> str:
    """An index name, escaped with ``$`` where it does not look like one."""
    return name if _LOWER.fullmatch(name) and name not in KEYWORDS else "$" + name


def print_word(name: str) -> str:
    """A function name or attribute argument: of either case."""
    return print_name(name) if _UPPER.fullmatch(name) else print_index(name)


def _header(function: ast.Function) -> str:
    inputs = ", ".join(_input(i) for i in function.inputs)
    name = "" if function.name is None else print_word(function.name)
    return f"function {name}({inputs}) -> ({_names(function.outputs)}) {{"


def _names(names: Iterable[ast.Name]) -> str:
    return ", ".join(print_name(n.id) for n in names)


def _input(item: ast.Input) -> str:
    dims = "" if item.dims is None else f"[{_names(item.dims)}]"
    return print_name(item.name.id) + dims


def _attribute(attribute: ast.Attribute) -> str:
    args = "(" + ", ".join(print_word(a) for a in attribute.args) + ")" if attribute.args else ""
    return f"[[{print_index(attribute.name)}{args}]]"


def _contraction(c: ast.Contraction) -> str:
    text = f"{_target(c.target)} = {c.agg.symbol}({_body(c.body)})"
    text += "".join(f", {_constraint(k)}" for k in c.constraints)
    text += " no_defract" if c.no_defract else ""
    return text + (f" default {print_name(c.default.id)}" if c.default else "")


def _list(exprs: Iterable[ast.Expr | ast.Subscript]) -> str:
    return ", ".join(print_expression(e) for e in exprs)


def _target(target: ast.Target) -> str:
    name, indexes = print_name(target.name.id), _list(target.indexes)
    if target.sizes is None:
        return f"{name}[{indexes}]"
    return f"{name}[{indexes} : {_list(target.sizes)}]" if target.indexes else f"{name}[:]"


def _body(body: ast.Body) -> str:
    text = f" {body.comb} ".join(map(print_expression, body.refs))
    return text + (f" ? {print_expression(body.then)}" if body.then else "")


def _constraint(constraint: ast.Constraint) -> str:
    return f"{print_expression(constraint.formula)} < {print_expression(constraint.bound, _BOUND)}"


def print_node(node: ast.Node) -> str:
    """The text of any node."""
    match node:
        case ast.Function():
            return print_function(node)
        case ast.Assign() | ast.Unpack() | ast.Contraction():
            return print_statement(node)
        case ast.Input():
            return _input(node)
        case ast.Attribute():
            return _attribute(node)
        case ast.Target():
            return _target(node)
        case ast.Body():
            return _body(node)
        case ast.Constraint():
            return _constraint(node)
        case (
            ast.IntLiteral() | ast.FloatLiteral() | ast.Name() | ast.IndexName() | ast.Call() | ast.Ref() | ast.Border()
        ):
            return print_expression(node)
        case ast.Unary() | ast.Binary() | ast.Conditional():
            return print_expression(node)
        case _:
            raise TypeError(f"{type(node).__name__} is not a node of tile_lang.ast")
