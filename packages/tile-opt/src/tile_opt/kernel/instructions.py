"""Which loops and operands of a kernel are those of a matrix instruction: whether a body has the instruction's meaning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import permutations, product
from math import prod

from tile_ir.dots import DOTS
from tile_ir.frozen import frozen, replace
from tile_ir.matrix import HALF_BYTES, LANES, MATRIX_INSTRUCTIONS, ROLES, MatrixInstruction
from tile_ir.stripe.affine import Affine, names_in
from tile_ir.stripe.nodes import Const, Load, Op, Store
from tile_ir.target import Target

from tile_opt.kernel.view import KernelView, Stage, Use
from tile_opt.kernel.work import is_heavy, merged_use


def usable(target: Target) -> list[MatrixInstruction]:
    """The target's instructions of sub-groups whose rounding is allowed, the preferred ones first."""
    if target.machine.subgroup != LANES:
        return []
    named = (MATRIX_INSTRUCTIONS[name] for name in target.matrix)
    return [i for i in named if i.lanes == LANES and (i.is_exact or target.options.rounds(i.a.dtype))]


@frozen
class Bound:
    """A constraint that one factor's subscript p of a dimension tells: ``sign * p + const >= 0``."""

    factor: str
    dim: int
    sign: int
    const: int


@frozen
class Match:
    """A stage that does what an instruction does; `left` and `right` are the local names of its factors."""

    instruction: MatrixInstruction
    main: Stage
    loops: tuple[tuple[str, str], ...]
    """(role, loop)."""
    left: str
    right: str
    bounds: tuple[Bound, ...] = ()
    """The stage's constraints: where they fail, a factor that is 0 instead leaves out the product, if the other is finite."""
    cuts: tuple[Affine, ...] = ()
    """Those over several loops: they leave out whole steps, and of others part of a factor, in the same way, or of the results."""

    @property
    def factors(self) -> tuple[Use, Use]:
        """The first one, then the second."""
        return self.main.use(self.left), self.main.use(self.right)


def matches(view: KernelView, instruction: MatrixInstruction) -> list[Match]:
    """Every way in which the kernel's one stage with loops of its own is the instruction, least padding first."""
    return [m for way in _ways(view, instruction) if (m := _bounded(view, way)) is not None]


def match_of(view: KernelView, instruction: MatrixInstruction, loops: Mapping[str, str]) -> Match | None:
    """The match with these loops by role."""
    way = next((m for m in _ways(view, instruction) if dict(m.loops) == loops), None)
    return None if way is None else _bounded(view, way)


def _ways(view: KernelView, instruction: MatrixInstruction) -> list[Match]:
    """The matches if the stage had no constraints."""
    looping = [s for s in view.stages if s.loops]
    if len(looping) != 1 or not _is_meant(view, looping[0], instruction):
        return []
    (main,) = looping
    pairs = [pair for pair in permutations(_factors(main)) if _is_in_order(view, main, instruction, *pair)]
    assigned = (
        [m for p in pairs for m in _assigned(view, main, instruction, least, *p)] for least in _least(instruction)
    )
    return sorted(next(filter(None, assigned), list[Match]()), key=lambda m: volume(view, m))


def _bounded(view: KernelView, way: Match) -> Match | None:
    """The match with what the stage's constraints tell of its factors, and of steps; None where one tells something else."""
    bounds, cuts = list[Bound](), list[Affine]()
    for constraint in _kept(view, way.main):
        bound = _bound(view, way.factors, constraint)
        if bound is not None:
            bounds.append(bound)
        elif _cuts(way, constraint):
            cuts.append(constraint)
        else:
            return None
    return replace(way, bounds=tuple(bounds), cuts=tuple(cuts))


def allowed(match: Match, target: Target) -> bool:
    """Products with a zero may stand for those that are left out: NaN where the other factor is infinite, which integers are not."""
    zeros = match.bounds or any(dict(match.loops)["k"] in c.names for c in match.cuts)
    return not zeros or not match.instruction.c.dtype.is_float or target.options.rounds(match.instruction.a.dtype)


def _cuts(way: Match, constraint: Affine) -> bool:
    """The constraint is about steps of the only reduction: of a factor of sub-groups, rows or columns along the depth, or of results."""
    loops, names = dict(way.loops), {*constraint.names}
    one = way.instruction.lanes == LANES and len(way.main.loops) == 1
    return one and not {loops["m"], loops["n"], loops["k"]} <= names


