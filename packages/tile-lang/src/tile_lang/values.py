"""What a name or an expression stands for while a function is bound."""

from __future__ import annotations

from typing import NoReturn

from tile_ir.diagnostics import Diagnostic, Note, Span
from tile_ir.frozen import frozen
from tile_ir.program.nodes import TensorType

Number = int | float | bool


@frozen
class Tensor:
    """A value of the program."""

    name: str
    type: TensorType


@frozen
class Const:
    """A literal, a dimension, or what was folded from them: exact, and without a dtype of its own."""

    value: Number


@frozen
class TupleValue:
    """The result of ``tuple(a, …)``: gone when binding ends."""

    items: tuple[Value, ...]


@frozen
class Draw:
    """The result of ``prng_step``: what ``prng_value`` and ``prng_state`` choose from."""

    value: Tensor
    state: Tensor


@frozen
class Failed:
    """A name whose definition has an error that was reported already."""


Value = Tensor | Const | TupleValue | Draw | Failed


class BindFailure(Exception):
    """The statement in hand cannot be bound; without a diagnostic when its reason was reported already."""

    def __init__(self, *diagnostics: Diagnostic) -> None:
        self.diagnostics = diagnostics
        super().__init__(*diagnostics)


def fail(code: str, message: str, span: Span | None, hint: str | None = None, *notes: Note) -> NoReturn:
    """Give up the statement in hand with this diagnostic."""
    raise BindFailure(Diagnostic(code, message, span, hint, notes))


def describe(value: Value) -> str:
    """The value in a sentence: ``float32[3, 4]``, ``the constant 7``, ``a tuple``."""
    match value:
        case Tensor(_, type_):
            return f"a tensor {type_}"
        case Const(number):
            return f"the constant {number}"
        case TupleValue():
            return "a tuple"
        case Draw():
            return "the result of prng_step"
        case Failed():
            return "undefined"
