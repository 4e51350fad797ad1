"""Complex numbers: Tile has none, and computes with their parts.

A complex value is a tensor of parts along one more axis, the last one, so that it is handed on, chosen and carried through
loops as any other. An operation on it takes the parts, and puts together those of its result; which parts a value was
put together from is remembered, so that a chain of operations never looks at the values between. What moves or adds numbers
is done to each part; products and functions are formulas of parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tile_ir.program.nodes import TensorType
from tile_runtime.ops.moving import joined, reshaped, sliced
from tile_runtime.ops.text import literal
from tile_runtime.ops.values import Value

from tile_jax.lowering.decomposed import decomposed
from tile_jax.lowering.elements import converted as cast
from tile_jax.lowering.elements import elementwise, full
from tile_jax.lowering.op import Op, Walking
from tile_jax.lowering.regions import aggregations
from tile_jax.lowering.registry import find
from tile_jax.lowering.scope import Pair
from tile_jax.lowering.tensors import complex_constant, is_complex, tensor_type

Parts = tuple[Value, Value]

AS_THEY_ARE = frozenset({
    "func.call", "sdy.sharding_constraint", "stablehlo.case", "stablehlo.composite", "stablehlo.custom_call", "stablehlo.fft",
    "stablehlo.get_tuple_element", "stablehlo.if", "stablehlo.optimization_barrier", "stablehlo.tuple", "stablehlo.while",
})  # fmt: skip
"""Operations that hand values on whatever they are."""
_EACH = frozenset(f"stablehlo.{name}" for name in (
    "add", "broadcast", "broadcast_in_dim", "concatenate", "dynamic_broadcast_in_dim", "dynamic_gather", "dynamic_pad",
    "dynamic_reshape", "dynamic_slice", "dynamic_update_slice", "gather", "negate", "pad", "real_dynamic_slice", "reduce",
    "reduce_window", "reshape", "reverse", "scatter", "select", "slice", "subtract", "torch_index_select", "transpose",
))  # fmt: skip
"""Operations that do to a complex number what they do to each of its parts."""
_REDUCTIONS = frozenset({"stablehlo.reduce", "stablehlo.reduce_window"})
"""Operations whose converters take complex values as they are where their regions are no sums."""
_PRODUCTS = frozenset({"stablehlo.multiply", "stablehlo.dot_general", "stablehlo.dot", "stablehlo.convolution"})
"""Operations that are linear in both of their operands."""


class PartOp(Op):
    """An operation as it is for one part of complex numbers: the types of its results are those of parts."""

    def result(self, k: int = 0) -> TensorType:
        return _part_type(self.operation.results[k].type)

    @property
    def results(self) -> list[TensorType]:
        return [self.result(k) for k in range(len(self.operation.results))]


def _part_type(type: Any) -> TensorType:
    """Dtype and shape of a value, or of one part of it."""
    found = tensor_type(type)
    return TensorType(found.dtype, found.shape[:-1]) if is_complex(type) else found


def converted(op: Op) -> Any:
    """What an operation of complex numbers gives."""
    if op.name == "stablehlo.constant":
        return complex_constant(op.operation)
    if op.name == "stablehlo.sort" or (op.name in _REDUCTIONS and not _adds(op)):
        return _by_itself(op)
    if op.name in _EACH:
        return _each(op)
    if op.name in _PRODUCTS:
        return _together(op.walk, _product(op))
    if op.name in FORMULAS:
        made = FORMULAS[op.name](op, *(_taken(op, k) for k in range(len(op.values))))
        shape = None if op.lifted else _part_type(op.operation.results[0].type).shape
        match made:
            case (real, imaginary):
                parts = elementwise("{0}", real, shape=shape), elementwise("{0}", imaginary, shape=shape)
                return _together(op.walk, parts)
            case _:
                return elementwise("{0}", made, shape=shape)
    if op.name.startswith("stablehlo.") and op.name not in _EXPANDED:
        raise op.unsupported("there is no form of it for complex numbers", "compute with real and imaginary parts")
    return decomposed(op)


# --- parts -------------------------------------------------------------------------------------------------


def _together(walk: Walking, parts: Parts) -> Value:
    """A complex value."""
    shape = parts[0].shape
    made = joined([reshaped(part, (*shape, 1)) for part in parts], len(shape))
    walk.pairs[id(made)] = Pair(made, parts)
    return made


def _apart(walk: Walking, value: Value) -> Parts:
    """The parts of a complex value."""
    if id(value) in walk.pairs:
        return walk.pairs[id(value)].parts
    shape = value.shape[:-1]
    whole = [slice(None)] * len(shape)
    real, imaginary = (reshaped(sliced(value, [*whole, slice(k, k + 1)]), shape) for k in range(2))
    walk.pairs[id(value)] = Pair(value, (real, imaginary))
    return real, imaginary


def is_whole(op: Op) -> bool:
    """Whether a converter has complex numbers at hand, and not one part of them."""
    return op.complex and not op.walk.apart


def part_by_part(op: Op, numbers: Sequence[int], function: Callable[..., Value]) -> Value:
    """A function of operands with these numbers that moves cells: of each part where they are complex."""
    taken = [_taken(op, k) if is_whole(op) else op.values[k] for k in numbers]
    if not any(isinstance(v, tuple) for v in taken):
        return function(*taken)
    real, imaginary = (function(*(v[side] if isinstance(v, tuple) else v for v in taken)) for side in range(2))
    return _together(op.walk, (real, imaginary))


def _taken(op: Op, k: int) -> Any:
    """Operand `k`: its parts where it is complex."""
    return _apart(op.walk, op.values[k]) if is_complex(op.operation.operands[k].type) else op.values[k]


def _each(op: Op) -> tuple[Value, ...]:
    """The operation on real parts, and on imaginary ones."""
    if op.name == "stablehlo.scatter" and not _adds(op):
        raise op.unsupported("its region is no sum, and Tile takes complex numbers apart")
    taken = [_taken(op, k) for k in range(len(op.values))]
    sides = [_part(op, [v[side] if isinstance(v, tuple) else v for v in taken]) for side in range(2)]
    results = op.operation.results
    return tuple(
        _together(op.walk, (real, imaginary)) if is_complex(result.type) else real
        for result, real, imaginary in zip(results, *sides, strict=True)
    )


def _adds(op: Op) -> bool:
    return set(aggregations(op.region()) or "?") <= {"+", "="}


def _by_itself(op: Op) -> Any:
    entry = find(op.name)
    assert entry is not None
    return entry.convert(op)


def _part(op: Op, values: Sequence[Value]) -> list[Value]:
    """What the operation gives for one part of each operand."""
    entry = find(op.name)
    assert entry is not None
    outside, op.walk.apart = op.walk.apart, True
    try:
        made = entry.convert(PartOp(op.operation, values, op.walk, op.scope, op.name))
    finally:
        op.walk.apart = outside
    return list(made) if isinstance(made, (tuple, list)) else [made]  # pyright: ignore[reportUnknownArgumentType]


def _product(op: Op) -> Parts:
    (a, b), (c, d) = (_taken(op, k) for k in range(2))
    both = [_part(op, [x, y])[0] for x, y in ((a, c), (b, d), (a, d), (b, c))]
    shape = both[0].shape
    return elementwise("({0} - {1})", *both[:2], shape=shape), elementwise("({0} + {1})", *both[2:], shape=shape)


# --- formulas ----------------------------------------------------------------------------------------------


def _complex(op: Op, real: Value, imaginary: Value) -> Parts:
    return real, imaginary


def _real(op: Op, x: Parts) -> Value:
    return x[0]


def _imag(op: Op, x: Parts) -> Value:
    return x[1]


def _conj(op: Op, x: Parts) -> Parts:
    return x[0], elementwise("(-{0})", x[1])


def _abs(op: Op, x: Parts) -> Value:
    """Scaled by the larger part, so that no square overflows."""
    one, other = (elementwise("abs({0})", part) for part in x)
    large, small = elementwise("max({0}, {1})", one, other), elementwise("min({0}, {1})", one, other)
    ratio = elementwise("({0} == 0 ? 0 : {1} / {0})", large, small)
    infinite = literal(float("inf"))
    return elementwise(f"({{0}} == {infinite} ? {{0}} : {{0}} * sqrt(1 + {{1}} * {{1}}))", large, ratio)


def _divide(op: Op, x: Parts, y: Parts) -> Parts:
    """Smith's way: by the ratio of the divisor's parts, whichever is below one."""
    wide = elementwise("(abs({0}) >= abs({1}))", *y)
    ratio = elementwise("({2} ? {1} / {0} : {0} / {1})", *y, wide)
    below = elementwise("({2} ? {0} + {1} * {3} : {0} * {3} + {1})", *y, wide, ratio)
    real = elementwise("({2} ? {0} + {1} * {3} : {0} * {3} + {1}) / {4}", *x, wide, ratio, below)
    imaginary = elementwise("({2} ? {1} - {0} * {3} : {1} * {3} - {0}) / {4}", *x, wide, ratio, below)
    return real, imaginary


def _compare(op: Op, x: Parts, y: Parts) -> Value:
    signs = {"EQ": "(({0} == {1}) & ({2} == {3}))", "NE": "(({0} != {1}) | ({2} != {3}))"}
    word = op.text("comparison_direction")
    if word not in signs:
        raise op.unsupported("complex numbers have no order")
    return elementwise(signs[word], x[0], y[0], x[1], y[1])


def _convert(op: Op, x: Any) -> Parts | Value:
    """A real number becomes a real part, and of a complex one the real part stays."""
    dtype = op.result().dtype
    if not isinstance(x, tuple):
        real = cast(x, dtype)
        return real, full(0, dtype, real.shape)
    real, imaginary = (cast(part, dtype) for part in x)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return (real, imaginary) if is_complex(op.operation.results[0].type) else real


def _is_finite(op: Op, x: Parts) -> Value:
    return elementwise("(({0} - {0} == 0) & ({1} - {1} == 0))", *x)


def _sine(op: Op, x: Parts) -> Parts:
    return elementwise("(sin({0}) * cosh({1}))", *x), elementwise("(cos({0}) * sinh({1}))", *x)


def _cosine(op: Op, x: Parts) -> Parts:
    return elementwise("(cos({0}) * cosh({1}))", *x), elementwise("(-(sin({0}) * sinh({1})))", *x)


def _tanh(op: Op, x: Parts) -> Parts:
    """By the tangents of both parts, which do not overflow."""
    below = "(1 + tanh({0}) * tanh({0}) * tan({1}) * tan({1}))"
    real = elementwise(f"(tanh({{0}}) * (1 + tan({{1}}) * tan({{1}})) / {below})", *x)
    return real, elementwise(f"(tan({{1}}) * (1 - tanh({{0}}) * tanh({{0}})) / {below})", *x)


def _tan(op: Op, x: Parts) -> Parts:
    """tan z = -i tanh iz"""
    real, imaginary = _tanh(op, (elementwise("(-{0})", x[1]), x[0]))
    return imaginary, elementwise("(-{0})", real)


def _expm1(op: Op, x: Parts) -> Parts:
    real = elementwise("(expm1({0}) * cos({1}) - 2 * sin({1} / 2) * sin({1} / 2))", *x)
    return real, elementwise("(exp({0}) * sin({1}))", *x)


def _exp(op: Op, x: Parts) -> Parts:
    return elementwise("(exp({0}) * cos({1}))", *x), elementwise("({1} == 0 ? {1} : exp({0}) * sin({1}))", *x)


def _log(op: Op, x: Parts) -> Parts:
    return elementwise("log({0})", _abs(op, x)), elementwise("atan2({1}, {0})", *x)


def _power(op: Op, x: Parts, y: Parts) -> Parts:
    """exp(y log x), 1 where y is 0, and 0 where x is."""
    size, angle = _log(op, x)
    exponent = [elementwise(t, size, angle, *y) for t in ("({0} * {2} - {1} * {3})", "({0} * {3} + {1} * {2})")]
    real, imaginary = _exp(op, (exponent[0], exponent[1]))
    none = elementwise("(({0} == 0) & ({1} == 0))", *x)
    plain = elementwise("(({0} == 0) & ({1} == 0))", *y)
    return elementwise("({0} ? 1 : ({1} ? 0 : {2}))", plain, none, real), elementwise(
        "(({0} | {1}) ? 0 : {2})", plain, none, imaginary
    )


def _logistic(op: Op, x: Parts) -> Parts:
    """(1 + tanh(z / 2)) / 2"""
    half = tuple(elementwise("({0} / 2)", part) for part in x)
    real, imaginary = _tanh(op, (half[0], half[1]))
    return elementwise("({0} / 2 + 0.5)", real), elementwise("({0} / 2)", imaginary)


def _sign(op: Op, x: Parts) -> Parts:
    size = _abs(op, x)
    return elementwise("({1} == 0 ? {0} : {0} / {1})", x[0], size), elementwise(
        "({1} == 0 ? {0} : {0} / {1})", x[1], size
    )


FORMULAS: dict[str, Callable[..., Parts | Value]] = {
    "stablehlo.complex": _complex, "stablehlo.real": _real, "stablehlo.imag": _imag,
    "chlo.conj": _conj, "stablehlo.abs": _abs, "stablehlo.divide": _divide, "stablehlo.compare": _compare,
    "stablehlo.convert": _convert, "stablehlo.is_finite": _is_finite, "stablehlo.sine": _sine, "stablehlo.cosine": _cosine,
    "stablehlo.tan": _tan, "stablehlo.tanh": _tanh, "stablehlo.exponential": _exp, "stablehlo.log": _log,
    "stablehlo.exponential_minus_one": _expm1, "stablehlo.power": _power, "stablehlo.logistic": _logistic, "stablehlo.sign": _sign,
}  # fmt: skip
_EXPANDED = frozenset({"stablehlo.sqrt", "stablehlo.log_plus_one"})
"""What MLIR's own pass writes in terms of parts."""
