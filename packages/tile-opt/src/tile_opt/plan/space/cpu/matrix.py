"""Plans of contractions on tile registers of processors: blocks of tiles, and panels of the second factor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import gcd, prod

from tile_ir.dots import WORD
from tile_ir.matrix.x86 import TILE, TILED_INSTRUCTIONS
from tile_ir.stripe.nodes import Bind
from tile_ir.target import Target

from tile_opt.kernel.instructions import Match
from tile_opt.kernel.strides import flat_stride
from tile_opt.kernel.view import KernelView, Use
from tile_opt.kernel.work import merged_use
from tile_opt.plan.builders.widened import Widened, on_whole_tiles
from tile_opt.plan.plan import Cover, Edge, Instruction, Level, Plan, Staging

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
SHAPES = ((2, 2), (4, 1))
"""Tiles of rows and of columns in a step, at most: four sums, for which registers suffice."""


def plans(view: KernelView, target: Target) -> Iterator[Plan]:
    """A plan for each way in which the kernel is one of the target's instructions on tiles, fewest wasted products first."""
    for name in target.matrix:
        instruction = TILED_INSTRUCTIONS.get(name)
        for found in on_whole_tiles(view, instruction) if instruction is not None else ():
            yield _Space(found, target).plan()


def is_on_tiles(view: KernelView, target: Target) -> bool:
    """The kernel is one of the target's instructions on tiles."""
    known = (TILED_INSTRUCTIONS[name] for name in target.matrix if name in TILED_INSTRUCTIONS)
    return any(on_whole_tiles(view, instruction) for instruction in known)


