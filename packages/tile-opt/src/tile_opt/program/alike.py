"""Factors of bfloat16 beside wider ones: both are bfloat16, which matrix instructions take; no instruction takes two kinds of floats.

``G[s, t] = +(C[s, d] * V[t, d])`` of a float32 C and a bfloat16 V is what the gradient of attention begins with whose scores were
float32. C has the range of bfloat16, and is rounded to it once, where its elements are used again and again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

from tile_ir.dtype import DType
from tile_ir.frozen import frozen, replace
from tile_ir.names import claim
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import Contraction, Elementwise, Op, TensorLoad, TensorType

from tile_opt.program.base import OpRewrite
from tile_opt.program.factorise import index_sizes

SHORT, WIDE = DType.BFLOAT16, DType.FLOAT32


@frozen
class AlikeFactors(OpRewrite):
    """Products of both, of which each element of the wider one is used `uses` times and more; 0 leaves all as it is."""

    uses: int = 0

    def instead(self, types: Mapping[str, TensorType], taken: set[str], op: Op) -> Iterable[Op]:
        """A rounded copy of the wider factor, and the product with that."""
        wide = _wide(op, types) if isinstance(op, Contraction) and self.uses else None
        if not isinstance(op, Contraction) or wide is None or not self._pays(op, types[str(wide.tensor)]):
            return (op,)
        source = str(wide.tensor)
        short = Elementwise(
            claim(f"{source}_short", taken), TensorType(SHORT, types[source].shape), "cast", (source,), origin=op.origin
        )
        return short, _with(op, wide, short.name)

    def _pays(self, op: Contraction, type: TensorType) -> bool:
        sizes = index_sizes(op)
        return sizes is not None and prod(sizes.values()) >= self.uses * type.size


def _wide(op: Contraction, types: Mapping[str, TensorType]) -> TensorLoad | None:
    """The wider of two factors."""
    if op.agg is not Aggregation.SUM or len(op.loads) != 2 or not all(isinstance(x.tensor, str) for x in op.loads):
        return None
    dtypes = {types[str(x.tensor)].dtype: x for x in op.loads}
    plain = [s.fn for s in op.body] == ["cast", "mul"] and op.acc is WIDE
    return dtypes[WIDE] if plain and dtypes.keys() == {SHORT, WIDE} else None


def _with(op: Contraction, wide: TensorLoad, short: str) -> Contraction:
    """The product with another factor, which it converts as it does the other one."""
    name = claim(f"{wide.dst}_wide", {x.dst for x in op.loads} | {s.dst for s in op.body})
    loads = tuple(replace(x, tensor=short) if x is wide else x for x in op.loads)
    cast, product = op.body
    args = tuple(name if a == wide.dst else a for a in product.args)
    body = (cast, replace(cast, dst=name, args=(wide.dst,)), replace(product, args=args))
    return replace(op, loads=loads, body=body)
