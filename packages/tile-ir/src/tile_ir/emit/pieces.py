"""Text from expressions of any depth, without recursion.

A printer says how one node expands: its precedence and a flat row of strings and operands, each
operand with the least precedence that may stand there without parentheses. `render` does the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tile_ir.semtree.nodes import Expr

Operand = tuple[Expr, int]
Piece = str | Operand
Expansion = tuple[int, Sequence[Piece]]

# C's binding strengths, loosest first.
TERNARY, LOR, LAND, BOR, BXOR, BAND, EQUALITY, RELATIONAL, SHIFT, ADDITIVE, TERM, PREFIX, POSTFIX, ATOM = range(3, 17)


def render(root: Expr, expand: Callable[[Expr], Expansion], least: int = 0, longest: int | None = None) -> str:
    """The text of `root`; an operand that binds looser than its place demands gets parentheses.

    With `longest`, text beyond that many pieces is cut off: subtrees may be shared, so that the whole
    text of a small graph can be astronomically long.
    """
    out: list[str] = []
    stack: list[Piece] = [(root, least)]
    while stack:
        piece = stack.pop()
        if longest is not None and len(out) > longest:
            return "".join(out) + "…"
        if isinstance(piece, str):
            out.append(piece)
            continue
        expr, demanded = piece
        precedence, pieces = expand(expr)
        if precedence < demanded:
            stack.append(")")
            stack.extend(reversed(pieces))
            stack.append("(")
        else:
            stack.extend(reversed(pieces))
    return "".join(out)


def commas(exprs: Sequence[Expr]) -> list[Piece]:
    """Operands separated by ", "."""
    pieces: list[Piece] = []
    for expr in exprs:
        pieces += [", ", (expr, 0)] if pieces else [(expr, 0)]
    return pieces


def call(name: str, args: Sequence[Expr]) -> Expansion:
    """``name(args…)``."""
    return ATOM, [f"{name}(", *commas(args), ")"]


def infix(symbol: str, precedence: int, left: Expr, right: Expr) -> Expansion:
    """``left symbol right``, grouping to the left."""
    return precedence, [(left, precedence), f" {symbol} ", (right, precedence + 1)]
