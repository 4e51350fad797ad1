"""Plans of contractions on tile registers of processors: blocks of tiles, and panels of the second factor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import gcd, prod

from tile_ir.dots import WORD
from tile_ir.matrix.x86 import TILE, TILED_INSTRUCTIONS, WORDS_OF_ROW
from tile_ir.stripe.nodes import Bind
from tile_ir.target import Target

from tile_opt.kernel.instructions import Match
from tile_opt.kernel.strides import flat_stride
from tile_opt.kernel.view import KernelView, Use
from tile_opt.kernel.work import merged_use
from tile_opt.plan.builders.widened import Widened, on_whole_tiles
from tile_opt.plan.plan import Cover, Edge, Instruction, Level, Plan, Staging
from tile_opt.plan.steps.fold import Fold

ROUNDS = 4
"""Groups for each core, at most."""
UNEVEN = 0.25
"""Of a group's time, what the others wait for the last one: cores are not equally fast, whatever else runs beside them."""
BUSY = 0.5
"""Share of the time in which the instruction runs, loads beside it."""
PACKED = 1.2
"""Cycles that packing a word takes."""
COPIED = 0.3
"""Cycles of a word that is copied in a vector of words, as they lie."""
NEAR = 4
"""Panels take one part in so many of the second cache, of which rows and results pass through the rest."""
BOX = 16
"""A copy of rows that several windows read takes one part in so many of it at most."""
OVERLAPPING = 4
"""Rows of windows in such a copy, at least: with fewer, as much is read for the windows' sake as for the rows'."""
SECOND = 2
"""The level of the cache that panels stay in."""
SCATTERED = 2
"""Lines that lie together are read in the time of one that is a row of its own."""
FEWER = 0.92
"""Of the tiles, those that are left at most where rows go on from one row of windows to the next, whose ends are copied apart."""
SHAPES = ((2, 2), (4, 1))
"""Tiles of rows and of columns in a step, at most: four sums, for which registers suffice."""


def plans(view: KernelView, target: Target) -> Iterator[Plan]:
    """A plan for each way in which the kernel is one of the target's instructions on tiles, fewest wasted products first."""
    for name in target.matrix:
        instruction = TILED_INSTRUCTIONS.get(name)
        found = on_whole_tiles(view, instruction) if instruction is not None else []
        for space in sorted((_space(tiles, target) for tiles in found), key=lambda s: s.order):
            yield space.plan()


def is_on_tiles(view: KernelView, target: Target) -> bool:
    """The kernel is one of the target's instructions on tiles."""
    known = (TILED_INSTRUCTIONS[name] for name in target.matrix if name in TILED_INSTRUCTIONS)
    return any(on_whole_tiles(view, instruction) for instruction in known)


def _space(tiles: Widened, target: Target) -> _Space:
    """With rows that go on from one row of windows to the next, if that makes fewer tiles."""
    plain, fold = _Space(tiles, target), tiles.folded()
    if fold is None or fold.outer not in plain.sliding:
        return plain
    folded = _Space(tiles.unfilled(fold.inner), target, fold)
    return folded if folded.block and folded.order[0] < FEWER * plain.order[0] else plain


