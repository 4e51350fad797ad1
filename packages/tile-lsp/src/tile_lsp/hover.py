"""What is said of the thing under the pointer: shapes as formulas, ranges of indexes, what functions and operators do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tile_lang import ast
from tile_lang.lexer import Token
from tile_lang.pieces import Placed
from tile_lang.printer import print_node
from tile_lang.reference import AGGREGATIONS, BORDERS, BUILTINS, OPERATORS, Entry

from tile_lsp.document import Analysis
from tile_lsp.names import Occurrence, Role
from tile_lsp.outline import defined_functions, shape


@dataclass(frozen=True, slots=True)
class Shown:
    """Markdown about characters [start, end) of a text."""

    text: str
    start: int
    end: int


def hover(analysis: Analysis, offset: int) -> Shown | None:
    """What to say of a place; None where there is nothing."""
    one = analysis.names.at(offset)
    if one is not None:
        text = _SAID[one.role](analysis, one)
        return Shown(text, one.start, one.end) if text else None
    return _symbol(analysis, offset)


def _code(text: str) -> str:
    return f"```tile\n{text}\n```"


def _entry(entry: Entry) -> str:
    return f"{_code(entry.call)}\n{entry.says}\n{_code(entry.body)}"


# --- names ---------------------------------------------------------------------------------------


def _value(analysis: Analysis, one: Occurrence) -> str | None:
    """An input, a tensor or a size: its shape, and the statement that defines it."""
    known = shape(analysis, one)
    definitions = analysis.names.definitions(one)
    if not definitions and known is None:
        return None
    head = f"{one.name}{known}" if known and known.startswith("[") else f"{one.name}: {known}" if known else one.name
    lines = [_code(head), _ROLES.get(one.role, "")]
    if one.role is Role.TENSOR and definitions:
        statement = _statement(analysis, definitions[0])
        lines = [_code(head), *([] if statement is None else [_code(" ".join(statement.span.text.split()))])]
        if isinstance(statement, ast.Contraction):
            lines.append(_reading(statement))
    return "\n".join(line for line in lines if line)


_ROLES = {Role.INPUT: "an input", Role.SIZE: "a size, which the inputs give"}


def _statement(analysis: Analysis, one: Occurrence) -> ast.Statement | None:
    """The statement that defines or holds a name, where it can be read."""
    placed = analysis.pieced.pieces[one.piece]
    found = [s for s in placed.piece.statements if s.span.start + placed.start <= one.start < s.span.end + placed.start]
    return found[0] if found else None


def _reading(statement: ast.Contraction) -> str:
    """``The sum over k, for every i and j``."""
    own = _indexes(statement.target.indexes)
    rest = [n for n in _indexes(_subscripts(statement)) if n not in own]
    what = AGGREGATIONS[statement.agg.symbol].says
    over = f" over {' and '.join(rest)}" if rest else ""
    each = f", for every {' and '.join(own)}" if own else ""
    return f"{what}{over}{each}"


def _subscripts(statement: ast.Contraction) -> list[ast.Subscript]:
    return [s for ref in statement.body.accesses for s in ref.indexes] + [c.formula for c in statement.constraints]


def _indexes(subscripts: list[ast.Subscript] | tuple[ast.Subscript, ...]) -> list[str]:
    """The names of indexes in subscripts, each once."""
    nodes = (n for formula in ast.formulas(subscripts) for n in ast.postorder(formula))
    return list(dict.fromkeys(n.id for n in nodes if isinstance(n, ast.IndexName)))


# --- indexes -------------------------------------------------------------------------------------


def _index(analysis: Analysis, one: Occurrence) -> str | None:
    """Where an index runs: every formula that bounds it."""
    statement = _statement(analysis, one)
    if not isinstance(statement, ast.Contraction):
        return None
    bounds = [f"0 <= {f} < {n}" for f, n, names in _bounds(analysis, statement, one.function) if one.name in names]
    own = one.name in _indexes(statement.target.indexes)
    role = "an index of the result" if own else AGGREGATIONS[statement.agg.symbol].says + " over it"
    return "\n".join([_code("\n".join(dict.fromkeys(bounds)) or one.name), role])


def _bounds(analysis: Analysis, node: ast.Contraction, function: int) -> Iterator[tuple[str, str, list[str]]]:
    """Formula, size and indexes of everything that bounds a contraction's indexes."""
    for subscript, size in zip(node.target.indexes, node.target.sizes or (), strict=False):
        yield from _bound(subscript, print_node(size))
    for ref in node.body.accesses:
        sizes = _sizes(analysis, ref.name.id, function)
        for k, subscript in enumerate(ref.indexes):
            yield from _bound(subscript, sizes[k] if k < len(sizes) else f"size {k} of {ref.name.id}")
    for constraint in node.constraints:
        yield from _bound(constraint.formula, print_node(constraint.bound))


def _bound(subscript: ast.Subscript, size: str) -> Iterator[tuple[str, str, list[str]]]:
    if not isinstance(subscript, ast.Ref | ast.Border):  # neither data nor a border bounds an index
        yield print_node(subscript), size, _indexes([subscript])


def _sizes(analysis: Analysis, name: str, function: int) -> list[str]:
    known = analysis.known.get(analysis.names.functions.get(function))
    described = known.describe(name) if known else None
    return described.partition("[")[2].rstrip("]").split(", ") if described else []


# --- functions, and what the language has ------------------------------------------------------


def _function(analysis: Analysis, one: Occurrence) -> str | None:
    own = next((f for f in defined_functions(analysis.names) if f.name == one.name), None)
    if own is not None:
        header = analysis.pieced.pieces[own.piece].piece.header
        return _code(header.span.text.rstrip(" {")) if header else _code(own.name)
    name = "assert_" if one.name.startswith("assert_") else one.name
    return _entry(BUILTINS[name]) if name in BUILTINS else None


def _border(_analysis: Analysis, one: Occurrence) -> str | None:
    return _entry(BORDERS[one.name])


def _nothing(_analysis: Analysis, _one: Occurrence) -> None:
    return None


_SAID = {
    Role.INPUT: _value, Role.TENSOR: _value, Role.SIZE: _value, Role.INDEX: _index, Role.FUNCTION: _function,
    Role.BORDER: _border, Role.ATTRIBUTE: _nothing,
}  # fmt: skip


def _symbol(analysis: Analysis, offset: int) -> Shown | None:
    """An operator, or the symbol of an aggregation."""
    placed = next((p for p in reversed(analysis.pieced.pieces) if p.start <= offset), None)
    if placed is None:
        return None
    tokens = placed.piece.lexed.tokens
    for k, token in enumerate(tokens[:-1]):
        if token.start <= offset - placed.start < token.end:
            entry = _of_symbol(token, tokens[k - 1] if k else None, tokens[k + 1])
            return _shown(entry, token, placed) if entry else None
    return None


def _of_symbol(token: Token, before: Token | None, following: Token) -> Entry | None:
    if before is not None and before.kind == "EQUAL" and following.kind == "LPAR":
        return AGGREGATIONS.get(token.text)
    return next((e for name, e in OPERATORS.items() if name.split()[0] == token.text), None)


def _shown(entry: Entry, token: Token, placed: Placed) -> Shown:
    return Shown(_entry(entry), placed.start + token.start, placed.start + token.end)