def _least(instruction: MatrixInstruction) -> Iterator[dict[str, int]]:
    """Iterations that the loops of each role have at least; then those that do where no loops have so many.

    For a sub-group no side is shorter than the instruction's, or half its depth. Of a team's rows and columns, which are
    many, more than half are there, else half of the columns and two rows: these take as long as memory gives what they are
    multiplied with. One lane takes what was filled up for it.
    """
    sides = instruction.sides
    if instruction.lanes == 1:
        yield dict.fromkeys(sides, 1)
    elif instruction.team == 1:
        yield {**sides, "k": sides["k"] // 2}
    else:
        yield {role: size // 2 + (role != "k") for role, size in sides.items()}
        yield {"m": 1, "n": sides["n"] // 2, "k": sides["k"] // 4}


def _factors(main: Stage) -> list[Use]:
    return [u for u in main.uses if u.reads and not u.writes]


def _is_meant(view: KernelView, main: Stage, instruction: MatrixInstruction) -> bool:
    """A local aggregation of two operands' product, with the dtypes of the instruction."""
    out = merged_use(main)
    cells = all(size == 1 for a in view.allocs for size in a.type.sizes)
    constrained = view.constraints or main.guard
    if out is None or not cells or constrained or not is_heavy(view, main):
        return False
    factors = _factors(main)
    inside = [u for u in (*factors, out) if view.is_local(u.buffer)]
    summed = view.type_of(out.buffer).dtype is instruction.c.dtype
    return inside == [out] and len(factors) == 2 and summed and _has_body(main, out, instruction)


def _has_body(main: Stage, out: Use, instruction: MatrixInstruction) -> bool:
    """It loads two operands, widens them at most, and merges what the instruction's operation makes of them."""
    ops = [s for s in main.body if isinstance(s, Op)]
    loads = [s for s in main.body if isinstance(s, Load)]
    direct = all(isinstance(s, (Load, Op, Const)) or (isinstance(s, Store) and not s.at) for s in main.body)
    read = {s.dst for s in loads}
    # A cast to anything else drops digits, or a range, that the operand in memory still has.
    widened = all(o.dtype is instruction.c.dtype and set(o.args) <= read for o in ops if o.name == "cast")
    names = [o.name for o in ops if o.name != "cast"]
    zeros = {s.dst for s in main.body if isinstance(s, Const) and s.value == 0}
    direct = direct and all(set(o.args) <= read | zeros for o in ops if o.name in DOTS)
    plain = direct and widened and names == [instruction.product] and len(loads) == 2 and not any(s.at for s in loads)
    return out.agg is instruction.agg and plain


def _is_in_order(view: KernelView, main: Stage, instruction: MatrixInstruction, left: Use, right: Use) -> bool:
    """The factors have their dtypes, which may differ; a dot product's first one is the left one."""
    if [view.type_of(u.buffer).dtype for u in (left, right)] != [instruction.a.dtype, instruction.b.dtype]:
        return False
    dot = DOTS.get(instruction.product)
    if dot is None or dot.a is dot.b:
        return True
    product = next(s for s in main.body if isinstance(s, Op) and s.name == dot.name)
    sources = {s.dst: s.src for s in main.body if isinstance(s, Load)}
    return [sources.get(a) for a in product.args[:2]] == [left.name, right.name]


def _assigned(
    view: KernelView, main: Stage, instruction: MatrixInstruction, least: Mapping[str, int], left: Use, right: Use
) -> Iterator[Match]:
    """The loops that the roles may have with these factors."""
    shared, own = [i.name for i in view.loops], [i.name for i in main.loops]
    mine, others = names_in(left.forms), names_in(right.forms)
    rows = [n for n in shared if n in mine and n not in others]
    columns = [n for n in shared if n in others and n not in mine]
    depth = [n for n in own if n in mine and n in others]
    for chosen in product(rows, columns, depth):
        loops: dict[str, str] = dict(zip(ROLES, chosen, strict=True))
        long = all(view.ranges[loops[role]] >= size for role, size in least.items())
        if long and all(is_box(u, set(chosen)) for u in (left, right)):
            yield Match(instruction, main, tuple(loops.items()), left.name, right.name)


def _kept(view: KernelView, main: Stage) -> Iterator[Affine]:
    """The stage's constraints.

    What is constrained by the shared loops alone, for all that leaves the kernel too, may be computed, and is dropped.
    """
    results = [set(s.constraints) for s in view.stages if any(u.writes and not view.is_local(u.buffer) for u in s.uses)]
    dropped = set[Affine].intersection(*results) if results else set[Affine]()
    yield from (c for c in main.constraints if c not in dropped)


def _bound(view: KernelView, factors: tuple[Use, ...], constraint: Affine) -> Bound | None:
    """The constraint by a factor's subscript; None when it is about something else."""
    ways = {
        Bound(use.name, dim, sign, (constraint * times - form * sign).const): stride == 1
        for use in factors
        for dim, (form, stride) in enumerate(zip(use.forms, view.type_of(use.buffer).strides, strict=True))
        for sign, times in _multiples(constraint, form)
    }
    # Whole rows are left out at once; of a row, what is left may be anything.
    return min(ways, key=lambda way: ways[way], default=None)


def _multiples(constraint: Affine, form: Affine) -> Iterator[tuple[int, int]]:
    """(sign, times): so many times the constraint is the form, or its negative, but for a constant."""
    for name, step in form.terms[:1]:
        own = constraint.coefficient(name)
        sign, times = (1, step // own) if own * step > 0 else (-1, step // -own if own else 0)
        if times and (constraint * times - form * sign).is_const:
            yield sign, times


def is_box(use: Use, loops: set[str]) -> bool:
    """Along these loops the operand is a box: each walks one subscript upwards, and no two the same."""
    walked = [[(n, c) for n, c in f.terms if n in loops] for f in use.forms]
    steps = [term for terms in walked for term in terms]
    alone = all(len(terms) <= 1 for terms in walked) and len({n for n, _ in steps}) == len(steps)
    return alone and all(c > 0 for _, c in steps)


def volume(view: KernelView, match: Match) -> int:
    """Points that whole instructions compute."""
    sides = match.instruction.sides
    return prod(-(-view.ranges[loop] // sides[role]) * sides[role] for role, loop in match.loops)


def feeds(instruction: MatrixInstruction) -> bool:
    """Lanes hold sums where they hold a first factor made of them, some matrices side by side; or weights may lie in any order."""
    a, c = instruction.a, instruction.c
    (rows, columns), (tall, wide) = a.sizes, c.sizes
    points = ((i, j) for i in range(rows) for j in range(columns))
    if instruction.team > 1:  # weights go through local memory
        return instruction.a.dtype.bytes == HALF_BYTES
    fits = rows == tall and columns % wide == 0
    return fits and all(a.place(i, j)[0] == c.place(i, j % wide)[0] for i, j in points)
