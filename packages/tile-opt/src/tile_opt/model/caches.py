"""Cache misses per level: lines fetched from the next level, from a kernel's loops and the footprints of its innermost bodies.

What one iteration of a loop touches stays in a level as far as it fits (in its sets, not only its bytes), and is then at
hand for the next iteration; so a whole run of that loop fetches each distinct line once. Loops around it repeat that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import prod

from tile_ir.frozen import replace
from tile_ir.machine import Cache, Machine, Pages
from tile_ir.stripe.nodes import ITEMS, STATIC, Bind
from tile_ir.target import HardwareSettings

from tile_opt.model.footprint import Box, box, union
from tile_opt.model.scheduled import Access, Buffer, Loop, Tree

ANY_WAY, NO_WAY = 0.5, 0.8
"""Shares of the ways of the sets that strided rows fall into up to which all lines stay, and from which none does."""
MANY, SHORT = 32, 2048
"""Runs, and bytes of one, that make strided rows: what stays of them is a matter of ways, not of bytes."""

Lines = dict[Buffer, list[float]]
"""Lines per level of cache."""


@dataclass(slots=True)
class _Node:
    tree: Tree
    accesses: list[Access]
    """Of its own statements, those of registers left out."""
    inner: list[_Node]
    below: list[Access]
    """All beneath it."""
    entry: Lines = field(default_factory=Lines)
    """Lines of one entry, were nothing at hand before."""
    stays: Lines = field(default_factory=Lines)
    """Per buffer and level, the share that is still there when the node is entered again at once."""
    touched: dict[Buffer, _Touched] = field(default_factory=dict[Buffer, "_Touched"])
    """What one entry touches, until the node around it takes it over."""


def traffic(tree: Tree, machine: Machine) -> dict[int, Lines]:
    """By `id` of each tree with statements: the lines its statements fetch, per buffer and level, in the whole kernel.

    A kernel is taken to run again and again: what fits in a level is there when it starts. Behind the caches, where pages
    matter, follow those that each level of translations looks up.
    """
    found = _traffic(tree, machine)
    if not _many_pages(tree, machine):
        return found
    pages = _traffic(tree, replace(machine, caches=_translations(machine), pages=Pages()))
    huge = machine.pages.huge_from
    for number, lines in found.items():
        for buffer, levels in lines.items():
            levels += [0.0 if 0 < huge <= buffer.bytes else n for n in pages[number][buffer]]
    return found


def _traffic(tree: Tree, machine: Machine) -> dict[int, Lines]:
    walk = _Walk(tree, machine)
    root = _node(tree)
    walk.enter(root, frozenset())
    total = {b: [n * (1 - s) for n, s in zip(lines, root.stays[b], strict=True)] for b, lines in root.entry.items()}
    found: dict[int, Lines] = {}
    walk.share(root, total, found)
    return found


def _translations(machine: Machine) -> tuple[Cache, ...]:
    """The levels that keep translations of addresses, as caches of pages."""
    page, tlbs = machine.pages.bytes, machine.pages.tlbs
    return tuple(Cache(n, t.entries * page, t.entries, page) for n, t in enumerate(tlbs, 1))


def _many_pages(tree: Tree, machine: Machine) -> bool:
    """Some loop steps over pages, of more than the nearest translations reach."""
    pages = machine.pages
    if machine.is_gpu or not pages.tlbs:
        return False
    reach = pages.tlbs[0].entries * pages.bytes
    return any(
        term.stride >= pages.bytes and term.stride * term.extent > reach
        for leaf in tree.walk()
        for access in leaf.accesses.values()
        if not 0 < pages.huge_from <= access.buffer.bytes
        for term in access.terms
    )


def _node(tree: Tree) -> _Node:
    own = [a for a in tree.accesses.values() if not (a.buffer.in_registers or tree.passing(a))]
    inner = [_node(t) for t in tree.inner]
    return _Node(tree, own, inner, [*own, *(a for n in inner for a in n.below)])


class _Touched:
    """What some accesses touch of one buffer while some loops stand still."""

    __slots__ = ("accesses", "boxes", "buffer", "line", "lines", "moved", "moving")

    def __init__(self, buffer: Buffer, accesses: list[Access], line: int, moved: bool) -> None:
        self.buffer, self.accesses, self.line, self.moved = buffer, accesses, line, moved
        self.moving = frozenset(n for a in accesses for t in a.terms for n in t.loops)
        self.boxes: list[Box] = []
        self.lines = 0.0

    def stand(self, fixed: frozenset[str]) -> None:
        """Find the boxes while the loops `fixed` stand still and all others run."""
        boxes = [box(a, fixed, self.line) for a in self.accesses]
        self.boxes = union(boxes, self.line) if len(boxes) > 1 else boxes
        lines = sum([b.lines(self.line) for b in self.boxes])
        self.lines = min(lines, -(-self.buffer.bytes // self.line))


class _Walk:
    def __init__(self, tree: Tree, machine: Machine) -> None:
        self.caches = machine.caches
        self.line = self.caches[0].sector or self.caches[0].line
        self.hashed = machine.is_gpu
        """Sets are chosen by a hash of the address, so strides do not matter."""
        self.pages = machine.pages
        self.split, self.ways = _parallel(tree, machine)
        self.private = [c.shared < self.ways for c in self.caches]
        everything = (a for t in tree.walk() for a in t.accesses.values())
        self.moved = {a.buffer for a in everything if a.moved_by(self.split)}

    def touched(
        self, accesses: list[Access], fixed: frozenset[str], inner: Sequence[_Node] = ()
    ) -> dict[Buffer, _Touched]:
        """By buffer, what is touched while all loops but the `fixed` ones run; as found for the one node within that touches all of it."""
        buffers: dict[Buffer, list[Access]] = {}
        for access in accesses:
            buffers.setdefault(access.buffer, []).append(access)
        found: dict[Buffer, _Touched] = {}
        for buffer, some in buffers.items():
            known = next((n.touched[buffer] for n in inner if buffer in n.touched), None)
            if known is None or len(known.accesses) < len(some):
                known = _Touched(buffer, some, self.line, buffer in self.moved)
                known.stand(fixed)
            found[buffer] = known
        return found

    def stays(self, touched: Sequence[_Touched], fixed: frozenset[str]) -> list[float]:
        """Per level, the share of what is touched that is still there when it is touched again."""
        total = part = sum(t.lines for t in touched)
        if self.split not in fixed and self.ways > 1:
            part = sum(t.lines / self.ways if t.moved else t.lines for t in touched)
        strided = not self.hashed and self._strided(touched)
        # Translations fall into no sets: all ways of a level are one.
        return [
            self._stays(
                cache, touched if strided and cache.ways * cache.line < cache.bytes else (), part if private else total
            )
            for cache, private in zip(self.caches, self.private, strict=True)
        ]

    def _stays(self, cache: Cache, strided: Sequence[_Touched], lines: float) -> float:
        """The share of so many lines that stays; what is `strided` needs room in its sets."""
        full = lines * self.line / cache.bytes
        if full >= cache.loses:
            return 0.0
        room = (cache.loses - full) / (cache.loses - cache.keeps) if full > cache.keeps else 1.0
        if not strided:
            return room
        crowd = max(self._crowd(cache, one) for one in strided)
        ways = (NO_WAY - crowd - full) / (NO_WAY - ANY_WAY) if crowd + full > ANY_WAY else 1.0
        return max(0.0, min(1.0, room, ways))

    def _strided(self, touched: Sequence[_Touched]) -> bool:
        """Most lines belong to short runs far apart."""
        boxes = [b for t in touched for b in t.boxes if b.rows and b.count >= MANY and b.run < SHORT]
        return bool(boxes) and sum(b.lines(self.line) for b in boxes) > sum(t.lines for t in touched) / 2

    def _crowd(self, cache: Cache, one: _Touched) -> float:
        """Share of the ways of the sets that a buffer falls into, beyond its share of the whole cache."""
        page = 0 if 0 < self.pages.huge_from <= one.buffer.bytes else self.pages.bytes
        return max(
            (b.pressure(cache, page) - b.lines(cache.line) * cache.line / cache.bytes for b in one.boxes if b.rows),
            default=0.0,
        )

    def enter(self, node: _Node, outside: frozenset[str]) -> None:
        """Fill in what one entry of the node, and of all within it, fetches; `outside` are the loops around the node."""
        loops = node.tree.serial
        fixed = outside | {i.name for i in loops}
        for inner in node.inner:
            self.enter(inner, fixed)
        node.touched = self.touched(node.below, fixed, node.inner)
        touched = [*node.touched.values()]
        node.stays = self._within(node, touched, fixed)
        each = self._each(touched, fixed)
        fetched = _mixed(each, self._body(node, fixed) if node.inner else each, node.stays)
        for loop in reversed(loops):
            fixed = fixed - {loop.name}
            moved = [one for one in touched if loop.name in one.moving]
            for one in moved:
                one.stand(fixed)
            repeated = {b: [n * loop.extent for n in lines] for b, lines in fetched.items()}
            once = {b: list(map(min, lines, repeated[b])) for b, lines in self._each(touched, fixed).items()}
            fetched = _mixed(once, repeated, self._beside(node.stays, loop))
            stays = self.stays(touched, fixed)
            # What a loop does not move is touched again at once: it stays as it did within an iteration.
            node.stays = node.stays | {one.buffer: stays for one in moved}
        share = node.tree.points / max(1, node.tree.entries * prod(i.extent for i in node.tree.loops))
        node.entry = {b: [n * share for n in lines] for b, lines in fetched.items()}

    def _within(self, node: _Node, touched: Sequence[_Touched], fixed: frozenset[str]) -> Lines:
        """What stays from one iteration of the node's statements to the next; as within its blocks, where each touches it all."""
        stays = self.stays(touched, fixed)
        found: Lines = {}
        for one in touched:
            inner = [n for n in node.inner if one.buffer in n.touched]
            whole = bool(inner) and all(n.touched[one.buffer].lines >= one.lines for n in inner)
            found[one.buffer] = (
                [min(levels) for levels in zip(*(n.stays[one.buffer] for n in inner), strict=True)] if whole else stays
            )
        return found

    def _beside(self, stays: Lines, loop: Loop) -> Lines:
        """Groups of a graphics processor run side by side, each with its own part of a near cache."""
        if not self.hashed or loop.bind is not Bind.GRID:
            return stays
        return {b: [0.0 if p else s for p, s in zip(self.private, found, strict=True)] for b, found in stays.items()}

    def _body(self, node: _Node, fixed: frozenset[str]) -> Lines:
        """One iteration of everything when nothing stays between statements and inner blocks."""
        total = self._each(self.touched(node.accesses, fixed).values(), fixed)
        for inner in node.inner:
            for buffer, lines in inner.entry.items():
                before = total.get(buffer)
                total[buffer] = lines if before is None else [a + b for a, b in zip(before, lines, strict=True)]
        return total

    def _each(self, touched: Iterable[_Touched], fixed: frozenset[str]) -> Lines:
        """Distinct lines, per level and all cores together: each core has its own of what the dealt loop does not move."""
        ways = self.ways if self.split not in fixed else 1
        found: Lines = {}
        for one in touched:
            own = one.lines if one.moved else one.lines * ways
            found[one.buffer] = [own if p else one.lines for p in self.private]
        return found

    def share(self, node: _Node, total: Lines, found: dict[int, Lines]) -> None:
        """Charge the node's `total` to its statements and inner blocks: whoever comes first fetches."""
        left = {b: list(lines) for b, lines in total.items()}
        if node.accesses and not node.inner:
            found[id(node.tree)] = left
        elif node.accesses:
            fixed = frozenset(i.name for i in node.tree.path if i.bind not in STATIC and i.bind not in ITEMS)
            own = self._each(self.touched(node.accesses, fixed).values(), fixed)
            found[id(node.tree)] = _taken(own, left, node.tree.passes)
        for inner in node.inner:
            self.share(inner, _taken(inner.entry, left, inner.tree.entries / node.tree.items), found)


