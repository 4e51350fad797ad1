"""The built-in functions as one table: name, number of arguments, what binds a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf, isfinite, isinf, isnan, prod

import numpy as np
from tile_ir import numerics
from tile_ir.diagnostics import Span
from tile_ir.dtype import DType
from tile_ir.ops import OPS, Aggregation, Signature
from tile_ir.program.nodes import (
    Elementwise,
    IndexOf,
    Prng,
    Reshape,
    TensorType,
)

from tile_lang import ast
from tile_lang.along import ALONG
from tile_lang.calls import Builtin, Call
from tile_lang.dims import fold
from tile_lang.foreign import misused, unknown
from tile_lang.operators import compare, operate, select
from tile_lang.scope import Scope, join_shapes, plural, show, unified
from tile_lang.types import math_dtype, unify
from tile_lang.values import Const, Draw, Tensor, TupleValue, Value, describe, fail

STATE = TensorType(DType.UINT32, (3, 2048))
"""The type of a random generator's state."""


def call(scope: Scope, node: ast.Call, args: Sequence[Value], spans: Sequence[Span]) -> Value:
    """Bind ``function(args…)``: of the text's own functions first."""
    name = node.function
    own = scope.local.get(name)
    if own is not None:
        return own(scope, args, node.span)
    return called(scope, node, args).bind(Call(scope, name, args, spans, node.span))


def called(scope: Scope, node: ast.Call, args: Sequence[Value]) -> Builtin:
    """The built-in function that is called, with as many arguments as it takes; hints look at those."""
    name = node.function
    builtin = BUILTINS.get("assert_" if name.startswith("assert_") else name)
    if builtin is None:
        hint = unknown(node, args, [*scope.local, *BUILTINS])
        fail("TILE-E114", f"there is no function {name}", node.function_span, hint)
    _check_arity(builtin, node, args)
    return builtin


def sizes_from(name: str) -> int | None:
    """The first argument of a function that is a size, if any is."""
    builtin = BUILTINS.get(name)
    return builtin.sizes if builtin else None


def _check_arity(builtin: Builtin, node: ast.Call, args: Sequence[Value]) -> None:
    given, least, most = len(node.args), builtin.least, builtin.most
    if given >= least and (most is None or given <= most):
        return
    wanted = f"at least {plural(least, 'argument')}"
    if most is not None:
        wanted = plural(least, "argument") if most == least else f"{least} to {plural(most, 'argument')}"
    fail("TILE-E115", f"{node.function} takes {wanted}, not {given}", node.span, misused(node, args))


# --- arithmetic ----------------------------------------------------------------------------------


def _operator(c: Call) -> Value:
    return operate(c.scope, c.name, c.scalars(), c.span, c.spans)


def _math(c: Call) -> Value:
    args = c.scalars()
    if all(isinstance(a, Const) for a in args):
        return operate(c.scope, c.name, args, c.span)
    dtype = math_dtype(args)
    return c.scope.apply(c.name, args, (dtype, dtype), c.span, c.spans)


def _of_any(c: Call) -> Value:
    """A function of every dtype that Program keeps whole."""
    args = c.scalars()
    consts = [a.value for a in args if isinstance(a, Const)]
    if len(consts) == len(args):
        return Const(fold(c.name, consts, c.scope.limits, c.span))
    return unified(c.scope, c.name, args, c.span, c.spans)


def _function(c: Call) -> Value:
    """A function of floats that Program keeps whole."""
    x = c.tensor(0)
    dtype = math_dtype((x,))
    return c.scope.apply(c.name, (x,), (dtype, dtype), c.span)


def _stop_gradient(c: Call) -> Value:
    x = c.scalar(0)
    return x if isinstance(x, Const) else unified(c.scope, c.name, (x,), c.span)


def _reverse_grad(c: Call) -> Value:
    x, k = c.real_tensor(0), c.scalar(1)
    scale = k.value if isinstance(k, Const) else None
    if scale is None or (isinstance(scale, float) and not isfinite(scale)):
        fail("TILE-E129", f"argument 2 of {c.name} must be a finite constant, not {describe(k)}", c.spans[1])
    name = c.scope.fresh()
    return c.scope.emit(Elementwise(name, x.type, c.name, (x.name,), (scale,), c.span))


