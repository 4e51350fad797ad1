"""What Stripe statements define, use and mention, said once for every pass, verifier and lowering.

Each function matches all statement kinds; the type checker refuses one that misses a kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import assert_never

from tile_ir.diagnostics import Span
from tile_ir.names import claim
from tile_ir.stripe.affine import Affine, Quasi
from tile_ir.stripe.nodes import (
    Block,
    Const,
    Direction,
    Load,
    LoadIndex,
    Location,
    Op,
    Reduce,
    Special,
    Statement,
    Store,
    Sync,
    Transfer,
    Wait,
)


def blocks_in(block: Block) -> Iterator[Block]:
    """The block and every block in it, outermost first."""
    stack = [block]
    while stack:
        block = stack.pop()
        yield block
        stack += [s for s in reversed(block.body) if isinstance(s, Block)]


def spans_in(block: Block) -> Iterator[Span]:
    """Where the block and everything in it comes from, as far as that is known."""
    for inner in blocks_in(block):
        for origin in (inner.origin, *(s.origin for s in inner.body)):
            if origin is not None:
                yield origin


# --- scalars -------------------------------------------------------------------------------------


def defined(statement: Statement) -> str | None:
    """The scalar that the statement defines."""
    match statement:
        case Load(dst) | Const(dst) | LoadIndex(dst) | Op(dst) | Reduce(dst):
            return dst
        case Store() | Transfer() | Wait() | Sync() | Special() | Block():
            return None
        case _:
            assert_never(statement)


def scalars_used(statement: Statement) -> tuple[str, ...]:
    """The scalars that the statement reads, one entry for each time."""
    match statement:
        case Load(_, _, at):
            return tuple(a for a in at if isinstance(a, str))
        case Store(_, src, at):
            return (src, *(a for a in at if isinstance(a, str)))
        case Op(_, _, args):
            return args
        case Reduce(_, src):
            return (src,)
        case Const() | LoadIndex() | Transfer() | Wait() | Sync() | Special() | Block():
            return ()
        case _:
            assert_never(statement)


def scalars_behind(name: str, made: Mapping[str, Statement]) -> set[str]:
    """All scalars that one is computed from, itself included; `made` has the statements that define them."""
    found, left = set[str](), [name]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += scalars_used(made[name]) if name in made else ()
    return found


def with_scalars(statement: Statement, alias: Mapping[str, str]) -> Statement:
    """The statement reading other scalars; its `deps`, which count siblings, are dropped."""
    if not statement.deps and alias.keys().isdisjoint(scalars_used(statement)):
        return statement
    match statement:
        case Load():
            return replace(statement, at=_subscripts(statement.at, alias), deps=())
        case Store():
            src = alias.get(statement.src, statement.src)
            return replace(statement, src=src, at=_subscripts(statement.at, alias), deps=())
        case Op():
            return replace(statement, args=tuple(alias.get(a, a) for a in statement.args), deps=())
        case Reduce():
            return replace(statement, src=alias.get(statement.src, statement.src), deps=())
        case Const() | LoadIndex() | Transfer() | Wait() | Sync() | Special() | Block():
            return replace(statement, deps=())
        case _:
            assert_never(statement)


def renamed(
    statement: Statement, scalars: dict[str, str], buffers: Mapping[str, str], taken: set[str]
) -> Load | Store | Op | Const | LoadIndex:
    """A flat statement on other buffers, with its scalar under a fresh name, which `scalars` notes; it reads those noted before."""
    match with_scalars(statement, scalars):
        case Store() as moved:
            return replace(moved, dst=buffers.get(moved.dst, moved.dst))
        case Load() | Op() | Const() | LoadIndex() as moved:
            name = scalars[moved.dst] = claim(moved.dst, taken)
            if isinstance(moved, Load):
                return replace(moved, dst=name, src=buffers.get(moved.src, moved.src))
            return replace(moved, dst=name)
        case other:
            raise AssertionError(other)


def _subscripts(at: tuple[Quasi | str, ...], alias: Mapping[str, str]) -> tuple[Quasi | str, ...]:
    return tuple(alias.get(a, a) if isinstance(a, str) else a for a in at)


# --- buffers -------------------------------------------------------------------------------------


def buffers_read(statement: Statement) -> tuple[str, ...]:
    """Buffers of the enclosing block whose contents a flat statement takes; views of inner blocks by direction."""
    match statement:
        case Load(_, src) | Transfer(_, src):
            return (src,)
        case Special(_, _, ins):
            return ins
        case Block():
            return tuple(r.source for r in statement.refs if r.dir in (Direction.IN, Direction.INOUT))
        case Store() | Const() | LoadIndex() | Op() | Reduce() | Wait() | Sync():
            return ()
        case _:
            assert_never(statement)


def buffers_written(statement: Statement) -> tuple[str, ...]:
    """Buffers of the enclosing block that the statement writes; views of inner blocks by direction."""
    match statement:
        case Store(dst) | Transfer(dst):
            return (dst,)
        case Special(_, outs):
            return outs
        case Block():
            return tuple(r.source for r in statement.refs if r.dir in (Direction.OUT, Direction.INOUT))
        case Load() | Const() | LoadIndex() | Op() | Reduce() | Wait() | Sync():
            return ()
        case _:
            assert_never(statement)


def buffers_named(statement: Statement) -> frozenset[str]:
    """Buffers of the enclosing block that the statement touches in any way."""
    return frozenset((*buffers_read(statement), *buffers_written(statement)))


# --- index forms ---------------------------------------------------------------------------------


def forms_in(statement: Statement) -> tuple[Quasi, ...]:
    """Forms of the enclosing block's indexes that the statement mentions; for a block those of its head."""
    match statement:
        case Load(_, _, at) | Store(_, _, at):
            return tuple(a for a in at if not isinstance(a, str))
        case LoadIndex(_, value):
            return (value,)
        case Transfer():
            return statement.where
        case Block():
            own = {i.name for i in statement.indexes}
            passed = tuple(i.value for i in statement.indexes if i.value is not None)
            places = statement.loc.at if statement.loc else ()
            return (*statement.guard, *passed, *(f for f in places if not own.issuperset(f.names)))
        case Const() | Op() | Reduce() | Wait() | Sync() | Special():
            return ()
        case _:
            assert_never(statement)


