"""What is asked of a stage's body again and again, found once: bodies of long chains have hundreds of statements."""

from __future__ import annotations

from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.ops import OPS, ROUNDINGS, Signature
from tile_ir.stripe.nodes import Const, Load, Op, Statement, Store
from tile_ir.stripe.walk import index_names

Body = tuple[Statement, ...]


@frozen
class BodyFacts:
    """One body's summary."""

    cost: int
    """Arithmetic of one iteration in adds; a math function counts as twelve."""
    dtypes: frozenset[DType]
    """Of the constants and operations."""
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
    cost = 0
    dtypes: set[DType] = set()
    indexes: set[str] = set()
    indirect: set[str] = set()
    atomic = frozenset(s.dst for s in body if isinstance(s, Store) and s.atomic)
    for statement in body:
        match statement:
            case Op(name=name, dtype=dtype):
                cost += _WEIGHTS.get(name, 1)
                dtypes.add(dtype)
                continue
            case Const(dtype=dtype):
                dtypes.add(dtype)
                continue
            case Load(src=name, at=at) | Store(dst=name, at=at):
                if not at:
                    continue
                indirect.add(name)
            case _:
                pass
        indexes |= index_names(statement)
    return BodyFacts(cost, frozenset(dtypes), frozenset(indexes), frozenset(indirect), atomic)


_CHEAP = {"ident": 0, "div": 4, "sqrt": 4, "recip": 4, **dict.fromkeys(ROUNDINGS, 1)}
_WEIGHTS = {name: _CHEAP.get(name, 12 if op.signature is Signature.MATH else 1) for name, op in OPS.items()}
