"""Common subexpressions: compute equal operations once; copies take no operation at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tile_ir.frozen import frozen
from tile_ir.program.liveness import defined_by
from tile_ir.program.nodes import Contraction, Elementwise, Loop, Op, Operand, Poly, Prng, Program, TensorType
from tile_ir.program.rename import renamed

from tile_opt.program.base import Rewrite

_COPIES = frozenset(("ident", "stop_gradient", "reverse_grad"))


@frozen
class ShareCommon(Rewrite):
    """Value numbering in one pass: an operation equal to an earlier one, names and spans aside, is replaced by it.

    Operations are functions of their operands (a generator's draw too, given its seed), so this is always
    legal. `bypass_copies` also replaces the result of an identity by its operand.
    """

    bypass_copies: bool = True

    def apply(self, program: Program) -> Program:
        types = program.types()
        same: dict[str, str] = {}
        first: dict[object, tuple[str, ...]] = {}
        kept: list[Op] = []
        for op in program.ops:
            moved = renamed(op, same)
            source = _copied(moved, types) if self.bypass_copies else None
            names = defined_by(op)
            earlier = (source,) if source is not None else first.setdefault(_key(moved), names)
            if earlier == names:
                kept.append(moved)
            else:
                same.update(zip(names, earlier, strict=True))
        if not same:
            return program
        outputs = tuple((public, same.get(value, value)) for public, value in program.outputs)
        return replace(program, ops=tuple(kept), outputs=outputs)


def _copied(op: Op, types: dict[str, TensorType]) -> str | None:
    """The value that an operation only copies, when it changes neither shape nor dtype."""
    if not isinstance(op, Elementwise) or op.fn not in _COPIES:
        return None
    arg = op.args[0]
    return arg if isinstance(arg, str) and types[arg] == op.type else None


def _key(op: Op) -> object:
    """What the operation computes: everything but its name, text and place."""
    match op:
        case Prng():
            return replace(op, value="", state="")
        case Loop():
            return replace(op, results=())
        case Contraction():
            return _contraction_key(op)
        case _:
            return replace(op, name="")


def _contraction_key(op: Contraction) -> object:
    """Equal up to the names of indexes and of scalars, numbered by where they are first named, and the order of constraints."""
    index = _Numbering("i")
    scalar = _Numbering("$")
    for name in (*(n for f in (*op.output, *(g for x in op.loads for g in x.formulas)) for n in f.names), *op.indexes):
        index(name)

    def form(poly: Poly) -> object:
        return tuple(sorted((index(n), c) for n, c in poly.terms)), poly.const

    return (
        op.type,
        op.agg,
        op.acc,
        op.default,
        op.no_defract,
        tuple(form(f) for f in op.output),
        frozenset((form(c.formula), c.size) for c in op.constraints),
        tuple((scalar(x.dst), x.tensor, tuple(form(f) for f in x.formulas)) for x in op.loads),
        tuple((tuple(_scalar_key(a, scalar) for a in s.args), s.fn, s.dtype, scalar(s.dst)) for s in op.body),
        _scalar_key(op.result, scalar),
    )


def _scalar_key(operand: Operand, scalar: Callable[[str], str]) -> object:
    return scalar(operand) if isinstance(operand, str) else operand


class _Numbering:
    """Names by order of first appearance."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.table: dict[str, str] = {}

    def __call__(self, name: str) -> str:
        return self.table.setdefault(name, f"{self.prefix}{len(self.table)}")
