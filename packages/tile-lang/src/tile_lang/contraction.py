"""Binding of contractions: index formulas, the explicit domain, the body and its dtypes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import lcm

from tile_ir.diagnostics import Span
from tile_ir.dtype import DType
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import (
    Constraint,
    Contraction,
    Literal,
    Operand,
    Poly,
    ScalarStatement,
    TensorLoad,
    TensorType,
)

from tile_lang import ast
from tile_lang.dims import as_integer
from tile_lang.domain import undetermined
from tile_lang.expressions import bind_integer
from tile_lang.scope import Scope, join_shapes, origin, plural, show
from tile_lang.types import exact_comparison, literal, unify
from tile_lang.values import Const, Tensor, describe, fail


def bind_contraction(scope: Scope, node: ast.Contraction) -> Tensor:
    """Append the contraction that a statement means; its result has the statement's name."""
    output, shape = _target(scope, node.target)
    loads = [_ref(scope, ref, k) for k, ref in enumerate(node.body.refs)]
    constraints = [Constraint(f, s, origin(p.span)) for f, s, p in zip(output, shape, node.target.indexes, strict=True)]
    for load in loads:
        constraints += load.constraints
    constraints += [_user_constraint(scope, c) for c in node.constraints]
    indexes = tuple(sorted({n for c in constraints for n in c.formula.names}))
    _check_indexes(scope, node, indexes, constraints)
    body = _Body(scope, node.agg, node.body.span)
    result, acc, dtype = body.bind(node.body, [load.value for load in loads])
    type_ = TensorType(dtype, shape)
    name = node.target.name.id
    return scope.emit(
        Contraction(
            name,
            type_,
            node.agg,
            indexes,
            output,
            tuple(constraints),
            tuple(TensorLoad(f"${k}", body.sources[k], load.formulas) for k, load in enumerate(loads)),
            tuple(body.statements),
            result,
            acc,
            _default(scope, node, type_),
            node.no_defract,
            " ".join(node.span.text.split()),
            origin(node.span),
        )
    )


# --- index formulas ------------------------------------------------------------------------------


def bind_formula(scope: Scope, root: ast.Poly) -> Poly:
    """The affine form that an index formula denotes; coefficients are exact fractions."""
    values: list[Poly] = []
    for node in ast.postorder(root):
        match node:
            case ast.IntLiteral():
                values.append(Poly(const=Fraction(node.value)))
            case ast.IndexName(name):
                values.append(Poly.of({name: 1}))
            case ast.Name(name, span):
                values.append(Poly(const=Fraction(_dimension(scope, name, span))))
            case ast.Unary():
                values.append(values.pop().scaled(-1))
            case ast.Binary(op, _, _, span):
                right, left = values.pop(), values.pop()
                values.append(_combine(op, left, right, node.right.span, span))
            case _:
                fail("TILE-E110", "an index formula is made of integers, dimensions and indexes", node.span)
    return values[0]


def _dimension(scope: Scope, name: str, span: Span) -> int:
    value = scope.lookup(name, span)
    number = as_integer(value.value) if isinstance(value, Const) else None
    if number is None:
        message = f"{name} in an index formula must be an integer constant, not {describe(value)}"
        hint = f"index variables are written in lower case: {name.lower()}" if len(name) == 1 else None
        fail("TILE-E124", message, span, hint)
    return number


def _combine(op: str, left: Poly, right: Poly, right_span: Span, span: Span) -> Poly:
    if op in "+-":
        return left + right.scaled(1 if op == "+" else -1)
    if op == "*":
        if left.terms and right.terms:
            hint = "every index may only be multiplied by constants"
            fail("TILE-E110", f"the product of {left} and {right} is not linear", span, hint)
        return left.scaled(right.const) if not right.terms else right.scaled(left.const)
    if right.terms:
        fail("TILE-E111", f"division by {right}, which contains an index", right_span, "divide by constants only")
    if not right.const:
        fail("TILE-E133", "division by zero in an index formula", right_span)
    return left.scaled(1 / right.const)


