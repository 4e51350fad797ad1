"""From a plan to scheduled Stripe: the steps, in the order that the plan's levels give.

Levels before the first that names a stage's own loop, or is for registers, divide the kernel's shared loops for all
stages together. There every stage gets what is left of them, and the levels that follow divide each stage by itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from tile_ir.frozen import frozen, replace
from tile_ir.matrix.x86 import TILE
from tile_ir.names import claim
from tile_ir.settings import Settings
from tile_ir.stripe.affine import Affine, names_in
from tile_ir.stripe.nodes import STATIC, Bind, Block, Direction, Index, Location, Refinement

from tile_opt.kernel.inlining import computed, with_sources
from tile_opt.kernel.merging import merged
from tile_opt.kernel.segments import Part, cover_exactly
from tile_opt.kernel.strides import has_all_cells
from tile_opt.kernel.view import KernelView, Stage, Use
from tile_opt.kernel.widen import narrowed
from tile_opt.kernel.work import merged_use
from tile_opt.plan.builders.widened import Widened
from tile_opt.plan.panels import Panels, read_ahead, with_panels
from tile_opt.plan.plan import Across, Edge, Plan, Staging
from tile_opt.plan.segments import segments_of
from tile_opt.plan.steps.bind import Binding, across, bind, interleaved, lines_filled, scattered
from tile_opt.plan.steps.distribute import distribute, gathered
from tile_opt.plan.steps.edges import Tiling, tile
from tile_opt.plan.steps.fetch_ahead import Ahead, copied_ahead
from tile_opt.plan.steps.fold import Fold, check_padded, tiles_alone
from tile_opt.plan.steps.near_panels import cut_copy, in_panels
from tile_opt.plan.steps.reduce import Ways, keep_partials
from tile_opt.plan.steps.register_transpose import transposed, turned
from tile_opt.plan.steps.split import hoist, joined, split
from tile_opt.plan.steps.stage import Copy, is_copy, stage_input, stage_output, stage_sums
from tile_opt.plan.steps.tiles import on_tiles, zero_start
from tile_opt.plan.tree import (
    ARRAY,
    Around,
    Nest,
    Node,
    close_tree,
    each_stage,
    innermost,
    map_stages,
    open_tree,
    substitute,
)


def build(view: KernelView, plan: Plan) -> Block:
    """The scheduled block of a kernel; with TILE_VERIFY every step's result is verified on the way."""
    return build_all(view, plan).kernel


@frozen
class Built:
    """What a plan makes of a kernel.

    `before` and `after` are kernels of their own in normal form, such as the copy of an operand or the combination of
    partial results; they are scheduled in turn, by plans under their own names.
    """

    kernel: Block
    before: tuple[Block, ...] = ()
    after: tuple[Block, ...] = ()
    buffers: tuple[Refinement, ...] = ()
    """Allocations of main that these kernels exchange data through."""

    @property
    def alone(self) -> bool:
        """It is one kernel."""
        return not (self.before or self.after)

    def behind(self, copies: Sequence[Panels], view: KernelView) -> Built:
        """The same with what copies operands of the view before it."""
        before = tuple(merged(p.kernel(view)) for p in copies)
        return replace(self, before=before, buffers=(*(p.buffer for p in copies), *self.buffers))


def build_all(view: KernelView, plan: Plan) -> Built:
    """The scheduled block of a kernel, as `build` makes it, and what goes before it."""
    return _built(view, _Build(view, plan))


def build_widened(tiles: Widened, plan: Plan) -> Built:
    """The same for a kernel on whole tiles, whose products tile registers do."""
    return _built(tiles.view, _Build(tiles.view, plan, tiles))


def _built(view: KernelView, work: _Build) -> Built:
    kernel = work.closed()
    return Built(kernel, tuple(p.kernel(view) for p in work.ahead), buffers=tuple(p.buffer for p in work.ahead))


