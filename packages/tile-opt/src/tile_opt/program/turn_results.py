"""Results that steps of windows interleave along memory, first with their channels side by side.

Neighbours along x of ``G[n, c, 2*y + i - 1, 2*x + j - 1] = +(dY[n, o, y, x] * W[o, c, i, j])`` are sums of other products: what
an instruction makes together lies apart, and every element is stored alone. Channels of one place are made together, and
lie together when they are last; a copy turns them:

    T[n, 2*y + i - 1, 2*x + j - 1, c] = +(dY[n, o, y, x] * W[o, c, i, j])
    G[n, c, y, x]                     = =(T[n, y, x, c])
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from math import prod

from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.names import claim
from tile_ir.program.copies import copied
from tile_ir.program.nodes import Contraction, Op, Poly, TensorType, coordinates
from tile_ir.stripe.affine import names_in

from tile_opt.program.base import OpRewrite
from tile_opt.program.factorise import index_sizes
from tile_opt.program.unfold import is_product


@frozen
class TurnResults(OpRewrite):
    """Products for matrix instructions with at least `columns` channels, of at least `least` terms, are made channels last."""

    dtypes: frozenset[DType] = frozenset()
    """Of the factors of matrix instructions."""
    columns: int = 32
    least: int = 1 << 24

    def instead(self, types: Mapping[str, TensorType], taken: set[str], op: Op) -> Iterable[Op]:
        if not isinstance(op, Contraction) or not is_product(op):
            return (op,)
        dtypes, sizes = {types[str(load.tensor)].dtype for load in op.loads}, index_sizes(op)
        large = sizes is not None and prod(sizes.values()) >= self.least
        wide = (d for d in _channels(op) if large and dtypes <= self.dtypes and op.type.shape[d] >= self.columns)
        channels = next(wide, None)
        return (op,) if channels is None else _turned(op, channels, claim(f"{op.name}_turned", taken))


def _channels(op: Contraction) -> Iterator[int]:
    """Dimensions of a result that neighbours along memory share with one factor alone, which has none of their steps."""
    *others, last = op.output or (Poly(),)
    steps = {n for n, c in last.terms if abs(c) > 1}
    moving = [names for load in op.loads if not steps.isdisjoint(names := names_in(load.formulas))]
    for d, form in enumerate(others):
        if moving and form.index is not None and not any(form.index in names for names in moving):
            yield d


def _turned(op: Contraction, channels: int, name: str) -> tuple[Contraction, Contraction]:
    """The products with that dimension last, and the copy that puts it where it belongs."""
    order = (*(d for d in range(len(op.output)) if d != channels), channels)
    shape, cells = tuple(op.type.shape[d] for d in order), coordinates(len(order))
    made = replace(op, name=name, type=replace(op.type, shape=shape), output=tuple(op.output[d] for d in order))
    sizes, reads = zip(cells, op.type.shape, strict=True), tuple(cells[d] for d in order)
    text = f"{op.name}: {name}, its rows along memory"
    return made, copied(op.name, op.type, cells, name, reads, sizes, text=text, origin=op.origin)
