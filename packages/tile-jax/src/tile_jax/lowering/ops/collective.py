"""What devices that run a program in step tell one another: on the host, between their device programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np
from tile_ir.dtype import DType
from tile_runtime.ops.values import Array, Value

from tile_jax.lowering.elements import full
from tile_jax.lowering.errors import Unlooped
from tile_jax.lowering.op import Op
from tile_jax.lowering.recorder import Slots
from tile_jax.lowering.registry import operation
from tile_jax.program import CollectiveStep

Group = Sequence[Array]
"""The arrays of one operand, of every device of a group."""
_SUMS: dict[str, Any] = {
    "stablehlo.add": np.add,
    "stablehlo.multiply": np.multiply,
    "stablehlo.maximum": np.maximum,
    "stablehlo.minimum": np.minimum,
    "stablehlo.and": np.bitwise_and,
    "stablehlo.or": np.bitwise_or,
}


@operation("stablehlo.partition_id", "stablehlo.replica_id")
def number_of_device(op: Op) -> Value:
    """Its place among those that run the program."""
    if op.walk.devices == 1:
        return full(0, DType.UINT32)
    return _step(op, lambda rows: [[np.uint32(k)] for k in range(len(rows))])[0]


@operation("stablehlo.all_reduce")
def all_reduce(op: Op) -> tuple[Value, ...]:
    """What a function of two makes of all."""
    both = _combining(op)
    return _among(op, lambda group: [reduce(both, group)] * len(group))


@operation("stablehlo.all_gather")
def all_gather(op: Op) -> tuple[Value, ...]:
    """One behind the other, along an axis."""
    axis = op.number("all_gather_dim")
    return _among(op, lambda group: [np.concatenate(group, axis)] * len(group))


@operation("stablehlo.reduce_scatter")
def reduce_scatter(op: Op) -> tuple[Value, ...]:
    """What a function of two makes of all, and of that each one's share."""
    both, axis = _combining(op), op.number("scatter_dimension")
    return _among(op, lambda group: np.split(reduce(both, group), len(group), axis))


@operation("stablehlo.all_to_all")
def all_to_all(op: Op) -> tuple[Value, ...]:
    """Everybody's share for everybody."""
    split, joined = op.number("split_dimension"), op.number("concat_dimension")

    def exchanged(group: Group) -> list[Array]:
        shares = [np.split(array, len(group), split) for array in group]
        return [np.concatenate([own[k] for own in shares], joined) for k in range(len(group))]

    return _among(op, exchanged)


@operation("stablehlo.collective_broadcast")
def collective_broadcast(op: Op) -> tuple[Value, ...]:
    """What the first of a group has."""
    return _among(op, lambda group: [group[0]] * len(group))


@operation("stablehlo.collective_permute")
def collective_permute(op: Op) -> Value:
    """From one device to another; zeros where nothing is sent."""
    table = np.array(op.attribute("source_target_pairs")).reshape(-1, 2).tolist()
    if op.walk.devices == 1:
        made = op.result()
        return op.values[0] if table else full(0, made.dtype, made.shape)

    def sent(rows: Sequence[Sequence[Array]]) -> list[list[Array]]:
        source = {target: own for own, target in table}
        return [[rows[source[k]][0] if k in source else np.zeros_like(row[0])] for k, row in enumerate(rows)]

    return _step(op, sent)[0]


def _among(op: Op, function: Callable[[Group], Sequence[Array]]) -> tuple[Value, ...]:
    """`function` for every operand and every group of devices; where a group is one device, its own values."""
    table: list[list[int]] = np.array(op.attribute("replica_groups")).tolist()
    groups = [[k for k in row if k >= 0] for row in table]
    if op.walk.devices == 1:
        if any(len(group) > 1 for group in groups):
            raise op.unsupported(f"it joins {max(map(len, groups))} devices", "the program runs on one device")
        return tuple(op.values)

    def all_groups(rows: Sequence[Sequence[Array]]) -> list[list[Array]]:
        made = [list(row) for row in rows]
        for group in groups or [list(range(len(rows)))]:
            for operand in range(len(rows[0])):
                for k, array in zip(group, function([rows[j][operand] for j in group]), strict=True):
                    made[k][operand] = array
        return made

    return _step(op, all_groups)


def _step(op: Op, function: Callable[[Sequence[Sequence[Array]]], Sequence[Sequence[Any]]]) -> tuple[Value, ...]:
    """Ends the device programs; what they have becomes what they get."""
    if op.walk.tracing:
        raise Unlooped

    def step(reads: Slots, writes: Slots) -> CollectiveStep:
        return CollectiveStep(function, reads, writes)

    return tuple(op.scope.recorder.host(op.values, op.results, step))


def _combining(op: Op) -> Any:
    """The function of two that a region of one operation is."""
    names = [inner.operation.name for inner in op.region().operations]
    found = _SUMS.get(names[0]) if len(names) == 2 else None
    if found is None:
        raise op.unsupported(f"it combines by {names[:-1]}", f"there are {', '.join(_SUMS)}")
    return found
