"""Products that stand at one place of a dimension, among zeros, are computed without it, and put there.

The gradient of what a packed tensor gives to an attention is such a product for each part: ``G[s, 1, d : S, 3, D] = +(W[s, t] * K[t, d])``.
What has no dimension beside its rows and columns can be one kernel with what makes its factors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from tile_ir.frozen import frozen
from tile_ir.names import claim
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import Contraction, Op, Poly, TensorType
from tile_ir.stripe.affine import Affine

from tile_opt.analysis import affine
from tile_opt.program.base import OpRewrite
from tile_opt.program.trees import Leaf, computed


@frozen
class OnePlace(OpRewrite):
    """Sums of products leave out the dimensions along which all but one place are zeros."""

    def instead(self, types: Mapping[str, TensorType], taken: set[str], op: Op) -> Iterable[Op]:
        """The product, and an assignment of it."""
        if not isinstance(op, Contraction) or op.agg is not Aggregation.SUM or len(op.loads) < 2 or op.default:
            return (op,)
        moved = [d for d, size in enumerate(op.type.shape) if op.output[d].names or size == 1]
        if len(moved) in (0, len(op.output)) or not all(f.is_integral for f in op.output):
            return (op,)
        type = TensorType(op.type.dtype, tuple(size if d in moved else 1 for d, size in enumerate(op.type.shape)))
        output = tuple(f if d in moved else Poly.of({}) for d, f in enumerate(op.output))
        part = replace(op, name=claim(f"{op.name}_part", taken), type=type, output=output)
        return part, _placed(op, part, moved)


def _placed(op: Contraction, part: Contraction, moved: list[int]) -> Contraction:
    """The part where it belongs."""
    cells = {d: Affine.var(f"d{d}") for d in moved}
    places = tuple(cells.get(d, affine(f)) for d, f in enumerate(op.output))
    extents = {f"d{d}": op.type.shape[d] for d in moved}
    here = tuple(cells.get(d, Affine()) for d in range(len(op.output)))
    value = Leaf(part.name, here, op.type.dtype)
    return computed(extents, op.name, op.type, places, value, origin=op.origin)