def index_names(statement: Statement) -> set[str]:
    """Names of the enclosing block's indexes that the statement mentions."""
    return {n for form in forms_in(statement) for n in form.names}


def with_indexes(statement: Statement, values: Mapping[str, Affine]) -> Statement:
    """The statement with names of its enclosing block's indexes replaced by forms."""
    table = dict(values)
    match statement:
        case LoadIndex():
            return replace(statement, value=statement.value.substitute(table))
        case Transfer():
            return replace(statement, where=tuple(f.substitute(table) for f in statement.where))
        case Load() | Store():
            if not statement.at:
                return statement
            return replace(statement, at=tuple(a if isinstance(a, str) else a.substitute(table) for a in statement.at))
        case Block():
            indexes = tuple(
                i if i.value is None else replace(i, value=i.value.substitute(table)) for i in statement.indexes
            )
            guard = tuple(g.substitute(table) for g in statement.guard)
            return replace(statement, indexes=indexes, guard=guard, loc=relocated(statement, table))
        case Const() | Op() | Reduce() | Wait() | Sync() | Special():
            return statement
        case _:
            assert_never(statement)


def relocated(block: Block, values: Mapping[str, Affine]) -> Location | None:
    """A block's location after its parent's indexes became forms; its own indexes hide the parent's."""
    if block.loc is None or not block.loc.at:
        return block.loc
    outer = {n: f for n, f in values.items() if n not in {i.name for i in block.indexes}}
    return replace(block.loc, at=tuple(f.substitute(outer) for f in block.loc.at))
