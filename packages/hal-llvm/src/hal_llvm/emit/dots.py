"""Dot products of words by the instructions that a processor has for them.

Other numbers of lanes than an instruction's are filled up, or cut into pieces; what fills up is never used.
"""

from __future__ import annotations

from tile_ir.dots import DOTS

from hal_llvm.dots import Form
from hal_llvm.emit.code import Code
from hal_llvm.emit.types import register


def dot(code: Code, op: str, args: tuple[str, ...], lanes: int) -> str:
    """``c + a . b`` in every lane."""
    known = code.module.machine.dots[op]
    form = next((f for f in known if f.lanes >= lanes), known[-1])
    if form.lanes == lanes:
        return _call(code, form, args)
    total = register(DOTS[op].c)
    types = ("i32", "i32", total)
    pieces = range(0, lanes, form.lanes)
    sums = [
        _call(code, form, tuple(_piece(code, t, a, lanes, n, form.lanes) for t, a in zip(types, args, strict=True)))
        for n in pieces
    ]
    return _joined(code, total, sums, form.lanes, lanes)


def _vector(lanes: int, element: str) -> str:
    return f"<{lanes} x {element}>"


def _call(code: Code, form: Form, args: tuple[str, ...]) -> str:
    words, total = _vector(form.lanes, "i32"), _vector(form.lanes, register(DOTS[form.op].c))
    factors = form.operand or words
    a, b = (arg if factors == words else code.let(f"bitcast {words} {arg} to {factors}") for arg in args[:2])
    if form.adds:
        return code.call(form.intrinsic, total, (total, args[2]), (factors, a), (factors, b))
    return code.let(f"add {total} {code.call(form.intrinsic, total, (factors, a), (factors, b))}, {args[2]}")


def _piece(code: Code, element: str, value: str, lanes: int, first: int, count: int) -> str:
    """`count` lanes from the first of a piece, as far as there are any."""
    if lanes == 1:
        return code.let(f"insertelement {_vector(count, element)} poison, {element} {value}, i64 0")
    chosen = [f"i32 {n}" if n < lanes else "i32 poison" for n in range(first, first + count)]
    vector = _vector(lanes, element)
    return code.let(f"shufflevector {vector} {value}, {vector} poison, <{count} x i32> <{', '.join(chosen)}>")


def _joined(code: Code, element: str, pieces: list[str], count: int, lanes: int) -> str:
    """The first `lanes` lanes of pieces of `count` lanes each."""
    total, have = pieces[0], count
    if lanes == 1:
        return code.let(f"extractelement {_vector(count, element)} {total}, i64 0")
    for piece in pieces[1:]:
        other, vector = _resized(code, element, piece, count, have), _vector(have, element)
        picks = ", ".join(f"i32 {n}" for n in range(have + count))
        total = code.let(f"shufflevector {vector} {total}, {vector} {other}, <{have + count} x i32> <{picks}>")
        have += count
    return _resized(code, element, total, have, lanes)


def _resized(code: Code, element: str, value: str, lanes: int, wanted: int) -> str:
    return value if lanes == wanted else _piece(code, element, value, lanes, 0, wanted)
