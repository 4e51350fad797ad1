"""What of a module each device runs: the function `main`, or the part of it that `pmap` and `shard_map` wrote for one of several.

Such a part is the body of one `sdy.manual_computation`, with shapes of one device's share. All else would have to be
divided first, which is the work of XLA's partitioner.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from tile_ir.diagnostics import Diagnostic, TileTypeError
from tile_runtime.ops.values import Value

from tile_jax.lowering.mlir import Block, Operation

_MANUAL = "sdy.manual_computation"
_SHARDING = "sdy.sharding"


@dataclass(frozen=True, slots=True)
class Part:
    """A block that a device runs."""

    block: Block
    inputs: tuple[Any, ...]
    """Types of what the device is given."""
    arguments: tuple[int, ...]
    """Numbers of the inputs that the block takes."""
    results: tuple[int, ...] | None = None
    """Numbers of the block's results that are wanted; None for all."""

    def chosen(self, values: Sequence[Value]) -> list[Value]:
        """Those of the block's results that are wanted."""
        return list(values) if self.results is None else [values[k] for k in self.results]


def module_devices(module: Any) -> int:
    """How many devices a module is for."""
    given = module.operation.attributes
    counts = (int(given[n].value) for n in ("mhlo.num_replicas", "mhlo.num_partitions") if n in given)
    found = 1
    for count in counts:
        found *= count
    return found


def whole(main: Operation) -> Part:
    """All of a function."""
    block = main.regions[0].blocks[0]
    inputs = tuple(a.type for a in block.arguments)
    return Part(block, inputs, tuple(range(len(inputs))))


def shard(main: Operation, devices: int) -> Part:
    """One device's part of a function; TileTypeError where it is not written for one."""
    block = main.regions[0].blocks[0]
    operations = [op.operation for op in block.operations]
    if [op.name for op in operations] != [_MANUAL, "func.return"]:
        raise _undivided(devices)
    manual, ending = operations
    arguments, results = list(block.arguments), list(manual.results)
    taken = tuple(arguments.index(v) for v in manual.operands)
    given = tuple(results.index(v) for v in ending.operands)
    _check(main, "arg_attrs", [(k, s) for k, s in zip(taken, _shardings(manual, "in_shardings"), strict=True)], devices)
    made = _shardings(manual, "out_shardings")
    _check(main, "res_attrs", [(k, made[own]) for k, own in enumerate(given)], devices)
    inner = manual.regions[0].blocks[0]
    inputs = [a.type for a in arguments]
    for k, own in zip(taken, inner.arguments, strict=True):
        inputs[k] = own.type
    return Part(inner, tuple(inputs), taken, given)


def _shardings(manual: Operation, name: str) -> list[str]:
    sdy: Any = import_module("jaxlib.mlir.dialects.sdy")
    return [_text(s) for s in sdy.TensorShardingPerValueAttr(manual.attributes[name]).shardings]


def _text(sharding: Any) -> str:
    return str(sharding).removeprefix("#sdy.sharding")


def _check(main: Operation, name: str, wanted: Sequence[tuple[int, str]], devices: int) -> None:
    """What JAX says of arguments and results must be what the part takes and gives. (JAX asks XLA for what it left open.)"""
    stated: Any = main.attributes.get(name, None)
    for k, sharding in wanted:
        if stated is None or _SHARDING not in stated[k] or _text(stated[k][_SHARDING]) != sharding:
            raise _undivided(devices)


def _undivided(devices: int) -> TileTypeError:
    message = f"the program is for {devices} devices, and JAX leaves its division to XLA's partitioner"
    hint = (
        "jax.pmap, or jax.jit of a jax.shard_map alone with in_shardings and out_shardings, says what each device does"
    )
    return TileTypeError(Diagnostic("TILE-E956", message, hint=hint))
