"""The flat statements of one block instance: loads, operations, stores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import gcd

from tile_ir.diagnostics import TileInternalError
from tile_ir.dots import DOTS
from tile_ir.dtype import DType
from tile_ir.frozen import frozen, replace
from tile_ir.ops import Aggregation
from tile_ir.semtree.nodes import Binary, Const, Expr, Round, Type
from tile_ir.stripe import nodes as stripe
from tile_ir.stripe.affine import Affine, DivMod, DivModOp, Quasi
from tile_ir.stripe.walk import scalars_used

from tile_opt.lowering.builder import Builder
from tile_opt.lowering.forms import (
    ZERO,
    Env,
    Ranges,
    Scaled,
    bounds,
    linear,
    resolve,
    resolve_divmod,
    resolve_quasi,
)  # fmt: skip
from tile_opt.lowering.memory import Memory, Product
from tile_opt.lowering.places import SCALAR, Lanes, Position, Root
from tile_opt.lowering.scalars import clamped, operation


class LoweringError(TileInternalError):
    """Scheduled Stripe that lowering cannot take: a pass broke a convention."""


@frozen
class View:
    """A refinement at one block instance: where its origin lies in the root."""

    root: Root
    offset: Affine
    quasi: tuple[Scaled, ...]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    hint: str = ""
    agg: Aggregation | None = None
    scale: int = 1
    """Elements of the root per element of the layout: the lanes of a vector index around the allocation."""
    pitch: int = 0
    """Elements between the versions of an allocation, while the view shows them all."""


@dataclass(slots=True)
class Instance:
    """One point of a block's unrolled and vector indexes."""

    env: Env
    views: Mapping[str, View]
    lanes: Lanes = SCALAR
    values: dict[str, Expr] = field(default_factory=dict[str, Expr])
    """Scalars of the block computed so far."""
    products: dict[str, Product] = field(default_factory=dict[str, Product])
    """Products left for the sum that is their only user."""
    rounding: int = 0
    """Mantissa bits that loaded values are rounded to; 0 leaves them as they are."""


def products_of(body: Sequence[stripe.Statement], refs: Sequence[stripe.Refinement]) -> frozenset[str]:
    """Scalars that are float products, or dot products, whose one use is a store that adds: they are fused with the sum."""
    sums = {r.into for r in refs if r.agg is Aggregation.SUM}
    if not sums:
        return frozenset()
    uses: Counter[str] = Counter()
    added: set[str] = set()
    for statement in body:
        uses.update(scalars_used(statement))
        if isinstance(statement, stripe.Store) and statement.dst in sums and not statement.atomic:
            added.add(statement.src)
    wide = (DType.FLOAT32, DType.FLOAT64)
    zeros = {s.dst for s in body if isinstance(s, stripe.Const) and s.value == 0}
    return frozenset(
        s.dst
        for s in body
        if isinstance(s, stripe.Op) and s.dst in added and uses[s.dst] == 1
        if (s.name == "mul" and s.dtype in wide) or (s.name in DOTS and s.args[2] in zeros)
    )


@frozen
class Dynamic:
    """A subscript known when the kernel runs: so many times a variable."""

    value: Expr
    unit: int = 1


