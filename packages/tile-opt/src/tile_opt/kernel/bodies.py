"""What is asked of a stage's body again and again, found once: bodies of long chains have hundreds of statements."""

from __future__ import annotations

from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.ops import OPS, ROUNDINGS, Signature
from tile_ir.stripe.nodes import Const, Load, Op, Reduce, Statement, Store
from tile_ir.stripe.walk import index_names

Body = tuple[Statement, ...]


@frozen
class BodyFacts:
    """One body's summary."""

    cost: int
    """Arithmetic of one iteration in adds; a math function counts as twelve."""
    dtypes: frozenset[DType]
    """Of the constants and operations, without what subscripts alone are made of."""
    computes: bool
    """Whether what is stored is more than moved."""
    places: frozenset[str]
    """Accesses whose elements are subscripts, or parts of some, and nothing else."""
    indexes: frozenset[str]
    """The loops that statements name."""
    indirect: frozenset[str]
    """Accesses that the body subscripts further."""
    atomic: frozenset[str]
    """Accesses that merge indivisibly."""


_KEPT = 1 << 12
_facts: dict[int, tuple[Body, BodyFacts]] = {}
"""By the identity of a body, which its entry keeps alive, so that an equal one means the same object. No lock: asked more often than anything."""


def facts(body: Body) -> BodyFacts:
    """The summary of a body, by the identity of its tuple."""
    found = _facts.get(id(body))
    if found is None:
        if len(_facts) >= _KEPT:
            _facts.clear()
        found = _facts[id(body)] = body, _summary(body)
    return found[1]


def _summary(body: Body) -> BodyFacts:
    cost, stored = 0, _stored(body)
    dtypes: set[DType] = set()
    indexes: set[str] = set()
    indirect: set[str] = set()
    atomic = frozenset(s.dst for s in body if isinstance(s, Store) and s.atomic)
    for statement in body:
        match statement:
            case Op(dst=dst, dtype=dtype) | Const(dst=dst, dtype=dtype):
                cost += _WEIGHTS.get(statement.name, 1) if isinstance(statement, Op) else 0
                if dst in stored:
                    dtypes.add(dtype)
                continue
            case Load(src=name, at=at) | Store(dst=name, at=at):
                if not at:
                    continue
                indirect.add(name)
            case _:
                pass
        indexes |= index_names(statement)
    loads = [s for s in body if isinstance(s, Load)]
    places = {s.src for s in loads}.difference(s.src for s in loads if s.dst in stored)
    computes = any(isinstance(s, Op) and s.name != "ident" and s.dst in stored for s in body)
    return BodyFacts(
        cost, frozenset(dtypes), computes, frozenset(places), frozenset(indexes), frozenset(indirect), atomic
    )


def _stored(body: Body) -> set[str]:
    """The scalars that are stored, and those that they are made of."""
    found: set[str] = set()
    for statement in reversed(body):
        match statement:
            case Store(src=src) | Reduce(src=src):
                found.add(src)
            case Op(dst=dst, args=args) if dst in found:
                found.update(args)
            case _:
                pass
    return found


_CHEAP = {"ident": 0, "div": 4, "sqrt": 4, "recip": 4, **dict.fromkeys(ROUNDINGS, 1)}
_WEIGHTS = {name: _CHEAP.get(name, 12 if op.signature is Signature.MATH else 1) for name, op in OPS.items()}
