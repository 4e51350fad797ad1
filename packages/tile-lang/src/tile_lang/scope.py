"""The program under construction: names, emitted operations, and the helpers that every binding rule uses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from itertools import count

import numpy as np
from tile_ir.contents import Contents
from tile_ir.diagnostics import Diagnostic, Note, Span
from tile_ir.dtype import DType
from tile_ir.names import claim
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import (
    ConstantTensor,
    Constraint,
    Contraction,
    Elementwise,
    Literal,
    Loop,
    Op,
    Operand,
    PlainOp,
    Poly,
    Prng,
    TensorLoad,
    TensorType,
)

from tile_lang.ast import NO_SPAN
from tile_lang.foreign import NUMBERS
from tile_lang.lexer import CONSTANTS
from tile_lang.limits import Limits
from tile_lang.types import literal, unify, weak_dtype
from tile_lang.values import BindFailure, Const, Draw, Failed, Tensor, TupleValue, Value, fail

MOST_COMPARED = 20_000
"""Names that suggestions are looked for among, in all of one binding: a fraction of a second."""


LocalFunction = Callable[["Scope", Sequence[Value], Span], Value]
"""Binds a call of a function that the text defines: where it is called, with which arguments, and where that stands."""


@dataclass(slots=True)
class Tally:
    """Calls of a text's functions in one binding: how many there were, and how many at most inside one another."""

    calls: int = 0
    deepest: int = 0


