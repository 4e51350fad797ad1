"""A hash of what a block means to a compiler: equal for blocks that differ in names and remarks only.

Indexes and refinements are numbered in order of appearance, scalars likewise; origins, tags, comments and
block names are left out. Sources outside the block count by first use, so two kernels that do the same to
different buffers have one hash (the caller keeps which buffer is which).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from tile_ir.recent import Recent
from tile_ir.stripe.affine import DivMod, Quasi
from tile_ir.stripe.nodes import (
    Block,
    Const,
    Fragment,
    Index,
    Instr,
    Load,
    LoadIndex,
    Location,
    Op,
    Reduce,
    Refinement,
    Special,
    Statement,
    Store,
    Sync,
    TensorType,
    Transfer,
    Wait,
)

_CACHE_SIZE = 2048
_hashes: Recent[int, tuple[Block, str]] = Recent(_CACHE_SIZE)
"""By the identity of a block, which its entry keeps alive, so that an equal one means the same object."""


def structural_hash(block: Block) -> str:
    """SHA-256 (hex) of the block's structure; cached by object, because blocks are immutable."""
    return _hashes.get(id(block), lambda: (block, _digest(_parts(block))))[1]


def hashed_like(block: Block, other: Block) -> Block:
    """`block`, which is `other` but for names: its hash is known once that of the other is."""
    digest = structural_hash(other)
    _hashes.get(id(block), lambda: (block, digest))
    return block


def hash_without_constants(block: Block) -> str:
    """The same, equal also for blocks whose constants have other values."""
    return _digest(_parts(block, values=False))


def _digest(parts: Iterator[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


@dataclass(slots=True)
class _Names:
    """Names of one block's scope by order of appearance, one table per kind of name."""

    indexes: dict[str, int] = field(default_factory=dict[str, int])
    refs: dict[str, int] = field(default_factory=dict[str, int])
    scalars: dict[str, int] = field(default_factory=dict[str, int])

    def index(self, name: str) -> str:
        return f"i{self.indexes.setdefault(name, len(self.indexes))}"

    def ref(self, name: str) -> str:
        return f"r{self.refs.setdefault(name, len(self.refs))}"

    def scalar(self, name: str) -> str:
        return f"s{self.scalars.setdefault(name, len(self.scalars))}"

    def form(self, form: Quasi) -> str:
        if isinstance(form, DivMod):
            return f"({self.form(form.num)}){form.op.value}{form.den}*{form.scale}+{self.form(form.plus)}"
        terms, indexes = form.terms, self.indexes
        if not terms:
            return str(form.const)
        if len(terms) == 1:
            ((name, c),) = terms
            return f"{form.const}+{c}i{indexes.setdefault(name, len(indexes))}"
        # Terms are sorted by name, which renaming must not see.
        numbered = sorted([(indexes.setdefault(n, len(indexes)), c) for n, c in terms])
        return "+".join([str(form.const), *[f"{c}i{n}" for n, c in numbered]])

    def forms(self, forms: tuple[Quasi, ...]) -> str:
        return ",".join([self.form(form) for form in forms])

    def at(self, items: tuple[Quasi | str, ...]) -> str:
        return ",".join(self.scalar(a) if isinstance(a, str) else self.form(a) for a in items)


def _parts(block: Block, values: bool = True) -> Iterator[str]:
    """Lines that describe nested blocks, from an explicit stack; those of constants with or without their values."""
    stack: list[tuple[Block, _Names]] = [(block, _Names())]
    while stack:
        current, parent = stack.pop()
        names = _Names()
        yield from _head(current, names, parent)
        for statement in current.body:
            if isinstance(statement, Block):
                yield f"block {statement.deps}"
            elif isinstance(statement, Const) and not values:
                yield f"const {statement.dtype} {names.scalar(statement.dst)} {statement.deps}"
            else:
                yield f"{_statement(statement, names)} {statement.deps}"
        stack.extend((s, names) for s in reversed(current.body) if isinstance(s, Block))


def _head(block: Block, names: _Names, parent: _Names) -> Iterator[str]:
    yield f"{{ {len(block.body)} {_location(block.loc, parent) if block.loc else ''} {_instr(block.instr)}"
    yield f"guard {parent.forms(block.guard)}"
    for index in block.indexes:
        yield _index(index, names, parent)
    yield f"constraints {names.forms(block.constraints)}"
    for ref in block.refs:
        yield _refinement(ref, names, parent)


def _instr(instr: Instr | None) -> str:
    return repr("" if instr is None else str(instr))


def _index(index: Index, names: _Names, parent: _Names) -> str:
    value = "" if index.value is None else parent.form(index.value)
    name = names.index(index.name)
    return f"{name}:{index.range} {value} {index.order.value} {index.bind.value} {index.axis} {index.lanes}"


def _refinement(ref: Refinement, names: _Names, parent: _Names) -> str:
    source = parent.ref(ref.source) if ref.source else ""
    agg = "" if ref.agg is None else f"{ref.agg.value} {ref.init.value} {ref.acc}"
    place = f"{_location(ref.loc, names)} {ref.offset} {ref.versions} {ref.bank_dim} {ref.const} {ref.hint!r}"
    return f"{ref.dir.value} {names.ref(ref.into)}={source}[{names.forms(ref.access)}] {_type(ref.type)} {agg} {place}"


def _location(location: Location, names: _Names) -> str:
    return f"{location.unit!r}[{names.forms(location.at)}]{location.scope.value}"


_TYPES = 1 << 10


@lru_cache(_TYPES)
def _type(type_: TensorType) -> str:
    layout = type_.layout
    return f"{type_.dtype}{type_.sizes}{layout.strides}{layout.align} {layout.swizzle} {_fragment(layout.fragment)} {layout.panel}"


def _fragment(fragment: Fragment | None) -> str:
    return "" if fragment is None else f"{fragment.lane} {fragment.register}"


def _statement(statement: Statement, names: _Names) -> str:
    scalar, ref = names.scalar, names.ref
    match statement:
        case Load(dst, src, at, clamp):
            return f"load {ref(src)} [{names.at(at)}] {clamp} {scalar(dst)}"
        case Store(dst, src, at, clamp, atomic):
            return f"store {ref(dst)} [{names.at(at)}] {scalar(src)} {clamp} {atomic}"
        case Const(dst, value, dtype):
            return f"const {dtype} {value!r} {scalar(dst)}"
        case LoadIndex(dst, value, dtype):
            return f"load_index {dtype} {names.form(value)} {scalar(dst)}"
        case Op(dst, name, args, dtype):
            return f"op {name} {dtype} {[scalar(a) for a in args]} {scalar(dst)}"
        case Reduce(dst, src, agg, over, broadcast):
            return f"reduce {agg.value} {scalar(src)} {[names.index(n) for n in over]} {broadcast} {scalar(dst)}"
        case _:
            return _effect(statement, names)


def _effect(statement: Statement, names: _Names) -> str:
    match statement:
        case Transfer(dst, src, unit, group, where):
            return f"transfer {names.ref(dst)} {names.ref(src)} {unit!r} {group} {names.at(where)}"
        case Wait(group, pending):
            return f"wait {group} {pending}"
        case Sync(scope, fence):
            return f"sync {scope.value} {fence!r}"
        case Special(name, outs, ins, params):
            return f"special {name!r} {[names.ref(o) for o in outs]} {[names.ref(i) for i in ins]} {params!r}"
        case _:
            raise TypeError(f"not a Stripe statement: {statement!r}")
