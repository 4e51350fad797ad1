"""Calls, composites, tuples, tokens, and what stands for several devices in a program for one."""

from __future__ import annotations

from typing import Any

import numpy as np
from tile_ir.dtype import DType
from tile_runtime.ops.values import Array, Value

from tile_jax.lowering.elements import full
from tile_jax.lowering.op import Op
from tile_jax.lowering.registry import find, operation
from tile_jax.lowering.walk import TOKEN

_MARKS = {"Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "annotate_device_placement", "xla.sdy.FuncResultSharding",
          "LayoutConstraint"}  # fmt: skip
"""Custom calls that say where a value lives, and hand it on."""
_HINTS = {
    "Eigh": "eigenvalues are not computed on this platform yet: run that part on JAX's cpu platform",
}


@operation("func.call")
def call(op: Op) -> tuple[Value, ...]:
    return tuple(op.walk.call(op.attribute("callee").value, op.values, op.scope))


@operation("stablehlo.composite")
def composite(op: Op) -> Any:
    """An operation of CHLO that travels under its name, or else what its decomposition says."""
    name = op.text("name")
    if name.startswith("chlo.") and find(name) is not None:
        attributes = op.attribute("composite_attributes") if op.has("composite_attributes") else None
        return op.walk.converted(Op(op.operation, op.values, op.walk, op.scope, name, attributes))
    return tuple(op.walk.call(op.attribute("decomposition").value, op.values, op.scope))


@operation("stablehlo.tuple")
def tuple_(op: Op) -> Any:
    raise op.unsupported("tuples of tensors are not values of a Tile program", "JAX returns flat results")


@operation("stablehlo.optimization_barrier")
def optimization_barrier(op: Op) -> tuple[Value, ...]:
    return tuple(op.values)


@operation("stablehlo.after_all", "stablehlo.create_token")
def token(op: Op) -> object:
    return TOKEN


@operation("stablehlo.custom_call")
def custom_call(op: Op) -> tuple[Value, ...]:
    target = op.text("call_target_name")
    if target in _MARKS:
        return tuple(op.values)
    raise op.unsupported(f"it calls {target!r}, a function of another platform's library", _HINTS.get(target))


@operation("sdy.sharding_constraint")
def sharding_constraint(op: Op) -> Value:
    return op.values[0]


# --- several devices --------------------------------------------------------------------------------------


@operation("stablehlo.partition_id", "stablehlo.replica_id")
def number_of_device(op: Op) -> Array:
    return full(0, DType.UINT32)


@operation("stablehlo.all_reduce", "stablehlo.all_gather", "stablehlo.all_to_all", "stablehlo.reduce_scatter",
           "stablehlo.collective_broadcast", "stablehlo.cross-replica-sum")  # fmt: skip
def among_one(op: Op) -> tuple[Value, ...]:
    """What devices tell one another, where there is one."""
    groups = np.array(op.attribute("replica_groups"))
    if groups.size > 1 and groups.shape[-1] > 1:
        raise op.unsupported(f"it joins {groups.shape[-1]} devices", "a program runs on one device")
    return tuple(op.values)


@operation("stablehlo.collective_permute")
def collective_permute(op: Op) -> Value:
    """From a device to itself; where nothing is sent, zeros."""
    pairs = np.array(op.attribute("source_target_pairs")).reshape(-1, 2)
    if pairs.any():
        raise op.unsupported("it sends between devices", "a program runs on one device")
    made = op.result()
    return op.values[0] if len(pairs) else full(0, made.dtype, made.shape)
