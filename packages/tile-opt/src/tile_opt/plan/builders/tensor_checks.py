"""What keeps a plan with a matrix instruction of sub-groups from being built."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from math import prod

from tile_ir.matrix import CHUNK_BYTES, PANEL_BYTES
from tile_ir.semtree.verify_matrix import MOST_DIMENSIONS, MOST_ELEMENTS, MOST_STEP, STRIDE_BYTES
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Bind, TensorType

from tile_opt.kernel.instructions import Match, is_box
from tile_opt.kernel.view import KernelView, Use
from tile_opt.plan.builders.tensor_cuts import may_cut
from tile_opt.plan.builders.tensor_plans import (
    LEVELS,
    beside_rows,
    by_tensor_copies,
    factors,
    in_registers,
    in_tile,
    pad_of,
    swizzle_of,
)
from tile_opt.plan.builders.tensor_tiles import TensorTile
from tile_opt.plan.panels import is_alone
from tile_opt.plan.plan import TF32, Plan
from tile_opt.plan.steps.groups.banks import in_panels, takes_copies
from tile_opt.plan.steps.groups.copy import GroupCopy

COPIED_BYTES = 8
"""Of a piece of a factor of 16 bits that goes straight to a team's local memory, at least (an H200: by pieces of 4, of which there are as many again,
1646x1130x1560 of float16 took 34 µs, 29 with rows that were padded before; by 8 1036x2044x1540 took 42, and 47)."""


def problems(view: KernelView, match: Match, plan: Plan) -> Iterator[str]:
    """What keeps a plan from being built, a sentence each."""
    if tuple(level.bind for level in plan.levels) != LEVELS:
        yield "a matrix instruction takes four levels: grid, subgroup, serial and unroll"
        return
    copies = [s for s in plan.stagings if s.unit == "LOCAL" and s.level == LEVELS.index(Bind.NONE)]
    if {s.operand for s in copies} != factors(match) or any(s.dtype not in ("", TF32) for s in copies):
        yield "both factors of a matrix instruction are staged in LOCAL under the serial level, as they are"
        return
    tile = TensorTile(view, match, plan)
    if any(s.versions < 2 for s in copies) and not tile.once:
        yield "steps of a matrix instruction take turns in 2 versions or more of LOCAL"
        return
    for loop, outer, inner in _nested_sizes(view, match, plan):
        if outer % inner:
            yield f"{outer} iterations of {loop!r} are no multiple of {inner}"
    yield from _team_problems(tile)
    if match.instruction.team == 1 and any(c.limits and not c.in_rows for c in tile.boxes):
        yield "what is copied of a factor ends within a piece of neighbours that are none in local memory"
    if not may_cut(tile):
        yield "what constraints leave out of steps are parts of one factor each, in steps of one tap"
    if _slide_along_rows(tile):
        yield "steps have several taps only of windows that slide across rows in local memory, not along them"
    if not _taps_end_alike(tile):
        yield "where the last step is shallower, neighbours along the depth lie farther apart than a step's taps"
    left, right = (match.main.use(name) for name in (match.left, match.right))
    beside = set(beside_rows(view, match, plan))
    if not is_box(left, beside | {loop for _, loop in match.loops}) or any(
        n in beside for f in right.forms for n in f.names
    ):
        yield "a group covers several iterations only of loops that its rows, its columns, or the first factor alone follow"


def _team_problems(tile: TensorTile) -> Iterator[str]:
    """What keeps a team of sub-groups from sharing the plan's tiles."""
    view, match, plan = tile.view, tile.match, tile.plan
    team, sides = match.instruction.team, match.instruction.sides
    if team == 1:
        return
    loops = dict(match.loops)
    group, warp = ({i.name: plan.tile(i.name, level, i.range) for i in view.loops} for level in range(2))
    deep = plan.tile(loops["k"], LEVELS.index(Bind.NONE), view.ranges[loops["k"]])
    rows = prod(group.values()) // group[loops["n"]]
    if (
        warp[loops["n"]] != group[loops["n"]]
        or prod(warp.values()) != warp[loops["n"]] * sides["m"]
        or rows % (team * sides["m"])
    ):
        yield f"{match.instruction.name}: each sub-group has {sides['m']} rows of all columns, and {team} of them are a team"
    line = PANEL_BYTES // match.instruction.a.dtype.bytes
    copies = [s for s in plan.stagings if s.unit == "LOCAL" and s.level == LEVELS.index(Bind.NONE)]
    lying = {s.operand: (swizzle_of(match, plan, s), pad_of(match, plan, s)) for s in copies}
    if deep > line or any((s.swizzle, s.pad) != lying[s.operand] for s in copies):
        listed = ", ".join(
            f"{operand!r} with swizzle {swizzle} and pad {pad}" for operand, (swizzle, pad) in lying.items()
        )
        yield f"{match.instruction.name}: steps are at most {line} deep, in local memory {listed}"
    else:
        yield from _factor_problems(tile, {s.operand for s in copies}, deep)


