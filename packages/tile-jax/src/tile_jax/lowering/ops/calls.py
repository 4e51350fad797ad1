"""Calls, composites, tuples, tokens, and what JAX says of where values live."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tile_runtime.ops.values import Value

from tile_jax.hosted import MARK
from tile_jax.lowering.elements import elementwise
from tile_jax.lowering.op import Op
from tile_jax.lowering.ops.hosted import called
from tile_jax.lowering.ops.reflections import product, reflected
from tile_jax.lowering.registry import find, operation
from tile_jax.lowering.scope import TOKEN

_MARKS = {"Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "annotate_device_placement", "xla.sdy.FuncResultSharding",
          "LayoutConstraint"}  # fmt: skip
"""Custom calls that say where a value lives, and hand it on."""
_COMPUTED: dict[str, Callable[[Op], Any]] = {"Qr": reflected, "ProductOfElementaryHouseholderReflectors": product}
"""Custom calls that JAX leaves to every platform but its own."""


@operation("func.call", elementwise=True)
def call(op: Op) -> tuple[Value, ...]:
    return tuple(op.walk.call(op.attribute("callee").value, op.values, op.scope))


@operation("stablehlo.composite", elementwise=True)
def composite(op: Op) -> Any:
    """An operation of CHLO that travels under its name, or else what its decomposition says."""
    name = op.text("name")
    if name.startswith("chlo.") and find(name) is not None and not op.complex:
        attributes = op.attribute("composite_attributes") if op.has("composite_attributes") else None
        return op.walk.converted(Op(op.operation, op.values, op.walk, op.scope, name, attributes))
    return tuple(op.walk.call(op.attribute("decomposition").value, op.values, op.scope))


@dataclass(frozen=True, slots=True)
class Packed:
    """A tuple of values."""

    items: tuple[Value, ...]


@operation("stablehlo.tuple")
def pack(op: Op) -> Packed:
    return Packed(tuple(op.values))


@operation("stablehlo.get_tuple_element")
def unpack(op: Op) -> Value:
    return op.values[0].items[op.number("index")]


@operation("stablehlo.map")
def map_(op: Op) -> Value:
    """A region of scalars, element by element."""
    return elementwise("{0}", op.lift(op.region(), op.values)[0], shape=op.result().shape)


REFUSED: dict[str, tuple[str, str | None]] = {
    "stablehlo.infeed": ("the host feeds nothing to a program that runs", "hand arrays in as arguments"),
    "stablehlo.outfeed": ("a program hands nothing to the host while it runs", "return arrays"),
    "stablehlo.send": (
        "a program sends nothing while it runs",
        "jax.debug.callback and the like run on JAX's cpu platform",
    ),
    "stablehlo.recv": (
        "a program receives nothing while it runs",
        "jax.pure_callback and the like run on JAX's cpu platform",
    ),
    "stablehlo.async_start": ("work of its own beside the program is not started", None),
    "stablehlo.async_done": ("work of its own beside the program is not awaited", None),
    "stablehlo.set_dimension_size": (
        "sizes do not change while a program runs",
        "pad, and mask what is beyond the size",
    ),
    "stablehlo.uniform_quantize": ("Tile has no quantised tensors", "quantise with integers and scales of their own"),
    "stablehlo.uniform_dequantize": ("Tile has no quantised tensors", "quantise with integers and scales of their own"),
}
"""Why operations cannot be, and what would help."""


@operation(*REFUSED)
def refused(op: Op) -> Value:
    raise op.unsupported(*REFUSED[op.name])


@operation("stablehlo.optimization_barrier", elementwise=True)
def optimization_barrier(op: Op) -> tuple[Value, ...]:
    return tuple(op.values)


@operation("stablehlo.after_all", "stablehlo.create_token")
def token(op: Op) -> object:
    return TOKEN


@operation("stablehlo.custom_call")
def custom_call(op: Op) -> Any:
    target = op.text("call_target_name")
    if target in _MARKS:
        return tuple(op.values)
    if target in _COMPUTED:
        return _COMPUTED[target](op)
    if target.startswith(MARK):
        return called(op)
    raise op.unsupported(f"it calls {target!r}, a function of another platform's library")


@operation("sdy.sharding_constraint")
def sharding_constraint(op: Op) -> Value:
    return op.values[0]
