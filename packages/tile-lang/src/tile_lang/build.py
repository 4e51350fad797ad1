"""Actions of tile.lark: what each grammar alternative makes of its parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tile_ir.diagnostics import Diagnostic, Source, Span
from tile_ir.ops import Aggregation

from tile_lang import ast
from tile_lang.lexer import Token

Action = Callable[["Builder", list[Any]], Any]

NO_CALLS = (
    "they are sums of indices with constant factors; clamp(…), reflect(…), symmetric(…), wrap(…) or zero(…) around a whole one says "
    "what stands beyond the edge"
)
OWN_STATEMENT = (
    "compute it in a statement of its own, before or after the contraction "
    "(of all pairs: D = reshape(A, N, 1, K) - B); they fuse"
)
AGGREGATIONS = {agg.symbol: agg for agg in Aggregation}


class Builder:
    """Makes nodes over one source; mistakes that the grammar cannot see are collected in `diagnostics`."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.diagnostics: list[Diagnostic] = []

    def span(self, parts: list[Any]) -> Span:
        """From the first part's start to the last part's end."""
        first, last = parts[0], parts[-1]
        start = first.start if isinstance(first, Token) else first.span.start
        end = last.end if isinstance(last, Token) else last.span.end
        return Span(self.source, start, end)


# --- lists -----------------------------------------------------------------------------------------------------


def _append(_b: Builder, p: list[Any]) -> list[Any]:
    p[0].append(p[-1])
    return p[0]


def _first(_b: Builder, p: list[Any]) -> list[Any]:
    return [p[0]]


def _empty(_b: Builder, _p: list[Any]) -> list[Any]:
    return []


# --- expressions -----------------------------------------------------------------------------------------------


def _scaled(b: Builder, p: list[Any]) -> ast.Binary:
    return ast.Binary("*", _integer(b, p[:1]), _index_name(b, p[1:]), b.span(p))


def _integer(b: Builder, p: list[Any]) -> ast.IntLiteral:
    return ast.IntLiteral(p[0].text, b.span(p))


def _index_name(b: Builder, p: list[Any]) -> ast.IndexName:
    return ast.IndexName(p[0].text, b.span(p))


BORDERS = ("clamp", "reflect", "symmetric", "wrap", "zero")
"""Words around an index formula that say what a tensor holds beyond its edges."""


def _border(b: Builder, p: list[Any]) -> ast.Border:
    mode, _, formula, _ = p
    if mode.text not in BORDERS:
        span = Span(b.source, mode.start, mode.end)
        b.diagnostics.append(Diagnostic("TILE-E022", "index formulas call no functions", span, NO_CALLS))
    return ast.Border(mode.text, formula, b.span(p))


# --- contractions ----------------------------------------------------------------------------------------------


def _contraction(b: Builder, p: list[Any]) -> ast.Contraction:
    target, _, agg, _, body, _, constraints, flags = p
    seen: dict[str, Any] = {}
    for kind, value, span in flags:
        if kind in seen:
            message = f"'{'default' if kind == 'DEFAULT' else 'no_defract'}' is given twice for one contraction"
            b.diagnostics.append(Diagnostic("TILE-E018", message, span, "keep one of them"))
        seen[kind] = value
    end = flags[-1][2] if flags else constraints[-1].span if constraints else b.span(p[5:6])
    return ast.Contraction(
        target, agg, body, tuple(constraints), "NO_DEFRACT" in seen, seen.get("DEFAULT"), (), target.span.to(end)
    )


def _statement(b: Builder, p: list[Any]) -> ast.Statement:
    attributes, node, semi = p
    first = attributes[0] if attributes else node
    return replace(node, attributes=tuple(attributes), span=b.span([first, semi]))


def _pair(b: Builder, p: list[Any]) -> ast.Body:
    return ast.Body((p[0], p[2]), p[1], None, b.span(p))


def _longer(b: Builder, p: list[Any]) -> ast.Body:
    """One more factor or summand."""
    chain, comb, ref = p
    if comb != chain.comb or comb == "==":
        message = "tensors in a body are joined by '*' alone, or by '+' alone"
        b.diagnostics.append(Diagnostic("TILE-E013", message, b.span(p), OWN_STATEMENT))
    return ast.Body((*chain.refs, ref), chain.comb, None, b.span(p))


