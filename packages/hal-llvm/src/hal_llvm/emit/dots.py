"""Dot products of words by the instructions that a processor has for them.

Other numbers of lanes than an instruction's are filled up, or cut into pieces; what fills up is never used.
"""

from __future__ import annotations

from hal_llvm.dots import Form
from hal_llvm.emit.code import Code


def dot(code: Code, op: str, args: tuple[str, ...], lanes: int) -> str:
    """``c + a . b`` in every lane."""
    known = code.module.machine.dots[op]
    form = next((f for f in known if f.lanes >= lanes), known[-1])
    if form.lanes == lanes:
        return _call(code, form, args)
    pieces = range(0, lanes, form.lanes)
    sums = [_call(code, form, tuple(_piece(code, arg, lanes, first, form.lanes) for arg in args)) for first in pieces]
    return _joined(code, sums, form.lanes, lanes)


def _words(lanes: int) -> str:
    return f"<{lanes} x i32>"


def _call(code: Code, form: Form, args: tuple[str, ...]) -> str:
    words, factors = _words(form.lanes), form.operand or _words(form.lanes)
    a, b = (arg if factors == words else code.let(f"bitcast {words} {arg} to {factors}") for arg in args[:2])
    if form.adds:
        return code.call(form.intrinsic, words, (words, args[2]), (factors, a), (factors, b))
    return code.let(f"add {words} {code.call(form.intrinsic, words, (factors, a), (factors, b))}, {args[2]}")


def _piece(code: Code, value: str, lanes: int, first: int, count: int) -> str:
    """`count` lanes from the first of a piece, as far as there are any."""
    if lanes == 1:
        return code.let(f"insertelement {_words(count)} poison, i32 {value}, i64 0")
    chosen = [f"i32 {n}" if n < lanes else "i32 poison" for n in range(first, first + count)]
    vector = _words(lanes)
    return code.let(f"shufflevector {vector} {value}, {vector} poison, <{count} x i32> <{', '.join(chosen)}>")


def _joined(code: Code, pieces: list[str], count: int, lanes: int) -> str:
    """The first `lanes` lanes of pieces of `count` lanes each."""
    total, have = pieces[0], count
    if lanes == 1:
        return code.let(f"extractelement {_words(count)} {total}, i64 0")
    for piece in pieces[1:]:
        other = _resized(code, piece, count, have)
        picks = ", ".join(f"i32 {n}" for n in range(have + count))
        total = code.let(
            f"shufflevector {_words(have)} {total}, {_words(have)} {other}, <{have + count} x i32> <{picks}>"
        )
        have += count
    return _resized(code, total, have, lanes)


def _resized(code: Code, value: str, lanes: int, wanted: int) -> str:
    return value if lanes == wanted else _piece(code, value, lanes, 0, wanted)
