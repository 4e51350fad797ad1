"""Lines that each level of cache has to fetch from the next, from the loops of a kernel and what each leaf touches.

What one iteration of a loop touches stays in a level as far as it fits (in its sets, not only its bytes), and is then at
hand for the next iteration; so a whole run of that loop fetches each distinct line once. Loops around it repeat that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from tile_ir.machine import Cache, Machine
from tile_ir.stripe.nodes import Bind

from tile_opt.model.footprint import Box, box, union
from tile_opt.model.scheduled import STATIC, Access, Buffer, Tree

ALL_STAY = 0.8
"""Share of a level's ways up to which everything stays."""
NONE_STAYS = 1.5
"""Share of its ways from which a walk in a circle finds nothing again."""

Lines = dict[Buffer, list[float]]
"""Lines per level of cache."""


@dataclass(slots=True)
class _Node:
    tree: Tree
    accesses: tuple[Access, ...]
    """Of its own statements, those of registers left out."""
    inner: list[_Node]
    below: tuple[Access, ...]
    """All beneath it, each once."""
    entry: Lines = field(default_factory=Lines)
    """Lines of one entry, were nothing at hand before."""


def traffic(tree: Tree, machine: Machine) -> dict[int, Lines]:
    """By `id` of each tree with statements: the lines its statements fetch, per buffer and level, in the whole kernel.

    A kernel is taken to run again and again: what fits in a level is there when it starts.
    """
    walk = _Walk(tree, machine)
    root = walk.node(tree)
    walk.enter(root, frozenset())
    stays = walk.stays(walk.boxes(root.below, frozenset()), frozenset())
    total = {b: [n * (1 - s) for n, s in zip(lines, stays, strict=True)] for b, lines in root.entry.items()}
    found: dict[int, Lines] = {}
    walk.share(root, total, found)
    return found


@dataclass(frozen=True, slots=True)
class _Split:
    """A grid loop whose iterations are dealt out to `ways` cores."""

    loop: str
    ways: float


def _parallel(tree: Tree, cores: int) -> _Split:
    grids = [i for i in tree.loops if i.bind is Bind.GRID]
    groups = prod(i.extent for i in grids)
    ways = min(cores, groups)
    for loop in reversed(grids):
        if loop.extent >= ways:
            return _Split(loop.name, ways)
    return _Split(grids[0].name if grids else "", min(ways, grids[0].extent) if grids else 1)