def dealt(tree: Tree, cores: int) -> tuple[Loop, int] | None:
    """The innermost loop that is divided where each core takes a run of the groups, and into how many parts; None for one core."""
    groups = 1
    for loop in tree.loops:
        if loop.bind is Bind.GRID and groups * loop.extent >= cores > 1:
            return loop, -(-cores // groups)
        groups *= loop.extent if loop.bind is Bind.GRID else 1
    return dealt(tree, groups) if 1 < groups < cores else None


def _parallel(tree: Tree, machine: Machine) -> tuple[str, float]:
    """(grid loop whose iterations are dealt out, to how many cores)."""
    found = dealt(tree, machine.cores)
    if not machine.is_gpu:
        return (found[0].name, found[1]) if found else ("", 1)
    grids = [i for i in tree.loops if i.bind is Bind.GRID]
    ways = min(machine.cores, prod(i.extent for i in grids))
    for loop in reversed(grids):
        if loop.extent >= ways:
            return loop.name, ways
    return (grids[0].name, min(ways, grids[0].extent)) if grids else ("", 1)


def _taken(each: Lines, left: Lines, times: float) -> Lines:
    """Of what is left, `times` times what each takes, which is then gone."""
    taken: Lines = {}
    for buffer, lines in each.items():
        rest = left[buffer]
        taken[buffer] = [min(n * times, r) for n, r in zip(lines, rest, strict=True)]
        left[buffer] = [r - w for r, w in zip(rest, taken[buffer], strict=True)]
    return taken


def _mixed(once: Lines, again: Lines, stays: Lines) -> Lines:
    """Lines where the share that `stays` is fetched once, the rest each time."""
    return {
        b: [s * x + (1 - s) * y for s, x, y in zip(stays[b], lines, again[b], strict=True)] for b, lines in once.items()
    }


SHARE = 0.25
"""Of the last level: all of it is counted, and what is read and written beside needs room."""
NEARLY = 0.5
"""Of the way to memory: a level that lies beyond is no nearer than that to lines which come one by one."""


def lines_far_from(machine: Machine, settings: HardwareSettings, share: float = SHARE) -> float:
    """Bytes of a transpose's result from which its lines go to memory, and are not there for whoever reads it next.

    Where that is nearly as far as memory, what the cores' own levels hold together counts instead.
    """
    most = share * settings.l3_bytes
    if len(machine.caches) < 3:
        return most
    *_, own, last = machine.caches
    if last.latency < NEARLY * machine.cycles(machine.memory.latency * 1e-9):
        return most
    return min(most, own.bytes * max(1.0, settings.cores / own.shared))
