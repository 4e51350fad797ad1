"""Building a semtree body: scopes, names, and index arithmetic shared at the level where it becomes known."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from tile_ir.dtype import DType
from tile_ir.emit.names import sanitize
from tile_ir.semtree.nodes import (
    Alloc,
    Assign,
    Binary,
    Block,
    Cast,
    Compare,
    Const,
    Expr,
    For,
    If,
    Iota,
    Let,
    Select,
    Splat,
    Statement,
    Type,
    Unroll,
    Var,
)  # fmt: skip
from tile_ir.stripe.affine import Affine, DivMod, DivModOp

from tile_opt.lowering.forms import Scaled, bounds, without

BOOL = Type(DType.BOOL)
Terms = tuple[tuple[str, int], ...]


class Scope:
    """One statement list under construction, with what is already computed in it."""

    __slots__ = ("columns", "depth", "held", "index", "loads", "parent", "statements", "values")

    def __init__(self, parent: Scope | None) -> None:
        self.parent = parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.statements: list[Statement] = []
        self.held: tuple[Affine, ...] = ()
        """Forms that are not negative in here: the bounds of the loop."""
        self.index: dict[object, Var] = {}
        """Index arithmetic by its form."""
        self.values: dict[object, Expr] = {}
        """Pure operations by name and operands."""
        self.loads: dict[int, dict[object, Expr]] = {}
        """Loaded elements by buffer, then address; dropped when the buffer is stored to."""
        self.columns: dict[int, dict[tuple[int, ...], list[Expr]]] = {}
        """Columns of registers by buffer, then register numbers; dropped as loads are."""


class Builder:
    """Appends statements to the current scope."""

    def __init__(
        self, index_dtype: DType, masks: bool = False, shuffles: int = 0, names: dict[str, int] | None = None
    ) -> None:
        """`names` is how often names have been given, and goes on counting."""
        self.index_type = Type(index_dtype)
        self.masks = masks
        """The target leaves out single lanes at no cost."""
        self.shuffles = shuffles
        """Items that hand values to one another by instructions; 0 where none do."""
        self.scope = Scope(None)
        self.top = self.scope
        self.allocations: list[Alloc] = []
        """Arrays of the whole function."""
        self.ranges: dict[str, tuple[int, int]] = {}
        """Inclusive range of every loop variable and lane symbol."""
        self.lanes: dict[str, tuple[int, int]] = {}
        """Variables that are a digit of the lane in its sub-group: (divisor, modulus)."""
        self._homes: dict[str, Scope] = {}
        self._counts: dict[str, int] = {} if names is None else names
        self._stems: dict[str, str] = {}

    # names and scopes

    def fresh(self, hint: str) -> str:
        """A new identifier that resembles `hint`."""
        stem = self._stems.get(hint)
        if stem is None:
            stem = self._stems[hint] = sanitize(hint)
        number = self._counts.get(stem, 0)
        self._counts[stem] = number + 1
        # A stem that ends in a digit gets a separator even at first: "x_1" must not meet "x" numbered 1.
        return f"{stem}_{number}" if number or stem[-1].isdigit() else stem

    def emit(self, statement: Statement) -> None:
        self.scope.statements.append(statement)

    def let(self, hint: str, value: Expr, scope: Scope | None = None) -> Var:
        """Bind `value` once in `scope` (the current one by default)."""
        name = self.fresh(hint)
        (scope or self.scope).statements.append(Let(name, value))
        return Var(name, value.type)

    def mutable(self, hint: str, value: Expr) -> Var:
        name = self.fresh(hint)
        self.emit(Let(name, value, mutable=True))
        return Var(name, value.type)

    def assign(self, var: Var, value: Expr) -> None:
        self.emit(Assign(var.name, value))

    def forget_loads(self) -> None:
        """Loaded values may be stale from here on."""
        scope: Scope | None = self.scope
        while scope is not None:
            scope.loads.clear()
            scope = scope.parent

    @contextmanager
    def nested(self) -> Generator[Scope]:
        """A scope inside the current one; the caller makes a statement of it afterwards."""
        scope = Scope(self.scope)
        self.scope = scope
        try:
            yield scope
        finally:
            assert scope.parent is not None
            self.scope = scope.parent

    def declare(self, name: str, low: int, high: int, home: Scope) -> Affine:
        """Make `name` an index variable known from scope `home` inwards."""
        self.ranges[name] = (low, high)
        self._homes[name] = home
        return Affine(((name, 1),), 0)

    def interval(self, affine: Affine, quasi: tuple[Scaled, ...]) -> tuple[int, int]:
        """Inclusive interval of a form in the current scope, by the ranges of variables and the bounds of the loops around."""
        high = self._highest(affine, quasi)
        return -self._highest(affine * -1, tuple((-scale, form) for scale, form in quasi)), high

    def _highest(self, affine: Affine, quasi: tuple[Scaled, ...]) -> int:
        """An upper bound: a multiple of what is not negative may be added where that makes it smaller."""
        best, scope = bounds(affine, quasi, self.ranges)[1], self.scope
        while scope is not None:
            for held in scope.held:
                for name, c in held.terms:
                    times, rest = divmod(-affine.coefficient(name), c)
                    raised = affine + held * times
                    if times > 0 and not rest and (high := bounds(raised, quasi, self.ranges)[1]) < best:
                        affine, best = raised, high
            scope = scope.parent
        return best

    def index_variable(self, hint: str, value: Expr, high: int) -> Affine:
        """An index variable, from 0 to `high`, bound to an expression in the current scope."""
        var = self.let(hint, value)
        return self.declare(var.name, 0, high, self.scope)

    def loop(self, scope: Scope, name: str, start: Expr, stop: Expr, unroll: Unroll = Unroll.NONE) -> None:
        """Close `scope` as the body of a loop, unless it is empty."""
        if scope.statements:
            self.emit(For(name, start, stop, 1, Block(tuple(scope.statements)), unroll))

    def branch(self, scope: Scope, cond: Expr) -> None:
        """Close `scope` as the then-branch of an If, unless it is empty."""
        if scope.statements:
            self.emit(If(cond, Block(tuple(scope.statements))))

    # index arithmetic

    def literal(self, value: int) -> Const:
        return Const(value, self.index_type)

    def index(self, form: Affine, quasi: tuple[Scaled, ...] = ()) -> Expr:
        """``form + sum(quasi)`` as a scalar: a shared base plus a literal, which addressing modes absorb."""
        if not form.terms and not quasi:
            return self.literal(form.const)
        base = self._base(form.terms) if form.terms else None
        for scale, divmod_form in quasi:
            base = self._plus(base, self._scaled(self.divmod(divmod_form), scale))
        assert base is not None
        return Binary("add", base, self.literal(form.const), self.index_type) if form.const else base

    def atom(self, form: Affine, quasi: tuple[Scaled, ...] = (), hint: str = "n") -> Expr:
        """As `index`, but a variable or literal."""
        value = self.index(form, quasi)
        if isinstance(value, (Var, Const)):
            return value
        key = (form, quasi)
        scope = self._home((*form.names, *(n for _, q in quasi for n in q.num.names)))
        found = scope.index.get(key)
        if found is None:
            found = scope.index[key] = self.let(hint, value, scope)
        return found

    def divmod(self, form: DivMod) -> Expr:
        """Floor quotient or remainder of a form, computed once where its variables are known."""
        scope = self._home(form.num.names)
        found = scope.index.get(form)
        if found is None:
            num = self.atom(form.num)
            mod = Binary("mod", num, self.literal(form.den), self.index_type)
            if form.op is DivModOp.MOD:
                value = mod
            else:
                exact = num
                if form.num.bounds(self.ranges)[0] < 0:
                    exact = Binary("sub", num, mod, self.index_type)
                value = Binary("div", exact, self.literal(form.den), self.index_type)
            found = scope.index[form] = self.let("q", value, scope)
        return found

    def nonnegative(self, form: Affine, quasi: tuple[Scaled, ...] = ()) -> Expr:
        """The condition ``form >= 0``, with negative terms and constants moved to the right side."""
        if form.terms and not quasi and all(c < 0 for _, c in form.terms):
            negated = Affine(tuple((n, -c) for n, c in form.terms))
            return Compare("cmp_le", self.index(negated), self.literal(form.const), BOOL)
        left = self.index(Affine(form.terms, max(form.const, 0)), quasi)
        return Compare("cmp_ge", left, self.literal(max(-form.const, 0)), BOOL)

    def vector_index(self, form: Affine, lane: str, lanes: int, quasi: tuple[Scaled, ...] = ()) -> Expr:
        """A form with the lane symbol as a vector of index integers."""
        type = self.index_type.vector(lanes)
        key = (form, quasi, "lanes", lanes)
        found = self.scope.index.get(key)
        if found is not None:
            return found
        coefficient, rest = form.coefficient(lane), without(form, lane)
        apart = rest.const if coefficient and rest.terms else 0  # vectors side by side then have one splat
        value: Expr = Splat(self.atom(rest + -apart), type)
        if coefficient:
            steps: Expr = Iota(type)
            if coefficient != 1:
                steps = Binary("mul", steps, Const(coefficient, type), type)
            if apart:
                steps = Binary("add", steps, Const(apart, type), type)
            value = Binary("add", value, steps, type)
        for scale, part in quasi:
            value = Binary("add", value, self._vector_divmod(part, scale, lane, lanes), type)
        found = self.scope.index[key] = self.let("n", value)
        return found

    def lane_mask(self, form: Affine, quasi: tuple[Scaled, ...], lane: str, lanes: int) -> Var:
        """Lanes for which ``form + sum(quasi) >= 0``, computed once where all other names are known."""
        rest = without(form, lane)
        scope = self._home((*rest.names, *(n for _, q in quasi for n in q.num.names)))
        key = (form, quasi, "mask", lanes)
        found = scope.index.get(key)
        if found is None:
            low, high = bounds(form, quasi, self.ranges)
            dtype = DType.INT32 if DType.INT32.min_value <= low and high <= DType.INT32.max_value else None
            type = (Type(dtype) if dtype else self.index_type).vector(lanes)
            first = self.atom(rest, quasi)
            first = first if first.type.dtype is type.dtype else Cast(first, type.scalar)
            steps = Binary("mul", Iota(type), Const(form.coefficient(lane), type), type)
            value = Binary("add", steps, Splat(first, type), type)
            mask = Compare("cmp_ge", value, Const(0, type), BOOL.vector(lanes))
            found = scope.index[key] = self.let("mask", mask, scope)
        return found

    def _vector_divmod(self, form: DivMod, scale: int, lane: str, lanes: int) -> Expr:
        type = self.index_type.vector(lanes)
        num = self.vector_index(form.num, lane, lanes)
        mod = Binary("mod", num, Const(form.den, type), type)
        value: Expr = mod
        if form.op is DivModOp.DIV:
            exact = Binary("sub", num, mod, type)
            value = Binary("div", exact, Const(form.den, type), type)
        return value if scale == 1 else Binary("mul", value, Const(scale, type), type)

    def _base(self, terms: Terms) -> Expr:
        """The sum of the terms without a constant: what is known further out is added there."""
        if len(terms) == 1 and terms[0][1] == 1:
            return Var(terms[0][0], self.index_type)
        depth = max(self._homes[n].depth for n, _ in terms)
        inner = tuple(t for t in terms if self._homes[t[0]].depth == depth)
        scope = self._homes[inner[0][0]]
        found = scope.index.get(terms)
        if found is not None:
            return found
        outer = tuple(t for t in terms if self._homes[t[0]].depth != depth)
        total = self._base(outer) if outer else None
        for name, coefficient in inner:
            total = self._plus(total, self._scaled(Var(name, self.index_type), coefficient))
        assert total is not None
        found = scope.index[terms] = self.let("at", total, scope)
        return found

    def _plus(self, left: Expr | None, right: Expr) -> Expr:
        return right if left is None else Binary("add", left, right, self.index_type)

    def _scaled(self, value: Expr, factor: int) -> Expr:
        return value if factor == 1 else Binary("mul", value, self.literal(factor), self.index_type)

    def _home(self, names: tuple[str, ...]) -> Scope:
        """The outermost scope in which all names are known."""
        return max((self._homes[n] for n in names), key=lambda s: s.depth, default=self.top)

    # values

    def cast(self, value: Expr, dtype: DType) -> Expr:
        """`value` as `dtype`: itself, a literal, or a cast."""
        if value.type.dtype is dtype:
            return value
        type = Type(dtype, value.type.lanes)
        if isinstance(value, Const) and dtype.is_integer and dtype.min_value <= value.value <= dtype.max_value:
            return Const(int(value.value), type)
        return self.pure("cast", (value,), Cast(value, type))

    def splat(self, value: Expr, lanes: int) -> Expr:
        """`value` in `lanes` lanes."""
        if value.type.lanes == lanes:
            return value
        type = value.type.vector(lanes)
        if isinstance(value, Const):
            return Const(value.value, type)
        return self.pure("splat", (value,), Splat(value, type))

    def pure(self, name: str, args: tuple[Expr, ...], value: Expr, hint: str = "t") -> Expr:
        """Bind a pure operation on atoms, once per straight-line region."""
        key = (name, value.type.dtype.value, value.type.lanes, *(atom_key(a) for a in args))
        found = self.scope.values.get(key)
        if found is None:
            found = self.scope.values[key] = self.let(hint, value)
        return found

    def select(self, cond: Expr, then: Expr, other: Expr) -> Expr:
        return Select(cond, then, other, then.type)


def atom_key(value: Expr) -> object:
    """A cheap key of a variable or literal; tells 0.0 from -0.0 and 1 from True."""
    if isinstance(value, Var):
        return value.name
    assert isinstance(value, Const), "operands are variables or literals"
    return (repr(value.value), value.type.dtype.value)