class _Walk:
    def __init__(self, tree: Tree, machine: Machine) -> None:
        self.caches = machine.caches
        self.line = self.caches[0].line
        self.pages = machine.pages
        self.split = split = _parallel(tree, machine.cores)
        self.private = [c.shared < split.ways for c in self.caches]
        everything = (a for t in tree.walk() for a in t.accesses.values())
        self.moved = {a.buffer for a in everything if a.moved_by(split.loop)}
        self.known: dict[tuple[Access, frozenset[str]], Box] = {}

    def node(self, tree: Tree) -> _Node:
        own = tuple(a for a in tree.accesses.values() if not a.buffer.in_registers)
        inner = [self.node(t) for t in tree.inner]
        below = tuple(dict.fromkeys((*own, *(a for n in inner for a in n.below))))
        return _Node(tree, own, inner, below)

    # what is touched

    def boxes(self, accesses: Sequence[Access], fixed: frozenset[str]) -> dict[Buffer, list[Box]]:
        """By buffer, what is touched while all loops but the `fixed` ones run."""
        found: dict[Buffer, list[Box]] = {}
        for access in accesses:
            found.setdefault(access.buffer, []).append(self._box(access, fixed))
        return {b: union(boxes, self.line) if len(boxes) > 1 else boxes for b, boxes in found.items()}

    def _box(self, access: Access, fixed: frozenset[str]) -> Box:
        held = frozenset(n for t in access.terms for n in t.loops if n in fixed)
        key = (access, held)
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = box(access, held, self.line)
        return found

    def lines(self, boxes: Mapping[Buffer, list[Box]]) -> dict[Buffer, float]:
        return {b: min(sum(x.lines(self.line) for x in found), -(-b.bytes // self.line)) for b, found in boxes.items()}

    def stays(self, boxes: Mapping[Buffer, list[Box]], fixed: frozenset[str]) -> list[float]:
        """Per level, the share of the boxes that is still there when they are touched again."""
        lines = self.lines(boxes)
        dealt = self.split.ways if self.split.loop not in fixed else 1
        total = sum(lines.values())
        part = sum(n / dealt if b in self.moved else n for b, n in lines.items()) if dealt > 1 else total
        return [
            self._stays(cache, boxes, part if private else total)
            for cache, private in zip(self.caches, self.private, strict=True)
        ]

    def _stays(self, cache: Cache, boxes: Mapping[Buffer, list[Box]], lines: float) -> float:
        plain = lines * cache.line / cache.bytes
        if plain >= NONE_STAYS:
            return 0.0
        excess = 0.0
        for buffer, found in boxes.items():
            for one in found:
                if one.rows:
                    pressure = one.pressure(cache, self._page(buffer))
                    excess = max(excess, pressure - one.lines(cache.line) * cache.line / cache.bytes)
        return min(1.0, max(0.0, (NONE_STAYS - plain - excess) / (NONE_STAYS - ALL_STAY)))

    def _page(self, buffer: Buffer) -> int:
        huge = 0 < self.pages.huge_from <= buffer.bytes
        return 0 if huge else self.pages.bytes

    # what is fetched

    def enter(self, node: _Node, outside: frozenset[str]) -> None:
        """Fill in `entry` of the node and all within it; `outside` are the loops around the node."""
        loops = node.tree.serial
        fixed = outside | {i.name for i in loops}
        for inner in node.inner:
            self.enter(inner, fixed)
        boxes = self.boxes(node.below, fixed)
        stays = self.stays(boxes, fixed)
        fetched = _mixed(self._each(boxes, fixed), self._body(node, fixed), stays)
        for loop in reversed(loops):
            fixed = fixed - {loop.name}
            boxes = self.boxes(node.below, fixed)
            repeated = {b: [n * loop.extent for n in lines] for b, lines in fetched.items()}
            once = {b: list(map(min, lines, repeated[b])) for b, lines in self._each(boxes, fixed).items()}
            fetched = _mixed(once, repeated, stays)
            stays = self.stays(boxes, fixed)
        share = node.tree.points / max(1, node.tree.entries * prod(i.extent for i in node.tree.loops))
        node.entry = {b: [n * share for n in lines] for b, lines in fetched.items()}

    def _body(self, node: _Node, fixed: frozenset[str]) -> Lines:
        """One iteration of everything when nothing stays between statements and inner blocks."""
        if not node.inner:
            return self._each(self.boxes(node.below, fixed), fixed)
        total = self._each(self.boxes(node.accesses, fixed), fixed)
        for inner in node.inner:
            for buffer, lines in inner.entry.items():
                before = total.get(buffer)
                total[buffer] = lines if before is None else [a + b for a, b in zip(before, lines, strict=True)]
        return total

    def _each(self, boxes: Mapping[Buffer, list[Box]], fixed: frozenset[str]) -> Lines:
        """Distinct lines, per level and all cores together: each core has its own of what the dealt loop does not move."""
        ways = self.split.ways if self.split.loop not in fixed else 1
        found: Lines = {}
        for buffer, lines in self.lines(boxes).items():
            own = lines if buffer in self.moved else lines * ways
            found[buffer] = [own if p else lines for p in self.private]
        return found

    def share(self, node: _Node, total: Lines, found: dict[int, Lines]) -> None:
        """Charge the node's `total` to its statements and inner blocks: whoever comes first fetches."""
        left = {b: list(lines) for b, lines in total.items()}
        times = node.tree.points
        if node.accesses:
            fixed = frozenset(i.name for i in node.tree.path if i.bind not in STATIC)
            own = self._each(self.boxes(node.accesses, fixed), fixed)
            found[id(node.tree)] = self._taken(own, left, times, bool(node.inner))
        for inner in node.inner:
            self.share(inner, self._taken(inner.entry, left, inner.tree.entries, True), found)

    def _taken(self, each: Lines, left: Lines, times: float, bounded: bool) -> Lines:
        taken: Lines = {}
        for buffer, lines in each.items():
            rest = left[buffer]
            wanted = [min(n * times, r) if bounded else r for n, r in zip(lines, rest, strict=True)]
            left[buffer] = [r - w for r, w in zip(rest, wanted, strict=True)]
            taken[buffer] = wanted
        return taken


def _mixed(once: Lines, again: Lines, stays: Sequence[float]) -> Lines:
    """Lines where the share `stays` is fetched once, the rest each time."""
    return {
        b: [s * x + (1 - s) * y for s, x, y in zip(stays, lines, again[b], strict=True)] for b, lines in once.items()
    }
