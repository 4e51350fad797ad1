"""Blocks to loops: indexes in listed order, constraints as bounds or guards, views composed on the way down."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from math import prod

from tile_ir.frozen import replace
from tile_ir.semtree.nodes import (
    PRODUCTS,
    Assign,
    AsyncWait,
    Barrier,
    Compare,
    Const,
    Expr,
    LastGroup,
    Let,
    Store,
    Unroll,
    Var,
)  # fmt: skip
from tile_ir.stripe import nodes as stripe
from tile_ir.stripe.affine import Affine, Quasi, names_in
from tile_ir.stripe.nodes import ITEMS, STATIC, Bind, Direction, Init, Order, number_of

from tile_opt.lowering.allocate import Allocator
from tile_opt.lowering.body import Body, Instance, LoweringError, View, access_of, products_of, view_of
from tile_opt.lowering.builder import BOOL, Builder, Scope
from tile_opt.lowering.context import Condition, Context, Env, Point
from tile_opt.lowering.forms import Scaled, resolve, resolve_quasi, sign
from tile_opt.lowering.group_reduce import Digit, combine_threads
from tile_opt.lowering.loops import LoopBounds, loop_bounds, probe
from tile_opt.lowering.masks import every, is_maskable, masked
from tile_opt.lowering.matrix import rounding
from tile_opt.lowering.places import SCALAR, Home, Lanes
from tile_opt.lowering.tensors import is_tensor_copy
from tile_opt.lowering.tiles import emit_instruction, is_instruction
from tile_opt.lowering.transfer import cleared, copied, copies_ahead, start_copy
from tile_opt.lowering.work_items import WorkItems, bound_to_items

Sink = Callable[[Point], None]


class Nest:
    """Lowers the blocks of one kernel."""

    def __init__(self, builder: Builder, allocator: Allocator, items: WorkItems) -> None:
        self.builder = builder
        self.body = Body(builder)
        self.allocator = allocator
        self.items = items
        self.copies = False
        """Whether copies were started that a `Wait` waits for."""
        self.grid: dict[str, Affine] = {}
        """Values of the kernel block's GRID indexes."""

    # entering a block

    def block(self, block: stripe.Block, context: Context) -> None:
        """Emit a block at one point of its parent."""
        if any(i.range == 0 for i in block.indexes):
            return
        if context.lanes.symbol and self._depends_on_lanes(block, context):
            self._each_lane(block, context)
            return
        if not block.guard:
            self._unguarded(block, context)
            return
        point = Point(dict(context.env), block.guard, context.lanes, context.axes)
        self.check(point, lambda _: self._unguarded(block, context))

    def _unguarded(self, block: stripe.Block, context: Context) -> None:
        if is_instruction(block.instr):
            self._whole(block, context)
            return
        for ref in block.refs:
            if ref.agg is not None and ref.init is Init.IDENTITY:
                self._identity(block, ref, context)
        plan = [(r, access_of(r, block, context.views[r.source])) for r in block.refs if r.source]
        products = products_of(block.body, block.refs)
        run = _Run(self, block, context, plan, products)
        run.bind(0, Point({}, block.constraints, context.lanes, context.axes), run.single)

    def _whole(self, block: stripe.Block, context: Context) -> None:
        """One instruction of a sub-group, or on tiles: its indexes are not looped over."""
        passed = {i.name: resolve(i.value, context.env) for i in block.indexes if i.value is not None}

        def views(at: Mapping[str, Affine]) -> dict[str, View]:
            env = passed | dict(at)
            parents = context.views
            return {
                r.into: view_of(parents[r.source], r, access_of(r, block, parents[r.source]), env, self.builder.ranges)
                for r in block.refs
            }

        def places(ref: stripe.Refinement, at: Mapping[str, Affine]) -> tuple[Affine, ...]:
            return tuple(resolve_quasi(form, passed | dict(at), self.builder.ranges)[0] for form in ref.access)

        emit_instruction(self.builder, block, views, places, self.items.lane_digit)
        self.copies |= is_tensor_copy(block.instr)

    def _depends_on_lanes(self, block: stripe.Block, context: Context) -> bool:
        """True when lanes may disagree on whether, or how often, the block runs."""
        symbol, ranges = context.lanes.symbol, self.builder.ranges
        env: Env = {}
        local = dict(ranges)
        for index in block.indexes:
            if index.value is not None:
                env[index.name] = resolve(index.value, context.env)
            else:
                name = f"?{index.name}"
                local[name] = (0, index.range - 1)
                env[index.name] = Affine.var(name)
        forms = [(c, env) for c in block.constraints] + [(g, context.env) for g in block.guard]
        for form, names in forms:
            affine, quasi = resolve_quasi(form, names, local)
            varying = symbol in affine.names or any(symbol in f.num.names for _, f in quasi)
            if varying and not sign(affine, quasi, local):
                return True
        return False

    def _each_lane(self, block: stripe.Block, context: Context) -> None:
        symbol = context.lanes.symbol
        for lane in range(context.lanes.count):
            value = {symbol: Affine((), lane)}
            env = {n: v.substitute(value) for n, v in context.env.items()}
            views = {n: _at_lane(v, value) for n, v in context.views.items()}
            self.block(block, Context(env, views, SCALAR, context.axes))

    def _identity(self, block: stripe.Block, ref: stripe.Refinement, context: Context) -> None:
        """Store the identity to every cell that `ref` shows, over the indexes that its access mentions."""
        assert ref.agg is not None
        used = names_in(ref.access)
        constraints = tuple(c for c in block.constraints if set(c.names) <= used)
        bind = Bind.UNROLL if context.views[ref.source].root.home is Home.REG else Bind.NONE
        cells = tuple(stripe.Index(f"cell{d}", size, bind=bind) for d, size in enumerate(ref.type.sizes))
        at = tuple(Affine.var(c.name) for c in cells)
        target = replace(ref, dir=Direction.OUT, agg=None, init=Init.KEEP)
        value = ref.agg.identity(ref.acc or ref.type.dtype)
        body = (stripe.Const("$identity", value, ref.type.dtype), stripe.Store(ref.into, "$identity", at))
        outer = tuple(i for i in block.indexes if i.name in used)
        self.block(stripe.Block(f"{block.name}_init", (*outer, *cells), constraints, (), (target,), body), context)

    # constraints

    def check(self, point: Point, then: Sink) -> None:
        """Run `then` under what can be decided of the pending constraints; drop the statically true ones."""
        waiting: list[Quasi] = []
        conditions: list[Condition] = []
        masks = list(point.masks)
        for form in point.pending:
            if any(n not in point.env for n in form.names):
                waiting.append(form)
                continue
            affine, quasi = resolve_quasi(form, point.env, self.builder.ranges)
            match sign(affine, quasi, self.builder.ranges):
                case True:
                    pass
                case False:
                    return
                case None if point.lanes.symbol in affine.names:
                    masks.append((affine, quasi))
                case None:
                    conditions.append((affine, quasi))
        rest = Point(point.env, tuple(waiting), point.lanes, point.axes, tuple(masks))
        if not conditions:
            then(rest)
            return
        cond = every([self.builder.nonnegative(*c) for c in conditions])
        with self.builder.nested() as scope:
            then(rest)
        self.builder.branch(scope, cond)

    # work items

    def thread_guard(self, block: stripe.Block, context: Context) -> list[Expr]:
        """Conditions that leave out threads the block has no iterations for."""
        conditions: list[Expr] = []
        leaf = not any(isinstance(s, (stripe.Block, stripe.Sync)) for s in block.body)
        for axis, size in enumerate(self.items.group_size):
            bound = bound_to_items(block, axis)
            used = prod(i.range for i in bound)
            idle = bool(bound) and used < size
            alone = not bound and leaf and size > 1 and axis not in context.axes and self._shares(block, context)
            if idle or alone:
                thread = Var(self.items.local(axis), self.builder.index_type)
                conditions.append(Compare("cmp_lt", thread, self.builder.literal(used if idle else 1), BOOL))
        return conditions

    def _shares(self, block: stripe.Block, context: Context) -> bool:
        """True when the block stores to memory that other work items see."""
        stored = {s.dst for s in block.body if isinstance(s, stripe.Store)}
        return any(r.into in stored and r.source and context.views[r.source].root.shared for r in block.refs)

    def barrier(self, statement: stripe.Sync) -> None:
        """A barrier, where there is more than one work item to wait for."""
        if self.items.count > 1:
            self.builder.emit(Barrier(statement.scope.value, statement.fence))
            self.builder.forget_loads()


