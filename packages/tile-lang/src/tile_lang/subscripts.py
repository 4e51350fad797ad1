"""Subscripts of a contraction: index formulas, and tensors whose elements are subscripts.

``O[i, j : N, K] = =(D[i, I[j]])`` reads where data says, ``O[I[k] : N] = +(U[k])`` writes there. The contraction itself
stays affine: what it reads is gathered before it, what it writes is scattered behind it, by the coordinates of a
tensor with one dimension for each distinct index formula among the subscripts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tile_ir.frozen import frozen
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import (
    Constraint,
    Contraction,
    Gather,
    Lookup,
    Poly,
    Scatter,
    Subscript,
    TensorType,
    coordinates,
)

from tile_lang import ast
from tile_lang.borders import Ranges, bordered, sliced
from tile_lang.formulas import bind_formula
from tile_lang.scope import Scope, origin, plural
from tile_lang.values import Const, Tensor, fail

# --- accesses ------------------------------------------------------------------------------------


@frozen
class Access:
    """A tensor with affine subscripts, and the constraints of all subscripts that the text has there."""

    value: Tensor | Const
    formulas: tuple[Poly, ...]
    constraints: tuple[Constraint, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.type.shape if isinstance(self.value, Tensor) else ()


def bind_access(scope: Scope, ref: ast.Ref, order: Sequence[Poly] = (), ranges: Ranges | None = None) -> Access:
    """What ``X[subscripts…]`` reads; dimensions of what is gathered follow `order` where they can.

    Subscripts with borders need `ranges` of the indexes in them.
    """
    value = scope.scalar(scope.lookup(ref.name.id, ref.name.span), ref.name.span, ref.name.id)
    shape = value.type.shape if isinstance(value, Tensor) else ()
    if len(shape) != len(ref.indexes):
        message = f"{ref.name.id} has {plural(len(shape), 'dimension')} but {plural(len(ref.indexes), 'index formula')}"
        hint = "a constant is written with empty brackets" if isinstance(value, Const) else None
        fail("TILE-E108", message, ref.span, hint)
    beyond: dict[int, Poly] = {}
    if isinstance(value, Tensor) and ranges is not None and any(isinstance(n, ast.Border) for n in ref.indexes):
        value, beyond = _bordered(scope, value, ref.indexes, ranges)
        shape = value.type.shape
    parts = [beyond[k] if k in beyond else _bind_part(scope, p, ranges) for k, p in enumerate(ref.indexes)]
    formulas = tuple(p for p in parts if isinstance(p, Poly))
    found = _constraints(parts, shape, ref.indexes)
    if len(formulas) == len(parts) or isinstance(value, Const):
        return Access(value, formulas, found)
    places = _Places.of(parts, shape, order)
    type_ = TensorType(value.type.dtype, places.extents)
    subscripts = places.subscripts(parts, shape)
    gathered = scope.emit(Gather(scope.fresh(), type_, value.name, subscripts, origin(ref.span)))
    return Access(gathered, places.formulas, found)


def _bordered(
    scope: Scope, value: Tensor, subscripts: Sequence[ast.Subscript], ranges: Ranges
) -> tuple[Tensor, dict[int, Poly]]:
    """What is read with its borders, and the formulas that read it there; of dimensions with one place nothing else is copied."""
    shape = value.type.shape
    plain = {k: bind_formula(scope, n) for k, n in enumerate(subscripts) if not isinstance(n, ast.Border | ast.Ref)}
    fixed = {k: f for k, f in plain.items() if not f.names and f.const.denominator == 1 and 0 <= f.const < shape[k]}
    value = sliced(scope, value, fixed, origin(subscripts[0].span)) if fixed else value
    beyond = dict.fromkeys(fixed, Poly())
    for axis, node in enumerate(subscripts):
        if isinstance(node, ast.Border):
            value, beyond[axis] = bordered(scope, value, axis, node, ranges)
    return value, beyond


def _bind_part(scope: Scope, node: ast.Subscript, ranges: Ranges | None = None) -> Poly | Access:
    if isinstance(node, ast.Border):
        hint = "what is read may lie beyond an edge; tuples that would write there are left out"
        fail("TILE-E014", f"{node.mode}(…) stands in what a contraction reads only", node.span, hint)
    return _data(scope, node, ranges) if isinstance(node, ast.Ref) else bind_formula(scope, node)


def _data(scope: Scope, ref: ast.Ref, ranges: Ranges | None) -> Access:
    """A subscript that is data: integers."""
    access = bind_access(scope, ref, (), ranges)
    if isinstance(access.value, Const):
        hint = f"write {ref.name.id} without brackets"
        fail("TILE-E126", f"the subscript {ref.name.id} is a constant, not a tensor of subscripts", ref.span, hint)
    dtype = access.value.type.dtype
    if not dtype.is_integer:
        hint = f"convert them before: J = as_int({ref.name.id}, 32)"
        fail("TILE-E126", f"subscripts must be integers; {ref.name.id} holds {dtype}", ref.span, hint)
    return access


def _constraints(
    parts: Sequence[Poly | Access], shape: Sequence[int], nodes: Sequence[ast.Subscript]
) -> tuple[Constraint, ...]:
    """Formulas must lie inside their dimensions; data is clamped, but its own subscripts must as well."""
    found: list[Constraint] = []
    for part, size, node in zip(parts, shape, nodes, strict=True):
        found += part.constraints if isinstance(part, Access) else (Constraint(part, size, origin(node.span)),)
    return tuple(found)


@frozen
class _Places:
    """The dimensions of what is gathered or scattered: distinct formulas with their extents."""

    formulas: tuple[Poly, ...]
    extents: tuple[int, ...]

    @staticmethod
    def of(parts: Sequence[Poly | Access], shape: Sequence[int], order: Sequence[Poly] = ()) -> _Places:
        extents: dict[Poly, int] = {}
        for part, size in zip(parts, shape, strict=True):
            inner = zip(part.formulas, part.shape, strict=True) if isinstance(part, Access) else ((part, size),)
            for formula, extent in inner:
                if not _fixed(formula, extent):
                    extents[formula] = min(extent, extents.get(formula, extent))
        rank = {formula: k for k, formula in enumerate(order)}
        if extents.keys() <= rank.keys():
            extents = {f: extents[f] for f in sorted(extents, key=rank.__getitem__)}
        return _Places(tuple(extents), tuple(extents.values()))

    def subscripts(self, parts: Sequence[Poly | Access], shape: Sequence[int]) -> tuple[Subscript, ...]:
        """The subscripts of the table that is gathered from or scattered to."""
        return tuple(self._subscript(part, size) for part, size in zip(parts, shape, strict=True))

    def _subscript(self, part: Poly | Access, size: int) -> Subscript:
        if isinstance(part, Poly):
            return self._coordinate(part, size)
        assert isinstance(part.value, Tensor)
        cell = (self._coordinate(f, n) for f, n in zip(part.formulas, part.shape, strict=True))
        return Lookup(part.value.name, tuple(cell))

    def _coordinate(self, formula: Poly, extent: int) -> Poly:
        if _fixed(formula, extent):
            return formula
        return coordinates(len(self.formulas))[self.formulas.index(formula)]


def _fixed(formula: Poly, extent: int) -> bool:
    """One number inside the dimension: it needs no coordinate."""
    return not formula.terms and formula.const.denominator == 1 and 0 <= formula.const < extent


# --- targets -------------------------------------------------------------------------------------


@frozen
class Place:
    """Where a contraction writes: to ``[formulas… : extents…]``, and from there to the subscripts of `shape`."""

    formulas: tuple[Poly, ...]
    extents: tuple[int, ...]
    constraints: tuple[Constraint, ...]
    shape: tuple[int, ...]
    subscripts: tuple[Subscript, ...] = ()
    """Empty when all subscripts are formulas."""


def bind_place(scope: Scope, target: ast.Target, shape: tuple[int, ...]) -> Place:
    """The subscripts of a contraction's target of this shape."""
    parts = [_bind_part(scope, node) for node in target.indexes]
    found = _constraints(parts, shape, target.indexes)
    formulas = tuple(p for p in parts if isinstance(p, Poly))
    if len(formulas) == len(parts):
        return Place(formulas, shape, found, shape)
    places = _Places.of(parts, shape)
    return Place(places.formulas, places.extents, found, shape, places.subscripts(parts, shape))


