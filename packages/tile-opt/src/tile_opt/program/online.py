"""Statistics of long rows in one reading: what depends on a row's largest element, or on its mean, is taken chunk by chunk.

A group of items keeps a chunk of a row, finds its largest element and, from registers, the sum of exponentials below it.
What chunks found is put together afterwards, whatever the row's own largest element turns out to be:

    sum of exp(x - m)   =  sum over chunks of  exp(p - m) * (the chunk's sum of exp(x - p))
    sum of (x - c)²     =  sum over chunks of  n * (p - c)² + (the chunk's sum of (x - p)²)

The first holds for any p, the second for the mean p of the n elements of a chunk, and any m and c. Without this a row
that no group can keep is read once for each of the two.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from tile_ir.frozen import frozen
from tile_ir.ops import Aggregation
from tile_ir.program.liveness import used_by
from tile_ir.program.nodes import Contraction, Literal, Op, Program, results_of

from tile_opt.analysis import FlatDomain
from tile_opt.program.base import Rewrite
from tile_opt.program.chunks import Chunked, Chunks, Pair, reduced
from tile_opt.program.pairs import Pairs
from tile_opt.program.split_reduction import GROUPS_EACH, STRETCH, chunk_sizes, reduces_along_memory, reductions
from tile_opt.program.trees import Body, Call, Leaf, Tree, leaves, unwidened

ALIGNED, BESIDE = 8, 16
"""Neighbouring columns that a group keeps at least, where rows begin with whole pieces of memory and where they do not."""
COLUMNS, SEVERAL = 0.7, 0.45
"""Share of the elements of a row that a group keeps of columns, and where items share several loops: these do not come out even."""
READ = 0.2
"""The same of columns of which nothing but aggregates is wanted: small groups read chunks faster than large ones whole columns."""
LEAST = 4
"""Part of a chunk that is worth a group of its own, where groups are few."""


@frozen
class Online(Rewrite):
    """Take such pairs of statistics chunk by chunk, of rows with more elements (of four bytes) than `kept`.

    For columns, of which a group takes several side by side, the same. Chunks have about `chunk`
    elements for each group, fewer where the device's `units` would get too few of them; without units nothing changes.
    A group of its own puts chunks together, in two steps where those of its cells are more than `gathered`.
    """

    units: int = 0
    kept: int = 56 << 10
    chunk: int = 1 << 13
    gathered: int = 1 << 14

    def apply(self, program: Program) -> Program:
        if not self.units or not any(isinstance(op, Contraction) for op in program.ops):
            return program
        work = _Work(self, program)
        made = {op.name: work.chunked(op) for op in program.ops if isinstance(op, Contraction)}
        found = {name: new for name, new in made.items() if new is not None}
        if not found:
            return program
        early = {new.row: new for new in found.values()}
        ops: list[Op] = []
        for op in program.ops:
            name = getattr(op, "name", "")
            ops += early[name].front if name in early else (found[name].total,) if name in found else (op,)
        return replace(program, ops=tuple(ops))


class _Work(Pairs):
    def __init__(self, options: Online, program: Program) -> None:
        super().__init__(program)
        self.options, self.ops = options, program.ops
        self.used: set[str] = set()
        """Aggregates that pairs were made of."""

    def chunked(self, op: Contraction) -> Chunked | None:
        """The pair that ends with `op`, taken chunk by chunk; None where it ends none, or a group keeps its rows."""
        if op.agg is not Aggregation.SUM or not op.acc.is_float or not op.type.size:
            return None
        pair = self._pair(op)
        sizes = {} if pair is None or pair.first.name in self.used else self._sizes(pair)
        if pair is None or not sizes:
            return None
        self.used |= {pair.first.name, op.name}
        beside = min(STRETCH, op.type.size)
        return Chunks(pair, sizes, self.taken, self.options.gathered // beside).made()

    # --- pairs ------------------------------------------------------------------------------------------

    def _pair(self, op: Contraction) -> Pair | None:
        domain = self.plain(op)
        if domain is None:
            return None
        whole = self.trees.summand(op, domain)
        match unwidened(whole):
            case Call("exp", (shifted,)):
                centred, agg = unwidened(shifted), Aggregation.MAX
            case Call("mul", (a, b)) if a == b:
                centred, agg = unwidened(a), Aggregation.SUM
            case Call("pow", (a, Literal(2 | 2.0))):
                centred, agg = unwidened(a), Aggregation.SUM
            case _:
                return None
        if not (isinstance(centred, Call) and centred.fn == "sub"):
            return None
        inner, centre = centred.args
        if any(reduced(domain).keys() & set(f.names) for leaf in leaves(centre) for f in leaf.forms):
            return None
        if agg is Aggregation.MAX and not isinstance(unwidened(centre), Leaf):
            return None
        pairs = (self.with_first(op, domain, leaf, inner, agg) for leaf in leaves(centre))
        found = next((p for p in pairs if p is not None), None)
        return found and replace(found, whole=whole, centre=None if agg is Aggregation.MAX else centre)

    # --- chunks -----------------------------------------------------------------------------------------

    def _sizes(self, pair: Pair) -> dict[str, int]:
        """Iterations per chunk of each index of the sum that is cut; nothing where a group can keep a row."""
        op, domain = _read(pair.op, pair.domain, pair.inner)
        own = reduced(domain)
        length, cells = prod(own.values()), pair.op.type.size
        words = max((self.types[leaf.tensor].dtype.bytes // 4 for leaf in leaves(pair.inner)), default=1) or 1
        along = reduces_along_memory(op, domain, self.types)
        beside = 1 if along else min(STRETCH, cells)
        least = ALIGNED if cells % ALIGNED == 0 else BESIDE
        share = 1.0 if along else COLUMNS if len(own) == 1 else SEVERAL
        share = share if along or self._is_read_again(op.name, length * cells) else min(share, READ)
        if length * words * (1 if along else min(least, cells)) <= self.options.kept * share:
            return {}
        chunk, groups = max(1, self.options.chunk // (beside * words)), -(-cells // beside)
        wanted = max(-(-length // chunk), min(GROUPS_EACH * self.options.units // groups, length * LEAST // chunk))
        order = reductions(op, domain, self.types, 1) if wanted > 1 else []
        sizes = chunk_sizes(domain, order, wanted, more=True)
        return {n: size for n, size in sizes.items() if size < own[n]}

    def _is_read_again(self, aggregate: str, elements: int) -> bool:
        """Something is made of each element, given the aggregate: a group that keeps the elements need not read them twice."""
        behind = {aggregate}
        for op in self.ops:
            if not behind.isdisjoint(used_by(op)):
                made = results_of(op)
                if any(type.size >= elements for _, type in made):
                    return True
                behind |= {name for name, _ in made}
        return False


def _read(op: Contraction, domain: FlatDomain, tree: Tree) -> tuple[Contraction, FlatDomain]:
    """The contraction as if it aggregated `tree`."""
    body = Body()
    return body.of(op, tree), replace(domain, accesses=tuple(body.forms))