def _reduction(statement: stripe.Statement) -> tuple[object, ...] | None:
    """What neighbouring reductions must have in common to share their barriers; None for other statements."""
    return (statement.agg, statement.over) if isinstance(statement, stripe.Reduce) else None


def _static(index: stripe.Index) -> bool:
    """True when the index is a number (or a lane) in straight-line code."""
    return index.bind in STATIC or index.value is not None or index.range == 1


def _at_lane(view: View, value: Mapping[str, Affine]) -> View:
    quasi = tuple((scale, form.substitute(value)) for scale, form in view.quasi)
    return replace(view, offset=view.offset.substitute(value), quasi=quasi)


class _Run:
    """One block being lowered: binds its indexes one after the other, then emits its body."""

    def __init__(
        self,
        nest: Nest,
        block: stripe.Block,
        context: Context,
        plan: list[tuple[stripe.Refinement, tuple[Affine, tuple[Scaled, ...]]]],
        products: frozenset[str],
    ) -> None:
        self.nest = nest
        self.builder = nest.builder
        self.block = block
        self.context = context
        self.plan = plan
        self.products = products
        self.reduces = any(isinstance(s, stripe.Reduce) for s in block.body)
        self.rounding = rounding(block.instr)

    def bind(self, position: int, point: Point, sink: Sink) -> None:
        """Bind index `position` and those after it, then give every point to `sink`."""
        if position == 0:
            guard = self.nest.thread_guard(self.block, self.context)
            if guard:
                with self.builder.nested() as scope:
                    self._check(0, point, sink)
                self.builder.branch(scope, every(guard))
                return
        self._check(position, point, sink)

    def _check(self, position: int, point: Point, sink: Sink) -> None:
        if not point.pending:
            self._index(position, point, sink)
            return
        self.nest.check(point, lambda rest: self._index(position, rest, sink))

    def _index(self, position: int, point: Point, sink: Sink) -> None:
        indexes = self.block.indexes
        if self.reduces and sink == self.single and all(_static(i) for i in indexes[position:]):
            found: list[Point] = []
            self._index(position, point, found.append)
            self._together(found)
            return
        position, point = self._fixed(position, point)
        if position == len(indexes):
            sink(point)
            return
        index = indexes[position]
        if index.value is not None or index.range == 1:
            self._next(position, point, self._only(index), sink)
        elif index.bind is Bind.GRID:
            self._next(position, point, self.nest.grid[index.name], sink)
        elif index.bind in ITEMS:
            axes = point.axes | {index.axis}
            self._next(position, replace(point, axes=axes), self.nest.items.thread_index(index, self.block), sink)
        elif index.bind is Bind.VECTOR and index.lanes > 1 and not point.lanes.symbol:
            self._vector(position, point, sink)
        elif index.bind in STATIC:
            for value in range(index.range):
                self._next(position, point, Affine((), value), sink)
        else:
            self._loop(position, point, sink)

    def _fixed(self, position: int, point: Point) -> tuple[int, Point]:
        """Bind indexes that have one value at once, as long as no constraint waits for them."""
        indexes = self.block.indexes
        waited = names_in(point.pending)
        env: Env = {}
        while position < len(indexes):
            index = indexes[position]
            if (index.value is None and index.range != 1) or index.name in waited:
                break
            env[index.name] = self._only(index)
            position += 1
        return position, replace(point, env={**point.env, **env}) if env else point

    def _only(self, index: stripe.Index) -> Affine:
        """The value of an index that has just one."""
        return Affine() if index.value is None else resolve(index.value, self.context.env)

    def _next(self, position: int, point: Point, value: Affine, sink: Sink, lanes: Lanes | None = None) -> None:
        env = {**point.env, self.block.indexes[position].name: value}
        self._check(position + 1, Point(env, point.pending, lanes or point.lanes, point.axes, point.masks), sink)

    def _vector(self, position: int, point: Point, sink: Sink) -> None:
        """Vector instances; one whose lanes may disagree on a constraint is masked, or repeated lane by lane."""
        index = self.block.indexes[position]
        masked = self.builder.masks and self._maskable(position, point)
        symbol = f"~{index.lanes}"
        self.builder.ranges[symbol] = (0, index.lanes - 1)
        for base in range(0, index.range, index.lanes):
            value = Affine(((symbol, 1),), base)
            if base + index.lanes <= index.range and (masked or not self._disagree(position, point, value)):
                self._next(position, point, value, sink, Lanes(symbol, index.lanes, filled=self._filled()))
                continue
            for lane in range(base, min(base + index.lanes, index.range)):
                self._next(position, point, Affine((), lane), sink)

    def _filled(self) -> int:
        """Iterations of the one unrolled loop."""
        unrolled = [i.range for i in self.block.indexes if i.bind is Bind.UNROLL and i.range > 1]
        return unrolled[0] if len(unrolled) == 1 else 0

    def _maskable(self, position: int, point: Point) -> bool:
        """The body only moves neighbours, or what is the same for all lanes, and computes."""
        name = self.block.indexes[position].name
        steps = {ref.into: own[0].coefficient(name) for ref, own in self.plan}
        if any(name in form.num.names for _, own in self.plan for _, form in own[1]):
            return False
        if any(name in form.names and not isinstance(form, Affine) for form in point.pending):
            return False
        return all(is_maskable(s, self.block, steps) for s in self.block.body)

    def _disagree(self, position: int, point: Point, value: Affine) -> bool:
        name = self.block.indexes[position].name
        env = {**point.env, name: value}
        ranges = self.builder.ranges
        for later in self.block.indexes[position + 1 :]:
            ranges[f"?{later.name}"] = (0, later.range - 1)
            env[later.name] = Affine.var(f"?{later.name}")
        for form in point.pending:
            if name in form.names:
                affine, quasi = resolve_quasi(form, env, ranges)
                if sign(affine, quasi, ranges) is None:
                    return True
        return False

    def _loop(self, position: int, point: Point, sink: Sink) -> None:
        index = self.block.indexes[position]
        limits = loop_bounds(self.builder, index, point.env, point.pending, point.lanes.symbol)
        if limits is None:
            return
        rest = replace(point, pending=limits.pending)
        if limits.single is not None:
            self._next(position, rest, limits.single, sink)
            return
        self._repeat(position, rest, limits, sink)

    def _repeat(self, position: int, point: Point, limits: LoopBounds, sink: Sink) -> None:
        index = self.block.indexes[position]
        name = self.builder.fresh(index.name)
        with self.builder.nested() as scope:
            value = self.builder.declare(name, limits.low, limits.high, scope)
            scope.held = tuple(form.substitute({probe(index): value}) for form in limits.held)
            self._next(position, point, value, sink)
        # A step of a recurrence waits for the one before, but what it loads need not.
        unroll = Unroll.AUTO if index.order is Order.ORDERED and _is_straight(scope) else Unroll.NONE
        self.builder.loop(scope, name, limits.start, limits.stop, unroll)

    # the body

    def single(self, point: Point) -> None:
        """Emit the whole body at one point."""
        instance = self._instance(point)
        for number, statement in enumerate(self.block.body):
            if isinstance(statement, stripe.Sync) and statement.scope is stripe.Scope.DEVICE:
                self._last_group(number, instance, point)
                return
            self._statement(statement, instance, point)

    def _last_group(self, number: int, instance: Instance, point: Point) -> None:
        """Where all groups of a point of this block meet one goes on behind statement `number`: the one that arrives last."""
        builder = self.builder
        if builder.scope is not builder.top:
            raise LoweringError(f"block {self.block.name!r} waits for all groups under a condition, or in a loop")
        last = builder.mutable("last", Const(False, BOOL))
        groups = [
            i.range
            for b in self.block.body[:number]
            if isinstance(b, stripe.Block)
            for i in b.indexes
            if i.bind is Bind.GRID
        ]
        which = number_of(self.block.indexes).substitute(point.env)
        builder.emit(LastGroup(last, builder.index(which), prod(groups)))
        builder.forget_loads()
        with builder.nested() as scope:
            for statement in self.block.body[number + 1 :]:
                self._statement(statement, instance, point)
        builder.branch(scope, last)

    def _together(self, points: Sequence[Point]) -> None:
        """Emit the body statement groups between reductions for all points, then neighbouring reductions at once."""
        instances = [(self._instance(p), p) for p in points]
        for alike, group in groupby(self.block.body, key=_reduction):
            statements = tuple(group)
            if alike is not None:
                found = [s for s in statements if isinstance(s, stripe.Reduce)]
                self._reduce(found, [i for i, _ in instances] if instances else [])
                continue
            for instance, point in instances:
                for statement in statements:
                    self._statement(statement, instance, point)

    def _reduce(self, statements: Sequence[stripe.Reduce], instances: Sequence[Instance]) -> None:
        """First across unrolled indexes and lanes, then across threads: all of them at once."""
        if not instances:
            return
        over = statements[0].over
        found = {i.name: i for i in self.block.indexes if i.name in over}
        threads = [i for i in found.values() if i.bind in ITEMS and not _static(i)]
        if len(found) < len(over) or any(not _static(i) and i not in threads for i in found.values()):
            raise LoweringError(f"reduce over {over} needs unrolled, vector or group indexes of its block")
        done = [(s, m) for s in statements for m in self.nest.body.reduce(s, instances, frozenset(found))]
        if not threads:
            return
        if self.nest.thread_guard(self.block, self.context):
            raise LoweringError(f"reduce in {self.block.name!r}: all threads of the group must take part")
        values = [members[0].values[s.dst] for s, members in done]
        if any(value.type.lanes > 1 for value in values):
            raise LoweringError(f"reduce in {self.block.name!r} across threads but not across lanes")
        env = done[0][1][0].env
        digits = [Digit(env[i.name], i.range, self.nest.items.thread_step(i, self.block)) for i in threads]
        thread, size = self.nest.items.linear_thread(), self.nest.items.count
        totals = combine_threads(self.builder, statements[0].agg, values, thread, size, digits)
        for (statement, members), total in zip(done, totals, strict=True):
            for member in members:
                member.values[statement.dst] = total

    def _instance(self, point: Point) -> Instance:
        lanes = masked(self.builder, point)
        views: dict[str, View] = {}
        for ref, own in self.plan:
            views[ref.into] = view_of(self.context.views[ref.source], ref, own, point.env, self.builder.ranges)
        for ref in self.block.refs:
            if not ref.source:
                views[ref.into] = self.nest.allocator.view(ref, self.block, lanes)
        return Instance(point.env, views, lanes, rounding=self.rounding)

    def _statement(self, statement: stripe.Statement, at: Instance, point: Point) -> None:
        match statement:
            case stripe.Block():
                self.nest.block(statement, Context(at.env, at.views, at.lanes, point.axes))
            case stripe.Sync():
                self.nest.barrier(statement)
            case stripe.Transfer():
                self._transfer(statement, at, point)
            case stripe.Wait(group, pending):
                if self.nest.copies or group == PRODUCTS:
                    self.builder.emit(AsyncWait(group, pending))
            case _:
                self.nest.body.statement(statement, at, self.products)

    def _transfer(self, statement: stripe.Transfer, at: Instance, point: Point) -> None:
        """A copy of neighbours from global into local memory runs ahead; any other is a plain copy, complete at once."""
        target, source = at.views[statement.dst], at.views[statement.src]
        guard = self._where(statement, at)
        if self.nest.items.count > 1 and copies_ahead(target, source):
            self.nest.copies = True
            start_copy(self.builder, target, source, statement.group, guard)
            return
        context = Context(at.env, at.views, at.lanes, point.axes)
        if guard is None:
            self.nest.block(copied(statement, target, source), context)
            return
        if target.root.home not in (Home.REG, Home.FRAGMENT):
            raise LoweringError(
                "a copy of part of a view is one row, from global memory into local memory or registers"
            )
        self.nest.block(cleared(statement, target), context)
        with self.builder.nested() as scope:
            self.nest.block(copied(statement, target, source), context)
        self.builder.branch(scope, guard)

    def _where(self, statement: stripe.Transfer, at: Instance) -> Expr | None:
        """What decides whether a transfer touches its source; None when it surely does."""
        builder, found = self.builder, list[Condition]()
        for form in statement.where:
            affine, quasi = resolve_quasi(form, at.env, builder.ranges)
            if sign(affine, quasi, builder.ranges) is not True:
                found.append((affine, quasi))
        return every([builder.nonnegative(*c) for c in found]) if found else None


def _is_straight(scope: Scope) -> bool:
    """No loops inside, and nothing that waits for others."""
    return all(isinstance(s, (Let, Assign, Store)) for s in scope.statements)
