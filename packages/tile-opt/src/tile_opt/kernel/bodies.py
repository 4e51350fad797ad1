"""What is asked of a stage's body again and again, found once: bodies of long chains have hundreds of statements."""

from __future__ import annotations

from collections import OrderedDict

from tile_ir import forking
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


_KEPT = 1 << 10
_cache: OrderedDict[int, tuple[Body, BodyFacts]] = OrderedDict()
_lock = forking.lock()


def facts(body: Body) -> BodyFacts:
    """The summary of a body, by the identity of its tuple."""
    with _lock:
        known = _cache.get(id(body))
        # The entry keeps its body alive, so that an equal id means the same object.
        if known is not None:
            _cache.move_to_end(id(body))
            return known[1]
    found = _summary(body)
    with _lock:
        _cache[id(body)] = (body, found)
        if len(_cache) > _KEPT:
            _cache.popitem(last=False)
    return found


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
