"""Copies in pieces of copies in pieces are copies of what the first ones copied: nothing between them is stored.

``A[reflect(y - 3), reflect(x - 3)]`` reads a copy of A with rows more, and of that one with columns more. Every cell of the
second is one of A: each of its pieces becomes as many as the first copy has, of which those without cells go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import combinations

from tile_ir.frozen import frozen
from tile_ir.names import claim
from tile_ir.ops import Aggregation
from tile_ir.program.liveness import live_ops, reads
from tile_ir.program.nodes import Constraint, Contraction, Op, Poly, Program
from tile_ir.stripe.affine import Affine

from tile_opt.analysis import Sets, analyze
from tile_opt.program.base import Rewrite
from tile_opt.regions import Box

Chain = tuple[Contraction, ...]


@frozen
class ComposePieces(Rewrite):
    """Copies of at most `most` pieces read those in pieces that nothing else reads where these come from."""

    most: int = 32

    def apply(self, program: Program) -> Program:
        chains, uses = _chains(program), reads(program)
        read = Counter(_source(op) for chain in chains.values() for op in chain)
        inner = {name for name in chains if read[name] == uses[name]}
        if not inner:
            return program
        members = {op.name: len(chain) for chain in chains.values() for op in chain}
        work = _Work(inner, members, self.most, set(program.types()))
        ops = [made for op in program.ops for made in work.instead(op)]
        return replace(program, ops=live_ops(ops, [value for _, value in program.outputs]))


def _chains(program: Program) -> dict[str, Chain]:
    """The pieces of what is copied in pieces, each laid over those before, by the name of the whole; a part of it is one piece."""
    uses = reads(program)
    chains: dict[str, Chain] = {}
    for op in program.ops:
        if not isinstance(op, Contraction) or not _is_copy(op):
            continue
        if op.default is None:
            chains[op.name] = (op,)
        elif op.default in chains and uses[op.default] == 1:
            chains[op.name] = (*chains.pop(op.default), op)
    several = {name for name, chain in chains.items() if len(chain) > 1}
    return {n: c for n, c in chains.items() if n in several or (_source(c[0]) in several and _is_part(c[0]))}


def _is_copy(op: Contraction) -> bool:
    alone = len(op.loads) == 1 and not op.body and op.acc is op.type.dtype
    return op.agg is Aggregation.ASSIGN and alone and isinstance(op.loads[0].tensor, str)


def _source(op: Contraction) -> str:
    return str(op.loads[0].tensor)


def _is_part(op: Contraction) -> bool:
    """Cells of a tensor, in the order that they have there."""
    return [form.terms for form in op.loads[0].formulas] == [form.terms for form in op.output]


@frozen
class _Piece:
    """Cells of a copy, and the cells of what it copies, in terms of a name for each dimension that counts from the first cell."""

    of: Contraction
    box: Box
    names: tuple[str, ...]
    reads: tuple[Affine, ...]

    def taken(self, op: Contraction, name: str, default: str | None) -> Contraction:
        """What `op`, which reads the whole copy, takes of this piece, from where that comes."""
        (load,) = op.loads
        places = [f + Poly(const=Fraction(-low)) for f, low in zip(load.formulas, self.box.low, strict=True)]
        inside = map(Constraint, places, self.box.shape)
        by_name = dict(zip(self.names, places, strict=True))
        source = replace(self.of.loads[0], dst=load.dst, formulas=tuple(_put(f, by_name) for f in self.reads))
        limits = tuple(dict.fromkeys((*op.constraints, *inside)))
        return replace(op, name=name, loads=(source,), constraints=limits, default=default)


def _put(form: Affine, values: Mapping[str, Poly]) -> Poly:
    terms = (values[name].scaled(factor) for name, factor in form.terms)
    return sum(terms, Poly(const=Fraction(form.const)))


def _piece(op: Contraction, sets: Sets) -> _Piece | None:
    """A copy as a box of cells; None for one that leaves cells out."""
    domain = analyze(op, sets)
    extents = domain.extents
    moved = [f.names for f in domain.output]
    single = all(len(f.terms) <= 1 and all(c == 1 for _, c in f.terms) for f in domain.output)
    names = [n for found in moved for n in found]
    if domain.empty or domain.constraints or not single or sorted(names) != sorted(extents):
        return None
    low = tuple(f.const for f in domain.output)
    sizes = [extents[found[0]] if found else 1 for found in moved]
    high = tuple(a + n for a, n in zip(low, sizes, strict=True))
    return _Piece(op, Box(low, high), tuple(found[0] if found else "" for found in moved), domain.accesses[0])


@dataclass(slots=True)
class _Work:
    """Copies in pieces so far."""

    inner: set[str]
    """Those that only pieces of other copies read."""
    members: Mapping[str, int]
    """How many pieces there are of what each piece is one of."""
    most: int
    taken: set[str]
    sets: Sets = field(default_factory=Sets)
    chains: dict[str, Chain] = field(default_factory=dict[str, Chain])

    def instead(self, op: Op) -> Iterator[Op]:
        """What takes the place of an operation."""
        if not isinstance(op, Contraction) or op.name not in self.members:
            yield op
            return
        made = self._composed(op) or (op,)
        self.chains[op.name] = (*self.chains.get(op.default or "", ()), *made)
        yield from made

    def _composed(self, op: Contraction) -> Chain:
        """The piece in pieces of what it reads; () where it stays as it is."""
        source = _source(op)
        pieces = self._pieces(source) if source in self.inner else ()
        if len(pieces) * self.members[op.name] > self.most:
            return ()
        found = [p for p in pieces if not analyze(p.taken(op, op.name, None), self.sets).empty]
        names = [*(claim(f"{op.name}_pieces", self.taken) for _ in found[1:]), op.name]
        return tuple(p.taken(op, n, k) for p, n, k in zip(found, names, [op.default, *names], strict=False))

    def _pieces(self, name: str) -> tuple[_Piece, ...]:
        """Of a copy all of whose cells are in one of them; () for another one."""
        found = [piece for op in self.chains[name] if (piece := _piece(op, self.sets))]
        whole = len(found) == len(self.chains[name]) and _cover(found, self.chains[name][0].type.size)
        return tuple(found) if whole else ()


def _cover(pieces: Sequence[_Piece], cells: int) -> bool:
    apart = not any(a.box.meets(b.box) for a, b in combinations(pieces, 2))
    return apart and sum(p.box.size for p in pieces) == cells