@dataclass(frozen=True)
class _Space:
    tiles: Widened
    target: Target

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

    @cached_property
    def tile(self) -> dict[str, int]:
        """Rows and columns of a step, and iterations of the loop aside that have rows in it: those that read least a product."""
        return min(self._steps(), key=self._words)

    def _steps(self) -> Iterator[dict[str, int]]:
        """Equal parts of what there is; where windows slide, their rows come from several iterations, so that none is left over."""
        sides, (m, n) = self.match.instruction.sides, (self.loops[role] for role in "mn")
        whole = {name: -(-self.view.ranges[name] // sides[role]) for role, name in zip("mn", (m, n), strict=True)}
        for rows, columns in SHAPES:
            aside = self.aside if columns == 1 else ()
            along = gcd(whole[m], rows) if aside else _even(whole[m], rows)
            found = {m: along * sides["m"], n: _even(whole[n], columns) * sides["n"]}
            found |= dict.fromkeys(aside, rows // along)
            yield {name: min(size, self.view.ranges[name]) for name, size in found.items()}

    @cached_property
    def aside(self) -> tuple[str, ...]:
        """The loop whose windows have half of their rows or more in common with the next ones, if any."""
        return tuple(n for n in self.sliding[-1:] if all(2 * by <= rows for by, rows in self._slides(n)))

    def _slides(self, name: str) -> Iterator[tuple[int, int]]:
        """By how many elements windows move along each dimension of the first factor, and how many they have there."""
        for form in self.factors[0].forms:
            rows = sum(abs(form.coefficient(s)) * (self.view.ranges[s] - 1) for s in self.steps) + 1
            if name in form.names:
                yield abs(form.coefficient(name)), rows

    def _words(self, step: Mapping[str, int]) -> float:
        """Words of both factors that the products of all steps read from the second cache or beyond, for each of them.

        Rows of overlapping windows are read from a box again and again, which costs nothing where the first cache holds them.
        """
        m, n = (self.loops[role] for role in "mn")
        rows = {name: size for name, size in step.items() if name != n}
        read, depth = self._box(rows), self._depth(self.factors[1])
        boxed = self.sliding and self._is_near(self._few(self.view.ranges) | {m: rows[m]})
        if boxed and read * WORD.bytes > self._first:
            read = SCATTERED * prod(rows.values()) * depth
        return (read + step[n] * depth) / (prod(step.values()) * depth)

    @cached_property
    def factors(self) -> tuple[Use, Use]:
        left, right = (self.match.main.use(n) for n in (self.match.left, self.match.right))
        return left, right

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
        use, n = self.factors[1], self.loops["n"]
        moved = {name for f in use.forms for name in f.names}
        return use.buffer in self.view.fixed and moved <= {*self.steps, n} and not self.view.ranges[n] % self.tile[n]

    @property
    def _lies_along(self) -> bool:
        """Words of the first factor lie side by side along the depth."""
        return flat_stride(self.view, self.factors[0], self.loops["k"]) == 1

    @property
    def is_copied(self) -> bool:
        """Rows of the first factor are copied: these lie in another way, end within a tile, or are made on the way."""
        left = self.factors[0]
        return not self._lies_along or self.tiles.leaves(left) or self._is_made_alone(left)

    @cached_property
    def block(self) -> dict[str, int]:
        """Iterations of a group that read one box of the first factor's rows; none where no windows overlap in it."""
        m, sliding = self.loops["m"], self.sliding
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
        forms = [f for f in self.factors[0].forms if not {*f.names}.isdisjoint(self.steps)]
        found = (n for n in self._inner if any(n in f.names for f in forms))
        return tuple(found) if self.is_copied and self._lies_along else ()

    def _is_near(self, block: Mapping[str, int]) -> bool:
        """The box stays in the second cache beside panels and results."""
        return self._box(block) * WORD.bytes <= self._second // BOX

    def _box(self, sizes: Mapping[str, int]) -> int:
        """Words of the first factor around all that so many iterations of some loops read in their steps."""
        left = self.factors[0]
        spans = {name: (0, extent - 1) for name, extent in sizes.items()}
        spans |= {name: (0, self.view.ranges[name] - 1) for name in self.steps}
        ends = ([f.coefficient(n) * at for n in f.names if n in spans for at in spans[n]] for f in left.forms)
        return prod(sum(map(abs, e)) + 1 for e in ends)

    def _is_made_alone(self, use: Use) -> bool:
        """A kernel makes the factor for this one alone, and no element of it is needed in several places."""
        return use.buffer in self.view.through and all(len(f.terms) <= 1 for f in use.forms)

    def _stagings(self) -> Iterator[Staging]:
        """Panels of the second factor, rows of the first where they do not lie side by side, and the sum's registers."""
        left, right = self.factors
        n = self.loops["n"]
        if self.is_ahead:
            yield Staging(right.buffer, -1, "DRAM", (*self.steps, n))
        else:
            moved = {name for f in right.forms for name in f.names}
            yield Staging(right.buffer, 0, "L2", tuple(s for s in (*self.steps, n) if s in moved))
        if self.is_copied:
            moved = {name for f in left.forms for name in f.names}
            order = (self.loops["m"], *(s for s in self.steps if s in moved))
            yield Staging(left.buffer, 1 if self.block else self._rows_level, "L2", () if self._lies_along else order)
        total = merged_use(self.match.main)
        assert total is not None, "a match aggregates"
        yield Staging(total.buffer, len(self._tiled), TILE)

    @property
    def _rows_level(self) -> int:
        """The level of a step's rows."""
        return next(at for at, level in enumerate(self._tiled, 1) if level.cover(self.loops["m"]) is not None)

    # --- levels -----------------------------------------------------------------------------------------

    @cached_property
    def _moving(self) -> frozenset[str]:
        """Loops beside the tile for whose iterations panels differ."""
        names = {n for f in self.factors[1].forms for n in f.names}
        return frozenset(names.intersection(self.beside))

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
        for name in (*self._inner, self.loops["m"]):
            found[name] = _share(self.view.ranges[name], self.tile.get(name, 1), wanted, groups)
            groups *= -(-self.view.ranges[name] // found[name])
        return found

    def _cycles(self, grid: Mapping[str, int]) -> float:
        """Of the core that has the most groups: their products, packing their panels, and what comes from afar.

        Rows that stay beside the panels come from afar once for all groups.
        """
        machine, sides = self.target.machine, self.match.instruction.sides
        groups = prod(-(-self.view.ranges[name] // size) for name, size in grid.items())
        columns, rows = grid[self.loops["n"]], prod(grid[name] for name in (*self._inner, self.loops["m"]))
        depth = self._depth(self.factors[0])
        points = columns * rows * depth
        products = points / prod(sides.values()) * machine.slots(self.match.instruction.name) / machine.ports.fma / BUSY
        panels, read = columns * self._depth(self.factors[1]), self._box(grid) if self._lies_along else rows * depth
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
        each = self._depth(self.factors[1]) * WORD.bytes
        tiles = max(1, self._near // (each * self.tile[n]))
        return -(-min(self.view.ranges[n], tiles * self.tile[n]) // self.tile[n]) * self.tile[n]

    @cached_property
    def _tiled(self) -> tuple[Level, ...]:
        """Levels from a group to a step: the columns of a box of rows stay near for all of its rows."""
        m, n = (Level(Bind.NONE, (Cover(name, self.tile[name]),)) for name in (self.loops["m"], self.loops["n"]))
        covers = tuple(Cover(name, self.tile.get(name, 1)) for name in self._inner)
        inner = (Level(Bind.NONE, covers),) if covers else ()
        if not self.block:
            return (*inner, m, n)
        others = {name: 1 for name in self._inner if name not in self.block}
        box = Level(Bind.NONE, tuple(Cover(*entry) for entry in (others | self.block).items()))
        return (box, n, *inner, m)

    def plan(self) -> Plan:
        n, k = self.loops["n"], self.loops["k"]
        sides = self.match.instruction.sides
        order = (*self._moving, *self._inner, n, self.loops["m"])
        levels = [Level(Bind.GRID, tuple(Cover(name, self.grid[name]) for name in order)), *self._tiled]
        own = (Cover(name, 1) for name in self.steps[:-1])
        levels.append(Level(Bind.NONE, (*own, Cover(k, sides["k"]))))
        levels.append(Level(Bind.VECTOR, (Cover(n, 1),), lanes=sides["n"]))
        stagings = tuple(sorted(self._stagings(), key=lambda s: s.level))
        edges = ((n, Edge.MASK),)
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
