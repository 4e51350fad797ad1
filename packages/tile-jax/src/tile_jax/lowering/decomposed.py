"""Operations without a converter that MLIR's own passes write in terms of others: CHLO's functions and old forms."""

from __future__ import annotations

from functools import cache
from typing import Any

from tile_runtime.ops.unsupported import Unsupported

from tile_jax.lowering.mlir import Operation, func, ir, passes, stablehlo
from tile_jax.lowering.op import Op
from tile_jax.lowering.scope import Scope

LEFT = {
    "chlo._asin_acos_kernel": ("it is a part of functions of complex numbers", None),
    "chlo.scan": ("no pass writes it in terms of others", "jax.lax.scan gives a loop that runs"),
    "chlo.ragged_dot": ("no pass writes it in terms of others", "multiply the groups one by one"),
}
"""Operations that no pass knows: why they are refused, and what would help."""
_PASSES = {"chlo": "chlo-legalize-to-stablehlo", "stablehlo": "stablehlo-legalize-deprecated-ops"}
_COMPLEX = _PASSES | {"stablehlo": "stablehlo-complex-math-expander"}


@cache
def _registered() -> None:
    stablehlo.register_stablehlo_passes()


def decomposed(op: Op) -> Any:
    """What other operations give in its place; Unsupported where no pass knows them."""
    dialect = op.name.partition(".")[0]
    known = _COMPLEX if op.complex else _PASSES
    if dialect not in known:
        raise Unsupported("there is no such operation in StableHLO or CHLO")
    if op.name in LEFT:
        raise Unsupported(*LEFT[op.name])
    module = _expanded(op.operation, known[dialect])
    block = module.body.operations[0].operation.regions[0].blocks[0]
    if any(o.operation.name == op.name for o in block.operations):
        raise Unsupported("it has no converter")
    return tuple(op.walk.enter(block, op.values, Scope(op.scope.recorder, None, op.scope.lifted)))


def _expanded(operation: Operation, name: str) -> Any:
    """A module whose one function is the operation, after the pass."""
    _registered()
    with operation.context, ir.Location.unknown():
        module = ir.Module.create()
        types = [v.type for v in operation.operands], [r.type for r in operation.results]
        with ir.InsertionPoint(module.body):
            entry = func.FuncOp("main", types).add_entry_block()
        with ir.InsertionPoint(entry):
            copy: Any = operation.clone()
            for k, argument in enumerate(entry.arguments):
                copy.operation.operands[k] = argument
            func.ReturnOp(list(copy.operation.results))
        passes.PassManager.parse(f"builtin.module(func.func({name}))").run(module.operation)
    return module