@dataclass(frozen=True)
class _Space:
    tiles: Widened
    target: Target
    fold: Fold | None = None
    """How rows of tiles go on from one row of windows to the next."""

    @property
    def view(self) -> KernelView:
        """On whole tiles."""
        return self.tiles.view

    @property
    def match(self) -> Match:
        return self.tiles.match

    @cached_property
    def loops(self) -> dict[str, str]:
        return dict(self.match.loops)

    @property
    def order(self) -> tuple[float, bool, int]:
        """Products for each that counts, and how the first factor lies along words and rows."""
        waste, apart, stride = self.tiles.order
        return waste * self._between, apart, stride

    @property
    def _between(self) -> float:
        """Rows of tiles, those between rows of windows among them, for each that counts."""
        if self.fold is None or not self.block:
            return 1
        rows = self.block[self.fold.outer]
        return self.fold.length(rows) / (rows * self.fold.columns)

    @cached_property
    def tile(self) -> dict[str, int]:
        """Rows and columns of a step, and iterations of the loop aside that have rows in it: those that read least a product."""
        return min(self._steps(), key=self._words)

    def _steps(self) -> Iterator[dict[str, int]]:
        """Equal parts of what there is; where windows slide, their rows come from several iterations, so that none is left over."""
        sides, (m, n) = self.match.instruction.sides, (self.loops[role] for role in "mn")
        most = self.view.ranges | ({m: self.fold.length(self.block[self.fold.outer])} if self.fold is not None else {})
        whole = {name: -(-most[name] // sides[role]) for role, name in zip("mn", (m, n), strict=True)}
        for rows, columns in SHAPES:
            aside = self.aside if columns == 1 and self.fold is None else ()
            along = gcd(whole[m], rows) if aside else _even(whole[m], rows)
            found = {m: along * sides["m"], n: _even(whole[n], columns) * sides["n"]}
            found |= dict.fromkeys(aside, rows // along)
            yield {name: min(size, most[name]) for name, size in found.items()}

    @cached_property
    def aside(self) -> tuple[str, ...]:
        """The loop whose windows have half of their rows or more in common with the next ones, if any."""
        return tuple(n for n in self.sliding[-1:] if all(2 * by <= rows for by, rows in self._slides(n)))

    def _slides(self, name: str) -> Iterator[tuple[int, int]]:
        """By how many elements windows move along each dimension of the first factor, and how many they have there."""
        for form in self.match.factors[0].forms:
            rows = sum(abs(form.coefficient(s)) * (self.view.ranges[s] - 1) for s in self.steps) + 1
            if name in form.names:
                yield abs(form.coefficient(name)), rows

    def _words(self, step: Mapping[str, int]) -> float:
        """Words of both factors that the products of all steps read from the second cache or beyond, for each of them.

        Rows of overlapping windows are read from a box again and again, which costs nothing where the first cache holds what an
        instruction takes of their words.
        """
        m, n, k = (self.loops[role] for role in "mnk")
        rows = {name: size for name, size in step.items() if name != n}
        read, depth = self._box(rows), self._depth(self.match.factors[1])
        boxed = self.sliding and self._is_near(self._few(self.view.ranges) | {m: rows[m]})
        if boxed and read * WORD.bytes * self.match.instruction.sides["k"] > self._first * self.view.ranges[k]:
            read = SCATTERED * prod(rows.values()) * depth
        return (read + step[n] * depth) / (prod(step.values()) * depth)

    @cached_property
    def steps(self) -> tuple[str, ...]:
        """The reduction loops, the depth of an instruction last."""
        outer = (i.name for i in self.match.main.loops if i.name != self.loops["k"])
        return (*outer, self.loops["k"])

    @cached_property
    def beside(self) -> tuple[str, ...]:
        """Shared loops that are neither rows nor columns."""
        return tuple(i.name for i in self.view.loops if i.name not in (self.loops["m"], self.loops["n"]))

    # --- copies -----------------------------------------------------------------------------------------

    def _order(self, use: Use, *inner: str) -> tuple[str, ...]:
        """The loops that move an operand among the steps and `inner`, as its copy has them."""
        moved = {n for f in use.forms for n in f.names}
        return tuple(n for n in (*inner[:-1], *self.steps, *inner[-1:]) if n in moved)

    @cached_property
    def is_ahead(self) -> bool:
        """The panels of the second factor are copied before the kernel, once for all calls."""
        use, n = self.match.factors[1], self.loops["n"]
        moved = {name for f in use.forms for name in f.names}
        return use.buffer in self.view.fixed and moved <= {*self.steps, n} and not self.view.ranges[n] % self.tile[n]

    @property
    def _lies_along(self) -> bool:
        """Words of the first factor lie side by side along the depth."""
        return flat_stride(self.view, self.match.factors[0], self.loops["k"]) == 1

    @property
    def is_copied(self) -> bool:
        """Rows of the first factor are copied: these lie in another way, end within a tile, are made on the way, or go on."""
        left = self.match.factors[0]
        ends = self.tiles.leaves(left) or self.fold is not None
        return not self._lies_along or ends or self._is_made_alone(left)

    @cached_property
    def block(self) -> dict[str, int]:
        """Iterations of a group that read one box of the first factor's rows; none where no windows overlap in it."""
        m, sliding = self.loops["m"], self.sliding
        if self.fold is not None:
            return self._folded(self.fold)
        if not sliding:
            return {}
        few = self._few(self.grid)
        found = {name: self.tile.get(name, 1) for name in sliding}
        tiles = range(self.tile[m], self.grid[m] + self.tile[m], self.tile[m])
        found[m] = self._part(m, max((r for r in tiles if self._is_near(few | {m: r})), default=0))
        for name in reversed(sliding if found[m] else ()):
            each = found[name]
            fitting = (r for r in range(each, self.grid[name] + each, each) if self._is_near(found | {name: r}))
            found[name] = self._part(name, max(fitting, default=each))
        return found if found[m] else {}

    def _folded(self, fold: Fold) -> dict[str, int]:
        """Whole rows in a box, in equal parts, few enough for all cores to have some; none where not even a few are near."""
        rows, one = self.view.ranges[fold.outer], dict.fromkeys(self.sliding, 1) | {fold.inner: fold.columns}
        share = -(-prod(self.view.ranges[name] for name in self._inner) // self.target.settings.cores)
        few, sums = min(OVERLAPPING, rows), self._first // 2 // self.match.instruction.sides["n"] // WORD.bytes
        most = max(few, min(share, max((r for r in range(1, rows + 1) if fold.length(r) <= sums), default=0)))
        near = max((r for r in range(1, min(rows, most) + 1) if self._is_near(one | {fold.outer: r})), default=0)
        return one | {fold.outer: _evenly(rows, near)} if near >= few else {}

    def _few(self, most: Mapping[str, int]) -> dict[str, int]:
        """Iterations of the loops that slide which a box has at least."""
        return {n: min(OVERLAPPING, most[n]) if n == self.sliding[-1] else 1 for n in self.sliding}

    def _part(self, name: str, most: int) -> int:
        """Iterations of a loop in a box, at most so many: equal parts of a group's, where other groups follow."""
        each, whole = self.tile.get(name, 1), self.grid[name]
        if not most or each == 1 or whole >= self.view.ranges[name]:
            return _evenly(whole, most, each)
        return max(size for size in range(each, most + 1, each) if whole % size == 0)

    @cached_property
    def sliding(self) -> tuple[str, ...]:
        """Loops beside the tile whose iterations read windows of the first factor that overlap."""
        forms = [f for f in self.match.factors[0].forms if not {*f.names}.isdisjoint(self.steps)]
        found = (n for n in self._inner if any(n in f.names for f in forms))
        return tuple(found) if self.is_copied and self._lies_along else ()

    def _is_near(self, block: Mapping[str, int]) -> bool:
        """The box stays in the second cache beside panels and results."""
        return self._box(block) * WORD.bytes <= self._second // BOX

    def _box(self, sizes: Mapping[str, int]) -> int:
        """Words of the first factor around all that so many iterations of some loops read in their steps."""
        left = self.match.factors[0]
        spans = {name: (0, extent - 1) for name, extent in sizes.items()}
        spans |= {name: (0, self.view.ranges[name] - 1) for name in self.steps}
        ends = ([f.coefficient(n) * at for n in f.names if n in spans for at in spans[n]] for f in left.forms)
        return prod(sum(map(abs, e)) + 1 for e in ends)

    def _is_made_alone(self, use: Use) -> bool:
        """A kernel makes the factor for this one alone, and no element of it is needed in several places."""
        return use.buffer in self.view.through and all(len(f.terms) <= 1 for f in use.forms)

    def _stagings(self) -> Iterator[Staging]:
        """Panels of the second factor, rows of the first where they do not lie side by side, and the sum's registers."""
        left, right = self.match.factors
        n = self.loops["n"]
        if self.is_ahead:
            yield Staging(right.buffer, -1, "DRAM", (*self.steps, n))
        else:
            moved = {name for f in right.forms for name in f.names}
            yield Staging(right.buffer, 0, "L2", tuple(s for s in (*self.steps, n) if s in moved))
        if self.is_copied:
            moved = {name for f in left.forms for name in f.names}
            order = (self.loops["m"], *(s for s in self.steps if s in moved))
            level, pad = (1, self._apart) if self.block else (self._rows_level, 0)
            yield Staging(left.buffer, level, "L2", () if self._lies_along else order, pad=pad)
        total = merged_use(self.match.main)
        assert total is not None, "a match aggregates"
        yield Staging(total.buffer, len(self._tiled), TILE)

    @cached_property
    def _is_deep(self) -> bool:
        """The first cache holds the box of a step's rows for a few words alone: all windows take these before any takes the next ones."""
        rows = {name: size for name, size in self.tile.items() if name != self.loops["n"]}
        return bool(self.block) and self._box(rows) * WORD.bytes > self._first

    @property
    def _apart(self) -> int:
        """Words between rows of a box, so that they are an odd number of lines apart, and a column of them is in all sets of a cache."""
        length = self.view.ranges[self.loops["k"]]
        return WORDS_OF_ROW if self._is_deep and length % (2 * WORDS_OF_ROW) == 0 else 0

    @property
    def _rows_level(self) -> int:
        """The level of a step's rows."""
        return next(at for at, level in enumerate(self._tiled, 1) if level.cover(self.loops["m"]) is not None)

    # --- levels -----------------------------------------------------------------------------------------

    @cached_property
    def _moving(self) -> tuple[str, ...]:
        """Loops beside the tile for whose iterations panels differ."""
        names = {n for f in self.match.factors[1].forms for n in f.names}
        return tuple(n for n in self.beside if n in names)

    @property
    def _inner(self) -> tuple[str, ...]:
        """Loops beside the tile of which a group takes several iterations with the same panels."""
        return tuple(n for n in self.beside if n not in self._moving)

    @cached_property
    def grid(self) -> dict[str, int]:
        """What a group covers: of all parts of columns and rows those that are expected to take the least time."""
        return min(self._grids(), key=self._cycles)

    def _grids(self) -> Iterator[dict[str, int]]:
        """Columns whose panels stay in the second cache, and rows for as many groups as cores, or some times as many."""
        n, columns = self.loops["n"], self._fitting_columns()
        tile, extent, cores = self.tile[self.loops["n"]], self.view.ranges[self.loops["n"]], self.target.settings.cores
        moved = prod(self.view.ranges[name] for name in self._moving)
        sizes = {-(-extent // parts // tile) * tile for parts in range(1, -(-extent // tile) + 1)}
        most = max(cores * ROUNDS, moved * -(-extent // columns))
        for size in sorted((min(s, extent) for s in sizes if s <= columns), reverse=True):
            groups = moved * -(-extent // size)
            if groups > most:
                continue
            for wanted in {max(groups, times * cores) for times in range(1, ROUNDS + 1)}:
                yield {**dict.fromkeys(self._moving, 1), n: size, **self._rows(wanted, groups)}

    def _rows(self, wanted: int, groups: int) -> dict[str, int]:
        """Iterations of loops over rows for each of so many groups, of which `groups` differ in their panels."""
        found: dict[str, int] = {}
        each = self.tile | (self.block if self.fold is not None else {})
        for name in (*self._inner, self.loops["m"]):
            found[name] = _share(self.view.ranges[name], each.get(name, 1), wanted, groups)
            groups *= -(-self.view.ranges[name] // found[name])
        return found

    def _cycles(self, grid: Mapping[str, int]) -> float:
        """Of the core that has the most groups: their products, packing their panels, and what comes from afar.

        Rows that stay beside the panels come from afar once for all groups.
        """
        machine, sides = self.target.machine, self.match.instruction.sides
        groups = prod(-(-self.view.ranges[name] // size) for name, size in grid.items())
        columns, rows = grid[self.loops["n"]], prod(grid[name] for name in (*self._inner, self.loops["m"]))
        depth = self._depth(self.match.factors[0])
        points = columns * rows * depth * self._between
        products = points / prod(sides.values()) * machine.slots(self.match.instruction.name) / machine.ports.fma / BUSY
        panels, read = (
            columns * self._depth(self.match.factors[1]),
            self._box(grid) if self._lies_along else rows * depth,
        )
        copying = self.is_copied * read * (COPIED if self._lies_along else PACKED)
        packing = (not self.is_ahead) * panels * PACKED + copying
        cores = self.target.settings.cores
        turns = -(-groups // cores) + (UNEVEN if cores > 1 else 0)
        all_rows = all(grid[name] >= self.view.ranges[name] for name in (*self._inner, self.loops["m"]))
        reads = 1 if all_rows and read * WORD.bytes <= self._near else turns
        far = (panels * turns + read * reads) * WORD.bytes * self._from_afar
        return turns * (products + packing + rows * self._page) + far

    @property
    def _page(self) -> float:
        """Cycles that a row of results takes which begins on another page than the one before."""
        return max((t.latency for t in self.target.machine.pages.tlbs), default=0.0)

    @property
    def _from_afar(self) -> float:
        """Cycles of a byte that the second cache does not hold."""
        far = self.target.machine.caches[-1]
        return 1 / far.bandwidth

    @property
    def _near(self) -> int:
        """Bytes of the second cache that panels take, and rows that stay beside them."""
        return self._second // NEAR

    @property
    def _first(self) -> int:
        """Bytes of the first cache that rows may take."""
        return max((c.bytes * 3 // 4 for c in self.target.machine.caches if c.level == 1), default=1 << 15)

    @property
    def _second(self) -> int:
        """Bytes of the second cache."""
        return max((c.bytes for c in self.target.machine.caches if c.level == SECOND), default=1 << 20)

    def _depth(self, use: Use) -> int:
        """Words of a factor along the steps."""
        moved = {name for f in use.forms for name in f.names}
        return prod(self.view.ranges[s] for s in self.steps if s in moved)

    def _fitting_columns(self) -> int:
        """Columns whose panels take their part of the second cache."""
        n = self.loops["n"]
        each = self._depth(self.match.factors[1]) * WORD.bytes
        tiles = max(1, self._near // (each * self.tile[n]))
        return -(-min(self.view.ranges[n], tiles * self.tile[n]) // self.tile[n]) * self.tile[n]

    @cached_property
    def _tiled(self) -> tuple[Level, ...]:
        """Levels from a group to a step: the columns of a box of rows stay near for all of its rows."""
        m, n = (Level(Bind.NONE, (Cover(name, self.tile[name]),)) for name in (self.loops["m"], self.loops["n"]))
        folded = (self.fold.outer,) if self.fold is not None else ()
        covers = tuple(Cover(name, self.tile.get(name, 1)) for name in self._inner if name not in folded)
        inner = (Level(Bind.NONE, covers),) if covers else ()
        if not self.block:
            return (*inner, m, n)
        others = {name: 1 for name in self._inner if name not in self.block}
        box = Level(Bind.NONE, tuple(map(self._cover, *zip(*(others | self.block).items(), strict=True))))
        return (box, n, *inner, m)

    def _cover(self, name: str, size: int) -> Cover:
        """Rows that go on as one are covered whole, however long a step of them is."""
        whole = self.fold is not None and name == self.fold.inner
        return Cover(name, max(size, self.tile[name]) if whole else size)

    def plan(self) -> Plan:
        n, k = self.loops["n"], self.loops["k"]
        sides = self.match.instruction.sides
        order = (*self._moving, *self._inner, n, self.loops["m"])
        levels = [Level(Bind.GRID, tuple(self._cover(name, self.grid[name]) for name in order)), *self._tiled]
        own, deep = (Cover(name, 1) for name in self.steps[:-1]), Cover(k, sides["k"])
        levels.append(Level(Bind.NONE, (deep, *own) if self._is_deep else (*own, deep)))
        levels.append(Level(Bind.VECTOR, (Cover(n, 1),), lanes=sides["n"]))
        stagings = tuple(sorted(self._stagings(), key=lambda s: s.level))
        padded = ((self.fold.inner, Edge.PAD),) if self.fold is not None else ()
        edges = (*padded, (n, Edge.MASK))
        instruction = Instruction(self.match.instruction.name, self.match.loops)
        return Plan(tuple(levels), stagings, (), edges, instruction, "products of tiles")


def _share(extent: int, tile: int, wanted: int, groups: int) -> int:
    """Iterations of a loop for each group, whole tiles, so that there are about as many groups as wanted."""
    parts = max(1, -(-wanted // max(1, groups)))
    return min(extent, -(-extent // (parts * tile)) * tile)


def _even(extent: int, most: int) -> int:
    """Iterations of the fewest equal parts of at most so many."""
    return -(-extent // -(-extent // most))


def _evenly(extent: int, most: int, tile: int = 1) -> int:
    """Iterations, whole tiles, of the fewest parts of at most so many that are equal, or nearly so where that saves many."""
    if not 0 < most < extent:
        return min(most, extent)
    whole = max((size for size in range(tile, most + 1, tile) if extent % size == 0), default=0)
    return whole if 2 * whole > most else -(-extent // (-(-extent // most) * tile)) * tile
