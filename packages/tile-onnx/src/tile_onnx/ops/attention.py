"""Scaled dot product attention: heads in groups, masks, causal and sliding windows, caches of keys and values."""

from __future__ import annotations

from math import sqrt
from typing import Any

from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_runtime.ops.reducing import reduced
from tile_runtime.ops.text import Names, Shape, at, cast, contraction, function, literal, names, reshaped, wide
from tile_runtime.ops.values import Value, apply

from tile_onnx.dtypes import element
from tile_onnx.node import Node
from tile_onnx.registry import operator

_INPUTS = ("Q", "K", "V", "M", "PastK", "PastV", "N")
_OUTPUTS = ("Y", "PresentK", "PresentV", "Scores")
_SCORES = ("P", "Capped", "Biased", "W")
"""By qk_matmul_output_mode."""


@frozen
class Sizes:
    """Of an attention, whose `groups` heads of keys and values serve `heads` heads of queries."""

    flat: bool
    """Whether heads stand beside one another: [batch, sequence, heads * cells]; else [batch, heads, sequence, cells]."""
    batch: int
    heads: int
    groups: int
    queries: int
    past: int
    keys: int
    """With those of the past."""
    cells: int
    """Numbers of a query and of a key."""
    values: int
    """Numbers of a value."""

    @property
    def apart(self) -> Shape:
        """Heads of keys, and of queries for each where there are several."""
        each = self.heads // self.groups
        return (self.groups,) if each == 1 else (self.groups, each)

    @property
    def scores(self) -> Shape:
        """The shape of what a softmax is taken of, in the text."""
        return (self.batch, *self.apart, self.queries, self.keys)

    @property
    def shown(self) -> Shape:
        """The shape of the scores that are an output, and to which masks are broadcast."""
        return (self.batch, self.heads, self.queries, self.keys)

    def head(self, of_query: bool) -> Names:
        """Subscripts of a head."""
        return ("h", "r")[: len(self.apart)] if of_query else ("h",)


@frozen
class Operand:
    """Queries, keys or values in the text."""

    name: str
    flat: bool

    def order(self, head: tuple[Any, ...], place: Any, cell: Any) -> tuple[Any, ...]:
        """Subscripts, or sizes, behind the batch's."""
        return (place, *head, cell) if self.flat else (*head, place, cell)

    def at(self, head: Names, place: str, cell: str) -> str:
        """One number of them."""
        return at(self.name, ("b", *self.order(head, place, cell)))


@operator("Attention", since=23)
def attention(node: Node) -> Value:
    """``softmax(scale Q Kᵀ + bias) V``; further outputs are keys and values with those of the past, and scores."""
    sizes = _sizes(node)
    text = _Text(node, sizes, [])
    query = text.operand("Q", sizes.apart, sizes.queries, sizes.cells)
    key = text.cached("K", 1, sizes.cells)
    value = text.cached("V", 2, sizes.values)
    text.softmax(query, key)
    text.mixed(value)
    present = [k for k in range(len(_INPUTS)) if node.has(k)]
    wanted = [k for k in range(max(node.count, 1)) if k == 0 or node.wants(k)]
    source = function([_INPUTS[k] for k in present], [_OUTPUTS[k] for k in wanted], *text.statements)
    found = apply(source, *(node.value(k) for k in present))
    results = dict(zip(wanted, found if len(wanted) > 1 else (found,), strict=True))
    return tuple(results.get(k) for k in range(max(node.count, 1)))


def _sizes(node: Node) -> Sizes:
    q, k, v = (_apart(node, i) for i in range(3))
    past = node.shape(4)[2] if node.has(4) else 0
    if (q[0], k[:3], q[3]) != (k[0], v[:3], k[3]) or q[1] % k[1]:
        raise node.unsupported("queries, keys and values do not fit one another")
    return Sizes(node.rank(0) == 3, *q[:2], k[1], q[2], past, past + k[2], q[3], v[3])


def _apart(node: Node, k: int) -> tuple[int, int, int, int]:
    """Batch, heads, sequence and cells of an input."""
    if node.rank(k) == 4:
        batch, heads, sequence, cells = node.shape(k)
        return batch, heads, sequence, cells
    batch, sequence, beside = node.shape(k)
    heads = node.attribute("kv_num_heads" if k else "q_num_heads")
    if not heads or beside % heads:
        raise node.unsupported("q_num_heads and kv_num_heads, which divide them, are needed for three dimensions")
    return batch, heads, sequence, beside // heads


