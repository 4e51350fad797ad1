"""jaxlib's MLIR bindings, which have no types for a checker, imported when a program is first lowered."""

from __future__ import annotations

from importlib import import_module
from typing import Any

ir: Any = import_module("jaxlib.mlir.ir")
stablehlo: Any = import_module("jaxlib.mlir.dialects.stablehlo")
func: Any = import_module("jaxlib.mlir.dialects.func")
passes: Any = import_module("jaxlib.mlir.passmanager")
_DIALECTS = ("stablehlo", "chlo", "sdy")


def context() -> Any:
    """A context that knows the dialects of JAX's programs; a `with` statement makes it the current one."""
    made = ir.Context()
    for name in _DIALECTS:
        import_module(f"jaxlib.mlir.dialects.{name}").register_dialect(made)
    return made


def parsed(code: bytes) -> Any:
    """The module of a portable artifact or of MLIR's text, in the current context."""
    if code.startswith(b"ML\xefR"):
        return stablehlo.deserialize_portable_artifact(ir.Context.current, code)
    return ir.Module.parse(code)


def artifact(module: Any) -> bytes:
    """A module as JAX hands it to a device."""
    with module.context:
        return stablehlo.serialize_portable_artifact(module, stablehlo.get_current_version())


Block = Any
"""A block of operations, with arguments."""
Operation = Any
Node = Any
"""A value of MLIR: an operation's result, or a block's argument."""