def _fmod(c: Call) -> Value:
    """C's remainder; of integers ``a - b * (a / b)``, and 0 where b is 0."""
    args = c.scalars()
    dtype = unify(args)
    if dtype.is_float or all(isinstance(a, Const) for a in args):
        return _math(c)

    def op(fn: str, *operands: Tensor | Const) -> Tensor:
        return c.scope.apply(fn, operands, (dtype, dtype), c.span)

    a, b = args
    rest = op("sub", a, op("mul", b, op("div", a, b)))
    if isinstance(b, Const):
        return rest if b.value else op("sub", rest, rest)
    return select(c.scope, (compare(c.scope, "cmp_eq", b, Const(0), c.span), Const(0), rest), c.span)


def _where_number(c: Call) -> Value:
    """isnan, isinf and isfinite."""
    x = c.scalar(0)
    if isinstance(x, Const):
        return Const(_NUMBERS[c.name](x.value))
    if c.name == "isnan":
        return compare(c.scope, "cmp_ne", x, x, c.span)
    size = unified(c.scope, "abs", (x,), c.span)
    return compare(c.scope, "cmp_eq" if c.name == "isinf" else "cmp_lt", size, Const(inf), c.span)


_NUMBERS: Mapping[str, Callable[[int | float], bool]] = {"isnan": isnan, "isinf": isinf, "isfinite": isfinite}


def _clamp(c: Call) -> Value:
    """`x` between two bounds: NaN stays, and a bound's value itself passes the derivative on to `x`."""
    x, low, high = c.scalars()
    scope, span = c.scope, c.span
    for limit, fn in ((low, "cmp_lt"), (high, "cmp_gt")):
        x = select(scope, (operate(scope, fn, (x, limit), span), limit, x), span)
    return x


def _ident(c: Call) -> Value:
    return c.scalar(0)


def _select(c: Call) -> Value:
    return select(c.scope, c.scalars(), c.span, c.spans)


# --- casts ---------------------------------------------------------------------------------------


def _cast(dtypes: Mapping[int, DType]) -> Callable[[Call], Value]:
    """Conversion to the dtype of a width, which is the second argument; a call without it takes the only one."""

    def bind(c: Call) -> Value:
        width = c.integer(1) if len(c.args) > 1 else min(dtypes)
        if width not in dtypes:
            listed = " or ".join(", ".join(map(str, dtypes)).rsplit(", ", 1))
            fail("TILE-E116", f"the width of {c.name} must be {listed}, not {width}", c.spans[1])
        return _converted(c, dtypes[width])

    return bind


def _bits_as(kind: str) -> Callable[[Call], Value]:
    """The bits of a tensor as those of the kind's dtype of the same width."""

    def bind(c: Call) -> Value:
        x = c.real_tensor(0)
        found = next((d for d in DType if d.value == f"{kind}{x.type.dtype.bits}"), None)
        if found is None or x.type.dtype is DType.BOOL:
            hint = "as_int, as_uint and as_float convert numbers, as_bool and the others truth values"
            fail("TILE-E120", f"{c.name} has no dtype for the bits of {x.type.dtype}", c.spans[0], hint)
        return x if found is x.type.dtype else c.scope.apply("bitcast", (x,), (x.type.dtype, found), c.span)

    return bind


def _widths(kind: str, *widths: int) -> dict[int, DType]:
    return {width: DType(f"{kind}{width}") for width in widths}


def _converted(c: Call, dtype: DType) -> Tensor:
    value = c.scalar(0)
    if isinstance(value, Tensor):
        return c.scope.cast(value, dtype, c.span)
    number = value.value
    if isinstance(number, int) and dtype.is_integer:
        number = (number - int(dtype.min_value)) % (1 << dtype.bits) + int(dtype.min_value)
        array = np.asarray(number, dtype.numpy)
    else:
        array = numerics.cast_array(np.float64(number), dtype)
    return c.scope.constant_array(array, dtype, c.span)


# --- shapes --------------------------------------------------------------------------------------


def _index(c: Call) -> Value:
    x = c.tensor(0)
    axis = c.axis(1, x)
    return c.scope.emit(IndexOf(c.scope.fresh(), TensorType(DType.INT32, x.type.shape), axis, c.span))


def _shape(c: Call) -> Value:
    return c.scope.constant_array(np.asarray(c.tensor(0).type.shape, np.int32), DType.INT32, c.span)