@dataclass(slots=True)
class Scope:
    """State of one binding."""

    limits: Limits
    values: dict[str, Value] = field(default_factory=dict[str, Value])
    spans: dict[str, Span] = field(default_factory=dict[str, Span])
    sizes: dict[str, tuple[int, Span] | None] = field(default_factory=dict[str, "tuple[int, Span] | None"])
    """Dimensions that are called like an input, where they were found; None where they could not be."""
    ops: list[Op] = field(default_factory=list[Op])
    diagnostics: list[Diagnostic] = field(default_factory=list[Diagnostic])
    taken: set[str] = field(default_factory=set[str])
    local: Mapping[str, LocalFunction] = field(default_factory=dict[str, "LocalFunction"])
    """What binds calls of the functions that the text defines, by name."""
    calls: tuple[str, ...] = ()
    """Names of such functions whose statements are being bound, outermost first."""
    outer: Mapping[str, Value] = field(default_factory=dict[str, Value])
    """What the caller of such a function knows by name, and it does not."""
    reported: set[tuple[str, str, Span | None]] = field(default_factory=set[tuple[str, str, "Span | None"]])
    """Mistakes of such functions: each call of one repeats them."""
    tally: Tally = field(default_factory=Tally)
    _casts: dict[tuple[str, DType], Tensor] = field(default_factory=dict[tuple[str, DType], Tensor])
    _numbers: Iterator[int] = field(default_factory=count)
    _compared: int = 0
    _checked: TensorType | None = None

    # --- names -----------------------------------------------------------------------------------

    def define(self, name: str, value: Value, span: Span) -> None:
        """Bind a name for the first time; TILE-E102 when it has a meaning already."""
        if name in self.values:
            note = Note(f"{name} is first defined here", self.spans[name])
            hint = "tensors cannot be modified: give each one a name of its own"
            fail("TILE-E102", f"{name} is assigned twice", span, hint, note)
        self.values[name] = value
        self.spans[name] = span

    def lookup(self, name: str, span: Span) -> Value:
        """What a name stands for; TILE-E101 with a suggestion when nothing does."""
        value = self.values.get(name)
        if value is None:
            fail("TILE-E101", f"{name} is not defined", span, self._undefined(name))
        if isinstance(value, Failed):
            raise BindFailure
        return value

    def lookup_size(self, name: str, span: Span) -> Value:
        """What a name stands for where a size is wanted: a dimension rather than the input of its name."""
        if name not in self.sizes:
            return self.lookup(name, span)
        found = self.sizes[name]
        if found is None:
            raise BindFailure
        return Const(found[0])

    def _undefined(self, name: str) -> str | None:
        if name in self.outer:
            return f"a function sees its own inputs only: give it {name} as an argument"
        if name in self.taken and not self.calls:
            return f"statements know what stands before them: assign {name} above this one"
        if name.lower() in NUMBERS:
            return NUMBERS[name.lower()]
        near = self.near(name)
        return f"did you mean {near}?" if near else None

    def near(self, name: str) -> str | None:
        """The defined name that was probably meant. A text of thousands of mistakes gets this for the first ones only."""
        if name.lower() in CONSTANTS:
            return name.lower()
        self._compared += len(self.values)
        return suggest(name, self.values) if self._compared <= MOST_COMPARED else None

    def fresh(self) -> str:
        """A name for an intermediate value that no source can spell."""
        return next(name for n in self._numbers if (name := f"_T{n}") not in self.taken)

    def title(self, name: str) -> str:
        """What the operation is called whose result a statement calls `name`: inside a function of the text, after both."""
        if not self.calls:
            return name
        wanted = f"{self.calls[-1]}.{name}"
        return claim(f"{wanted}_{next(self._numbers)}" if wanted in self.taken else wanted, self.taken)

    # --- functions of the text ---------------------------------------------------------------------

    def inner(self, function: str) -> Scope:
        """The scope of a call: its names are its own, its operations join the caller's."""
        return Scope(
            self.limits,
            ops=self.ops,
            taken=self.taken,
            local=self.local,
            calls=(*self.calls, function),
            outer=self.values,
            reported=self.reported,
            tally=self.tally,
            _casts=self._casts,
            _numbers=self._numbers,
        )

    def count_calls(self, calls: int = 1, depth: int = 1) -> None:
        """Note calls that are made here, `depth` of them inside one another."""
        self.tally.calls += calls
        self.tally.deepest = max(self.tally.deepest, len(self.calls) + depth)

    def has_room(self, calls: int, depth: int) -> bool:
        """Whether no limit is in the way of so many more."""
        return self.tally.calls + calls <= self.limits.max_calls and len(self.calls) + depth <= self.limits.max_depth

    def unreported(self, found: Iterable[Diagnostic]) -> list[Diagnostic]:
        """Those mistakes of a function called here that no earlier call has reported; inside another one, all."""
        if self.calls:
            return list(found)
        kept: list[Diagnostic] = []
        for diagnostic in found:
            key = (diagnostic.code, diagnostic.message, diagnostic.span)
            if key not in self.reported:
                self.reported.add(key)
                kept.append(diagnostic)
        return kept

    # --- operations ------------------------------------------------------------------------------

    def emit(self, op: PlainOp) -> Tensor:
        """Append an operation with one result."""
        if op.type is not self._checked:
            self.check_type(op.type, op.origin)
            self._checked = op.type
        self.ops.append(op)
        if len(self.ops) > self.limits.max_ops:
            raise BindFailure(self.limits.diagnostic("max_ops", len(self.ops), op.origin))
        return Tensor(op.value if isinstance(op, Prng) else op.name, op.type)

    def check_type(self, type_: TensorType, span: Span | None) -> None:
        """Refuse tensors beyond the limits."""
        size = type_.size
        for limit, value in (
            ("max_rank", len(type_.shape)),
            ("max_elements", size),
            ("max_bytes", size * type_.dtype.bytes),
        ):
            if value > getattr(self.limits, limit):
                raise BindFailure(self.limits.diagnostic(limit, value, span))

    def rename_last(self, old: str, new: str, since: int) -> bool:
        """Give the last operation's result the name that a statement assigns, when the statement emitted it."""
        last = self.ops[-1] if len(self.ops) > since else None
        if last is None or isinstance(last, (Prng, Loop)) or last.name != old:
            return False
        if isinstance(last, Elementwise) and last.fn == "cast" and isinstance(last.args[0], str):
            self._casts.pop((last.args[0], last.type.dtype), None)
        self.ops[-1] = replace(last, name=new)
        return True

    def forget_casts(self) -> None:
        """Drop the memory of casts, after operations were removed."""
        self._casts.clear()

    def elementwise(self, fn: str, args: Sequence[Operand], type_: TensorType, span: Span | None) -> Tensor:
        """Emit one elementwise operation."""
        return self.emit(Elementwise(self.fresh(), type_, fn, tuple(args), (), origin(span)))

    def cast(self, tensor: Tensor, dtype: DType, span: Span | None) -> Tensor:
        """The tensor as `dtype`; nothing is emitted when it is that already."""
        if tensor.type.dtype is dtype:
            return tensor
        key = (tensor.name, dtype)
        if key not in self._casts:
            type_ = TensorType(dtype, tensor.type.shape)
            self._casts[key] = self.elementwise("cast", (tensor.name,), type_, span)
        return self._casts[key]

    def operand(self, value: Tensor | Const, dtype: DType, span: Span | None) -> Operand:
        """The value as an operand of `dtype`."""
        if isinstance(value, Const):
            return literal(value.value, dtype, span)
        return self.cast(value, dtype, span).name

    def tensor(self, value: Value, span: Span | None, what: str = "this operand") -> Tensor:
        """The value as a tensor; constants become rank-0 tensors of their weak dtype."""
        found = self.scalar(value, span, what)
        if isinstance(found, Tensor):
            return found
        return self.constant(literal(found.value, weak_dtype(found.value), span), span)

    def scalar(self, value: Value, span: Span | None, what: str = "this operand") -> Tensor | Const:
        """The value where elementwise operations want one; tuples and generators are refused."""
        if isinstance(value, Tensor | Const):
            return value
        if isinstance(value, TupleValue):
            fail("TILE-E122", f"{what} is a tuple", span, "take a member of it with element(T, k)")
        if isinstance(value, Draw):
            fail("TILE-E121", f"{what} is the result of prng_step", span, "use prng_value(T) or prng_state(T)")
        raise BindFailure

    def constant(self, value: Literal, span: Span | None) -> Tensor:
        """A rank-0 constant tensor."""
        array = np.asarray(value.value).astype(value.dtype.numpy)
        return self.constant_array(array, value.dtype, span)

    def constant_array(self, array: np.ndarray, dtype: DType, span: Span | None) -> Tensor:
        """A constant tensor with these elements."""
        data = Contents(array.astype(array.dtype.newbyteorder("<")).tobytes())
        return self.emit(ConstantTensor(self.fresh(), TensorType(dtype, array.shape), data, origin(span)))

    def broadcast(self, values: Sequence[Tensor | Const], span: Span | None) -> tuple[int, ...]:
        """The common shape by NumPy's rule; TILE-E118 names the two shapes that do not fit."""
        shape: tuple[int, ...] = ()
        for tensor in values:
            if not isinstance(tensor, Tensor):
                continue
            joined = join_shapes(shape, tensor.type.shape)
            if joined is None:
                message = f"shapes {show(shape)} and {show(tensor.type.shape)} cannot be broadcast together"
                hint = "aligned at the last dimension, sizes must be equal or one of them 1"
                fail("TILE-E118", message, span, hint)
            shape = joined
        return shape

    def apply(
        self,
        fn: str,
        args: Sequence[Tensor | Const],
        dtypes: tuple[DType, DType],
        span: Span | None,
        spans: Sequence[Span] = (),
    ) -> Tensor:
        """``fn(args…)`` computed with operands of ``dtypes[0]``, giving ``dtypes[1]``; `spans` are the operands'."""
        shape = self.broadcast(args, span)
        places = spans or [span] * len(args)
        operands = [self.operand(a, dtypes[0], s) for a, s in zip(args, places, strict=True)]
        return self.elementwise(fn, operands, TensorType(dtypes[1], shape), span)

    def reduce_to(self, agg: Aggregation, x: Tensor, shape: tuple[int, ...], span: Span | None) -> Tensor:
        """Aggregate `x` over leading axes that `shape` lacks and axes where it has size 1 (right-aligned)."""
        indexes = tuple(f"i{k}" for k in range(len(x.type.shape)))
        forms = tuple(Poly.of({n: 1}) for n in indexes)
        lead = len(indexes) - len(shape)
        output = tuple(
            Poly() if extent == 1 and x.type.shape[lead + k] != 1 else forms[lead + k] for k, extent in enumerate(shape)
        )
        ranges = [*zip(output, shape, strict=True), *zip(forms, x.type.shape, strict=True)]
        work = x.type.dtype.accumulator if agg is Aggregation.SUM else x.type.dtype
        return self.emit(
            Contraction(
                self.fresh(),
                TensorType(x.type.dtype, shape),
                agg,
                indexes,
                output,
                tuple(Constraint(f, s, origin(span)) for f, s in ranges),
                (TensorLoad("$0", x.name, forms),),
                (),
                "$0",
                work,
                text=span.text if span else "",
                origin=origin(span),
            )
        )


