"""Scaled dot product attention as PyTorch's processors compute it, and its gradients, written as what they are.

No weights are kept for the gradients: the logarithm of the sum of each row gives them again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt

import torch
from tile_runtime.ops.reducing import reduced
from tile_runtime.ops.text import Names, Shape, at, cast, contraction, function, literal, reshaped, wide
from tile_runtime.ops.values import Value, apply, dtype_of

from tile_torch.call import Call
from tile_torch.registry import operator

aten = torch.ops.aten

BY_KEY = ("b", "h", "k", "d")
"""Subscripts of a number of a key."""


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of scores ``X``, one for each query; heads of queries that share keys and values stand side by side."""

    query: Value
    key: Value
    mask: Value
    causal: bool
    scale: float | None

    @property
    def shape(self) -> Shape:
        """The shape that PyTorch gives scores: batch, heads, queries, keys."""
        return (*self.query.shape[:3], self.key.shape[2])

    @property
    def heads(self) -> Shape:
        """Heads of keys, and of queries for each where there are several."""
        groups = self.key.shape[1]
        return (groups,) if groups == self.query.shape[1] else (groups, self.query.shape[1] // groups)

    @property
    def head(self) -> Names:
        """Subscripts of the heads."""
        return ("h", "r")[: len(self.heads)]

    @property
    def scores(self) -> Shape:
        """The shape of the scores in the text."""
        return (self.shape[0], *self.heads, *self.shape[2:])

    @property
    def queries(self) -> Shape:
        """The shape of the queries in the text, and of the result."""
        return (self.shape[0], *self.heads, self.shape[2], self.query.shape[3])

    @property
    def place(self) -> Names:
        """Subscripts of a score."""
        return ("b", *self.head, "q", "k")

    @property
    def by_query(self) -> Names:
        """Subscripts of a number of a query."""
        return ("b", *self.head, "q", "d")

    def split(self, value: str, shape: Shape) -> str:
        """A tensor [batch, heads of queries, …] with its heads as those of the scores."""
        return value if len(self.heads) == 1 else reshaped(value, (shape[0], *self.heads, *shape[2:]))

    def wide(self, value: str) -> str:
        """A tensor of the operands' dtype, in what is computed in."""
        return wide(value, dtype_of(self.query))

    def statements(self) -> Iterator[str]:
        """``X``, of ``Q``, ``K`` and, where there is one, the mask ``C``."""
        yield f"Qs = {self.split('Q', self.query.shape)}; Qw = {self.wide('Qs')}; Kw = {self.wide('K')};"
        yield contraction("P", self.scores, self.place, "+", f"{at('Qw', self.by_query)} * {at('Kw', BY_KEY)}")
        scale = 1 / sqrt(self.query.shape[3]) if self.scale is None else self.scale
        scaled = f"P * {literal(scale)}"
        if self.mask is not None:
            scaled += f" + {wide(self._spread_mask(), dtype_of(self.mask))}"
        if not self.causal:
            yield f"X = {scaled};"
            return
        last = len(self.scores) - 1
        yield f"I = index(P, {last - 1}); J = index(P, {last}); X = J <= I ? {scaled} : -inf;"

    def _spread_mask(self) -> str:
        shape = (1,) * (4 - len(self.mask.shape)) + tuple(self.mask.shape)
        if len(self.heads) == 1:
            return "C" if len(self.mask.shape) == 4 or not self.mask.shape else reshaped("C", shape)
        heads = self.heads if shape[1] > 1 else (1, 1)
        return reshaped("C", (shape[0], *heads, *shape[2:]))

    @property
    def operands(self) -> tuple[Value, ...]:
        return () if self.mask is None else (self.mask,)


@operator(aten._scaled_dot_product_flash_attention_for_cpu.default)
def attention(
    call: Call,
    query: Value,
    key: Value,
    value: Value,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Value = None,
    scale: float | None = None,
) -> tuple[Value, Value]:
    """The result, and the logarithm of each row's sum of exponentials: zeros, and -inf, where all of a row is masked."""
    if dropout_p:
        raise call.unsupported("attention with dropout")
    rows = _Rows(query, key, attn_mask, is_causal, scale)
    along = (len(rows.scores) - 1,)
    statements = [
        *rows.statements(),
        reduced("M", "X", rows.scores, along, ">"),
        "E = exp(X - (M == -inf ? 0 : M));",
        reduced("Z", "E", rows.scores, along),
        f"W = {cast('(E / (Z == 0 ? 1 : Z))', call.dtype)};",
        contraction("O", rows.queries, rows.by_query, "+", f"{at('W', rows.place)} * {at('V', BY_KEY)}"),
        f"Y = {'O' if len(rows.heads) == 1 else reshaped('O', call.shape)};",
        "S = M + log(Z);",
        f"L = {reshaped('S', rows.shape[:3])};",
    ]
    names = "QKV" if attn_mask is None else "QKVC"
    if call.wants(1):
        return apply(function(names, "YL", *statements), query, key, value, *rows.operands)
    return apply(function(names, "Y", *statements[:-2]), query, key, value, *rows.operands), None


@operator(aten._scaled_dot_product_flash_attention_for_cpu_backward.default)
def attention_backward(
    call: Call,
    grad: Value,
    query: Value,
    key: Value,
    value: Value,
    out: Value,
    logsumexp: Value,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Value = None,
    scale: float | None = None,
) -> tuple[Value, Value, Value]:
    """The gradients of queries, keys and values; none come from rows of which all is masked."""
    rows = _Rows(query, key, attn_mask, is_causal, scale)
    per_row = (rows.shape[0], *rows.heads, rows.shape[2], 1)
    factor = literal(1 / sqrt(query.shape[3]) if scale is None else scale)
    weight, slope = at("A", rows.place), at("U", rows.place)
    statements = [
        *rows.statements(),
        f"S = {reshaped('L', per_row)}; B = exp(X - (S == -inf ? 0 : S));",
        f"G = {rows.split('D', query.shape)}; Os = {rows.split('O', query.shape)};",
        f"Gw = {rows.wide('G')}; Ow = {rows.wide('Os')}; Vw = {rows.wide('V')};",
        contraction(
            "R", per_row, (*rows.by_query[:-1], "0"), "+", f"{at('Gw', rows.by_query)} * {at('Ow', rows.by_query)}"
        ),
        contraction("T", rows.scores, rows.place, "+", f"{at('Gw', rows.by_query)} * {at('Vw', BY_KEY)}"),
        f"A = {cast('B', call.dtype)}; H = B * (T - R) * {factor}; U = {cast('H', call.dtype)};",
        contraction("Dv", value.shape, BY_KEY, "+", f"{weight} * {at('G', rows.by_query)}"),
        contraction("Dq", rows.queries, rows.by_query, "+", f"{slope} * {at('K', BY_KEY)}"),
        contraction("Dk", key.shape, BY_KEY, "+", f"{slope} * {at('Qs', rows.by_query)}"),
        f"Y = {'Dq' if len(rows.heads) == 1 else reshaped('Dq', query.shape)};",
    ]
    names = ("D", "Q", "K", "V", "O", "L", *(() if attn_mask is None else ("C",)))
    given = (grad, query, key, value, out, logsumexp, *rows.operands)
    return apply(function(names, ("Y", "Dk", "Dv"), *statements), *given)
