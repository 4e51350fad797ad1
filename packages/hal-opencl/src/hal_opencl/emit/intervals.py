"""Ranges of integer expressions, so that subscripts that cannot overflow are written plainly."""

from __future__ import annotations

from collections.abc import Callable

from tile_ir.semtree.nodes import Binary, Cast, Const, Expr, For, IdKind, Type, Var, WorkId

Interval = tuple[int, int]
Lookup = Callable[[str], str]


class Intervals:
    """What is known of the integer variables, by their identifiers in the text.

    `groups` is the grid; expressions are shallow (`prepare`), so recursion is bounded.
    """

    def __init__(self, groups: tuple[int, int, int]) -> None:
        self.groups = groups
        self.group_size: tuple[int, int, int] = (1, 1, 1)
        self.known: dict[str, Interval] = {}
        # With the expressions, so that no other ones get their identities.
        self._found: dict[int, tuple[Expr, Interval | None]] = {}

    def of(self, expr: Expr, lookup: Lookup) -> Interval | None:
        """Smallest and largest value of a scalar, None when unknown."""
        found = self._found.get(id(expr))
        if found is None:
            found = self._found[id(expr)] = expr, self._computed(expr, lookup)
        return found[1]

    def forget(self) -> None:
        """What has been found of expressions: variables come, with names of others perhaps."""
        self._found.clear()

    def _computed(self, expr: Expr, lookup: Lookup) -> Interval | None:
        if expr.type.lanes != 1 or not expr.type.dtype.is_integer or expr.type.ptr:
            return None
        match expr:
            case Const(value):
                return int(value), int(value)
            case Var(name):
                return self.known.get(lookup(name))
            case WorkId(kind, axis):
                return 0, max(0, self._extent(kind, axis) - 1)
            case Cast(value, t):
                return _inside(self.of(value, lookup), t)
            case Binary(op, left, right, t):
                return _inside(_combined(op, self.of(left, lookup), self.of(right, lookup)), t)
            case _:
                return None

    def _extent(self, kind: IdKind, axis: int) -> int:
        groups, size = self.groups[axis], self.group_size[axis]
        return {IdKind.GROUP: groups, IdKind.LOCAL: size, IdKind.GLOBAL: groups * size}[kind]

    def fits(self, expr: Expr, lookup: Lookup) -> bool:
        """The expression's exact value is known to lie in its type."""
        return self.of(expr, lookup) is not None

    def not_negative(self, expr: Expr, lookup: Lookup) -> bool:
        found = self.of(expr, lookup)
        return found is not None and found[0] >= 0

    def loop(self, node: For, lookup: Lookup) -> Interval | None:
        """Values of a loop's variable."""
        start, stop = self.of(node.start, lookup), self.of(node.stop, lookup)
        if start is None or stop is None:
            return None
        return start[0], max(start[0], stop[1] - 1)


def _inside(interval: Interval | None, t: Type) -> Interval | None:
    """The interval if it lies in the type; an operation that could wrap is unknown."""
    if interval is None or interval[0] < t.dtype.min_value or interval[1] > t.dtype.max_value:
        return None
    return interval


def _combined(op: str, a: Interval | None, b: Interval | None) -> Interval | None:
    if a is None or b is None:
        return None
    match op:
        case "add":
            return a[0] + b[0], a[1] + b[1]
        case "sub":
            return a[0] - b[1], a[1] - b[0]
        case "mul":
            ends = [x * y for x in a for y in b]
            return min(ends), max(ends)
        case "max" | "min":
            pick = max if op == "max" else min
            return pick(a[0], b[0]), pick(a[1], b[1])
        case "mod" if b[0] > 0:
            return 0, b[1] - 1
        case "div" if a[0] >= 0 and b[0] > 0:
            return a[0] // b[1], a[1] // b[0]
        case _:
            return None