def _factor_problems(tile: TensorTile, copied: set[str], deep: int) -> Iterator[str]:
    """What keeps the copied factors from a team's instruction, in steps of `deep`."""
    view, match, plan, boxes = tile.view, tile.match, tile.plan, tile.boxes
    loops, line = dict(match.loops), PANEL_BYTES // match.instruction.a.dtype.bytes
    through, rounded, brought = in_registers(plan, Bind.NONE), in_registers(plan, Bind.UNROLL), by_tensor_copies(plan)
    if rounded and not _may_round(match, rounded - through):
        yield f"{match.instruction.name}: of two float32 factors the first one may be in registers under the unroll level"
        return
    if rounded and tile.taps:
        # Their places in a panel are those of rows from the first one on that the swizzle tells apart.
        yield f"{match.instruction.name}: items read rows of their own in steps of one tap"
    elif through and not copied <= through:
        yield f"{match.instruction.name}: both factors go through registers, or none"
    elif not through and any(
        c.plan.lanes * c.source.dtype.bytes < _least(match, own=c.use.buffer in rounded) for c in boxes
    ):
        yield f"{match.instruction.name}: factors are copied by {_least(match)} bytes or more"
    elif match.instruction.along_depth and not all(
        c.runs_along(in_tile(loops["k"])) for c in boxes if c.use.buffer not in rounded
    ):
        yield f"{match.instruction.name}: rows of both factors run along {loops['k']!r}"
    elif brought & rounded or not all(
        _is_of_tensor(view, match, c.use) and _is_whole(view, match, c, deep) for c in boxes if c.use.buffer in brought
    ):
        yield f"{match.instruction.name}: tensor copies bring whole panels of a plain float32 parameter, along its rows"
    elif not _rows_follow(tile):
        yield f"{match.instruction.name}: rows of a team follow one another in local memory, where steps have several taps, too"
    elif not all(c.panels(line) for c in boxes):
        yield f"{match.instruction.name}: rows of a factor in local memory are whole panels of {line} elements"