@frozen
class _Text:
    """The statements so far."""

    node: Node
    sizes: Sizes
    statements: list[str]

    def add(self, *statements: str) -> None:
        self.statements.extend(statements)

    def operand(self, name: str, heads: Shape, sequence: int, cells: int) -> Operand:
        """An input with its heads apart."""
        flat = self.sizes.flat
        if not flat and len(heads) == 1:
            return Operand(name, flat)
        apart = Operand(f"{name}Apart", flat)
        self.add(f"{apart.name} = {reshaped(name, (self.sizes.batch, *apart.order(heads, sequence, cells)))};")
        return apart

    def cached(self, name: str, output: int, cells: int) -> Operand:
        """Keys or values behind those of the past; all of them are an output."""
        sizes = self.sizes
        own = self.operand(name, (sizes.groups,), sizes.keys - sizes.past, cells)
        if not sizes.past and not self.node.wants(output):
            return own
        shape = (sizes.batch, sizes.groups, sizes.keys, cells)
        more: tuple[str, ...] = ()
        if sizes.past:
            before = at(f"Past{name}", ("b", "h", "t", "c"))
            self.add(contraction(f"Old{name}", shape, ("b", "h", "t", "c"), "=", before))
            more = (f"default Old{name}",)
        place = ("b", "h", f"t + {sizes.past}", "c")
        self.add(contraction(f"Present{name}", shape, place, "=", own.at(("h",), "t", "c"), *more))
        return Operand(f"Present{name}", False) if sizes.past else own

    def softmax(self, query: Operand, key: Operand) -> None:
        """The weights W, for each of `Sizes.scores`: 0 for all keys of a query that may attend to none."""
        node, sizes = self.node, self.sizes
        scale = literal(float(node.attribute("scale", 0.0)) or 1 / sqrt(sizes.cells))
        cap = float(node.attribute("softcap", 0.0))
        queries, keys = (Operand(f"Wide{n}", o.flat) for n, o in (("Q", query), ("K", key)))
        product = f"{queries.at(sizes.head(True), 'q', 'd')} * {keys.at(sizes.head(False), 'k', 'd')}"
        along = (len(sizes.scores) - 1,)
        self.add(
            *(f"{w.name} = {wide(o.name, node.dtype(0))};" for w, o in ((queries, query), (keys, key))),
            contraction("Products", sizes.scores, self._place, "+", product),
            f"P = Products * {scale};",
            f"Capped = {f'{literal(cap)} * tanh(P / {literal(cap)})' if cap else 'P'};",
            *_masked(node, sizes),
            f"T = {cast('Biased', _precision(node))};",
            reduced("High", "T", sizes.scores, along, ">"),
            "E = exp(T - stop_gradient(High == -inf ? 0 : High));",
            reduced("Sum", "E", sizes.scores, along),
            f"W = {cast('(E / (Sum == 0 ? 1 : Sum))', node.dtype(0))};",
        )
        if node.wants(_OUTPUTS.index("Scores")):
            shown = cast(_SCORES[int(node.attribute("qk_matmul_output_mode", 0))], node.dtype(0))
            self.add(f"Scores = {shown if len(sizes.apart) == 1 else reshaped(shown, sizes.shown)};")

    @property
    def _place(self) -> Names:
        """Subscripts of a score."""
        return ("b", *self.sizes.head(True), "q", "k")

    def mixed(self, value: Operand) -> None:
        """The values, weighted: the result Y."""
        sizes, result = self.sizes, Operand("R", self.sizes.flat)
        shape = (sizes.batch, *result.order(sizes.apart, sizes.queries, sizes.values))
        place = ("b", *result.order(sizes.head(True), "q", "d"))
        product = f"{at('W', self._place)} * {value.at(sizes.head(False), 'k', 'd')}"
        self.add(contraction("R", shape, place, "+", product))
        whole = (sizes.batch, *result.order((sizes.heads,), sizes.queries, sizes.values))
        flat = (sizes.batch, sizes.queries, sizes.heads * sizes.values)
        kept = not sizes.flat and len(sizes.apart) == 1
        self.add(f"Y = {'R' if kept else reshaped('R', flat if sizes.flat else whole)};")


def _precision(node: Node) -> DType:
    """In what the softmax is computed: as stated, else at least float32."""
    stated = node.attribute("softmax_precision", 0)
    return (element(stated) if stated else None) or node.dtype(0).accumulator


def _masked(node: Node, sizes: Sizes) -> list[str]:
    """Statements: ``Biased``, the scores ``Capped`` with the mask added, and -inf where a key is out of bounds."""
    last = len(sizes.scores) - 1
    conditions, value = _window(node, sizes), "Capped"
    statements = [f"I = index(Capped, {last - 1});", f"J = index(Capped, {last});"]
    if node.has(3):
        shape = node.shape(3)
        mask = "M"
        if shape[-1] < sizes.keys:
            places = names(len(shape))
            statements.append(contraction("Mask", (*shape[:-1], sizes.keys), places, "=", at("M", places)))
            mask = "Mask"
            conditions.append(f"J < {shape[-1]}")
        mask = _spread(mask, (*shape[:-1], sizes.keys), sizes)
        if node.dtype(3) is DType.BOOL:
            conditions.append(mask)
        else:
            value = f"(Capped + {mask})"
    if node.has(6):
        statements.append(f"Valid = {reshaped('as_int(N, 32)', (sizes.batch, *(1 for _ in sizes.apart), 1, 1))};")
        conditions.append("J < Valid")
    allowed = " & ".join(f"({c})" for c in conditions)
    return [*statements, f"Biased = {f'{allowed} ? {value} : -inf' if conditions else value};"]


def _spread(mask: str, shape: Shape, sizes: Sizes) -> str:
    """A mask that broadcasts to `Sizes.shown`, as one that broadcasts to the scores."""
    if len(sizes.apart) == 1 or len(shape) < 3:
        return mask
    heads = (1, 1) if shape[-3] == 1 else sizes.apart
    return reshaped(mask, (*shape[:-3], *heads, *shape[-2:]))


def _window(node: Node, sizes: Sizes) -> list[str]:
    """Conditions on key J and query I of a causal attention, and of one that looks only so far to either side."""
    own = f"(I + Valid - {sizes.queries})" if node.has(6) and not node.has(4) else f"(I + {sizes.past})"
    left, right = node.attribute("left_window_size", -1), node.attribute("right_window_size", -1)
    found = [f"J <= {own}"] if node.attribute("is_causal", 0) else []
    found += [f"{own} - J <= {left}"] if left >= 0 else []
    return found + ([f"J - {own} <= {right}"] if right >= 0 else [])
