"""Numbers that exponentials are taken below: a row's largest element, where that is one."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from tile_ir.dtype import DType
from tile_ir.stripe.nodes import Const, Op

from tile_opt.program.chunks import LOWEST


def bounded(largest: str, pivot: str, dtype: DType) -> Iterator[Const | Op]:
    """The largest element, or the lowest number: something can be subtracted from it."""
    yield from (Const("$low", LOWEST[dtype], dtype), Op(pivot, "max", (largest, "$low"), dtype))


def final(largest: str, pivot: str, dtype: DType, instead: float | None) -> Iterator[Const | Op]:
    """The largest element, or what a kernel has in the place of -inf, if that is anything else."""
    if instead is None:
        yield Op(pivot, "ident", (largest,), dtype)
        return
    yield from (Const("$none", -inf, dtype), Const("$other", instead, dtype))
    yield from (
        Op("$empty", "cmp_eq", (largest, "$none"), DType.BOOL),
        Op(pivot, "cond", ("$empty", "$other", largest), dtype),
    )


def apart(old: str, new: str, factor: str, dtype: DType) -> Iterator[Op]:
    """``exp(old - new)``."""
    yield from (Op("$a", "cast", (old,), dtype), Op("$b", "cast", (new,), dtype))
    yield from (Op("$apart", "sub", ("$a", "$b"), dtype), Op(factor, "exp", ("$apart",), dtype))