def _target(scope: Scope, target: ast.Target) -> tuple[tuple[Poly, ...], tuple[int, ...]]:
    indexes, sizes = target.indexes, target.sizes or ()
    if len(indexes) != len(sizes):
        message = f"{target.name.id} has {plural(len(indexes), 'index formula')} but {plural(len(sizes), 'size')}"
        hint = "write the sizes after a colon: O[i, j : N, M]" if target.sizes is None else None
        fail("TILE-E109", message, target.span, hint)
    formulas = tuple(bind_formula(scope, p) for p in indexes)
    shape = tuple(bind_integer(scope, s, "a size") for s in sizes)
    for node, size in zip(sizes, shape, strict=True):
        if size < 0:
            fail("TILE-E113", f"the size {size} is negative", node.span)
    return formulas, shape


def _user_constraint(scope: Scope, node: ast.Constraint) -> Constraint:
    """``0 <= formula < bound``, multiplied out so that the formula takes integers only."""
    formula = bind_formula(scope, node.formula)
    bound = bind_integer(scope, node.bound, "the bound of a constraint", "TILE-E137")
    scale = lcm(formula.const.denominator, *(c.denominator for _, c in formula.terms))
    return Constraint(formula.scaled(scale), bound * scale, origin(node.span))


def _check_indexes(
    scope: Scope, node: ast.Contraction, indexes: tuple[str, ...], constraints: Sequence[Constraint]
) -> None:
    scope.limits.check("max_indexes", len(indexes), origin(node.span))
    unbounded = undetermined(constraints, indexes)
    if not unbounded:
        return
    span = _first_use(node, unbounded[0])
    names = ", ".join(unbounded)
    verb = "has" if len(unbounded) == 1 else "have"
    message = f"{'index' if len(unbounded) == 1 else 'indexes'} {names} {verb} no finite bounds"
    hint = f"add a constraint such as {unbounded[0]} < 10" if len(unbounded) == 1 else "add constraints"
    fail("TILE-E131", message, span, hint)


def _first_use(node: ast.Contraction, name: str) -> Span:
    formulas = [*node.target.indexes, *(p for r in node.body.refs for p in r.indexes)]
    formulas += [c.formula for c in node.constraints]
    for formula in formulas:
        for part in ast.postorder(formula):
            if isinstance(part, ast.IndexName) and part.id == name:
                return part.span
    return node.span


# --- operands ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Access:
    """One tensor of the body with its subscripts."""

    value: Tensor | Const
    formulas: tuple[Poly, ...]
    constraints: tuple[Constraint, ...]


def _ref(scope: Scope, ref: ast.Ref, number: int) -> _Access:
    value = scope.scalar(scope.lookup(ref.name.id, ref.name.span), ref.name.span, ref.name.id)
    shape = value.type.shape if isinstance(value, Tensor) else ()
    if len(shape) != len(ref.indexes):
        message = f"{ref.name.id} has {plural(len(shape), 'dimension')} but {plural(len(ref.indexes), 'index formula')}"
        hint = "a constant is written with empty brackets" if isinstance(value, Const) else None
        fail("TILE-E108", message, ref.span, hint)
    formulas = tuple(bind_formula(scope, p) for p in ref.indexes)
    ranges = zip(formulas, shape, ref.indexes, strict=True)
    return _Access(value, formulas, tuple(Constraint(f, s, origin(p.span)) for f, s, p in ranges))


