"""Staging operands in local memory: what a tile of work reads of a buffer, and how items copy it.

The part of a buffer that a group reads during one step is a box: per dimension, the subscript's outer part
is the corner and its inner loops give the extent. Items copy the box together: consecutive items along the
dimension that is contiguous in memory, four elements at a time where that divides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from math import gcd, prod

from tile_ir.frozen import frozen
from tile_ir.powers import power_of_two
from tile_ir.stripe.affine import Affine, DivMod, DivModOp, Quasi
from tile_ir.stripe.nodes import Bind, Index, TensorType

WIDEST = 16
"""Bytes of the widest access."""
TURNED = 4
"""Neighbours across rows that an item copies where rows of the copy run across those of what is copied."""
NARROWEST = 4
"""Bytes below which neighbouring elements are not copied one by one where they need not be."""


@frozen
class Box:
    """A staged part of a buffer, dimensions in the buffer's order."""

    corner: tuple[Affine, ...]
    extents: tuple[int, ...]
    inside: tuple[Affine, ...]
    """The subscript inside the box, over inner loops."""
    steps: tuple[int, ...]
    """Elements of the buffer between neighbours of the box, per dimension."""


def box_of(forms: tuple[Affine, ...], inner: Mapping[str, int]) -> Box:
    """The box that forms cover while each inner loop runs over [0, its range).

    Of a dimension that loops walk in steps it has only what they touch: every so-many-th element.
    """
    corner: list[Affine] = []
    extents: list[int] = []
    inside: list[Affine] = []
    steps: list[int] = []
    for form in forms:
        inner_terms = [(n, c) for n, c in form.terms if n in inner]
        steps.append(gcd(*(c for _, c in inner_terms)) or 1)
        inner_terms = [(n, c // steps[-1]) for n, c in inner_terms]
        low = sum(c * (inner[n] - 1) for n, c in inner_terms if c < 0)
        high = sum(c * (inner[n] - 1) for n, c in inner_terms if c > 0)
        corner.append(Affine.of([(n, c) for n, c in form.terms if n not in inner], form.const + low * steps[-1]))
        inside.append(Affine.of(inner_terms, -low))
        extents.append(high - low + 1)
    return Box(tuple(corner), tuple(extents), tuple(inside), tuple(steps))


@frozen
class CopyPlan:
    """Loops of an item's share of a copy: box subscripts per dimension, and what keeps them inside the box."""

    loops: tuple[Index, ...]
    subscripts: tuple[Quasi, ...]
    """Position in the box per dimension."""
    parts: tuple[tuple[Affine, Quasi | None], ...]
    """The same as a plain form plus at most one quotient or remainder of the item number."""
    constraints: tuple[Quasi, ...]
    lanes: int
    turned: str = ""
    """The loop along rows of what is copied to, where that is not the one along rows of what is copied from."""


def copy_plan(
    name: str,
    extents: Sequence[int],
    contiguous: int,
    lanes: int,
    cuts: Iterable[Sequence[Run]],
    turned: int | None = None,
) -> CopyPlan:
    """Spread a box over work items, `lanes` elements of dimension `contiguous` at a time.

    `cuts` are ways to take the item's number in parts, the fastest first, each of which may count along two dimensions: it
    is taken by the one that leaves an item the least to do. An item has `TURNED` neighbours of the dimension `turned`, too.
    """
    counts, order = _counted(extents, contiguous, lanes, turned)
    dealt = min((deal([counts[d] for d in order], runs) for runs in cuts), key=lambda dealt: dealt.repeats)
    loops: list[Index] = []
    parts: list[tuple[Affine, Quasi | None]] = [(Affine(), None)] * len(counts)
    constraints: list[Quasi] = []
    for d, (share, digit) in zip(order, dealt.digits, strict=True):
        index = Index(f"{name}_{d}", -(-counts[d] // share), bind=Bind.UNROLL)
        plain = Affine.var(index.name, share) if index.range > 1 else Affine()
        if index.range > 1:
            loops.append(index)
        if index.range * share > counts[d]:
            constraints.append(negated(_sum(Affine(), plain, digit), counts[d] - 1))
        parts[d] = (plain, digit)
    if turned is not None:
        loops.append(Index(f"{name}_t", TURNED, bind=Bind.UNROLL))
        plain, digit = parts[turned]
        rest = None if digit is None else _scaled(digit, TURNED)
        parts[turned] = plain * TURNED + Affine.var(loops[-1].name), rest
    if lanes > 1:
        loops.append(Index(f"{name}_e", lanes, bind=Bind.VECTOR, lanes=lanes))
        plain, digit = parts[contiguous]
        parts[contiguous] = plain * lanes + Affine.var(loops[-1].name), None if digit is None else _scaled(digit, lanes)
    subscripts = tuple(_sum(Affine(), p, q) for p, q in parts)
    where = (*constraints, *dealt.idle)
    return CopyPlan(tuple(loops), subscripts, tuple(parts), where, lanes, f"{name}_t" if turned is not None else "")


def _counted(extents: Sequence[int], contiguous: int, lanes: int, turned: int | None) -> tuple[list[int], list[int]]:
    """Pieces of the box along each dimension, and the order in which items go along the dimensions."""
    counts = list(extents)
    counts[contiguous] //= lanes
    order = [contiguous, *sorted((d for d in range(len(counts)) if d != contiguous), key=lambda d: -counts[d])]
    if turned is not None:
        counts[turned] //= TURNED
        # Rows of `lanes` elements lie on few banks where they are put: neighbouring items go along the other ones first.
        order = [turned, *(d for d in order if d != turned)] if lanes > 1 else order
    return counts, order


def pieces(width: int) -> tuple[int, ...]:
    """Elements of `width` bytes that one access may move, most first: 16, 8 or 4 bytes."""
    return tuple(b // width for b in (WIDEST, WIDEST // 2, NARROWEST) if b > width)


def in_pieces(box: Box, whole: TensorType, contiguous: int, lanes: int) -> bool:
    """Whether rows of the box are neighbours in memory that start and end on multiples of `lanes` elements."""
    if not box.extents:
        return False
    others = (s for d, s in enumerate(whole.strides) if d != contiguous and whole.sizes[d] > 1)
    aligned = all(s % lanes == 0 for s in others)
    corner = box.corner[contiguous]
    starts = corner.const % lanes == 0 and all(c % lanes == 0 for _, c in corner.terms)
    neighbours = whole.strides[contiguous] == 1 and box.steps[contiguous] == 1
    return neighbours and box.extents[contiguous] % lanes == 0 and aligned and starts


@frozen
class Run:
    """A part of the item's number: a form that takes the values [0, size)."""

    number: Affine
    size: int


@frozen
class Dealt:
    """How items share the dimensions of a box."""

    digits: tuple[tuple[int, Quasi | None], ...]
    """Per dimension: how many items lie along it, and the number of this one."""
    idle: tuple[Quasi, ...]
    """Each >= 0 for the items that take part."""
    repeats: int
    """Elements that one item copies."""


def deal(counts: Sequence[int], runs: Sequence[Run]) -> Dealt:
    """The fewest repeats that items, in parts `runs`, can share boxes of these counts with; a part counts along two dimensions."""
    left = [2] * len(runs)
    shared = [d for d, c in enumerate(counts) if c > 1][: sum(left)]
    tries = product(*([power_of_two(counts[d]), counts[d]] for d in shared))
    found = (_dealt(counts, runs, dict(zip(shared, wanted, strict=True))) for wanted in dict.fromkeys(tries))
    return min(found, key=lambda dealt: dealt.repeats)


def _dealt(counts: Sequence[int], runs: Sequence[Run], wanted: dict[int, int]) -> Dealt:
    digits: list[tuple[int, Quasi | None]] = []
    idle: list[Quasi] = []
    rest = list(runs)
    below = 1
    for d in range(len(counts)):
        share, digit = 1, None
        while rest and wanted.get(d, 1) > 1 and share == 1:
            run = rest[0]
            share = min(run.size // below, wanted[d])
            second = below > 1
            if share > 1:
                digit = _digit(run.number, below, share, run.size)
                below *= share
            if second or share == 1 or below == run.size:
                if below < run.size:
                    idle.append(DivMod(run.number, below, DivModOp.DIV, -1))
                rest.pop(0)
                below = 1
        digits.append((share, digit))
    for run in rest:
        if below < run.size:
            idle.append(DivMod(run.number, below, DivModOp.DIV, -1))
        below = 1
    repeats = prod(-(-c // share) for c, (share, _) in zip(counts, digits, strict=True))
    return Dealt(tuple(digits), tuple(idle), repeats)


def _digit(item: Affine, below: int, share: int, items: int) -> Quasi:
    """The part of the item number that counts along one dimension."""
    if below == 1:
        return item if share == items else DivMod(item, share, DivModOp.MOD)
    # Numbers beyond below * share idle: the caller's constraint holds them back.
    return DivMod(item, below, DivModOp.DIV)


def _scaled(digit: Quasi, factor: int) -> Quasi:
    if isinstance(digit, Affine):
        return digit * factor
    return DivMod(digit.num, digit.den, digit.op, digit.scale * factor, digit.plus * factor)


def _sum(base: Affine, plain: Affine, digit: Quasi | None) -> Quasi:
    if digit is None:
        return base + plain
    if isinstance(digit, Affine):
        return base + plain + digit
    return DivMod(digit.num, digit.den, digit.op, digit.scale, digit.plus + plain + base)


def negated(form: Quasi, plus: Affine | int) -> Quasi:
    """``plus - form``."""
    if isinstance(form, Affine):
        return form * -1 + plus
    return DivMod(form.num, form.den, form.op, -form.scale, form.plus * -1 + plus)


def global_subscripts(box: Box, plan: CopyPlan) -> tuple[Quasi, ...]:
    """Positions in the whole buffer of what a copy touches."""
    return tuple(
        _sum(c, p * s, None if q is None else _scaled(q, s))
        for c, (p, q), s in zip(box.corner, plan.parts, box.steps, strict=True)
    )
