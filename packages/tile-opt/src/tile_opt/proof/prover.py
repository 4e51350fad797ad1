"""The claims about a scheduled program, each decided by sets.

For every tensor that kernels hand on: each cell is what the unscheduled program says, with every product of operands
in it exactly once. For every kernel: accesses stay inside, threads meet at barriers, no two unordered points race.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Program
from tile_ir.stripe.printer import print_statement

from tile_opt.blocks.tree import main_of
from tile_opt.proof.describe import cell
from tile_opt.proof.equal import Difference, differ
from tile_opt.proof.races import divergent, races
from tile_opt.proof.report import Finding, Verdict
from tile_opt.proof.sites import DATA, Access, Flat, Form, Site, Unsupported, flatten
from tile_opt.proof.spaces import DIM, Spaces, isl, sample
from tile_opt.proof.values import Values

Claim = tuple[str, int | str]
"""What is claimed and of which kernel or tensor: ``("result", "C")``, ``("inside", 0)``, ``("races", 0)``."""


def _given(program: Program) -> frozenset[str]:
    """What is handed in, also where it is seen as words."""
    named = {*program.inputs, *(c.name for c in program.constants)}
    return frozenset(named | {r.into for r in main_of(program).refs if r.source in named})


class Prover:
    """Decides claims about `scheduled`, of which `initial` is the meaning; ISL may take so many operations for each."""

    def __init__(self, initial: Program, scheduled: Program, operations: int = 0) -> None:
        self._spaces = Spaces(operations)
        self._initial, self._scheduled = flatten(initial), flatten(scheduled)
        self._given = _given(initial)
        self._outputs = scheduled.outputs
        self._values: dict[bool, tuple[Values, Values]] = {}

    def claims(self) -> Iterator[Claim]:
        """All that has to hold."""
        for kernel in range(len(self._scheduled.kernels)):
            yield "inside", kernel
            yield "races", kernel
        yield from (("result", name) for name in self._results())

    def decide(self, claim: Claim) -> Finding:
        """The verdict on a claim; an error of ISL when it takes too many operations."""
        self._spaces.begin()
        kind, about = claim
        kernel = self._kernel(about)
        name = self._scheduled.kernels[kernel] if kernel >= 0 else "the program"
        try:
            wrong = _DECIDE[kind](self, about)
        except Unsupported as reason:
            verdict = Verdict.EXCLUDED if str(reason).startswith(DATA) else Verdict.OPEN
            return Finding(name, _words(claim), verdict, str(reason))
        return Finding(name, _words(claim), Verdict.REFUTED if wrong else Verdict.PROVED, wrong)

    def too_hard(self, claim: Claim, seconds: float) -> Finding:
        """The finding where no answer came in time."""
        kernel = self._kernel(claim[1])
        name = self._scheduled.kernels[kernel] if kernel >= 0 else "the program"
        return Finding(name, _words(claim), Verdict.OPEN, f"no answer within {seconds:g} seconds")

    def _kernel(self, about: int | str) -> int:
        if isinstance(about, int):
            return about
        return max(self._scheduled.writers.get(about, ()), default=-1)

    def _results(self) -> list[str]:
        """What the scheduled kernels hand on that the unscheduled ones do, too, and every output."""
        common = [n for n in self._scheduled.handed if n in self._initial.handed and self._same_type(n)]
        outputs = {*self._outputs} - self._given
        return [n for n in common if n in self._scheduled.writers or n in outputs]

    def _same_type(self, name: str) -> bool:
        one, other = self._initial.handed[name].type, self._scheduled.handed[name].type
        return (one.dtype, one.sizes) == (other.dtype, other.sizes)

    def _sides(self, cut: bool) -> tuple[Values, Values]:
        """The values of both programs; with `cut` kernels take what others hand on as given."""
        if cut not in self._values:
            common = (n for n in self._scheduled.handed if n in self._initial.handed and self._same_type(n))
            taken = frozenset(common) if cut else frozenset[str]()
            flats = self._initial, self._scheduled
            one, other = (Values(self._spaces, flat, taken, self._given) for flat in flats)
            self._values[cut] = one, other
        return self._values[cut]

    # --- claims --------------------------------------------------------------------------------------

    def result(self, name: int | str) -> str:
        """What is wrong with a tensor that a kernel hands on."""
        assert isinstance(name, str)
        self._refuse(self._kernel(name))
        try:
            difference = self._difference(name, cut=True)
        except Unsupported:
            difference = None
        else:
            if difference is None:
                return ""
        difference = self._difference(name, cut=False)
        return self._told(name, difference) if difference else ""

    def _told(self, name: str, difference: Difference) -> str:
        """The cell, what is wrong in it, and the statement that stores it."""
        stores = [a for a in self._scheduled.accesses if a.writes and a.buffer.name == name]
        point = self._spaces.point(difference.point)
        reaching = [a for a in stores if not self._spaces.access(a).intersect_range(point).is_empty()]
        by = f" (stored by {_place((reaching or stores)[-1])})" if stores else ""
        return f"{cell(name, difference.point)}: {difference.message}{by}"

    def _difference(self, name: str, cut: bool) -> Difference | None:
        wanted, found = (side.result(name) for side in self._sides(cut))
        return differ(wanted, found)

    def inside(self, kernel: int | str) -> str:
        """An access that leaves its buffer."""
        assert isinstance(kernel, int)
        self._refuse(kernel)
        for access, at in outside(self._spaces, self._scheduled, kernel):
            return f"{_place(access)} takes {cell(access.buffer.name, at)}, outside its buffer or view"
        return ""

    def races(self, kernel: int | str) -> str:
        """Unordered points that meet in a cell, or a barrier that some threads miss."""
        assert isinstance(kernel, int)
        self._refuse(kernel)
        for race in races(self._spaces, self._scheduled, kernel):
            where = cell(race.one.buffer.name, race.cell)
            return f"{_place(race.one)} and {_place(race.other)} meet in {where} from different {race.between}"
        for barrier, point in divergent(self._spaces, self._scheduled, kernel):
            at = ", ".join(f"{x.name.split('.')[0]}={v}" for x, v in zip(barrier.loops, point, strict=True))
            return f"a barrier in {' / '.join(barrier.path)} is not reached by every thread: not at {at}"
        return ""

    def _refuse(self, kernel: int) -> None:
        if (reason := self._scheduled.unsupported.get(kernel)) is not None:
            raise Unsupported(reason)


_DECIDE: Mapping[str, Callable[[Prover, int | str], str]] = {
    "result": Prover.result,
    "inside": Prover.inside,
    "races": Prover.races,
}
_WORDS = {"inside": "accesses", "races": "races"}


def _words(claim: Claim) -> str:
    kind, about = claim
    return _WORDS.get(kind, f"{kind} {about}")


def _place(access: Access) -> str:
    statement = access.site.body[access.position]
    return f"{print_statement(statement).strip()!r} in {' / '.join(access.site.path)}"


def outside(spaces: Spaces, flat: Flat, kernel: int) -> Iterator[tuple[Access, tuple[int, ...]]]:
    """The accesses of a kernel that leave their buffer or view, and the cell that they take there."""
    for access in flat.accesses:
        if access.site.kernel == kernel:
            if access.clamped:
                beyond = spaces.access(access).range().subtract(spaces.box(access.buffer.shape))
                if not beyond.is_empty():
                    yield access, sample(beyond)
                continue
            rank = len(access.buffer.type.sizes)
            cell = [*zip(access.at[len(access.at) - rank :], access.buffer.type.sizes, strict=True)]
            for form, size in (*cell, *access.windows):
                if not _clear(access.site, form, size) and (found := _beyond(spaces, access, form, size)):
                    yield access, found
                    break


def _clear(site: Site, form: Form, size: int) -> bool:
    """True when the loops' ranges alone keep a form within [0, size)."""
    ranges = {loop.name: (0, loop.range - 1) for loop in site.loops}
    low = high = 0
    for part in form:
        if not isinstance(part, Affine):
            return False
        least, most = part.bounds(ranges)
        low, high = low + least, high + most
    return low >= 0 and high < size


def _beyond(spaces: Spaces, access: Access, form: Form, size: int) -> tuple[int, ...] | None:
    """The cell touched where a form is outside [0, size), if it ever is."""
    values = spaces.forms(access.site, (form,))
    context = values.get_ctx()
    below = isl.Set.universe(values.get_space().range()).upper_bound_val(DIM, 0, isl.Val.int_from_si(context, -1))
    above = isl.Set.universe(values.get_space().range()).lower_bound_val(DIM, 0, isl.Val.int_from_si(context, size))
    wrong = values.intersect_range(below.union(above)).domain()
    if wrong.is_empty():
        return None
    return sample(spaces.access(access).intersect_domain(wrong).range())