def append(scope: Scope, op: Contraction, place: Place, loads: Sequence[Access], since: int) -> Tensor:
    """Append a contraction to `place`, with its scatter; `since` operations stood before its statement.

    Where it only copies what was gathered for it, or what is to be scattered, it is left out itself.
    """
    copied = _copied(op, loads)
    if not place.subscripts:
        plain = op.agg is Aggregation.ASSIGN and op.default is None and len(scope.ops) > since
        if copied and plain and isinstance(scope.ops[-1], Gather) and scope.rename_last(copied.name, op.name, since):
            return Tensor(op.name, copied.type)
        return scope.emit(op)
    source = copied or scope.emit(_values(scope, op))
    type_ = TensorType(op.type.dtype, place.shape)
    return scope.emit(Scatter(op.name, type_, source.name, place.subscripts, op.agg, op.default, op.origin))


def _values(scope: Scope, op: Contraction) -> Contraction:
    """The contraction of the values that are scattered; each cell must have one."""
    if (op.agg is not Aggregation.SUM or op.default is not None) and not _covers(op):
        message = f"some of the values that are scattered to {op.name} may have no index tuple"
        hint = "compute the values in a statement of their own, and scatter them with the next"
        fail("TILE-E139", message, op.origin, hint)
    return replace(op, name=scope.fresh(), default=None)


def _copied(op: Contraction, loads: Sequence[Access]) -> Tensor | None:
    """The tensor each of whose cells is the same cell of the output."""
    source = loads[0].value if len(loads) == 1 else None
    if not isinstance(source, Tensor) or op.type != source.type or op.output != loads[0].formulas:
        return None
    return source if all(s.fn == "cast" for s in op.body) and _covers(op) else None


def _covers(op: Contraction) -> bool:
    """Whether it is plain that every cell of the output has an index tuple: all indexes run freely."""
    axes = {f.index: n for f, n in zip(op.output, op.type.shape, strict=True) if f.index is not None}
    return len(axes) == len(op.output) and all(
        (c.formula.index is not None and c.size >= axes.get(c.formula.index, 1)) or _fixed(c.formula, c.size)
        for c in op.constraints
    )