def _conditional_body(b: Builder, p: list[Any]) -> ast.Body:
    chain, _, then = p
    if len(chain.refs) > 2:
        b.diagnostics.append(
            Diagnostic("TILE-E013", "the condition of a body compares two tensors", chain.span, OWN_STATEMENT)
        )
    return ast.Body(chain.refs, chain.comb, then, b.span(p))


# --- header ----------------------------------------------------------------------------------------------------


def _header(b: Builder, p: list[Any]) -> ast.Function:
    inputs: tuple[ast.Input, ...] = tuple(p[2]) if len(p) == 9 else ()
    return ast.Function(inputs, tuple(p[-3]), (), span=b.span(p))


def _named_header(b: Builder, p: list[Any]) -> ast.Function:
    return ast.Function(tuple(p[3]), tuple(p[-3]), (), name=p[1], span=b.span([p[0], p[-1]]))


ACTIONS: dict[str, Action] = {
    "first": _first,
    "empty": _empty,
    "append": _append,
    "more": _append,
    "word": lambda _, p: p[0].text,
    "operator": lambda _, p: p[0].text,
    "name": lambda b, p: ast.Name(p[0].text, Span(b.source, p[0].start, p[0].end)),
    "parens": lambda b, p: replace(p[1], span=b.span(p)),
    "integer": _integer,
    "float": lambda b, p: ast.FloatLiteral(p[0].text, b.span(p)),
    "index_name": _index_name,
    "scaled_index": _scaled,
    "unary": lambda b, p: ast.Unary(p[0].text, p[1], b.span(p)),
    "binary": lambda b, p: ast.Binary(p[1].text, p[0], p[2], Span(b.source, p[0].span.start, p[2].span.end)),
    "conditional": lambda b, p: ast.Conditional(p[0], p[2], p[4], b.span(p)),
    "call": lambda b, p: ast.Call(p[0].text, tuple(p[2]), b.span(p)),
    "agg": lambda _, p: AGGREGATIONS[p[0].text],
    "border": _border,
    "ref_scalar": lambda b, p: ast.Ref(p[0], (), b.span(p)),
    "ref": lambda b, p: ast.Ref(p[0], tuple(p[2]), b.span(p)),
    "body_one": lambda b, p: ast.Body((p[0],), None, None, b.span(p)),
    "body_chain": lambda _, p: p[0],
    "body_conditional": _conditional_body,
    "pair": _pair,
    "longer": _longer,
    "target_scalar": lambda b, p: ast.Target(p[0], (), () if len(p) == 4 else None, b.span(p)),
    "target_unsized": lambda b, p: ast.Target(p[0], tuple(p[2]), None, b.span(p)),
    "target": lambda b, p: ast.Target(p[0], tuple(p[2]), tuple(p[4]), b.span(p)),
    "constraint": lambda b, p: ast.Constraint(p[0], p[2], b.span(p)),
    "no_defract": lambda b, p: ("NO_DEFRACT", True, b.span(p)),
    "default": lambda b, p: ("DEFAULT", p[1], b.span(p)),
    "contraction": _contraction,
    "assign": lambda b, p: ast.Assign(p[0], p[2], (), b.span(p)),
    "unpack": lambda b, p: ast.Unpack((p[0], *p[2]), p[4], (), b.span(p)),
    "attribute": lambda b, p: ast.Attribute(p[1].text, (), b.span(p)),
    "attribute_args": lambda b, p: ast.Attribute(p[1].text, tuple(p[3]), b.span(p)),
    "statement": _statement,
    "input_any": lambda b, p: ast.Input(ast.Name(p[0].text, b.span(p)), None, b.span(p)),
    "input_scalar": lambda b, p: ast.Input(ast.Name(p[0].text, b.span(p[:1])), (), b.span(p)),
    "input_dims": lambda b, p: ast.Input(ast.Name(p[0].text, b.span(p[:1])), tuple(p[2]), b.span(p)),
    "header": _header,
    "header_no_inputs": _header,
    "header_named": _named_header,
}
