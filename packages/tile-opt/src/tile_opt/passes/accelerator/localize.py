"""localize: an allocation that one inner block uses moves into it and shrinks to the part that it sees."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Block, Direction, Program, Refinement, Special, Statement, TensorType
from tile_ir.stripe.walk import buffers_named
from tile_ir.target import Target

from tile_opt.analysis.sets import Sets
from tile_opt.blocks.accesses import written_before_read
from tile_opt.blocks.tree import map_inner, outside_names, rebase, rewrite_matching
from tile_opt.passes.base import Pass


@dataclass(frozen=True)
class Localize(Pass):
    """In every block with all tags `reqs`: allocations (with all tags `ref_reqs`) move inwards as far as they can.

    An allocation moves when each iteration of the inner block writes every cell before it reads it, so that no
    value passes from one iteration to another.
    """

    reqs: tuple[str, ...] = ()
    ref_reqs: tuple[str, ...] = ()

    def apply(self, program: Program, target: Target) -> Program:
        sets = Sets()
        seen = outside_names(program)
        return rewrite_matching(
            program, self.reqs, lambda b, parents: self._localized(b, sets, frozenset() if parents else seen)
        )

    def _localized(self, block: Block, sets: Sets, seen: frozenset[str] = frozenset()) -> Block:
        """`seen` are buffers of the user's, which stay where they are."""
        for ref in block.refs:
            own = ref.dir is Direction.ALLOC and ref.into not in seen
            if own and ref.versions == 1 and ref.tags.issuperset(self.ref_reqs):
                block = self._moved(block, ref, sets)
        return map_inner(block, lambda inner: self._localized(inner, sets))

    def _moved(self, block: Block, ref: Refinement, sets: Sets) -> Block:
        home = _only_user(block, ref.into)
        if home is None:
            return block
        user = block.body[home]
        assert isinstance(user, Block)
        (view,) = [r for r in user.refs if r.source == ref.into]
        if view.agg is not None or view.init.value != "keep" or not written_before_read(user, view.into, sets):
            return block
        body: list[Statement] = list(block.body)
        body[home] = _owner(user, view, ref)
        return replace(block, refs=tuple(r for r in block.refs if r is not ref), body=tuple(body))


def _only_user(block: Block, name: str) -> int | None:
    """The number of the one block in the body that uses buffer `name`, through one affine view of the same rank."""
    users: list[int] = []
    for number, statement in enumerate(block.body):
        if isinstance(statement, Block):
            views = [r for r in statement.refs if r.source == name]
            if len(views) > 1 or any(not isinstance(f, Affine) for r in views for f in r.access):
                return None
            users += [number] * len(views)
        elif name in buffers_named(statement) or isinstance(statement, Special):
            return None
    source = next(r for r in block.refs if r.into == name)
    if len(users) != 1:
        return None
    user = block.body[users[0]]
    assert isinstance(user, Block)
    (view,) = [r for r in user.refs if r.source == name]
    return users[0] if len(view.type.sizes) == len(source.type.sizes) and not view.type.reshapes(source.type) else None


def _owner(user: Block, view: Refinement, source: Refinement) -> Block:
    sizes = tuple(min(s, whole) for s, whole in zip(view.type.sizes, source.type.sizes, strict=True))
    if any(f.terms or f.const for f in view.access if isinstance(f, Affine)):
        sizes = view.type.sizes
    type_ = TensorType.row_major(view.type.dtype, sizes, view.type.layout.align)
    own = Refinement(Direction.ALLOC, view.into, "", (Affine(),) * len(sizes), type_, loc=source.loc, tags=source.tags)
    refs = tuple(own if r is view else r for r in user.refs)
    return replace(user, refs=refs, body=tuple(rebase(s, view.into, own) for s in user.body))
