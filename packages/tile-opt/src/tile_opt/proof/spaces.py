"""Sites and accesses as sets and relations of ISL, built through its API: parsing text costs ten times as much.

Points of a site are tuples of its loops' values, in their order; cells are tuples of subscripts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tile_ir.stripe.affine import Affine, DivMod, DivModOp, Quasi

from tile_opt.analysis.integer_sets import IN as IN
from tile_opt.analysis.integer_sets import OUT as OUT
from tile_opt.analysis.integer_sets import SET as DIM
from tile_opt.analysis.integer_sets import Context
from tile_opt.analysis.integer_sets import Error as Error
from tile_opt.analysis.integer_sets import integer as integer
from tile_opt.analysis.integer_sets import isl as isl
from tile_opt.proof.sites import THREADS, Access, Form, Loop, Site

Set = Any
Relation = Any
"""Of points or cells to points or cells."""


class Spaces(Context):
    """Makes the sets of sites and the relations of accesses, each once."""

    def __init__(self, operations: int = 0) -> None:
        super().__init__(operations)
        self._domains: dict[Site, Set] = {}
        self._accesses: dict[Access, Relation] = {}
        self._times: dict[tuple[Site, tuple[int | str, ...], int], Relation] = {}

    def domain(self, site: Site) -> Set:
        """The points at which a site runs."""
        if site not in self._domains:
            self._domains[site] = self.points(site.loops, site.constraints)
        return self._domains[site]

    def points(self, loops: Sequence[Loop], constraints: Iterable[Quasi]) -> Set:
        """The points of a box that satisfy constraints (each >= 0)."""
        names, limits = [loop.name for loop in loops], list[Affine]()
        for loop in loops:
            limits += [Affine.var(loop.name), Affine.var(loop.name, -1) + (loop.range - 1)]
        forms = [*constraints]
        box = self.set(names, (*limits, *(c for c in forms if isinstance(c, Affine))))
        for form in (c for c in forms if isinstance(c, DivMod)):
            box = box.intersect(self._quasi(form, names).ge_set(self._zero(names)))
        return box

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
        return isl.PwAff.from_aff(self._sum(form, [loop.name for loop in site.loops]))

    def forms(self, site: Site, forms: Sequence[Form]) -> Relation:
        """From the points of a site to the values of forms of its loops."""
        return self.mapped(site.loops, forms).intersect_domain(self.domain(site))

    def mapped(self, loops: Sequence[Loop], forms: Sequence[Form]) -> Relation:
        """From the points of loops to the values of forms."""
        names = [loop.name for loop in loops]
        if all(isinstance(part, Affine) for form in forms for part in form):
            return self.map(names, (), [sum((p for p in form if isinstance(p, Affine)), Affine()) for form in forms])
        multi = isl.MultiAff.zero(isl.Space.alloc(self.isl, 0, len(loops), len(forms)))
        for n, form in enumerate(forms):
            multi = multi.set_aff(n, self._sum(form, names))
        return isl.Map.from_multi_aff(multi)

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

    def box(self, sizes: Sequence[int]) -> Set:
        return self.points(tuple(Loop(f"c{n}", size) for n, size in enumerate(sizes)), ())

    def point(self, values: Sequence[int]) -> Set:
        """One point, as a set."""
        made = isl.Set.universe(isl.Space.set_alloc(self.isl, 0, len(values)))
        for n, value in enumerate(values):
            made = made.fix_val(DIM, n, self.number(value))
        return made

    def _zero(self, names: Sequence[str]) -> Any:
        return isl.Aff.zero_on_domain(isl.LocalSpace.from_space(isl.Space.set_alloc(self.isl, 0, len(names))))

    def _sum(self, form: Form, names: Sequence[str]) -> Any:
        total = self._zero(names)
        for part in form:
            total = total.add(self._quasi(part, names))
        return total

    def _quasi(self, form: Quasi, names: Sequence[str]) -> Any:
        if isinstance(form, Affine):
            return self.valued(self._zero(names), form, IN, names)
        num, den = self._quasi(form.num, names), self.number(form.den)
        part = num.scale_down_val(den).floor() if form.op is DivModOp.DIV else num.mod_val(den)
        return part.scale_val(self.number(form.scale)).add(self._quasi(form.plus, names))


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
