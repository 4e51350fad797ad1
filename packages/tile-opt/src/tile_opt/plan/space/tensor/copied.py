"""Contractions by teams of sub-groups on copies of their factors: rounded, and in rows that teams can read.

A team multiplies straight from local memory, where nothing rounds float32 on the way, and reads it along the depth alone.
A kernel of its own rounds and turns a whole factor, for all groups and taps that read it. Factors of 16 bits are copied
where rows begin where no 16 bytes do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from tile_ir.matrix import PANEL_BYTES
from tile_ir.powers import power_of_two
from tile_ir.semtree.nodes import TensorCopy
from tile_ir.stripe.affine import Affine
from tile_ir.target import Target

from tile_opt.kernel.instructions import Match, match_of
from tile_opt.kernel.view import KernelView, Use
from tile_opt.plan.builders.tensor_plans import factors
from tile_opt.plan.panels import copied_before, is_alone
from tile_opt.plan.plan import Instruction, Plan, Staging
from tile_opt.plan.space.gpu.copied import copy_seconds
from tile_opt.plan.space.tensor.later import Later
from tile_opt.plan.space.tensor.ranked import CopiedTile, Copies, Ranked
from tile_opt.plan.space.tensor.shares import Shared, shared
from tile_opt.plan.space.tensor.taps import tapped
from tile_opt.plan.space.tensor.tile import TAPPED, Tile
from tile_opt.plan.space.tensor.tiles import tiles_of
from tile_opt.plan.space.tensor.way import Way
from tile_opt.plan.steps.groups.banks import COPY_BYTES, in_panels, takes_copies


def variants(view: KernelView, found: Sequence[Tile]) -> Iterator[Later[Tile | Shared]]:
    """The same tiles in steps of several taps, and those of which groups share the reduction."""
    if found:
        team = found[0].instruction.team > 1
        least = min(t.way.least_seconds for t in found)
        yield Later(least * (TAPPED[0] if team else 1), lambda: tapped(found))
        yield Later(least, lambda: shared(view, found))


def copied_tiles(view: KernelView, ways: Iterable[Match], target: Target) -> Iterator[Ranked | Later[Ranked]]:
    """Every tile on copies of those factors that have to be copied; none where none has, or both are one buffer.

    Where only rounding asks for it, the first one need not be copied: items round what they read. Neither need be where tensor
    copies round the second one, or both.
    """
    turned: dict[tuple[Staging, ...], Copies] = {}
    for match in ways:
        left, right = match.factors
        if any(view.is_local(u.buffer) for u in (left, right)):
            continue
        boxes = _in_boxes(view, match, target) or _in_boxes(view, match, target, rounded=True)
        yield from (*boxes, *variants(view, boxes))
        several = len(factors(match)) > 1
        for uses in ((left, right), (right,)) if takes_copies(match.instruction) else ((left, right),):
            stagings = tuple(s for use in uses if several and (s := _staging(view, match, use)) is not None)
            if stagings:
                copies = turned[stagings] = turned.get(stagings) or _turned(view, match, stagings, target)
                least = Way(view, match, target).least_seconds + copies.seconds
                yield Later(least, partial(_on_copies, copies, match, target, rounded=len(uses) < 2))


def _turned(view: KernelView, match: Match, stagings: tuple[Staging, ...], target: Target) -> Copies:
    """The kernel on these copies, whatever instruction it takes."""
    named = Plan((), stagings, instruction=Instruction(match.instruction.name, match.loops))
    turned, _, panels = copied_before(view, named)
    return Copies(turned, stagings, panels, copy_seconds(view, panels, target.machine))


def _on_copies(
    copies: Copies, match: Match, target: Target, *, rounded: bool
) -> Iterator[CopiedTile | Later[CopiedTile]]:
    """Every tile on copies of both factors, or of all but the first one, which items round then."""
    inner = match_of(copies.view, match.instruction, dict(match.loops))
    if inner is not None:
        # What copies have rounded takes no tensor copies: those of 16 bytes bring it sooner.
        whole = len(copies.stagings) == len(factors(match))
        boxes = [] if whole else _in_boxes(copies.view, inner, target)
        found = boxes or [*tiles_of(copies.view, inner, target, rounded=rounded)]
        yield from copies.of((*found, *variants(copies.view, found)))


def _in_boxes(view: KernelView, match: Match, target: Target, *, rounded: bool = False) -> list[Tile]:
    """Every tile whose factors are brought by tensor copies, but the first one where items round that; none where none may be built."""
    able = takes_copies(match.instruction) and TensorCopy.__name__ in target.nodes
    found = list(tiles_of(view, match, target, rounded=rounded, boxes=True)) if able else []
    return found if any(tile.may_be_built for tile in found) else []


def _staging(view: KernelView, match: Match, use: Use) -> Staging | None:
    """The copy of a factor; None where it may lie as it does, or no loop alone walks a dimension of it."""
    source = view.type_of(use.buffer)
    unit = COPY_BYTES // source.dtype.bytes
    if not takes_copies(match.instruction) and _lies_in_pieces(view, match, use, unit):
        return None
    walked = [_first(view, match, use, d) for d, form in enumerate(use.forms) if form.terms]
    last = _last(view, match, use, [n for n in walked if n], unit)
    if last is None or None in walked:
        return None
    order = (*(n for n in walked if n is not None and n != last), last)
    size = next(s for s, f in zip(source.sizes, use.forms, strict=True) if last in f.names)
    # Rows cross no more lines of a cache than they have to (an H200: those of 20 floats took 2.3 times as long as of 32).
    whole = max(unit, min(PANEL_BYTES // source.dtype.bytes, power_of_two(size)))
    return Staging(use.buffer, -1, "DRAM", order, pad=-size % whole)


def _lies_in_pieces(view: KernelView, match: Match, use: Use, unit: int) -> bool:
    """Its rows begin and end on multiples of `unit` wherever they are read."""
    strides = view.type_of(use.buffer).strides
    rows = [form for form, stride in zip(use.forms, strides, strict=True) if stride == 1 and form.terms]
    if match.instruction.along_depth and not any(dict(match.loops)["k"] in form.names for form in rows):
        return False
    return all(s % unit == 0 for s in strides if s > 1) and all(_in_pieces(view, match, form, unit) for form in rows)


def _in_pieces(view: KernelView, match: Match, form: Affine, unit: int) -> bool:
    """A loop of the instruction walks whole pieces of `unit`, and the others go from piece to piece.

    Columns do where those of an instruction make whole panels; rows are those of a team at least, and do.
    """
    sides, line = dict(match.loops), PANEL_BYTES // match.instruction.a.dtype.bytes
    lengths = {"m": True, "n": in_panels(match.instruction.sides["n"], line), "k": view.ranges[sides["k"]] % unit == 0}
    whole = {n for role, n in sides.items() if lengths[role]}
    return form.const % unit == 0 and all(c % unit == 0 or (c == 1 and n in whole) for n, c in form.terms)


def _last(view: KernelView, match: Match, use: Use, walked: list[str], unit: int) -> str | None:
    """The loop along rows of the copy: the depth in whole pieces, another side, or the depth with zeros behind it.

    Only the depth where the instruction reads nothing else.
    """
    sides = dict(match.loops)
    form = {n: next(f for f in use.forms if n in f.names) for n in walked}
    pieces = [n for n in sides.values() if n in walked and _in_pieces(view, match, form[n], unit)]
    if sides["k"] in pieces or (pieces and not match.instruction.along_depth):
        return sides["k"] if sides["k"] in pieces else pieces[0]
    return sides["k"] if sides["k"] in walked and is_alone(view, use, sides["k"]) else None


def _first(view: KernelView, match: Match, use: Use, dim: int) -> str | None:
    """The loop that names a dimension, which walks no other one: of the instruction's, the results', or any."""
    sides, results = dict(match.loops).values(), {i.name for i in view.loops}
    names = [n for n in use.forms[dim].names if sum(n in f.names for f in use.forms) == 1]
    return min(names, key=lambda n: (n not in sides, n not in results), default=None)
