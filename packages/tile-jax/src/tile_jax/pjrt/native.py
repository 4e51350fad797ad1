"""Functions that JAX calls while an exception of Python is on its way: they set it aside, and put it back.

JAX's arrays die, and with them our buffers, when an expression that they stand in fails. A callback of Python cannot
run then (the interpreter would take the exception for the callback's own), so a few machine instructions go before it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any

_FUNCTION = """
define i64 @{name}(i64 %args) {{
  %type = alloca i8*
  %value = alloca i8*
  %trace = alloca i8*
  %state = call i32 inttoptr (i64 {ensure} to i32 ()*)()
  call void inttoptr (i64 {fetch} to void (i8**, i8**, i8**)*)(i8** %type, i8** %value, i8** %trace)
  %answer = call i64 inttoptr (i64 {callback} to i64 (i64)*)(i64 %args)
  %t = load i8*, i8** %type
  %v = load i8*, i8** %value
  %b = load i8*, i8** %trace
  call void inttoptr (i64 {restore} to void (i8*, i8*, i8*)*)(i8* %t, i8* %v, i8* %b)
  call void inttoptr (i64 {release} to void (i32)*)(i32 %state)
  ret i64 %answer
}}
"""
_PYTHON = {
    "ensure": "PyGILState_Ensure",
    "release": "PyGILState_Release",
    "fetch": "PyErr_Fetch",
    "restore": "PyErr_Restore",
}
"""What is called, by the place where its address stands."""


def guarded(callbacks: Mapping[str, Any]) -> dict[str, int]:
    """Addresses of functions that call these callbacks with no exception pending, by name; they live as long as the process."""
    known = {place: _address(getattr(ctypes.pythonapi, name)) for place, name in _PYTHON.items()}
    texts = (_FUNCTION.format(name=n, callback=_address(c), **known) for n, c in callbacks.items())
    engine = _engine()
    engine.add_module(_llvm().parse_assembly("\n".join(texts)))
    engine.finalize_object()
    return {name: engine.get_function_address(name) for name in callbacks}


@cache
def _engine() -> Any:
    """The compiler, which keeps what it compiled."""
    llvm = _llvm()
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine()
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)


def _llvm() -> Any:
    return import_module("llvmlite.binding")


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0
