"""Machine instructions before callbacks of Python: some cannot run at once, and some need not run at all.

JAX's arrays die, and with them our buffers, when an expression that they stand in fails. A callback of Python cannot
run then (the interpreter would take the exception for the callback's own): the exception is set aside, and put back.

Most events of a call are over before JAX asks for them, and have one handle that lasts. What JAX asks of it, what it
frees that needs no freeing, what a handle says itself (`handles.FIELDS`) and what is the same for all is answered
without Python.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any

from tile_jax.pjrt.handles import FIELDS, text
from tile_jax.pjrt.state import KIND

_BRIEF = """
define i64 @{name}(i64 %args) {{
  %place = add i64 %args, 16
  %field = inttoptr i64 %place to i64*
  %handle = load i64, i64* %field
  %asked = icmp {asked} i64 %handle, 0
  br i1 %asked, label %python, label %known
known:
{answer}
  ret i64 0
python:
"""
"""What is known of the handle in a structure's first field: that it is one that lasts, whose sign is set, or none."""
_SAID = """
define i64 @{name}(i64 %args) {{
  %place = add i64 %args, 16
  %field = inttoptr i64 %place to i64*
  %handle = load i64, i64* %field
  %moved = lshr i64 %handle, {first}
  %said = and i64 %moved, {mask}
  %known = icmp ne i64 %said, 0
  br i1 %known, label %answered, label %python
answered:
  %whole = shl i64 %said, {zeros}
  %after = add i64 %args, 24
  %result = inttoptr i64 %after to i64*
  store i64 %whole, i64* %result
  ret i64 0
python:
"""
"""What bits of the handle in a structure's first field say goes to its second one."""
_PLAIN = """
  %answer = call i64 inttoptr (i64 {callback} to i64 (i64)*)(i64 %args)
  ret i64 %answer
}}
"""
_ASIDE = """
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
_ANSWERS = {
    "Event_IsReady": """
  %after = add i64 %args, 24
  %ready = inttoptr i64 %after to i8*
  store i8 1, i8* %ready
""",
    "Event_Error": "",
    "Event_Await": "",
    "Event_OnReady": """
  %second = add i64 %args, 24
  %third = add i64 %args, 32
  %function = inttoptr i64 %second to void (i64, i64)**
  %argument = inttoptr i64 %third to i64*
  %f = load void (i64, i64)*, void (i64, i64)** %function
  %a = load i64, i64* %argument
  call void %f(i64 0, i64 %a)
""",
}
"""Instructions that answer what is asked of an event that is over."""
_EVERYWHERE = {"Memory_Kind": text(KIND)}
"""Words that are the same for every handle."""
_TEXT = """
  %after = add i64 %args, 24
  %behind = add i64 %args, 32
  %words = inttoptr i64 %after to i64*
  %length = inttoptr i64 %behind to i64*
  store i64 {address}, i64* %words
  store i64 {size}, i64* %length
"""
ANSWERED = (*_ANSWERS, *_EVERYWHERE, *FIELDS)
_PYTHON = {
    "ensure": "PyGILState_Ensure",
    "release": "PyGILState_Release",
    "fetch": "PyErr_Fetch",
    "restore": "PyErr_Restore",
}
"""What is called, by the place where its address stands."""


def guarded(destroying: Mapping[str, Any], answered: Mapping[str, Any]) -> dict[str, int]:
    """Addresses of functions before these callbacks, by name; they live as long as the process.

    Callbacks that destroy are called with no exception pending, and not for handles that last or are none; those of
    `ANSWERED` not for the event that lasts, and not for handles that say the answer.
    """
    known = {place: _address(getattr(ctypes.pythonapi, name)) for place, name in _PYTHON.items()}
    texts = [
        (_BRIEF + _ASIDE).format(name=n, asked=_asked(n), answer="", callback=_address(c), **known)
        for n, c in destroying.items()
    ]
    texts += [_answer(n, _address(c)) for n, c in answered.items()]
    engine = _engine()
    engine.add_module(_llvm().parse_assembly("\n".join(texts)))
    engine.finalize_object()
    return {name: engine.get_function_address(name) for name in (*destroying, *answered)}


def _answer(name: str, callback: int) -> str:
    """A function that calls back where it cannot answer."""
    if name in FIELDS:
        first, bits, zeros = FIELDS[name]
        return (_SAID + _PLAIN).format(name=name, first=first, mask=(1 << bits) - 1, zeros=zeros, callback=callback)
    return (_BRIEF + _PLAIN).format(name=name, asked=_asked(name), answer=_answered(name), callback=callback)


def _answered(name: str) -> str:
    """Instructions that answer what is the same of all handles, or of all that last."""
    if name not in _EVERYWHERE:
        return _ANSWERS[name]
    found = _EVERYWHERE[name]
    return _TEXT.format(address=found.address, size=found.size)


def _asked(name: str) -> str:
    """The comparison of a handle with 0 that says whether Python is called.

    What is destroyed may last, or be none; what is deleted is none that lasts; events that last are over.
    """
    if name in _EVERYWHERE:
        return "eq"
    if name in _ANSWERS:
        return "sge"
    return "sgt" if name.endswith("_Destroy") else "uge"


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
