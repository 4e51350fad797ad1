"""What the host computes between device programs: decompositions and callbacks, which JAX writes as calls by `tile_jax.rules`."""

from __future__ import annotations

import json
from functools import partial

from tile_runtime.ops.values import Value

from tile_jax.hosted import MARK, Hosted, decomposed, find_called, transformed
from tile_jax.lowering.errors import Unlooped
from tile_jax.lowering.op import Op
from tile_jax.lowering.recorder import Slots
from tile_jax.lowering.registry import operation
from tile_jax.lowering.tensors import is_complex
from tile_jax.program import HostStep


def called(op: Op) -> tuple[Value, ...]:
    """What a custom call gives whose name begins with the mark."""
    name = op.text("call_target_name").removeprefix(MARK)
    config = op.text("backend_config")
    if name != "callback":
        return by_host(op, name, partial(decomposed, name, **json.loads(config)))
    found = find_called(config)
    if found is None:
        raise op.unsupported("it calls a function of Python's that is not in this process")
    return by_host(op, name, found)


def by_host(op: Op, name: str, function: Hosted) -> tuple[Value, ...]:
    """The results of a function of NumPy's arrays."""
    if op.walk.tracing:
        raise Unlooped

    complexes = tuple(is_complex(v.type) for v in op.operation.operands)

    def step(reads: Slots, writes: Slots) -> HostStep:
        return HostStep(name, function, reads, complexes, writes)

    return tuple(op.scope.recorder.host(op.values, op.results, step))


@operation("stablehlo.fft")
def fft(op: Op) -> tuple[Value, ...]:
    """A transform of Fourier along the last axes."""
    kind = op.text("fft_type").lower()
    return by_host(op, kind, partial(transformed, kind, op.list("fft_length")))
