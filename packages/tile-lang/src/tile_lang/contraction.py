"""Binding of contractions: index formulas, the explicit domain, the body and its dtypes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import lcm

from tile_ir.diagnostics import Span
from tile_ir.dtype import DType
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import (
    Constraint,
    Contraction,
    Literal,
    Operand,
    ScalarStatement,
    TensorLoad,
    TensorType,
)

from tile_lang import ast
from tile_lang.borders import known_ranges
from tile_lang.domain import undetermined
from tile_lang.expressions import bind_integer
from tile_lang.formulas import bind_formula
from tile_lang.scope import Scope, join_shapes, origin, plural, show
from tile_lang.subscripts import Place, append, bind_access, bind_place
from tile_lang.types import exact_comparison, literal, unify
from tile_lang.values import Const, Tensor, fail


def bind_contraction(scope: Scope, node: ast.Contraction) -> Tensor:
    """Append the contraction that a statement means; its result has the statement's name."""
    since = len(scope.ops)
    place = _place(scope, node.target)
    given = [_user_constraint(scope, c) for c in node.constraints]
    ranges = known_ranges(scope, node, [*place.constraints, *given])
    loads = [bind_access(scope, ref, place.formulas, ranges) for ref in node.body.accesses]
    constraints = [*place.constraints, *(c for load in loads for c in load.constraints), *given]
    indexes = tuple(sorted({n for c in constraints for n in c.formula.names}))
    _check_indexes(scope, node, indexes, constraints)
    body = _Body(scope, node.agg, node.body.span)
    result, acc, dtype = body.bind(node.body, [load.value for load in loads])
    op = Contraction(
        scope.title(node.target.name.id),
        TensorType(dtype, place.extents),
        node.agg,
        indexes,
        place.formulas,
        tuple(constraints),
        tuple(TensorLoad(f"${k}", body.sources[k], load.formulas) for k, load in enumerate(loads)),
        tuple(body.statements),
        result,
        acc,
        _default(scope, node, TensorType(dtype, place.shape)),
        node.no_defract,
        " ".join(node.span.text.split()),
        origin(node.span),
    )
    return append(scope, op, place, loads, since)


# --- index formulas ------------------------------------------------------------------------------


def _place(scope: Scope, target: ast.Target) -> Place:
    indexes, sizes = target.indexes, target.sizes or ()
    if len(indexes) != len(sizes):
        message = f"{target.name.id} has {plural(len(indexes), 'index formula')} but {plural(len(sizes), 'size')}"
        hint = "write the sizes after a colon: O[i, j : N, M]" if target.sizes is None else None
        fail("TILE-E109", message, target.span, hint)
    shape = tuple(bind_integer(scope, s, "a size") for s in sizes)
    for node, size in zip(sizes, shape, strict=True):
        if size < 0:
            fail("TILE-E113", f"the size {size} is negative", node.span)
    return bind_place(scope, target, shape)


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
    subscripts = [*node.target.indexes, *node.body.accesses, *(c.formula for c in node.constraints)]
    for formula in ast.formulas(subscripts):
        for part in ast.postorder(formula):
            if isinstance(part, ast.IndexName) and part.id == name:
                return part.span
    return node.span


# --- operands ------------------------------------------------------------------------------------


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
        if node.then is not None:
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
        total = args[0]
        for arg in args[1:]:
            total = self._emit("add" if comb == "+" else "mul", (total, arg), acc)
        return total, acc, dtype

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
