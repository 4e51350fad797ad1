"""Contractions that only move elements."""

from __future__ import annotations

from collections.abc import Iterable

from tile_ir.diagnostics import Span
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import Constraint, Contraction, Poly, TensorLoad, TensorType


def copied(
    name: str,
    type: TensorType,
    output: tuple[Poly, ...],
    source: str,
    reads: tuple[Poly, ...],
    sizes: Iterable[tuple[Poly, int]],
    *,
    default: str | None = None,
    text: str = "",
    origin: Span | None = None,
) -> Contraction:
    """``name[output] = =(source[reads])`` wherever each form of `sizes` is below its size; `default` or zeros elsewhere."""
    limits = tuple(dict.fromkeys(Constraint(form, size, origin) for form, size in sizes))
    indexes = {n for form in (*output, *reads, *(c.formula for c in limits)) for n in form.names}
    return Contraction(
        name,
        type,
        Aggregation.ASSIGN,
        tuple(sorted(indexes)),
        output,
        limits,
        (TensorLoad("$0", source, reads),),
        (),
        "$0",
        type.dtype,
        default,
        text=text,
        origin=origin,
    )
