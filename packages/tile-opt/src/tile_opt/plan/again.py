"""Reuse of built kernels: a kernel equal to an earlier one but for names is not built again, its names are substituted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from tile_ir.diagnostics import Span
from tile_ir.frozen import frozen, replace
from tile_ir.stripe.hashing import hashed_like
from tile_ir.stripe.nodes import Block, Load, Refinement, Special, Statement, Store, Transfer
from tile_ir.stripe.walk import blocks_in

from tile_opt.kernel.view import KernelView

K = TypeVar("K")
T = TypeVar("T")
Place = tuple[Span | None, int]


def again(built: Block, old: KernelView, new: KernelView) -> Block | None:
    """`built`, which was made of `old`, as it would be made of `new`; None where names alone do not lead there.

    The two views have one structural hash.
    """
    buffers = _table((r.into for r in _refs(old)), (r.into for r in _refs(new)))
    sources = _table((r.source for r in _refs(old)), (r.source for r in _refs(new)))
    words = _table(_words(old), _words(new))
    places = _table(map(_place, _places(old)), _places(new))
    if buffers is None or sources is None or words is None or places is None or _loops(old) != _loops(new):
        return None
    own = {r.into for block in blocks_in(built) for r in block.refs} - buffers.keys()
    if not own.isdisjoint(buffers.values()):
        return None
    renaming = _Renaming(buffers, words, places)
    kernel = renaming.block(built)
    pairs = zip(kernel.refs, built.refs, strict=True)
    renamed = replace(kernel, refs=tuple(replace(r, source=sources.get(b.source, b.source)) for r, b in pairs))
    return hashed_like(renamed, built)


def _refs(view: KernelView) -> tuple[Refinement, ...]:
    return (*view.refs, *view.allocs)


def _loops(view: KernelView) -> list[str]:
    return [loop.name for loops in (view.loops, *(s.loops for s in view.stages)) for loop in loops]


def _words(view: KernelView) -> Iterator[str]:
    """What people read."""
    yield from (view.name, view.comment)
    for stage in view.stages:
        yield from (stage.name, stage.comment)


def _places(view: KernelView) -> Iterator[Span | None]:
    """Where it stands in the program's text."""
    yield view.origin
    for stage in view.stages:
        yield stage.origin
        yield from (s.origin for s in stage.body)


def _place(origin: Span | None) -> Place:
    """Spans of one text are equal, whatever application of it they belong to."""
    return origin, -1 if origin is None else origin.op


def _table(old: Iterable[K], new: Iterable[T]) -> Mapping[K, T] | None:
    """What stands for what; None where one would have to become two."""
    table: dict[K, T] = {}
    if any(table.setdefault(a, b) != b for a, b in zip(old, new, strict=True)):
        return None
    return table


@frozen
class _Renaming:
    buffers: Mapping[str, str]
    words: Mapping[str, str]
    places: Mapping[Place, Span | None]

    def place(self, origin: Span | None) -> Span | None:
        return self.places.get(_place(origin), origin)

    def buffer(self, name: str) -> str:
        return self.buffers.get(name, name)

    def block(self, block: Block) -> Block:
        return replace(
            block,
            name=self.words.get(block.name, block.name),
            comment=self.words.get(block.comment, block.comment),
            origin=self.place(block.origin),
            refs=tuple(replace(r, into=self.buffer(r.into), source=self.buffer(r.source)) for r in block.refs),
            body=tuple(map(self.statement, block.body)),
        )

    def statement(self, statement: Statement) -> Statement:
        origin = self.place(statement.origin)
        match statement:
            case Block():
                return self.block(statement)
            case Load(src=src):
                return replace(statement, src=self.buffer(src), origin=origin)
            case Store(dst=dst):
                return replace(statement, dst=self.buffer(dst), origin=origin)
            case Transfer(dst=dst, src=src):
                return replace(statement, dst=self.buffer(dst), src=self.buffer(src), origin=origin)
            case Special(outs=outs, ins=ins):
                outs, ins = tuple(map(self.buffer, outs)), tuple(map(self.buffer, ins))
                return replace(statement, outs=outs, ins=ins, origin=origin)
            case _:
                return statement if origin is statement.origin else replace(statement, origin=origin)
