"""Sites and accesses as sets and relations of ISL, built through its API: parsing text costs ten times as much.

Points of a site are tuples of its loops' values, in their order; cells are tuples of subscripts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

from tile_ir.stripe.affine import Affine, DivMod, DivModOp, Quasi

from tile_opt.analysis.integer_sets import Error as Error
from tile_opt.analysis.integer_sets import integer as integer
from tile_opt.analysis.integer_sets import isl as isl
from tile_opt.proof.sites import THREADS, Access, Form, Loop, Site

Set = Any
Relation = Any
"""Of points or cells to points or cells."""
IN, OUT, DIM = isl.dim_type.in_, isl.dim_type.out, isl.dim_type.set


class Spaces:
    """Makes the sets of sites and the relations of accesses, each once."""

    def __init__(self, operations: int = 0) -> None:
        self._context = isl.Context()
        self._context.set_max_operations(operations)
        self._domains: dict[Site, Set] = {}
        self._accesses: dict[Access, Relation] = {}
        self._times: dict[tuple[Site, tuple[int | str, ...], int], Relation] = {}
        self._numbers: dict[int, Any] = {}

    def begin(self) -> None:
        """Count operations from here."""
        self._context.reset_operations()

    def domain(self, site: Site) -> Set:
        """The points at which a site runs."""
        if site not in self._domains:
            self._domains[site] = self.points(site.loops, site.constraints)
        return self._domains[site]

    def points(self, loops: Sequence[Loop], constraints: Iterable[Quasi]) -> Set:
        """The points of a box that satisfy constraints (each >= 0)."""
        local = self._local(len(loops))
        place = {loop.name: n for n, loop in enumerate(loops)}
        box = isl.BasicSet.universe(local.get_space())
        limits: list[Affine] = []
        for loop in loops:
            limits += [Affine.var(loop.name), Affine.var(loop.name, -1) + (loop.range - 1)]
        for form in (*limits, *(c for c in constraints if isinstance(c, Affine))):
            box = box.add_constraint(self._constraint(local, form, place))
        for form in constraints:
            if isinstance(form, DivMod):
                box = box.intersect(self._quasi(local, form, place).ge_basic_set(self._zero(local)))
        return isl.Set.from_basic_set(box)

    def access(self, access: Access) -> Relation:
        """From the points of its site to the cells that it touches there."""
        if access not in self._accesses:
            made = self._clamped(access) if access.clamped else self.forms(access.site, access.at)
            self._accesses[access] = made
        return self._accesses[access]

    def cells(self, access: Access) -> Set:
        """All cells that it touches."""
        return simple(self.access(access).range())

    def _clamped(self, access: Access) -> Relation:
        """The cells of a load whose subscripts stop at the ends of its view."""
        kept = len(access.at) - len(access.clamped)
        cells = self.forms(access.site, access.at[:kept])
        for origin, form, size in access.clamped:
            start, inner = (self._piecewise(access.site, part) for part in (origin, form))
            zero, last = (self._piecewise(access.site, (Affine((), n),)) for n in (0, size - 1))
            cells = cells.flat_range_product(isl.Map.from_pw_aff(start.add(inner.max(zero).min(last))))
        return cells.intersect_domain(self.domain(access.site))

    def _piecewise(self, site: Site, form: Form) -> Any:
        place = {loop.name: n for n, loop in enumerate(site.loops)}
        return isl.PwAff.from_aff(self._sum(self._local(len(site.loops)), form, place))

    def forms(self, site: Site, forms: Sequence[Form]) -> Relation:
        """From the points of a site to the values of forms of its loops."""
        return self.mapped(site.loops, forms).intersect_domain(self.domain(site))

    def mapped(self, loops: Sequence[Loop], forms: Sequence[Form]) -> Relation:
        local = self._local(len(loops))
        place = {loop.name: n for n, loop in enumerate(loops)}
        plain = all(isinstance(part, Affine) for form in forms for part in form)
        if not plain:
            values = [self._sum(local, form, place) for form in forms]
            space = isl.Space.alloc(self._context, 0, len(loops), len(forms))
            multi = isl.MultiAff.zero(space)
            for n, value in enumerate(values):
                multi = multi.set_aff(n, value)
            return isl.Map.from_multi_aff(multi)
        space = isl.Space.alloc(self._context, 0, len(loops), len(forms))
        local = isl.LocalSpace.from_space(space)
        relation = isl.BasicMap.universe(space)
        for n, form in enumerate(forms):
            total = Affine()
            for part in form:
                total = total + cast(Affine, part)
            equal = isl.Constraint.equality_alloc(local).set_constant_val(self.number(total.const))
            for name, c in total.terms:
                equal = equal.set_coefficient_val(IN, place[name], self.number(c))
            relation = relation.add_constraint(equal.set_coefficient_val(OUT, n, self.number(-1)))
        return isl.Map.from_basic_map(relation)

    def time(self, site: Site, after: Sequence[int | str], length: int) -> Relation:
        """From the points of a site to when they run; threads of a group come last, so that they advance together."""
        key = (site, tuple(after), length)
        if key not in self._times:
            threads = [loop.name for loop in site.loops if loop.bind in THREADS]
            steps = [*(s for s in site.time if s not in threads), *after]
            steps += [0] * (length - len(steps) - len(threads)) + threads
            forms = [(Affine.var(s) if isinstance(s, str) else Affine((), s),) for s in steps]
            self._times[key] = self.forms(site, forms)
        return self._times[key]

    def number(self, value: int) -> Any:
        if value not in self._numbers:
            small = -(1 << 62) < value < 1 << 62
            made = (
                isl.Val.int_from_si(self._context, value) if small else isl.Val.read_from_str(self._context, str(value))
            )
            self._numbers[value] = made
        return self._numbers[value]

    def box(self, sizes: Sequence[int]) -> Set:
        return self.points(tuple(Loop(f"c{n}", size) for n, size in enumerate(sizes)), ())

    def point(self, values: Sequence[int]) -> Set:
        """One point, as a set."""
        made = isl.Set.universe(isl.Space.set_alloc(self._context, 0, len(values)))
        for n, value in enumerate(values):
            made = made.fix_val(DIM, n, self.number(value))
        return made

    def _local(self, count: int) -> Any:
        return isl.LocalSpace.from_space(isl.Space.set_alloc(self._context, 0, count))

    def _zero(self, local: Any) -> Any:
        return isl.Aff.zero_on_domain(local)

    def _constraint(self, local: Any, form: Affine, place: dict[str, int]) -> Any:
        made = isl.Constraint.inequality_alloc(local).set_constant_val(self.number(form.const))
        for name, c in form.terms:
            made = made.set_coefficient_val(DIM, place[name], self.number(c))
        return made

    def _sum(self, local: Any, form: Form, place: dict[str, int]) -> Any:
        total = self._zero(local)
        for part in form:
            total = total.add(self._quasi(local, part, place))
        return total

    def _quasi(self, local: Any, form: Quasi, place: dict[str, int]) -> Any:
        if isinstance(form, Affine):
            made = self._zero(local).set_constant_val(self.number(form.const))
            for name, c in form.terms:
                made = made.set_coefficient_val(IN, place[name], self.number(c))
            return made
        num, den = self._quasi(local, form.num, place), self.number(form.den)
        part = num.scale_down_val(den).floor() if form.op is DivModOp.DIV else num.mod_val(den)
        return part.scale_val(self.number(form.scale)).add(self._quasi(local, form.plus, place))


def paired(reach: Relation) -> Set:
    """The pairs of a relation as points: those of the one side before those of the other."""
    return reach.wrap().flatten()


def sample(points: Set) -> tuple[int, ...]:
    """Some point of a set that is not empty, the smallest where that is quick."""
    point = points.sample_point()
    count = points.dim(DIM)
    return tuple(integer(point.get_coordinate_val(DIM, n)) for n in range(count))


def projection(before: int, kept: int, after: int, context: Set) -> Relation:
    """From flat tuples to the part of them that is kept, for points of `context`."""
    identity = isl.Map.identity(isl.Space.map_from_set(context.get_space())).intersect_domain(context)
    out = identity.project_out(OUT, before + kept, after).project_out(OUT, 0, before)
    return out.reset_tuple_id(OUT) if out.has_tuple_id(OUT) else out


def simple(relation: Relation) -> Relation:
    """The same relation (or set) with few pieces and no quotients, where it has such a form: its hull, if that adds nothing."""
    relation = relation.coalesce()
    if _is_plain(relation):
        return relation
    hull = relation.simple_hull().intersect(relation.affine_hull()).remove_divs()
    whole = isl.Map.from_basic_map(hull) if isinstance(relation, isl.Map) else isl.Set.from_basic_set(hull)
    return whole if whole.is_subset(relation) else relation


def _is_plain(relation: Relation) -> bool:
    count = relation.n_basic_map() if isinstance(relation, isl.Map) else relation.n_basic_set()
    return count <= 1 and _quotients(relation) == 0


def _quotients(relation: Relation) -> int:
    kind = isl.Map if isinstance(relation, isl.Map) else isl.Set
    found = relation.get_basic_maps() if kind is isl.Map else relation.get_basic_sets()
    return sum(piece.dim(isl.dim_type.div) for piece in found)