class Body:
    """Emits flat statements through a builder."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self.memory = Memory(builder)

    def statement(self, statement: stripe.Statement, at: Instance, products: frozenset[str]) -> None:
        """Emit one statement of a block instance."""
        match statement:
            case stripe.Load():
                self._load(statement, at)
            case stripe.Store():
                self._store(statement, at)
            case stripe.Op(dst, name, args) if dst in products:
                at.products[dst] = Product(name, (at.values[args[0]], at.values[args[1]]))
            case stripe.Op():
                at.values[statement.dst] = operation(
                    self.builder, statement, tuple(at.values[a] for a in statement.args)
                )
            case stripe.Const(dst, value, dtype):
                at.values[dst] = Const(value, Type(dtype))
            case stripe.LoadIndex():
                at.values[statement.dst] = self._index(statement, at)
            case _:
                raise LoweringError(f"no lowering for {type(statement).__name__} on this target")

    def _load(self, statement: stripe.Load, at: Instance) -> None:
        view = at.views[statement.src]
        position = self._position(view, statement.at, statement.clamp, at)
        for_all = at.lanes.some and at.lanes.stride(position) == 0
        lanes = replace(at.lanes, mask=None) if for_all else at.lanes
        value = self.memory.load(view.root, position, lanes, statement.dst[1:] or "x")
        if at.rounding:
            value = self.builder.pure(f"round{at.rounding}", (value,), Round(value, at.rounding, value.type))
        at.values[statement.dst] = value

    def _store(self, statement: stripe.Store, at: Instance) -> None:
        view = at.views[statement.dst]
        position = self._position(view, statement.at, statement.clamp, at)
        product = at.products.get(statement.src)
        agg = view.agg
        if agg is None or agg is Aggregation.ASSIGN:
            self.memory.store(view.root, position, at.values[statement.src], at.lanes, view.hint)
        elif statement.atomic:
            self.memory.atomic(view.root, position, at.values[statement.src], agg, at.lanes)
        else:
            value = product.factors[0] if product else at.values[statement.src]
            self.memory.aggregate(view.root, position, agg, value, product, at.lanes, view.hint)

    def _position(self, view: View, subscripts: Sequence[Quasi | str], clamp: bool, at: Instance) -> Position:
        if not subscripts:
            return Position(view.offset, view.quasi)
        forms = [s for s in subscripts if not isinstance(s, str)]
        if len(forms) == len(subscripts) and not clamp:
            affine, quasi = linear(forms, view.strides)
            return Position(*self._total(view, affine, quasi, at))
        affine, quasi, dynamic, step = view.offset, list(view.quasi), None, 0
        for subscript, size, stride in zip(subscripts, view.sizes, view.strides, strict=True):
            part = self._subscript(subscript, size, clamp, at)
            if isinstance(part, tuple):
                affine = affine + part[0] * stride
                quasi += [(scale * stride, form) for scale, form in part[1]]
            else:
                dynamic = self._add(dynamic, self._times(part.value, part.unit * stride))
                step = gcd(step, part.unit * stride)
        return Position(affine, tuple(quasi), dynamic, step)

    def _total(
        self, view: View, affine: Affine, quasi: tuple[Scaled, ...], at: Instance
    ) -> tuple[Affine, tuple[Scaled, ...]]:
        total = resolve(affine, at.env, view.offset)
        rest = list(view.quasi)
        for scale, form in quasi:
            plus, parts = resolve_divmod(form, at.env, self.builder.ranges)
            total = total + plus * scale
            rest += [(scale * s, f) for s, f in parts]
        return total, tuple(rest)

    def _subscript(
        self, subscript: Quasi | str, size: int, clamp: bool, at: Instance
    ) -> tuple[Affine, tuple[Scaled, ...]] | Dynamic:
        """A subscript as a form, or as a variable of the index type when it is dynamic or must be clamped."""
        if isinstance(subscript, str):
            value = at.values[subscript]
            if isinstance(value, Const) and not clamp:
                return Affine((), int(value.value)), ()
            dtype = self.builder.index_type.dtype
            return Dynamic(clamped(self.builder, value, size) if clamp else self.builder.cast(value, dtype))
        affine, quasi = resolve_quasi(subscript, at.env, self.builder.ranges)
        if clamp:
            low, high = bounds(affine, quasi, self.builder.ranges)
            if low < 0 or high >= size:
                return self._clamped(affine, quasi, size, at)
        return affine, quasi

    def _clamped(self, affine: Affine, quasi: tuple[Scaled, ...], size: int, at: Instance) -> Dynamic:
        """The nearest subscript inside; lanes that begin on multiples of something still do."""
        unit = 1
        if at.lanes.symbol and at.lanes.symbol not in affine.names and not quasi:
            unit = gcd(size - 1, affine.const, *(c for _, c in affine.terms)) or 1
        part = Affine.of([(n, c // unit) for n, c in affine.terms], affine.const // unit)
        low, high = bounds(part, quasi, self.builder.ranges)
        value = self._form(part, quasi, at.lanes)
        return Dynamic(clamped(self.builder, value, (size - 1) // unit + 1, low, high), unit)

    def _form(self, affine: Affine, quasi: tuple[Scaled, ...], lanes: Lanes) -> Expr:
        """A form as a variable: scalar when all lanes agree."""
        varying = lanes.symbol in affine.names or any(lanes.symbol in f.num.names for _, f in quasi)
        if lanes.symbol and varying:
            return self.builder.vector_index(affine, lanes.symbol, lanes.count, quasi)
        return self.builder.atom(affine, quasi)

    def _times(self, value: Expr, factor: int) -> Expr:
        if factor == 1:
            return value
        if isinstance(value, Const):
            return Const(int(value.value) * factor, value.type)
        scale = Const(factor, value.type)
        return self.builder.pure("mul", (value, scale), Binary("mul", value, scale, value.type), "n")

    def _add(self, left: Expr | None, right: Expr) -> Expr:
        if left is None:
            return right
        lanes = max(left.type.lanes, right.type.lanes)
        left, right = self.builder.splat(left, lanes), self.builder.splat(right, lanes)
        return self.builder.pure("add", (left, right), Binary("add", left, right, left.type), "n")

    def _index(self, statement: stripe.LoadIndex, at: Instance) -> Expr:
        affine, quasi = resolve_quasi(statement.value, at.env, self.builder.ranges)
        if affine.is_const and not quasi:
            return Const(affine.const, Type(statement.dtype))
        return self.builder.cast(self._form(affine, quasi, at.lanes), statement.dtype)

    def reduce(
        self, statement: stripe.Reduce, instances: Sequence[Instance], over: frozenset[str]
    ) -> Sequence[Sequence[Instance]]:
        """Combine a scalar across the unrolled and vector indexes in `over`, in a fixed order.

        Gives the groups of instances that were combined; other indexes in `over` are left to the caller.
        """
        groups: dict[object, list[Instance]] = {}
        for instance in instances:
            rest = tuple((n, v) for n, v in instance.env.items() if n not in over)
            groups.setdefault(rest, []).append(instance)
        for members in groups.values():
            total = members[0].values[statement.src]
            for member in members[1:]:
                total = self._combine(statement.agg, total, member.values[statement.src])
            lanes = members[0].lanes
            if lanes.symbol and any(lanes.symbol in members[0].env[n].names for n in over):
                total = self.memory.reduce_lanes(statement.agg, self.builder.splat(total, lanes.count))
            for member in members:
                member.values[statement.dst] = total
        return list(groups.values())

    def _combine(self, agg: Aggregation, left: Expr, right: Expr) -> Expr:
        lanes = max(left.type.lanes, right.type.lanes)
        left, right = self.builder.splat(left, lanes), self.builder.splat(right, lanes)
        return self.builder.let("r", Binary(agg.op, left, right, left.type))


def view_of(
    parent: View, ref: stripe.Refinement, own: tuple[Affine, tuple[Scaled, ...]], env: Env, ranges: Ranges
) -> View:
    """The view that `ref` makes of `parent`; `own` is its access times the parent's strides."""
    if ref.agg is not None and ref.acc not in (None, parent.root.dtype):
        raise LoweringError(f"{ref.into!r} accumulates in {ref.acc}: give it an accumulator buffer of that dtype")
    offset, quasi = resolve(own[0], env, parent.offset), parent.quasi
    for scale, form in own[1]:
        plus, parts = resolve_divmod(form, env, ranges)
        offset = offset + plus * scale
        quasi += tuple((scale * s, f) for s, f in parts)
    strides, scale = ref.type.strides, parent.scale
    if scale != 1:
        strides = tuple(s * scale for s in strides)
    hint = ref.hint or parent.hint
    pitch = parent.pitch if ref.versions > 1 else 0
    return View(parent.root, offset, quasi, ref.type.sizes, strides, hint, ref.agg, scale, pitch)


def access_of(ref: stripe.Refinement, block: stripe.Block, parent: View) -> tuple[Affine, tuple[Scaled, ...]]:
    """Elements from the parent's origin to the view's, over the block's indexes; it selects one of several versions."""
    if not parent.pitch:
        return linear(ref.access, parent.strides)
    rank = len(parent.strides)
    affine, quasi = linear(ref.access[-rank:] if rank else (), parent.strides)
    if ref.versions > 1:
        return affine, quasi
    ordered = (Affine.var(i.name) for i in block.indexes if i.order is stripe.Order.ORDERED)
    version = ref.access[0] if len(ref.access) > rank else next(ordered, Affine())
    if not isinstance(version, Affine):
        raise LoweringError(f"{ref.into!r} selects a version of {ref.source!r} by a quotient")
    copies = parent.root.elements // parent.pitch
    return affine, (*quasi, (parent.pitch, DivMod(version, copies, DivModOp.MOD)))


def origin(root: Root, type: stripe.TensorType, offset: Affine = ZERO) -> View:
    """The whole of a root as a view."""
    return View(root, offset, (), type.sizes, type.strides)
