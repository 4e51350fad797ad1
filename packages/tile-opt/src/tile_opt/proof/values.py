"""What stores store, as terms over what kernels are handed: the stores that loads see, chained back to the operands."""

from __future__ import annotations

from collections.abc import Sequence

from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Const, Load, LoadIndex, Op, Reduce, Statement
from tile_ir.stripe.walk import defined, scalars_used

from tile_opt.proof.flow import Seen, flow
from tile_opt.proof.sites import Access, Buffer, Flat, Loop, Site, Unsupported
from tile_opt.proof.spaces import Relation, Set, Spaces, isl, simple
from tile_opt.proof.terms import Aggregate, Constant, Leaf, Part, Term, Unwritten, Value, applied, pulled

MOST_STEPS = 64
"""So often may a value be handed on, from statement to statement or iteration to iteration."""
MOST_PIECES = 400


class Values:
    """The values of one program. `taken` are the buffers that its kernels take as given, being proved by themselves."""

    def __init__(self, spaces: Spaces, flat: Flat, taken: frozenset[str], given: frozenset[str]) -> None:
        self._spaces, self._flat, self._taken, self._given = spaces, flat, taken, given
        self._stores: dict[Buffer, list[Access]] = {}
        self._at: dict[tuple[Site, int], Access] = {}
        self._seen: dict[Access, Seen] = {}
        self._stored: dict[Access, Value] = {}
        self._open: list[Access] = []
        for access in flat.accesses:
            if access.writes:
                self._stores.setdefault(access.buffer, []).append(access)
            self._at[access.site, access.position] = access

    def result(self, name: str) -> Value:
        """What the cells of a buffer that is handed on hold in the end."""
        buffer = self._flat.handed[name]
        for kernel in self._flat.writers.get(name, ()):
            self._refuse(kernel)
        loops = tuple(Loop(f"c{n}", size) for n, size in enumerate(buffer.shape))
        site = Site(-1, len(self._flat.kernels), ("the end",), loops, (), (1 << 30, *(x.name for x in loops)))
        end = Access(site, 0, buffer, tuple((Affine.var(loop.name),) for loop in loops))
        self._seen[end] = flow(self._spaces, end, self._stores.get(buffer, ()))
        return self._read(end, self._spaces.domain(site))

    def stored(self, store: Access, points: Set | None = None) -> Value:
        """What a store stores, at all of its points or at those given."""
        if points is None and store in self._stored:
            return self._stored[store]
        self._refuse(store.site.kernel)
        if len(self._open) > MOST_STEPS:
            raise Unsupported(f"values that are handed on more than {MOST_STEPS} times")
        whole = self._spaces.domain(store.site)
        self._open.append(store)
        try:
            value = self._scalar(store.site, store.value, whole if points is None else points)
        finally:
            self._open.pop()
        if points is None:
            self._stored[store] = value
        return value

    def _refuse(self, kernel: int) -> None:
        reason = self._flat.unsupported.get(kernel)
        if reason is not None:
            raise Unsupported(reason)

    def _scalar(self, site: Site, name: str, points: Set) -> Value:
        """A scalar at points of its site."""
        known: dict[str, Value] = {}
        for position in _slice(site.body, name):
            statement = site.body[position]
            made = self._defined(site, position, points, known)
            if len(made) > MOST_PIECES:
                raise Unsupported("values of too many pieces")
            known[defined(statement) or ""] = made
        return known[name]

    def _defined(self, site: Site, position: int, points: Set, known: dict[str, Value]) -> Value:
        """What a statement makes of the scalars before it."""
        match site.body[position]:
            case Const(_, value, dtype):
                return ((points, Constant(value, dtype, site.fills)),)
            case LoadIndex(_, value, dtype):
                form = value.substitute(dict(site.values))
                return ((points, Leaf("", self._spaces.forms(site, ((form,),)).intersect_domain(points), dtype)),)
            case Load():
                return self._read(self._at[site, position], points)
            case Op(_, op, args, dtype):
                return applied(op, [known[a] for a in args], dtype, points)
            case Reduce(_, src, agg, over):
                peers = self._peers(site, src, over, points)
                return ((points, Aggregate(agg, (peers,), peers.value[0][1].dtype, together=True)),)
            case _:
                raise Unsupported("a scalar of no known statement")

    def _peers(self, site: Site, src: str, over: tuple[str, ...], points: Set) -> Part:
        """What the threads that reduce together contribute to each of them."""
        domain = self._spaces.domain(site)
        both = isl.Map.from_domain_and_range(points, domain)
        reduced = {name for index in over for name in site.values[index].names}
        for n, loop in enumerate(site.loops):
            if loop.name not in reduced:
                both = both.equate(isl.dim_type.in_, n, isl.dim_type.out, n)
        return Part(both, self._scalar(site, src, domain))

    def _read(self, load: Access, points: Set) -> Value:
        spaces, buffer = self._spaces, load.buffer
        if self._is_given(load):
            return ((points, Leaf(buffer.name, spaces.access(load).intersect_domain(points), buffer.type.dtype)),)
        seen = self._seen_by(load)
        merged = points.subtract(points)
        for _, relation in seen.merges:
            merged = merged.union(relation.domain())
        merged = simple(merged.intersect(points))
        pieces = [*self._replaced(seen, points.subtract(merged))]
        if not merged.is_empty():
            pieces.append((merged, self._merged(load, seen, merged)))
        rest = simple(seen.unwritten.intersect(points).subtract(merged))
        if not rest.is_empty():
            pieces.append((rest, self._before(load, rest)))
        return tuple(pieces)

    def _is_given(self, load: Access) -> bool:
        buffer = load.buffer
        if buffer.kernel >= 0 or buffer.home:
            return False
        writers = self._flat.writers.get(buffer.name, ())
        if not writers:
            return buffer.name in self._given
        return bool(buffer.name in self._taken and max(writers) < load.site.kernel and load.site.body)

    def _seen_by(self, load: Access) -> Seen:
        if load not in self._seen:
            self._seen[load] = flow(self._spaces, load, self._stores.get(load.buffer, ()))
        return self._seen[load]

    def _before(self, load: Access, points: Set) -> Term:
        """A cell that no store wrote: what is handed in, or nothing; Unsupported where a kernel that no proof covers may have."""
        cells, buffer = self._spaces.access(load).intersect_domain(points), load.buffer
        if buffer.kernel < 0 and buffer.name in self._given:
            return Leaf(buffer.name, cells, buffer.type.dtype)
        for kernel in self._flat.writers.get(buffer.name, ()) if buffer.kernel < 0 else ():
            self._refuse(kernel)
        return Unwritten(load, cells)

    def _replaced(self, seen: Seen, points: Set) -> list[tuple[Set, Term]]:
        found: list[tuple[Set, Term]] = []
        for store, relation in seen.stores:
            along = relation.intersect_domain(points)
            if not along.is_empty():
                found += pulled(self._stored_at(store, along), along)
        return found

    def _merged(self, load: Access, seen: Seen, points: Set) -> Term:
        kinds = {store.agg for store, _ in seen.merges}
        agg = next(iter(kinds))
        if len(kinds) > 1 or agg is None:
            raise Unsupported(f"{load.buffer.name} is aggregated in several ways")
        parts: list[Part] = []
        for store, relation in (*seen.merges, *seen.stores):
            reach = relation.intersect_domain(points)
            if not reach.is_empty():
                parts.append(Part(reach, self._stored_at(store, reach)))
        rest = seen.unwritten.intersect(points)
        if not rest.is_empty():
            own = isl.Map.identity(isl.Space.map_from_set(rest.get_space())).intersect_domain(rest)
            parts.append(Part(own, ((rest, self._before(load, rest)),)))
        return Aggregate(agg, tuple(parts), load.buffer.type.dtype)

    def _stored_at(self, store: Access, along: Relation) -> Value:
        """What a store stores where it is seen: at those points alone where values go round in loops."""
        return self.stored(store, along.range() if store in self._open else None)


def _slice(body: Sequence[Statement], name: str) -> list[int]:
    """The statements that a scalar depends on, in order; a reduction's operand is of other points."""
    wanted, found = {name}, list[int]()
    for position in range(len(body) - 1, -1, -1):
        statement = body[position]
        if defined(statement) in wanted:
            found.append(position)
            if not isinstance(statement, Reduce):
                wanted.update(scalars_used(statement))
    return found[::-1]
