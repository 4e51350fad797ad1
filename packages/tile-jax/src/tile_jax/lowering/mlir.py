"""jaxlib's MLIR bindings, which have no types for a checker, imported when a program is first lowered."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from tile_ir.diagnostics import Diagnostic, TileTypeError

ir: Any = import_module("jaxlib.mlir.ir")
stablehlo: Any = import_module("jaxlib.mlir.dialects.stablehlo")
func: Any = import_module("jaxlib.mlir.dialects.func")
passes: Any = import_module("jaxlib.mlir.passmanager")
_DIALECTS = ("stablehlo", "chlo", "sdy")


def context() -> Any:
    """A context that knows the dialects of JAX's programs; a `with` statement makes it the current one."""
    made = ir.Context()
    made.append_dialect_registry(_upstream())
    for name in _DIALECTS:
        import_module(f"jaxlib.mlir.dialects.{name}").register_dialect(made)
    return made


@cache
def _upstream() -> Any:
    """MLIR's own dialects, each loaded when a text names it."""
    registry = ir.DialectRegistry()
    import_module("jaxlib.mlir._mlir_libs._jax_mlir_ext").register_dialects(registry)
    return registry


def parsed(code: bytes) -> Any:
    """The module of a portable artifact or of MLIR's text, in the current context; TileTypeError where it is neither."""
    try:
        if code.startswith(b"ML\xefR"):
            return stablehlo.deserialize_portable_artifact(ir.Context.current, code)
        return ir.Module.parse(code)
    except (ir.MLIRError, ValueError) as problem:
        message = f"the program is no StableHLO that jaxlib reads: {problem}"
        raise TileTypeError(Diagnostic("TILE-E955", message)) from None


def artifact(module: Any) -> bytes:
    """A module as JAX hands it to a device."""
    with module.context:
        return stablehlo.serialize_portable_artifact(module, stablehlo.get_current_version(), True)  # shardings, too


Block = Any
"""A block of operations, with arguments."""
Operation = Any
Node = Any
"""A value of MLIR: an operation's result, or a block's argument."""
