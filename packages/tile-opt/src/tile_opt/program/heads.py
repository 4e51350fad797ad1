"""Sums over several rows of weights, one kind of rows after the other: keys that heads share have gradients of each head first.

``G[t, d] = sum over h, s of w[h, s, t] * v[h, s, d]`` becomes ``sum over h of sum over s``. The inner sum walks rows piece by
piece, as any head's does (`kernel.rows_in_steps`); nobody keeps w.
"""

from __future__ import annotations

from tile_ir.frozen import frozen
from tile_ir.names import claim
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import Contraction, Op

from tile_opt.program.cascade import Groups, Made, OverRows
from tile_opt.program.chunks import reduced
from tile_opt.program.split_reduction import partial
from tile_opt.program.trees import leaves


@frozen
class HeadsApart(OverRows):
    """Where rows of more than `kept` elements are weighted below their largest one; 0 leaves all as it is."""

    def made(self, groups: Groups) -> Made:
        pivots = {members[0].pair.first.name for members in groups.found()}
        ops = (op for op in groups.program.ops if isinstance(op, Contraction))
        return {op.name: parts for op in ops if (parts := _apart(op, pivots, groups))}


def _apart(op: Contraction, pivots: set[str], groups: Groups) -> tuple[Op, ...]:
    """The sums of each kind of rows but the longest, and what puts them together; nothing for other contractions."""
    domain = groups.pairs.plain(op) if op.agg is Aggregation.SUM and op.acc.is_float and len(op.loads) > 1 else None
    own = reduced(domain) if domain is not None else {}
    if domain is None or len(own) == 1 or not pivots:
        return ()
    rows = [leaf for leaf in leaves(groups.pairs.trees.summand(op, domain)) if leaf.tensor in pivots]
    names = {n for leaf in rows for f in leaf.forms for n in f.names}
    others = sorted(own.keys() & names, key=lambda n: own[n])[:-1]
    if not others or not own.keys() <= names:
        return ()
    return partial(op, domain, dict.fromkeys(others, 1), claim(f"{op.name}_heads", groups.pairs.taken))
