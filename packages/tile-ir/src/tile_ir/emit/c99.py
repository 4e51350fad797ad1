"""Semtree as C99 that any C compiler takes: one source for all kernels of a list, with Tile's meaning throughout.

`source(kernels)` is all that a backend needs whose compiler reads C. Kernel number n becomes a static function and an entry
``void run_n(void *const *buffers)`` that runs all of its work groups, one after the other; `buffers` are the addresses of the
kernel's parameters, in order. In front stand those functions of `tile_ir.emit.c99_prelude` that the kernels use.

A group is one item, which is all that is made for a target without the node ``Barrier``. Elements of float16 and bfloat16
are ``uint16_t``, in memory and in variables. Subclass `C99Printer` for a dialect. The compiler has to keep to the standard:
``-std=c99 -ffp-contract=off``, and never ``-ffast-math``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from tile_ir.dtype import DType
from tile_ir.emit import c99_prelude
from tile_ir.emit.c99_prelude import HALVES, Operation
from tile_ir.emit.clike import CLikePrinter, comment_lines
from tile_ir.emit.names import sanitize
from tile_ir.emit.pieces import ATOM, PREFIX, Expansion, call
from tile_ir.emit.walker import children, with_children
from tile_ir.kernels import Kernel
from tile_ir.semtree.errors import SemtreeError
from tile_ir.semtree.nodes import (
    Binary,
    Bitcast,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Fma,
    Function,
    IdKind,
    Type,
    Unary,
    WorkId,
)  # fmt: skip
from tile_ir.semtree.verify import OPTIONAL_FUNCTIONS

HEAD = "#include <math.h>\n#include <stdbool.h>\n#include <stdint.h>\n#include <string.h>\n"
NODES = OPTIONAL_FUNCTIONS | {"Bitcast", "Fma", "Return", "While"}
"""Optional nodes and functions that C99 takes."""
_RESERVED = "tile linux unix near far math_errhandling signgam"
_FLOAT = Type(DType.FLOAT32)


def source(kernels: Sequence[Kernel]) -> str:
    """The text of kernels; SemtreeError for what C99 cannot express: vectors, groups of several items, atomics."""
    printer = C99Printer()
    texts: list[str] = []
    for number, kernel in enumerate(kernels):
        if kernel.function is None:
            raise SemtreeError(f"kernel {kernel.name!r} has no semtree function")
        text = printer.kernel(kernel.function, kernel.groups, f"run_{number}")
        texts.append("\n".join([*comment_lines(kernel.stripe.comment), text]))
    return "\n".join([HEAD, *printer.preamble.values(), *texts])


class C99Printer(CLikePrinter):
    """Prints kernels; `preamble` holds, by name, the operations that they need and that C99 lacks."""

    types: ClassVar[Mapping[DType, str]] = c99_prelude.NAMES
    wraps_by_unsigned: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__(_RESERVED.split())
        self.preamble: dict[str, str] = {}
        self._groups = [self.names.fresh(f"group_{axis}") for axis in "xyz"]

    # --- names

    def hint(self, name: str) -> str:
        """Lower-case where all are capitals, as the macros of C's headers are; the prelude has ``tile_`` for itself."""
        text = sanitize(name)
        text = text.lower() if text.isupper() and len(text) > 1 else text
        return f"v_{text}" if text.startswith("tile_") else text

    def declare_global(self, name: str) -> str:
        """Functions share one space of names with those of C's headers, of which none begins like this."""
        self._scopes[0][name] = text = self.names.fresh(name if name.startswith("kernel") else f"kernel_{name}")
        return text

    # --- expressions

    def special(self, expr: Expr) -> Expansion | None:
        match expr:
            case WorkId(kind, axis, t):
                number = "0" if kind is IdKind.LOCAL else self._groups[axis]  # a group is one item
                return (ATOM, [number]) if t.dtype is DType.INT32 else (PREFIX, [f"(int64_t){number}"])
            case Cast(value, t):
                return self._cast(value, t.dtype)
            case Bitcast(value, t):
                return self._bitcast(value, t)
            case Compare(op, left, right, t) if left.type.dtype in HALVES:
                return self.expand(Compare(op, Cast(left, _FLOAT), Cast(right, _FLOAT), t))
            case Unary() | Binary() | Call() | Fma() if expr.type.dtype in HALVES:
                wide = with_children(expr, [Cast(child, _FLOAT) for child in children(expr)])
                return self.expand(Cast(replace(wide, type=_FLOAT), expr.type))
            case Fma(a, b, c, t):
                return call(self.function_name("fma", t), (a, b, c))
            case Call("recip", (value,), t):
                return self.expand(Binary("div", Const(1.0, t), value, t))
            case Unary(op, _, t) | Binary(op, _, _, t):
                return self._prelude(c99_prelude.operation(op, t.dtype), *children(expr))
            case _:
                return None

    def _cast(self, value: Expr, target: DType) -> Expansion | None:
        source = value.type.dtype
        if source is target:
            return self.expand(value)
        found = c99_prelude.cast(source, target)
        if found is None and (source in HALVES or target in HALVES):
            return self.expand(Cast(Cast(value, _FLOAT), Type(target)))
        return self._prelude(found, value)

    def _bitcast(self, value: Expr, t: Type) -> Expansion:
        source = value.type.dtype
        if t.dtype in HALVES or source in HALVES or source.is_float is t.dtype.is_float:
            return PREFIX, [f"({self.type_name(t)})", (value, PREFIX)]
        made = c99_prelude.bits(source, t.dtype)
        self.preamble[made.name] = made.text
        return call(made.name, (value,))

    def _prelude(self, found: Operation | None, *args: Expr) -> Expansion | None:
        """A call of a function of the prelude; None where C has an operator."""
        if found is None:
            return None
        self.preamble[found.name] = found.text
        return call(found.name, args)

    def float_literal(self, value: float, t: Type) -> Expansion:
        if t.dtype in HALVES:
            return ATOM, [f"0x{_bits(value, t.dtype):04x}"]
        return super().float_literal(value, t)

    # --- kernels

    def kernel(self, function: Function, groups: tuple[int, int, int], entry: str) -> str:
        """The text of a kernel and of the function `entry`, which runs it."""
        if function.group_size != (1, 1, 1):
            raise SemtreeError(f"{function.name!r} has groups of several items, which C99 cannot run")
        text = self.function(function)
        loops = [
            f"    for (int32_t {name} = 0; {name} < {count}; ++{name})"
            for name, count in zip(reversed(self._groups), reversed(groups), strict=True)
        ]
        arguments = ", ".join([*(f"buffers[{n}]" for n in range(len(function.params))), *self._groups])
        call_ = f"        {self.lookup(function.name)}({arguments});"
        return "\n".join([text, f"void {entry}(void *const *buffers) {{", *loops, call_, "}\n"])

    def signature(self, function: Function) -> str:
        name = self.declare_global(function.name)
        numbers = [f"int32_t {group}" for group in self._groups]
        return f"static void {name}({', '.join([*map(self.parameter, function.params), *numbers])})"


def _bits(value: float, dtype: DType) -> int:
    """The bits of a float16 or bfloat16."""
    with np.errstate(all="ignore"):
        single = np.float32(value)
        if dtype is DType.FLOAT16:
            return int(single.astype(np.float16).view(np.uint16))
    bits = int(single.view(np.uint32))
    return 0x7FC0 if value != value else (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
