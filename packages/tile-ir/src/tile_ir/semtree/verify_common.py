"""What the rules of semtree's verifier share: how one fails, and the checks of indexes, alignments and accesses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

from tile_ir.dtype import DType
from tile_ir.semtree import errors as err
from tile_ir.semtree.errors import SemtreeError
from tile_ir.semtree.nodes import Expr, Statement, Type, Var
from tile_ir.semtree.printer import print_expr
from tile_ir.semtree.typing import INDEX_DTYPES, is_memory


def fail(error: type[SemtreeError], message: str, *where: Expr) -> NoReturn:
    """Raise `error`, showing the expressions that broke the rule."""
    shown = "; ".join(print_expr(expr, 40) for expr in where)
    raise error(f"{message}: {shown}" if shown else message)


def check_align(align: int) -> None:
    if align < 0 or align & (align - 1):
        fail(err.AlignmentValueError, f"alignment {align} is not a power of two")


def check_index(expr: Expr) -> None:
    if expr.type.dtype not in INDEX_DTYPES or expr.type != expr.type.scalar:
        fail(err.IndexTypeError, f"an index is one int32 or int64, not {expr.type}", expr)


def check_equal(exprs: Iterable[Expr], where: Expr) -> None:
    types = {expr.type for expr in exprs}
    if len(types) > 1:
        fail(err.TypeMismatch, f"operand types differ: {', '.join(sorted(map(str, types)))}", where)


def check_access(ptr: Expr, index: Expr, value: Type, mask: Expr | None, align: int, where: Expr | Statement) -> None:
    what = type(where).__name__
    if not isinstance(ptr, Var) or not is_memory(ptr.type):
        fail(err.PointerExpected, f"{what} goes through a pointer variable or an array", ptr)
    check_index(index)
    if value.dtype is not ptr.type.dtype or (ptr.type.lanes != 1 and value.lanes != ptr.type.lanes):
        fail(err.TypeMismatch, f"{what} of {value} through {ptr.type}", ptr)
    if mask is not None and mask.type != Type(DType.BOOL, value.lanes):
        fail(err.MaskMismatch, f"{what} of {value.lanes} lanes under a mask of {mask.type}", mask)
    check_align(align)