def unified(
    scope: Scope, fn: str, args: Sequence[Tensor | Const], span: Span | None, spans: Sequence[Span] = ()
) -> Tensor:
    """An operation whose operands and result share the unified dtype."""
    dtype = unify(args)
    return scope.apply(fn, args, (dtype, dtype), span, spans)


def join_shapes(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...] | None:
    """The broadcast shape, or None."""
    if left == right or not left:
        return right
    rank = max(len(left), len(right))
    a, b = (1,) * (rank - len(left)) + left, (1,) * (rank - len(right)) + right
    if any(x != y and 1 not in (x, y) for x, y in zip(a, b, strict=True)):
        return None
    return tuple(y if x == 1 else x for x, y in zip(a, b, strict=True))


def origin(span: Span | None) -> Span | None:
    """The span, or None for nodes that were built and not parsed."""
    return None if span is NO_SPAN else span


def show(shape: Sequence[int]) -> str:
    """A shape as ``[3, 4]``."""
    return f"[{', '.join(map(str, shape))}]"


def suggest(name: str, known: Sequence[str] | dict[str, Value]) -> str | None:
    """The known name that was probably meant: another case first, then the closest spelling."""
    names = sorted(known)
    same = [n for n in names if n.lower() == name.lower()]
    return next(iter(same or get_close_matches(name, names, 1, 0.6)), None)


def plural(count: int, noun: str) -> str:
    """``1 argument``, ``2 arguments``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