@frozen
class Loop:
    """What a plan says of one loop: the levels that make loops of it, outermost first, and what runs a tile of it."""

    extent: int
    levels: tuple[tuple[int, int, str], ...]
    """(level, iterations that a point covers, name of the loop over points)."""
    tiling: Tiling
    binding: Binding | None

    def level(self, number: int) -> tuple[int, int, str] | None:
        """The entry of level number `number`; None where the plan, or a level of one point, makes no loop."""
        return next((entry for entry in self.levels if entry[0] == number), None)

    def last(self, level: int) -> bool:
        """The level makes the tiles that registers work on."""
        return bool(self.levels) and self.levels[-1][0] == level


class _Build:
    """One kernel being built."""

    def __init__(self, view: KernelView, plan: Plan, tiles: Widened | None = None) -> None:
        self.tiles = tiles
        """What tile registers do of the kernel."""
        self.view = with_sources(view, view.through)
        self.plan = plan
        self.taken = view.taken
        self.loops = {name: self._loop(name, extent) for name, extent in view.ranges.items()}
        self.ahead = self._read_ahead()
        self.near: list[Panels] = []
        """Copies inside the kernel whose tiles lie in one piece."""
        self.boxes: set[str] = set()
        """Copies inside the kernel of what is read, as it lies, with zeros around it."""
        self.around = Around.of(self.view)
        self.lanes = max((level.lanes for level in plan.levels if level.bind is Bind.VECTOR), default=1)
        self.check = Settings.from_environment().verify
        self.masked = frozenset(name for name, edge in plan.edges if edge is Edge.MASK)
        self.fold = self._fold()
        """Rows that tiles go through as one."""

    def _fold(self) -> Fold | None:
        """Where the plan says so; TileDeviceError where no level copies whole rows of the first factor for tiles to go through."""
        fold = self.tiles.folded() if self.tiles is not None else None
        if self.tiles is None or fold is None or self.plan.edge(fold.inner) is not Edge.PAD:
            return None
        *around, (rows, _) = [(k, c) for k, level in enumerate(self.plan.levels) if (c := level.cover(fold.inner))]
        left = self.tiles.match.main.use(self.tiles.match.left).buffer
        copied = any(s.operand == left and not s.order and 0 <= s.level < rows for s in self.plan.stagings)
        check_padded(fold, copied and all(c.size >= fold.columns for _, c in around))
        return fold

    def _read_ahead(self) -> tuple[Panels, ...]:
        """The copies before the kernel, which the view now reads, cut as registers take vectors."""
        tiles = {n: at.tiling.size for n, at in self.loops.items() if at.binding and at.binding.bind is Bind.VECTOR}
        made: list[Panels] = []
        for staging in (s for s in self.plan.stagings if s.level < 0):
            cut = {n: t for n, t in tiles.items() if t < self.loops[n].extent}
            self.view, panels = read_ahead(self.view, staging, cut, outside=self.tiles is not None)
            made.append(panels)
        return tuple(made)

    def _loop(self, name: str, extent: int) -> Loop:
        levels: list[tuple[int, int, str]] = []
        binding: Binding | None = None
        for number, level in enumerate(self.plan.levels):
            cover = level.cover(name)
            if cover is None:
                continue
            if level.bind in STATIC:
                binding = Binding(level.bind, level.lanes)
            else:
                kind = "g" if level.bind is Bind.GRID else "t"
                levels.append((number, cover.size, claim(f"{name}_{kind}", self.taken)))
        # A level that covers the whole loop has one point: only the last one is needed, to make a tile of it.
        levels = [entry for entry in levels[:-1] if entry[1] < extent] + levels[-1:]
        size = min(levels[-1][1], self._padded(name, extent, binding)) if levels else extent
        levels = [*levels[:-1], *((number, size, made) for number, _, made in levels[-1:])]
        segments = segments_of(self.view, self.plan, name, size, binding)
        single = claim(f"{name}_s", self.taken) if any(s.part is Part.SINGLY for s in segments) else ""
        tiling = Tiling(name, segments, levels[-1][2] if levels else name, size=size, single=single)
        return Loop(extent, tuple(levels), tiling, binding)

    def _padded(self, name: str, extent: int, binding: Binding | None) -> int:
        """Iterations of a loop with those that are masked in its last vector."""
        lanes = binding.lanes if binding is not None and self.plan.edge(name) is Edge.MASK else 1
        return -(-extent // lanes) * lanes

    # --- the two phases -----------------------------------------------------------------------------------

    def closed(self) -> Block:
        """The kernel, scheduled."""
        tree = self._tree()
        return close_tree(self.view, tree)

    def _tree(self) -> Nest:
        tree = open_tree(self.view)
        tree = tree if self.tiles is None else self.tiles.limited(tree)
        first = self._first_own_level()
        for number in range(first):
            tree = self._checked(self._level(tree, number, self.around, own=False))
        places = {s.operand: ARRAY for s in self.plan.stagings if s.level >= first or s.unit == TILE}
        tree = self._checked(innermost(tree, lambda n, _: distribute(self._lanes_last(n), places), self.around))
        tree = innermost(tree, lambda n, around: self._each_stage(n, first, around), self.around)
        for panels in (*self.ahead, *self.near):
            tree = each_stage(tree, panels.moved, self.around)
        for panels in self.near:
            tree = in_panels(tree, panels)
        self.view = with_panels(self.view, self.ahead)
        self.around = Around.of(self.view)
        tree = each_stage(joined(tree), self._copied, self.around)
        return self._checked(joined(each_stage(tree, self._bound, self.around)))

    def _copied(self, stage: Stage, around: Around) -> Node:
        """What fills panels asks for the rows that it copies later."""
        near = {panels.name for panels in self.near}
        return copied_ahead(stage, around) if any(u.writes and u.buffer in near for u in stage.uses) else stage

    def _checked(self, tree: Nest) -> Nest:
        if self.check:
            from tile_ir.stripe.verify import verify_block

            verify_block(close_tree(self.view, tree))
        return tree

    def _first_own_level(self) -> int:
        """The first level that is a matter of each stage."""
        if self.fold is not None:
            return self.loops[self.fold.inner].levels[-1][0]
        shared = {i.name for i in self.view.loops}
        for number, level in enumerate(self.plan.levels):
            if level.bind in STATIC or any(c.loop not in shared for c in level.covers):
                return number
        return len(self.plan.levels)

    def _each_stage(self, nest: Nest, first: int, around: Around) -> Nest:
        nest = self._folded(nest)
        inside = around.within(nest)
        start = self._start(nest)
        nodes = (n for n in nest.body if n is not start)
        body = tuple(self._own(n, first, inside, nest) if isinstance(n, Stage) else n for n in nodes)
        return replace(nest, body=body)

    def _start(self, nest: Nest) -> Stage | None:
        """The stage that sets the sum of an instruction on tiles to 0, if there is one."""
        return zero_start(nest.body, self.tiles.match.main.name) if self.tiles is not None else None

    def _folded(self, nest: Nest) -> Nest:
        """`nest` with its sums as far apart as the rows that tiles go through."""
        main = self.tiles.match.main.name if self.tiles is not None and self.fold is not None else None
        total = next((merged_use(s) for s in nest.body if isinstance(s, Stage) and s.name == main), None)
        return self.fold.summed(nest, total) if self.fold is not None and total is not None else nest

    def _own(self, stage: Stage, first: int, around: Around, beside: Nest) -> Node:
        """One stage under the levels that are its own, with those `beside` it."""
        if self.fold is None or self.tiles is None or stage.name != self.tiles.match.main.name:
            return self._stepped(gathered(stage), stage, first, around, beside)
        cover, name = self.plan.levels[first].cover(self.fold.inner), self.loops[self.fold.inner].tiling.name
        assert cover is not None, "the first level of a stage's own is that of its rows"
        rows = self.fold.tiles(self.fold.joined(gathered(stage)), cover.size, name, around)
        return innermost(rows, lambda n, inside: self._stepped(n, stage, first + 1, inside, beside), around)

    def _stepped(self, tree: Nest, stage: Stage, first: int, around: Around, beside: Nest) -> Nest:
        """The loops of a stage by the levels from `first` on."""
        for number in range(first, len(self.plan.levels)):
            if self.plan.levels[number].bind not in STATIC:
                tree = self._level(tree, number, around, own=True)
        tree = innermost(tree, lambda n, _: distribute(n), around)
        if self.tiles is not None and stage.name == self.tiles.match.main.name:
            made = on_tiles(tree, self.tiles.match, self._start(beside), self._ahead(stage, around, beside))
            return made if self.fold is None else tiles_alone(made)
        ways = self._ways(stage)
        use = merged_use(stage)
        if ways and use is not None:
            tree = keep_partials(tree, ways, claim(f"{use.buffer}_parts", self.taken), around)
        return tree

    def _ahead(self, stage: Stage, around: Around, beside: Nest) -> Ahead:
        """Steps ask for the next rows where these lie where they are given, and several tiles of columns take them."""
        assert self.tiles is not None
        columns = self.loops[dict(self.tiles.match.loops)["n"]].levels[-1:]
        given = around.buffers[stage.use(self.tiles.match.left).buffer].dir is Direction.IN
        several = any(around.ranges.get(name, (0, 0))[1] for _, _, name in columns)
        return Ahead(columns[0][2] if given and several else None, self._results(beside, around), around)

    def _results(self, beside: Nest, around: Around) -> tuple[Use, ...]:
        """What is stored, row by row, where rows are those of tiles."""
        assert self.tiles is not None
        loops = dict(self.tiles.match.loops)
        known = {*around.ranges, loops["m"], loops["n"]}
        stored = (u for s in beside.body if isinstance(s, Stage) for u in s.uses if u.writes)
        out = {u.buffer: u for u in stored if around.buffers[u.buffer].dir is Direction.OUT and self.fold is None}
        rows = (u for u in out.values() if around.stride(u, loops["n"]) == 1)
        return tuple(u for u in rows if names_in(u.forms) <= known)

    # --- one level -----------------------------------------------------------------------------------------

    def _level(self, tree: Nest, number: int, around: Around, own: bool) -> Nest:
        level = self.plan.levels[number]
        names = [c.loop for c in level.covers]
        if level.bind is Bind.GRID:
            for name in names:
                tree = innermost(tree, lambda n, a, name=name: self._blocks(n, name, number), around)
        for name in names:
            tree = innermost(tree, lambda n, a, name=name: self._tiles(n, name, number, a), around)
        for staging in self.plan.stagings:
            if staging.level == number and staging.unit != TILE:
                tree = innermost(tree, lambda n, a, s=staging: self._staged(n, s, a, own), around)
        return tree

    def _blocks(self, nest: Nest, name: str, number: int) -> Nest:
        """A loop over the blocks of one loop."""
        loop = self.loops[name]
        index, entry = nest.loop(name), loop.level(number)
        if index is None or entry is None:
            return nest
        _, size, made = entry
        whole = index.range == loop.extent
        count = -(-loop.tiling.count // max(1, size // loop.tiling.size)) if whole else 0
        return split(nest, name, size, made, self.plan.levels[number].bind, count)

    def _tiles(self, nest: Nest, name: str, number: int, around: Around) -> Nest:
        """Blocks of one loop; at its last level its tiles, each of known size."""
        loop = self.loops[name]
        if nest.loop(name) is None or loop.level(number) is None:
            return nest
        grid = self.plan.levels[number].bind is Bind.GRID
        if not loop.last(number):
            return nest if grid else self._blocks(nest, name, number)
        tiling = loop.tiling
        if tiling.size == 1 and not grid and len(tiling.segments) == 1:
            return hoist(nest, name)
        outside = loop.levels if grid else loop.levels[:-1]
        if outside:
            base = Affine.of({made: size for _, size, made in outside})
            tiling = replace(tiling, base=base, chunk=max(1, outside[-1][1] // tiling.size) if not grid else 1)
        return tile(nest, tiling, around)

    def _staged(self, nest: Nest, staging: Staging, around: Around, own: bool) -> Nest:
        name = claim(f"{staging.operand}_{staging.unit.lower()}", self.taken)
        place = Location(staging.unit, scope=staging.scope) if staging.unit in ("REG", "LOCAL") else ARRAY
        writers = {u.buffer for s in nest.body if isinstance(s, Stage) for u in s.uses if u.writes}
        if staging.operand in writers and staging.order:
            copy = Copy(staging.operand, name, staging.order, place, staging.pad)
            staged = stage_output(nest, copy, around)
            return staged if staged is nest else self._stored_in_rows(staged, staging, around)
        if staging.operand in writers:
            return stage_sums(nest, staging.operand, name, around, place) if own else nest
        inside = bool(staging.order) and self._stays_inside(staging.operand)
        zeros = self.tiles is not None
        copy = Copy(staging.operand, name, staging.order, place, staging.pad, inside, zeros)
        staged = stage_input(nest, copy, around)
        if staged is nest:
            return nest
        if zeros and not staging.order:
            self.boxes.add(name)
            staged = self.fold.copied(staged, name) if self.fold is not None else staged
        return map_stages(self._in_panels(staged, staging), self._computed)

    def _in_panels(self, nest: Nest, staging: Staging) -> Nest:
        """A copy whose rows an instruction takes tile by tile, in panels as wide as these."""
        binding = self.loops[staging.order[-1]].binding if self.tiles is not None and staging.order else None
        if binding is None or binding.bind is not Bind.VECTOR:
            return nest
        panel = claim(f"{staging.order[-1]}_p", self.taken)
        found = cut_copy(nest, staging.order, binding.lanes, panel)
        if found is None:
            return nest
        self.near.append(found[1])
        return found[0]

    def _stored_in_rows(self, nest: Nest, staging: Staging, around: Around) -> Nest:
        """What leaves a copy as rows of the result is cut into vectors, so that none is masked, and its rows are a loop."""
        store, along = nest.body[-1], staging.order[-1]
        binding, inside = self.loops[along].binding, around.within(nest)
        if not isinstance(store, Stage) or binding is None or binding.bind is not Bind.VECTOR:
            return nest
        tiling = self._vectors(along, binding.lanes, staging.level)
        if tiling is None or any(inside.stride(u, along) != 1 for u in store.uses):
            return nest
        names = {n: claim(f"{n}_r", self.taken) for n in store.loop_names if n != along}  # that nothing binds
        rows = substitute(gathered(store), {n: Affine.var(to) for n, to in names.items()})
        rows = replace(rows, loops=tuple(replace(i, name=names.get(i.name, i.name)) for i in rows.loops))
        rows = hoist(rows, *names.values())
        rows = innermost(rows, lambda n, a: tile(n, tiling, a), inside)
        return replace(nest, body=(*nest.body[:-1], innermost(rows, lambda n, _: distribute(n), inside)))

    def _vectors(self, name: str, lanes: int, level: int) -> Tiling | None:
        """A loop in vectors, within a point of a level; None where the levels around cut vectors."""
        loop = self.loops[name]
        outside = {made: size for at, size, made in loop.levels if at <= level and size < loop.extent}
        if any(size % lanes for size in outside.values()):
            return None
        chunk = min(outside.values()) // lanes if outside else 0
        segments = cover_exactly(loop.extent, lanes, lanes)
        return Tiling(name, segments, claim(f"{name}_v", self.taken), Affine.of(outside), chunk, lanes)

    def _computed(self, stage: Stage) -> Stage:
        """A copy of what another kernel makes for this one alone computes it."""
        return computed(stage, self.view.through) if is_copy(stage) else stage

    def _stays_inside(self, buffer: str) -> bool:
        """No iteration of the loops reads outside the buffer, whatever the stages' constraints say."""
        sizes, ranges = self.view.type_of(buffer).sizes, self.view.ranges
        return all(has_all_cells(u, sizes, ranges) for _, u in self.view.users(buffer))

    def _lanes_last(self, nest: Nest) -> Nest:
        """Its loops in the order of the dimensions that registers get: the vector loop last."""

        def rank(index: Index) -> bool:
            binding = self.loops[index.name].binding
            return binding is not None and binding.bind is Bind.VECTOR

        return replace(nest, loops=tuple(sorted(nest.loops, key=rank)))

    # --- registers -------------------------------------------------------------------------------------------

    def _ways(self, stage: Stage) -> dict[str, Ways]:
        """Loops of the stage along which partial results are kept side by side."""
        kept = {r.loop for r in self.plan.reductions if r.across is Across.LANES}
        found: dict[str, Ways] = {}
        for index in stage.loops:
            loop = self.loops.get(index.name)
            if loop is not None and index.name in kept:
                found[index.name] = Ways(loop.tiling.size, loop.binding.lanes if loop.binding else 1)
        return found

    def _turned(self, stage: Stage, vector: str, around: Around) -> Node:
        """Copies along another loop than their source, and results along another loop than the vectors of a tile, go through registers."""
        if is_copy(stage):
            return transposed(stage, vector, self.lanes, claim(f"{stage.name}_tile", self.taken), around, self.masked)
        along = _along_memory(stage, around) if self.tiles is not None else None
        if along is None:
            return stage
        return turned(stage, along, self.lanes, claim(f"{stage.name}_tile", self.taken), around, self.masked | {along})

    def _bound(self, stage: Stage, around: Around) -> Node:
        """The stage in registers' loops."""
        if stage.instr is not None:
            return stage
        if any(u.writes and u.buffer in self.boxes for u in stage.uses):
            return along_rows(stage, self.lanes, claim(f"{stage.loop_names[-1]}_v", self.taken))
        bindings = {n: at.binding for n, at in self.loops.items() if at.binding is not None}
        vector = next((n for n in stage.loop_names if n in bindings and bindings[n].bind is Bind.VECTOR), None)
        if is_copy(stage) and not any(around.in_registers(u.buffer) for u in stage.uses):
            vector, bindings = _written_along(stage, vector, bindings, around)
        apart = vector is not None and scattered(stage, vector, around) and not interleaved(stage, bindings, around)
        made = self._turned(stage, vector, around) if vector is not None and self.lanes > 1 and apart else stage
        if made is not stage:
            return each_stage(made, lines_filled, around) if isinstance(made, Nest) else made
        mine = across(stage, bindings, around)
        order = [c.loop for level in self.plan.levels if level.bind in STATIC for c in level.covers]
        if mine is not bindings:
            order.sort(key=lambda n: mine[n].bind is Bind.VECTOR)
        return lines_filled(bind(stage, mine, order), around)


def _along_memory(stage: Stage, around: Around) -> str | None:
    """The loop along which what the stage writes lies side by side in memory."""
    written = [u for u in stage.uses if u.writes and not around.in_registers(u.buffer)]
    found = (i.name for i in stage.loops if written and all(around.stride(u, i.name) == 1 for u in written))
    return next(found, None)


def _written_along(
    stage: Stage, vector: str | None, bindings: dict[str, Binding], around: Around
) -> tuple[str | None, dict[str, Binding]]:
    """The loop along which a copy from memory to memory writes cell after cell: the plan's for vectors, or else its own."""
    target = next(u for u in stage.uses if u.writes)
    if vector is not None and (around.stride(target, vector) == 1 or interleaved(stage, bindings, around)):
        return vector, bindings
    row = next((i.name for i in reversed(stage.loops) if around.stride(target, i.name) == 1), None)
    return (row, {}) if vector is None or row is not None else (vector, bindings)


def along_rows(stage: Stage, lanes: int, name: str) -> Node:
    """The stage, whose last loop walks rows of memory, by a loop `name` over vectors; what is left of a row is a short one."""
    stage = narrowed(stage)
    whole, rest = divmod(stage.loops[-1].range, lanes)
    vectors = _part(stage, Index(name, whole), lanes, 0) if whole else None
    short = _part(stage, None, rest, whole * lanes) if rest else None
    parts = tuple(p for p in (vectors, short) if p is not None)
    return parts[0] if len(parts) == 1 else Nest(stage.name, body=parts)


def _part(stage: Stage, steps: Index | None, lanes: int, first: int) -> Stage:
    """A vector of each row, from its element `first` on, or so many steps of them."""
    *outer, row = stage.loops
    at = Affine.of({row.name: 1, **({steps.name: lanes} if steps else {})}, first)
    vector = replace(row, range=lanes, bind=Bind.VECTOR, lanes=lanes)
    return replace(stage.substitute({row.name: at}), loops=(*outer, *([steps] if steps else []), vector))
