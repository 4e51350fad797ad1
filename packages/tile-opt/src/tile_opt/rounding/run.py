"""The bounds of a program's results, within bounds of time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from time import monotonic
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tile_ir.matrix import MATRIX_INSTRUCTIONS, ROUND
from tile_ir.settings import Settings
from tile_ir.stripe.nodes import Program
from tile_ir.stripe.walk import blocks_in
from tile_ir.target import Target

from tile_opt.rounding.bound import Bound, Relation, none

if TYPE_CHECKING:
    from tile_opt.proof.sites import Flat

OPERATIONS = 1_000_000
"""Of ISL, about a second's, before a process is asked that can be given up."""


def error_bounds(
    scheduled: Program, target: Target, known: Mapping[str, Bound] = MappingProxyType({})
) -> Mapping[str, Bound]:
    """A bound on the rounding error of each output of a scheduled program, by name; `known` are those of inputs that are rounded."""
    from tile_opt.proof.spaces import Error

    arithmetic = _arithmetic(scheduled)
    try:
        found = _found(scheduled, arithmetic, OPERATIONS, known)
    except Error:
        found = _asked(scheduled, arithmetic, known)
    bounds = {name: found.get(name, Bound()) for name in scheduled.outputs}
    return {name: _fast(bound) for name, bound in bounds.items()} if target.options.fast_math else bounds


def _fast(bound: Bound) -> Bound:
    return bound if bound.relation is Relation.EXACT else none("with fast_math devices do not say how exact they are")


def _found(
    program: Program, arithmetic: tuple[float, float], operations: int, inputs: Mapping[str, Bound]
) -> dict[str, Bound]:
    """Bounds of all tensors that kernels hand on, in the order in which they are made."""
    from tile_opt.proof.sites import Unsupported, flatten
    from tile_opt.proof.spaces import Spaces
    from tile_opt.proof.values import Values
    from tile_opt.rounding.analysis import Arithmetic, Rounding

    flat, spaces = flatten(program), Spaces(operations)
    given = frozenset((*program.inputs, *(c.name for c in program.constants)))
    values = Values(spaces, flat, frozenset(flat.handed), given)
    known = dict(inputs)
    rounding = Rounding(known, given, Arithmetic(*arithmetic))
    seconds = Settings.from_environment().analysis_seconds
    end = monotonic() + seconds
    for name in _made(flat):
        try:
            known[name] = rounding.value(values.result(name)) if monotonic() < end else _late(seconds)
        except Unsupported as reason:
            known[name] = none(str(reason))
    return known


def _late(seconds: float) -> Bound:
    return none(f"the program was not analysed within {seconds:g} seconds")


def _made(flat: Flat) -> list[str]:
    """The tensors that kernels write, by the last that does."""
    return sorted(flat.writers, key=lambda name: max(flat.writers[name]))


def _arithmetic(program: Program) -> tuple[float, float]:
    """What matrix instructions do to the accuracy of single operations."""
    found = {block.instr for block in blocks_in(program.entry) if block.instr is not None}
    names = {instr.name for instr in found}
    bits = [instr.params[0] for instr in found if instr.params and instr.name in {ROUND, *MATRIX_INSTRUCTIONS}]
    coarse = 1.0 if names.isdisjoint(MATRIX_INSTRUCTIONS) else 2.0
    return coarse, 2.0 ** -(min(bits) + 1) if bits else 0.0


def _asked(program: Program, arithmetic: tuple[float, float], known: Mapping[str, Bound]) -> dict[str, Bound]:
    from tile_ir.stripe.printer import print_program

    from tile_opt.analysis.answering import Answerer, Unanswered

    seconds, answerer = Settings.from_environment().analysis_seconds, Answerer()
    try:
        found = answerer.ask("rounding", (print_program(program), arithmetic, _plain(known)), seconds)
    except Unanswered:
        return dict.fromkeys(program.outputs, _late(seconds))
    finally:
        answerer.close()
    return _bounds(found)


def answer(program: str, arithmetic: Any, known: Any) -> list[tuple[Any, ...]]:
    """The bounds of the tensors of a program in its text form, those of its inputs and the results as plain values."""
    from tile_ir.stripe.parser import parse_program

    return _plain(_found(parse_program(program), tuple(arithmetic), 0, _bounds(known)))


def _plain(bounds: Mapping[str, Bound]) -> list[tuple[Any, ...]]:
    return [(name, b.relation.value, b.roundoff, b.positive, b.reason, b.exponent) for name, b in bounds.items()]


def _bounds(plain: Iterable[Sequence[Any]]) -> dict[str, Bound]:
    return {name: Bound(Relation(relation), *rest) for name, relation, *rest in plain}
