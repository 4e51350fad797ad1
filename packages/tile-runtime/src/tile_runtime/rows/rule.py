"""Whether a program computes each row of its results from that row of its inputs alone, whatever the number of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tile_ir.diagnostics import Diagnostic, Span, TileTypeError
from tile_ir.program.liveness import defined_by, used_by
from tile_ir.program.nodes import (
    Argsort,
    Constraint,
    Contraction,
    Elementwise,
    Gather,
    IndexOf,
    Lookup,
    Loop,
    Op,
    Poly,
    Prng,
    Program,
    Scatter,
    Subscript,
    TensorType,
    results_of,
)

_ANY = -1
"""Stands for the number of rows."""
_SHAPE = "a size other than that of the first dimension depends on the number of rows"
_NUMBER = "it computes with the number of rows"
_MIXED = "it takes a row together with other rows"
_PLACE = "it depends on where a row stands"


def row_values(program: Program, other: Program) -> frozenset[str]:
    """The values of `program` that have rows along their first axis, each computed from that row of the inputs alone.

    `other` is the same function for another number of rows. TileTypeError (TILE-E547) at the first statement that
    mixes rows, or means something else for another number of them.
    """
    types, theirs = program.types(), other.types()
    if types.keys() != theirs.keys() or len(program.ops) != len(other.ops):
        raise _refused(program.name, "its statements depend on the number of rows", None)
    check = _Check(types, theirs)
    for param in program.inputs:
        check.typed(param.name, None)
    for op, its in zip(program.ops, other.ops, strict=True):
        check.add(op, its)
    return frozenset(check.found)


class _Check:
    """The values found so far that have rows."""

    def __init__(self, types: dict[str, TensorType], theirs: dict[str, TensorType]) -> None:
        self.types, self.theirs = types, theirs
        self.found: set[str] = set()
        self._rows: tuple[int, int] | None = None
        """How many rows the two programs are for, once an input has told."""

    def typed(self, name: str, origin: Span | None) -> None:
        """Find out whether a value has rows, by its two types."""
        mine, its = self.types[name].shape, self.theirs[name].shape
        if mine == its:
            return
        if self._rows is None and mine and its:
            self._rows = mine[0], its[0]
        if len(mine) != len(its) or mine[1:] != its[1:] or (mine[0], its[0]) != self._rows:
            raise _refused(name, _SHAPE, origin)
        self.found.add(name)

    def add(self, op: Op, its: Op) -> None:
        for name in defined_by(op):
            self.typed(name, op.origin)
        if not self.found.isdisjoint((*defined_by(op), *used_by(op))):
            reason = self._reason(op)
            if reason is not None:
                raise _refused(defined_by(op)[0], reason, op.origin)
        mine, theirs = self._rows or (0, 0)
        if self._without_rows(op, mine) != self._without_rows(its, theirs):
            raise _refused(defined_by(op)[0], _NUMBER, op.origin)

    def _without_rows(self, op: Op, rows: int) -> Op:
        """The operation with no number of rows in it."""
        if isinstance(op, Loop) or results_of(op)[0][0] not in self.found:
            return op
        free = replace(op, type=TensorType(op.type.dtype, (_ANY, *op.type.shape[1:])))
        if isinstance(free, Contraction):
            row = free.output[0].index
            whole = [c.formula.index == row and c.size == rows for c in free.constraints]
            bounds = [Constraint(c.formula, _ANY) if w else c for w, c in zip(whole, free.constraints, strict=True)]
            return replace(free, constraints=tuple(bounds), text="")
        return free

    def _reason(self, op: Op) -> str | None:
        """Why an operation that reads or makes rows does not keep them apart; None: it does."""
        if isinstance(op, (Loop, Prng)) or defined_by(op)[0] not in self.found:
            return _PLACE if isinstance(op, (Loop, Prng)) else _MIXED
        match op:
            case Elementwise():
                return self._broadcast([a for a in op.args if isinstance(a, str)], len(op.type.shape))
            case Contraction():
                return self._contracted(op)
            case IndexOf() | Argsort():
                return _PLACE if op.axis == 0 else None
            case Gather():
                return self._looked_up(op.data, op.subscripts)
            case Scatter():
                return self._looked_up(op.name, op.subscripts)
            case _:  # a reshape whose result has as many rows takes each to itself
                return None if self.found.issuperset(used_by(op)) else _MIXED

    def _broadcast(self, args: Sequence[str], rank: int) -> str | None:
        """Rows meet rows, and what has none is the same for each."""
        for name in args:
            shape = self.types[name].shape
            if name in self.found and len(shape) < rank:
                return _MIXED
            if name not in self.found and len(shape) == rank and shape[0] != 1:
                return _NUMBER
        return None

    def _contracted(self, op: Contraction) -> str | None:
        row = op.output[0].index
        if row is None or _named(row, op.output[1:]):
            return _MIXED
        for load in op.loads:
            first, rest = load.formulas[:1], load.formulas[1:]
            if load.tensor in self.found and (first[0].index != row or _named(row, rest)):
                return _MIXED
            if load.tensor not in self.found and _named(row, load.formulas):
                return _PLACE
        whole = Poly.of({row: 1}), op.type.shape[0]
        limited = any(row in c.formula.names and (c.formula, c.size) != whole for c in op.constraints)
        return _PLACE if limited else None

    def _looked_up(self, indexed: str, subscripts: Sequence[Subscript]) -> str | None:
        """Of a gather or scatter: cell i0, … of one side is in row i0 of the other."""
        row, rest = "i0", subscripts[1:] if indexed in self.found else subscripts
        if indexed in self.found and (isinstance(subscripts[0], Lookup) or subscripts[0].index != row):
            return _MIXED
        for subscript in rest:
            if isinstance(subscript, Poly):
                if _named(row, (subscript,)):
                    return _PLACE
            elif subscript.tensor in self.found:
                if subscript.formulas[0].index != row or _named(row, subscript.formulas[1:]):
                    return _MIXED
            elif _named(row, subscript.formulas):
                return _PLACE
        return None


def _named(index: str, formulas: Sequence[Poly]) -> bool:
    return any(index in f.names for f in formulas)


def _refused(name: str, reason: str, origin: Span | None) -> TileTypeError:
    what = "this" if name.startswith("_") else repr(name)
    message = f"{what} cannot be computed for any number of rows: {reason}"
    hint = "leave dynamic out, or keep such statements in a function of their own"
    return TileTypeError(Diagnostic("TILE-E547", message, origin, hint=hint))
