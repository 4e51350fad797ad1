"""Copies along another loop than their source: through registers, a tile of vectors at a time."""

from __future__ import annotations

from collections.abc import Set

from tile_ir.frozen import frozen, replace
from tile_ir.stripe.affine import names_in
from tile_ir.stripe.nodes import Bind, Index

from tile_opt.kernel.segments import cover_exactly, cover_masked
from tile_opt.kernel.strides import decided_outside
from tile_opt.kernel.view import Stage, Use
from tile_opt.plan.steps.bind import Binding, bind
from tile_opt.plan.steps.distribute import distribute, gathered
from tile_opt.plan.steps.edges import Tiling, tile
from tile_opt.plan.steps.split import hoist
from tile_opt.plan.steps.stage import Copy, stage_input
from tile_opt.plan.tree import REGISTER, Around, Nest, Node, innermost, map_stages, spans

SIDE = 16
"""Vectors of a tile at most: with what the shuffles make of them they fill a register file of 32, and code grows with their square."""


def transposed(stage: Stage, along: str, lanes: int, name: str, around: Around, masked: Set[str]) -> Node:
    """A copy that writes along one loop and reads along another, by tiles that are transposed in registers.

    Tiles at the ends of `masked` loops are whole but for lanes that take no part. The stage itself where no loop is
    contiguous in what it reads.
    """
    found = _across(stage, along, around)
    if found is None:
        return stage
    source, other = found
    if _is_tile(stage, other, around):
        row = Binding(Bind.VECTOR, max(min(lanes, SIDE), other.range))
        return bind(stage, {along: Binding(Bind.UNROLL), other.name: row}, (along, other.name))
    return _in_tiles(gathered(stage), source, (other, _loop(stage, along)), Tiles(lanes, name, masked), around)


def turned(stage: Stage, along: str, lanes: int, name: str, around: Around, masked: Set[str]) -> Node:
    """The same for a stage that computes what it writes, with its other loops around the tiles."""
    found = _across(stage, along, around)
    if found is None:
        return stage
    source, other = found
    nest = hoist(gathered(stage), *(n for n in stage.loop_names if n not in (along, other.name)))
    return _in_tiles(nest, source, (other, _loop(stage, along)), Tiles(lanes, name, masked), around)


@frozen
class Tiles:
    """Vectors of so many lanes, in registers of that name; those at the ends of `masked` loops are whole."""

    lanes: int
    name: str
    masked: Set[str]


def _in_tiles(nest: Nest, source: Use, loops: tuple[Index, Index], tiles: Tiles, around: Around) -> Node:
    """The stage of `nest` in tiles of both loops, read along the first one and written along the second."""
    lanes, (other, along) = min(tiles.lanes, SIDE), (i.name for i in loops)
    for loop in loops:
        cover = cover_masked(0, loop.range, lanes, lanes) if loop.name in tiles.masked else ()
        segments = cover or cover_exactly(loop.range, lanes, lanes)
        tiling = Tiling(loop.name, segments, f"{loop.name}_v", size=min(lanes, loop.range))
        nest = innermost(nest, lambda n, a, t=tiling: tile(n, t, a), around)
    nest = innermost(nest, lambda n, a: _through_registers(n, source.buffer, tiles.name, (along, other), a), around)
    nest = innermost(nest, lambda n, _: distribute(n), around)
    return map_stages(nest, lambda s: _bound(_settled(s), along, other, lanes, tiles.name))


def _loop(stage: Stage, name: str) -> Index:
    return next(i for i in stage.loops if i.name == name)


def _across(stage: Stage, along: str, around: Around) -> tuple[Use, Index] | None:
    """What the stage reads apart along a loop, and the loop along which it lies side by side; None where none does."""
    source = next((u for u in stage.uses if u.reads and around.stride(u, along) not in (0, 1)), None)
    other = None if source is None else _contiguous(stage, source, along, around)
    return None if source is None or other is None else (source, other)


def _is_tile(stage: Stage, other: Index, around: Around) -> bool:
    """What the copy writes lies in registers as its source does: it is the tile itself."""
    target = next(u for u in stage.uses if u.writes)
    return around.in_registers(target.buffer) and around.stride(target, other.name) == 1 and other.range <= SIDE


def _contiguous(stage: Stage, use: Use, along: str, around: Around) -> Index | None:
    found = (i for i in stage.loops if i.name != along and i.bind is Bind.NONE and around.stride(use, i.name) == 1)
    return next(found, None)


def _through_registers(nest: Nest, buffer: str, name: str, loops: tuple[str, str], around: Around) -> Nest:
    """A tile, read from registers: those of its loops that a remainder has; what has neither is a single element."""
    order = tuple(n for n in loops if nest.loop(n) is not None)
    # Where the tile's loops are all that its constraints are about, these keep it within the operand.
    inside = {*around.ranges, *order}.issuperset(names_in(nest.constraints))
    return stage_input(nest, Copy(buffer, name, order, REGISTER, inside=inside), around) if order else nest


def _settled(stage: Stage) -> Stage:
    """Constraints that no iteration of the tile decides are about the loops around it alone: one test for all of it."""
    tile = spans(stage.loops)
    return replace(stage, constraints=tuple(decided_outside(c, tile) for c in stage.constraints))


def _bound(stage: Stage, along: str, other: str, lanes: int, name: str) -> Stage:
    """The copy into registers runs along `other`, the one out of them along `along`."""
    loads = any(u.writes and u.buffer == name for u in stage.uses)
    unrolled, vector = (along, other) if loads else (other, along)
    return bind(stage, {unrolled: Binding(Bind.UNROLL), vector: Binding(Bind.VECTOR, lanes)}, (unrolled, vector))