def _reshape(c: Call) -> Value:
    x, shape = c.tensor(0), c.sizes(1)
    if prod(shape) != x.type.size:
        message = f"a tensor of shape {show(x.type.shape)} has {plural(x.type.size, 'element')}; {show(shape)} has {prod(shape)}"
        fail("TILE-E119", message, c.span)
    if shape == x.type.shape:
        return x
    return c.scope.emit(Reshape(c.scope.fresh(), TensorType(x.type.dtype, shape), x.name, c.span))


def _broadcast_dims(c: Call) -> Value:
    a, b = c.integer(0), c.integer(1)
    joined = join_shapes((a,), (b,))
    if joined is None:
        fail("TILE-E134", f"the dimensions {a} and {b} cannot be broadcast together", c.span)
    return Const(joined[0])


def _match(c: Call) -> Value:
    a, b = c.integer(0), c.integer(1)
    if a != b:
        fail("TILE-E134", f"the dimensions {a} and {b} must be equal", c.span)
    return Const(a)


def _simple_reduce(c: Call) -> Value:
    x, shape = c.tensor(0), c.sizes(1)
    tail = x.type.shape[len(x.type.shape) - len(shape) :] if len(shape) <= len(x.type.shape) else None
    if tail is None or any(want not in (1, have) for want, have in zip(shape, tail, strict=True)):
        fail("TILE-E118", f"a tensor of shape {show(x.type.shape)} cannot be summed down to {show(shape)}", c.span)
    return x if shape == x.type.shape else c.scope.reduce_to(Aggregation.SUM, x, shape, c.span)


def _assert(c: Call) -> Value:
    value = c.integer(0) if not _is_bool(c.args[0]) else c.args[0]
    if not (value.value if isinstance(value, Const) else value):
        fail("TILE-E130", f"{c.name} fails", c.span)
    return c.args[0]


def _is_bool(value: Value) -> bool:
    return isinstance(value, Const) and isinstance(value.value, bool)


# --- random numbers, tuples ----------------------------------------------------------------------


def _prng_step(c: Call) -> Value:
    seed, shape = c.real_tensor(0), c.sizes(1)
    if seed.type != STATE:
        fail("TILE-E121", f"the state of prng_step must be {STATE}, not {seed.type}", c.spans[0])
    scope = c.scope
    value, state = scope.fresh(), scope.fresh()
    drawn = scope.emit(Prng(value, state, TensorType(DType.FLOAT32, shape), seed.name, c.span))
    return Draw(drawn, Tensor(state, STATE))


def _draw(c: Call) -> Draw:
    value = c.args[0]
    if not isinstance(value, Draw):
        message = f"{c.name} needs the result of prng_step, not {describe(value)}"
        fail("TILE-E121", message, c.spans[0], "write T = prng_step(S, sizes…); V = prng_value(T);")
    return value


def _prng_value(c: Call) -> Value:
    return _draw(c).value


def _prng_state(c: Call) -> Value:
    return _draw(c).state


def _tuple(c: Call) -> Value:
    return TupleValue(tuple(c.args))


def _element(c: Call) -> Value:
    value, k = c.args[0], c.integer(1)
    if not isinstance(value, TupleValue):
        fail("TILE-E122", f"element needs a tuple, not {describe(value)}", c.spans[0])
    if not 0 <= k < len(value.items):
        message = f"element {k} is out of range: the tuple has {plural(len(value.items), 'member')}"
        fail("TILE-E122", message, c.spans[1])
    return value.items[k]


# --- normalisations and losses -------------------------------------------------------------------


def _rows(c: Call) -> tuple[Tensor, tuple[int, int]]:
    x = c.real_tensor(0)
    x = c.scope.cast(x, math_dtype((x,)), c.span)
    shape = (c.integer(1), c.integer(2))
    if x.type.shape != shape:
        message = f"{c.name} is told the shape {show(shape)}, but its argument has {show(x.type.shape)}"
        fail("TILE-E106" if len(x.type.shape) != 2 else "TILE-E107", message, c.spans[0])
    return x, shape


def _shifted(c: Call) -> tuple[Tensor, Tensor]:
    """``x - row maximum`` and the row sums of its exponential, [rows, 1]."""
    x, (rows, _) = _rows(c)
    scope, span, dtype = c.scope, c.span, x.type.dtype
    largest = scope.reduce_to(Aggregation.MAX, x, (rows, 1), span)
    # Any shift gives the same result, so that no derivative flows through it.
    largest = scope.elementwise("stop_gradient", (largest.name,), largest.type, span)
    return scope.apply("sub", (x, largest), (dtype, dtype), span), largest