@dataclass(slots=True)
class _Body:
    """The statements between the loads and the aggregation.

    Sums and products of float16 and bfloat16 are computed and accumulated in float32; max, min and ``=``
    see values of the output's dtype (the gradient compares them for equality).
    """

    scope: Scope
    agg: Aggregation
    span: Span
    statements: list[ScalarStatement] = field(default_factory=list[ScalarStatement])
    sources: list[Operand] = field(default_factory=list[Operand])

    def bind(self, node: ast.Body, values: Sequence[Tensor | Const]) -> tuple[Operand, DType, DType]:
        """Result, accumulator dtype and output dtype; fills `statements` and `sources`."""
        if node.conditional:
            result, dtype = self._conditional(values)
        elif node.comb == "==":
            result, dtype = self._equal(values, (0, 1)), DType.BOOL
        else:
            return self._arithmetic(node.comb, values)
        acc = self._acc(dtype)
        return self._cast(result, dtype, acc), acc, dtype

    def _acc(self, dtype: DType) -> DType:
        return dtype.accumulator if self.agg in (Aggregation.SUM, Aggregation.PROD) else dtype

    def _arithmetic(self, comb: str | None, values: Sequence[Tensor | Const]) -> tuple[Operand, DType, DType]:
        dtype = unify(values)
        acc = self._acc(dtype)
        args = [self._cast(self._load(k, v, dtype), _dtype(v, dtype), acc) for k, v in enumerate(values)]
        if comb is None:
            return args[0], acc, dtype
        return self._emit("add" if comb == "+" else "mul", tuple(args), acc), acc, dtype

    def _conditional(self, values: Sequence[Tensor | Const]) -> tuple[Operand, DType]:
        """``A == B ? C``: C where they are equal, else 0."""
        test = self._equal(values, (0, 1))
        dtype = unify(values[2:])
        then = self._load(2, values[2], dtype)
        zero = literal(0.0 if dtype.is_float else 0, dtype, self.span)
        return self._emit("cond", (test, then, zero), dtype), dtype

    def _equal(self, values: Sequence[Tensor | Const], places: tuple[int, int]) -> Operand:
        left, right = (values[k] for k in places)
        if isinstance(left, Const) != isinstance(right, Const):
            const, tensor = (left, right) if isinstance(left, Const) else (right, left)
            assert isinstance(const, Const) and isinstance(tensor, Tensor)
            return self._equal_const(const, tensor, const is left)
        dtype = unify((left, right))
        args = tuple(
            self._cast(self._load(k, v, dtype), _dtype(v, dtype), dtype)
            for k, v in zip(places, (left, right), strict=True)
        )
        return self._emit("cmp_eq", args, DType.BOOL)

    def _equal_const(self, const: Const, tensor: Tensor, first: bool) -> Operand:
        dtype = tensor.type.dtype
        if dtype is DType.BOOL and not isinstance(const.value, bool):
            dtype = DType.INT32
        fn, bound = "cmp_eq", Literal(bool(const.value), DType.BOOL)
        if dtype is not DType.BOOL:
            fn, bound, _ = exact_comparison("cmp_eq", const.value, dtype)
        self.sources += [bound, tensor.name] if first else [tensor.name, bound]
        loaded = "$1" if first else "$0"
        return self._emit(fn, (self._cast(loaded, tensor.type.dtype, dtype), bound), DType.BOOL)

    def _load(self, k: int, value: Tensor | Const, dtype: DType) -> Operand:
        self.sources.append(literal(value.value, dtype, self.span) if isinstance(value, Const) else value.name)
        return f"${k}"

    def _cast(self, value: Operand, have: DType, want: DType) -> Operand:
        return value if have is want else self._emit("cast", (value,), want)

    def _emit(self, fn: str, args: tuple[Operand, ...], dtype: DType) -> str:
        name = f"$r{len(self.statements)}"
        self.statements.append(ScalarStatement(name, fn, args, dtype))
        return name


def _dtype(value: Tensor | Const, weak: DType) -> DType:
    return value.type.dtype if isinstance(value, Tensor) else weak


def _default(scope: Scope, node: ast.Contraction, type_: TensorType) -> str | None:
    """The name of the default tensor, cast and broadcast to the output's type."""
    if node.default is None:
        return None
    span = node.default.span
    value = scope.scalar(scope.lookup(node.default.id, span), span, node.default.id)
    shape = value.type.shape if isinstance(value, Tensor) else ()
    if join_shapes(shape, type_.shape) != type_.shape:
        message = f"the default {node.default.id} has shape {show(shape)}, the output {show(type_.shape)}"
        fail("TILE-E135", message, span)
    operand = scope.operand(value, type_.dtype, span)
    if isinstance(operand, str) and shape == type_.shape:
        return operand
    return scope.elementwise("ident", (operand,), type_, span).name
