"""What each aggregation passes to the values that it aggregates, in contractions and in scatters."""

from __future__ import annotations

from collections.abc import Callable

from tile_ir.dtype import DType
from tile_ir.ops import Aggregation
from tile_ir.program.macros import literal
from tile_ir.program.nodes import Operand, TensorType

from tile_autodiff._emit import Body, Updates

Values = Body | Updates
"""The aggregated value as an operand, among operations at each point of the domain."""


def _sum_seed(body: Values, dout: str) -> Operand:
    return body.cast(body.here(dout), body.dtype(body.value))


def _select_seed(body: Values, dout: str) -> Operand:
    """max, min: ``dout / count`` where the value equals the result; count and selection over one domain."""
    dtype = body.type.dtype
    value = body.cast(body.value, dtype)
    hit = body.emit("cmp_eq", (value, body.here(body.name)), DType.BOOL)
    graph, one = body.graph, literal(1, dtype)
    count = body.reduced(body.emit("cond", (hit, one, literal(0, dtype)), dtype), body.type, Aggregation.SUM)
    # Cells that nothing equals (NaN, or no valid tuple) must stay finite for derivatives of higher order.
    share = graph.emit("div", (dout, graph.emit("max", (count, one), dtype)), dtype)
    assert isinstance(share, str)
    seed = body.emit("cond", (hit, body.here(share), literal(0, dtype)), dtype)
    return body.cast(seed, body.dtype(body.value))


def _product_seed(body: Values, dout: str) -> Operand:
    """The product of the other factors, also where factors are 0.

    Per cell: Z zeros among the factors, P the product of those that are not 0, S the sum of those that are: 0, but
    its derivative is 1, so that second derivatives at zeros are right as well. A factor f that is not 0 gets ``P / f``
    if Z = 0 and ``S * P / f`` if Z = 1; one that is 0 gets P if Z = 1 and ``(S - f) * P`` if Z = 2; else nothing.
    """
    graph, dtype = body.graph, body.dtype(body.value).accumulator
    zero, one = literal(0, dtype), literal(1, dtype)
    factor = body.cast(body.value, dtype)
    vanishes = body.emit("cmp_eq", (factor, zero), DType.BOOL)
    safe = body.emit("cond", (vanishes, one, factor), dtype)
    cell = TensorType(dtype, body.type.shape)

    def reduced(agg: Aggregation, then: Operand, otherwise: Operand) -> str:
        return body.reduced(body.emit("cond", (vanishes, then, otherwise), dtype), cell, agg)

    zeros = reduced(Aggregation.SUM, one, zero)
    others = reduced(Aggregation.PROD, one, factor)
    small = reduced(Aggregation.SUM, factor, zero)
    scaled = graph.emit("mul", (graph.cast(dout, dtype), others), dtype)

    def where(count: int, value: Operand, otherwise: Operand) -> Operand:
        test = graph.emit("cmp_eq", (zeros, literal(count, dtype)), DType.BOOL)
        return graph.emit("cond", (test, value, otherwise), dtype)

    def here(name: Operand) -> Operand:
        assert isinstance(name, str)
        return body.here(name)

    regular = here(where(0, scaled, where(1, graph.emit("mul", (scaled, small), dtype), zero)))
    single, double = here(where(1, scaled, zero)), here(where(2, scaled, zero))
    rest = body.emit("sub", (here(small), factor), dtype)
    at_zero = body.emit("add", (single, body.emit("mul", (double, rest), dtype)), dtype)
    seed = body.emit("cond", (vanishes, at_zero, body.emit("div", (regular, safe), dtype)), dtype)
    return body.cast(seed, body.dtype(body.value))


SEEDS: dict[Aggregation, Callable[[Values, str], Operand]] = {
    Aggregation.SUM: _sum_seed,
    Aggregation.ASSIGN: _sum_seed,
    Aggregation.MAX: _select_seed,
    Aggregation.MIN: _select_seed,
    Aggregation.PROD: _product_seed,
}
"""The derivative of the result with respect to each aggregated value, times the cotangent `dout`, which is a tensor."""