def _softmax(c: Call) -> Value:
    shifted, largest = _shifted(c)
    scope, span, dtype = c.scope, c.span, shifted.type.dtype
    power = scope.apply("exp", (shifted,), (dtype, dtype), span)
    total = scope.reduce_to(Aggregation.SUM, power, largest.type.shape, span)
    return scope.apply("div", (power, total), (dtype, dtype), span)


def _logsoftmax(c: Call) -> Value:
    shifted, largest = _shifted(c)
    scope, span, dtype = c.scope, c.span, shifted.type.dtype
    power = scope.apply("exp", (shifted,), (dtype, dtype), span)
    total = scope.reduce_to(Aggregation.SUM, power, largest.type.shape, span)
    logarithm = scope.apply("log", (total,), (dtype, dtype), span)
    return scope.apply("sub", (shifted, logarithm), (dtype, dtype), span)


def _crossentropy(c: Call) -> Value:
    """``-t*log(x) - (1 - t)*log(1 - x)``; the third argument scales the derivative only."""
    x, t = c.tensor(0), c.scalar(1)
    scope, span = c.scope, c.span
    dtype = math_dtype((x, t))

    def op(fn: str, *args: Tensor | Const) -> Tensor:
        return scope.apply(fn, args, (dtype, dtype), span)

    target = scope.cast(scope.tensor(t, span), dtype, span)
    x = scope.cast(x, dtype, span)
    hit = op("mul", op("neg", target), op("log", x))
    miss = op("mul", op("sub", Const(1), target), op("log", op("sub", Const(1), x)))
    return op("sub", hit, miss)


BUILTINS: dict[str, Builtin] = {
    **ALONG,
    **{name: Builtin(op.arity, op.arity, _math) for name, op in OPS.items() if op.signature is Signature.MATH},
    **{
        name: Builtin(op.arity, op.arity, _operator)
        for name, op in OPS.items()
        if op.signature not in (Signature.MATH, Signature.DOT) and name not in ("cast", "bitcast", "cond", "ident")
    },
    **dict.fromkeys(("sigmoid", "silu", "softplus", "gelu"), Builtin(1, 1, _function)),
    **dict.fromkeys(("relu", "sign"), Builtin(1, 1, _of_any)),
    **dict.fromkeys(("isnan", "isinf", "isfinite"), Builtin(1, 1, _where_number)),
    "clamp": Builtin(3, 3, _clamp),
    "stop_gradient": Builtin(1, 1, _stop_gradient),
    "reverse_grad": Builtin(2, 2, _reverse_grad),
    "mod": Builtin(2, 2, _of_any),
    "fmod": Builtin(2, 2, _fmod),
    "ident": Builtin(1, 1, _ident),
    **dict.fromkeys(("cond", "where"), Builtin(3, 3, _select)),
    "as_float": Builtin(2, 2, _cast(_widths("float", 16, 32, 64))),
    "as_int": Builtin(2, 2, _cast(_widths("int", 8, 16, 32, 64))),
    "as_uint": Builtin(2, 2, _cast(_widths("uint", 8, 16, 32, 64))),
    "as_bfloat": Builtin(1, 2, _cast(_widths("bfloat", 16))),
    **{f"bits_as_{kind}": Builtin(1, 1, _bits_as(kind)) for kind in ("float", "bfloat", "int", "uint")},
    "as_bool": Builtin(1, 2, _cast({1: DType.BOOL})),
    "index": Builtin(2, 2, _index),
    "shape": Builtin(1, 1, _shape),
    "reshape": Builtin(1, None, _reshape, sizes=1),
    "broadcast": Builtin(2, 2, _broadcast_dims, sizes=0),
    "match": Builtin(2, 2, _match, sizes=0),
    "simple_reduce": Builtin(1, None, _simple_reduce, sizes=1),
    "assert_": Builtin(1, 1, _assert),
    "prng_step": Builtin(1, None, _prng_step, sizes=1),
    "prng_value": Builtin(1, 1, _prng_value),
    "prng_state": Builtin(1, 1, _prng_state),
    "tuple": Builtin(1, None, _tuple),
    "element": Builtin(2, 2, _element),
    "builtin_softmax": Builtin(3, 3, _softmax, sizes=1),
    "builtin_logsoftmax": Builtin(3, 3, _logsoftmax, sizes=1),
    "builtin_binary_crossentropy": Builtin(3, 3, _crossentropy),
}
"""Every function that Tile source can call; ``assert_`` stands for all names that begin with it."""