def may_fit(view: KernelView, match: Match, *, through: bool, rounded: bool, brought: Collection[Use]) -> bool:
    """Whether a team may have factors that go to local memory `through` registers or not, of which items have the first one `rounded`
    or not, and which are `brought` by tensor copies or not.

    What is asked of each tile by `problems`, as far as it is the same for all: there are hundreds.
    """
    factors = ((match.main.use(name), rounded and name == match.left) for name in (match.left, match.right))
    direct = through or all(_has_pieces(view.type_of(u.buffer), _least(match, own=own)) for u, own in factors)
    return (
        direct
        and (through or _has_panels(view, match))
        and all(
            _is_of_tensor(view, match, use)
            and _may_run_along_depth(view, match, use)
            and _ends_whole(view, match, use, PANEL_BYTES // match.instruction.a.dtype.bytes)
            for use in brought
        )
    )


def _least(match: Match, *, own: bool = False) -> int:
    """Bytes of a piece of a factor that goes straight to local memory; of one of which items read their `own` elements a word."""
    if own:
        return match.instruction.a.dtype.bytes
    return CHUNK_BYTES if takes_copies(match.instruction) else COPIED_BYTES


def _has_pieces(type: TensorType, least: int) -> bool:
    """Along some dimension pieces of so many bytes may begin on multiples of them."""
    unit, dims = max(1, least // type.dtype.bytes), [*zip(type.sizes, type.strides, strict=True)]
    return any(
        stride == 1 and all(s % unit == 0 for e, (size, s) in enumerate(dims) if e != d and size > 1)
        for d, (_, stride) in enumerate(dims)
    )


def _has_panels(view: KernelView, match: Match) -> bool:
    """Columns that are neighbours in memory are whole panels in local memory: a team has all of an instruction's."""
    use, columns = match.main.use(match.right), dict(match.loops)["n"]
    strides = zip(use.forms, view.type_of(use.buffer).strides, strict=True)
    line = PANEL_BYTES // match.instruction.a.dtype.bytes
    return in_panels(match.instruction.sides["n"], line) or not any(s == 1 and columns in f.names for f, s in strides)


def _is_of_tensor(view: KernelView, match: Match, use: Use) -> bool:
    """Tensor copies may bring boxes of it: a plain parameter, outside of which there is all that the constraints leave out."""
    type, ref = view.type_of(use.buffer), next((r for r in view.refs if r.into == use.buffer), None)
    begins = ref is not None and all(f == Affine() for f in ref.access)
    ends = all((b.sign, b.const) in ((1, 0), (-1, type.sizes[b.dim] - 1)) for b in match.bounds if b.factor == use.name)
    *strides, last = type.strides
    apart = last == 1 and all(s > 0 and s * type.dtype.bytes % STRIDE_BYTES == 0 for s in strides)
    return takes_copies(match.instruction) and begins and ends and apart


def _may_run_along_depth(view: KernelView, match: Match, use: Use) -> bool:
    """None of the instruction's other loops walks rows of the factor in memory, which are those of its boxes."""
    others, strides = {n for role, n in match.loops if role != "k"}, view.type_of(use.buffer).strides
    return not any(s == 1 and others.intersection(f.names) for f, s in zip(use.forms, strides, strict=True))


def _ends_whole(view: KernelView, match: Match, use: Use, deep: int) -> bool:
    """Steps end with the depth, or outside of the factor there is what its end leaves out."""
    depth = dict(match.loops)["k"]
    return view.ranges[depth] % deep == 0 or is_alone(view, use, depth)


def _is_whole(view: KernelView, match: Match, copy: GroupCopy, deep: int) -> bool:
    """Its boxes are whole panels, outside of which there is what the depth's end leaves out; and no larger than tensor copies'."""
    box, width = copy.box, copy.source.dtype.bytes
    whole = _ends_whole(view, match, copy.use, deep)
    long = max(e * s for e, s in zip(box.extents, box.steps, strict=True))
    known = len(box.extents) <= MOST_DIMENSIONS and long <= MOST_ELEMENTS and max(box.steps) <= MOST_STEP
    return whole and known and box.steps[-1] == 1 and box.extents[-1] * width == PANEL_BYTES


def _may_round(match: Match, rounded: set[str]) -> bool:
    """Items read their elements of the first factor, which is not the second one too."""
    left, right = (match.main.use(name).buffer for name in (match.left, match.right))
    return takes_copies(match.instruction) and rounded == {left} - {right}


def _slide_along_rows(tile: TensorTile) -> bool:
    """Neighbours in local memory belong to neighbouring taps, so that lines of a fragment would begin anywhere."""
    taps = [in_tile(i.name) for i in tile.taps]
    return bool(taps) and any(not set(taps).isdisjoint(f.names) for c in tile.boxes for f in c.along)


def _taps_end_alike(tile: TensorTile) -> bool:
    """What lies behind the depth's last iteration at one tap of a step lies there at all of them: copies leave it out."""
    depth = tile.loops["k"]
    if tile.view.ranges[depth] % tile.deep == 0:
        return True
    forms = (f for n in (tile.match.left, tile.match.right) for f in tile.match.main.use(n).forms)
    return all(
        sum(abs(f.coefficient(i.name)) * (i.range - 1) for i in tile.taps) < f.coefficient(depth)
        for f in forms
        if f.coefficient(depth)
    )


def _rows_follow(tile: TensorTile) -> bool:
    """Each row and column of a team, and each of the depth, lies next to the one before, whatever else is in the box for other taps."""
    sides = [in_tile(n) for n in tile.loops.values()]
    near = all(f.coefficient(n) in (0, 1) for c in tile.boxes for f in c.box.inside for n in sides)
    return not tile.taps or (near and _rows_beside_follow(tile))


def _rows_beside_follow(tile: TensorTile) -> bool:
    """Rows that follow a second loop lie behind those of the instruction's own, as far apart as these."""
    first = next((c for c in tile.boxes if c.use.name == tile.match.left), None)
    if first is None:
        return True
    strides = [*zip(first.box.inside, first.local.type.strides, strict=True)]
    *beside, rows = (in_tile(n) for n in (*tile.beside, tile.loops["m"]))
    apart = {n: sum(f.coefficient(n) * s for f, s in strides) for n in (*beside, rows)}
    count, team = tile.group[tile.loops["m"]], tile.match.instruction.team * tile.match.instruction.sides["m"]
    follow = True
    for loop, size in zip(reversed(beside), (tile.group[n] for n in reversed(tile.beside)), strict=True):
        follow = follow and (count % team == 0 or apart[loop] == count * apart[rows])
        count *= size
    return follow


def _nested_sizes(view: KernelView, match: Match, plan: Plan) -> Iterator[tuple[str, int, int]]:
    """(loop, iterations, iterations of a part of them) that have to come out even."""
    sides = {loop: match.instruction.sides[role] for role, loop in match.loops}
    own = {i.name for i in match.main.loops}
    for loop, extent in view.ranges.items():
        group, warp, step, last = (plan.tile(loop, number, extent) for number in range(len(LEVELS)))
        side = sides.get(loop, 1)
        if loop == dict(match.loops)["k"]:
            yield loop, step, side
        elif loop in sides:
            yield from ((loop, group, warp), (loop, warp, side))
        elif loop in own:
            yield loop, 1, 1 if step == extent else step
        elif group > 1:
            yield loop, group, warp
        else:
            yield loop, 1, step
        yield from ((loop, last, side), (loop, side, last))
