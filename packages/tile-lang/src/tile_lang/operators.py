"""Scalar operations on bound values: unification of operands, folding of constants, exact comparisons."""

from __future__ import annotations

from collections.abc import Sequence

from tile_ir.diagnostics import Span
from tile_ir.dtype import DType
from tile_ir.program.nodes import TensorType

from tile_lang.dims import fold
from tile_lang.scope import Scope, origin, unified
from tile_lang.types import exact_comparison, literal, swapped, unify
from tile_lang.values import Const, Tensor, fail


def operate(
    scope: Scope, fn: str, args: Sequence[Tensor | Const], span: Span, spans: Sequence[Span] = ()
) -> Tensor | Const:
    """An operator applied to its operands: folded, or emitted with the casts that its rule asks for."""
    consts = [a.value for a in args if isinstance(a, Const)]
    if len(consts) == len(args):
        return Const(fold(fn, consts, scope.limits, span))
    if fn.startswith("cmp_"):
        return compare(scope, fn, args[0], args[1], span)
    if fn.startswith("bit_"):
        for arg, where in zip(args, spans or [span] * len(args), strict=True):
            _need_bits(fn, arg, where)
    if fn in ("bit_left", "bit_right"):
        return _shift(scope, fn, args[0], args[1], span)
    return unified(scope, fn, args, span, spans)


def _need_bits(fn: str, arg: Tensor | Const, span: Span) -> None:
    found = arg.type.dtype if isinstance(arg, Tensor) else arg.value
    if isinstance(found, float) or (isinstance(found, DType) and found.is_float):
        name = found if isinstance(found, DType) else f"the float {found}"
        hint = (
            "pow(A, B) is a power; as_int(x, 32) converts"
            if fn == "bit_xor"
            else "convert it first, for example with as_int(x, 32)"
        )
        fail("TILE-E128", f"{fn} works on integers and bool, not on {name}", span, hint)


def _shift(scope: Scope, fn: str, left: Tensor | Const, right: Tensor | Const, span: Span) -> Tensor:
    """Shifts keep the left dtype; a constant left of a tensor takes the count's dtype."""
    dtype = left.type.dtype if isinstance(left, Tensor) else unify((left, right))
    shape = scope.broadcast((left, right), span)
    value = scope.operand(left, dtype, span)
    if isinstance(right, Const):
        # Every count outside [0, bits) means the same.
        count = int(right.value) if 0 <= right.value < dtype.bits else dtype.bits
        shifted = literal(count, DType.INT32 if dtype is DType.BOOL else dtype, span)
    elif right.type.dtype is DType.BOOL:
        shifted = scope.operand(right, DType.INT32, span)
    else:
        shifted = right.name
    return scope.elementwise(fn, (value, shifted), TensorType(dtype, shape), origin(span))


def compare(scope: Scope, fn: str, left: Tensor | Const, right: Tensor | Const, span: Span) -> Tensor:
    """A comparison; with a constant it is exact whatever the tensor's dtype."""
    if isinstance(left, Const):
        assert isinstance(right, Tensor)
        return compare(scope, swapped(fn), right, left, span)
    if isinstance(right, Tensor) or isinstance(right.value, bool):
        return scope.apply(fn, (left, right), (unify((left, right)), DType.BOOL), span)
    if left.type.dtype is DType.BOOL:
        left = scope.cast(left, DType.INT32, span)
    exact, bound, negate = exact_comparison(fn, right.value, left.type.dtype)
    result = scope.elementwise(exact, (left.name, bound), TensorType(DType.BOOL, left.type.shape), span)
    return scope.apply("bit_not", (result,), (DType.BOOL, DType.BOOL), span) if negate else result


def select(scope: Scope, args: Sequence[Tensor | Const], span: Span, spans: Sequence[Span] = ()) -> Tensor | Const:
    """``test ? then : otherwise``; a constant test picks one side."""
    test, then, otherwise = args
    if isinstance(test, Const):
        return then if test.value else otherwise
    truth = truth_of(scope, test, span)
    dtype = unify((then, otherwise))
    shape = scope.broadcast((truth, then, otherwise), span)
    places = spans or (span, span, span)
    operands = (truth.name, scope.operand(then, dtype, places[1]), scope.operand(otherwise, dtype, places[2]))
    return scope.elementwise("cond", operands, TensorType(dtype, shape), span)


def truth_of(scope: Scope, test: Tensor, span: Span) -> Tensor:
    """A condition as bool: other dtypes are compared with 0."""
    if test.type.dtype is DType.BOOL:
        return test
    return compare(scope, "cmp_ne", test, Const(0), span)
