"""The tree of one kernel: nested loops around stages, in a form that steps rewrite easily and that is Stripe at any time.

Names of loops differ along every path, so a stage names the loops around it directly; every node sees whole
buffers under their own names. `close_tree` says once what Stripe wants said at every block: indexes and buffers
passed down, directions, views.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import overload

from tile_ir.frozen import frozen, replace
from tile_ir.stripe.affine import Affine, names_in
from tile_ir.stripe.nodes import (
    Bind,
    Block,
    Direction,
    Index,
    Location,
    Refinement,
    Scope,
    Statement,
    Sync,
    TensorType,
    Wait,
)

from tile_opt.kernel.view import KernelView, Stage, Use, close_stage

REGISTER = Location("REG", scope=Scope.THREAD)
ARRAY = Location("LOCAL", scope=Scope.THREAD)
GROUP_MEMORY = Location("LOCAL", scope=Scope.GROUP)

Ranges = Mapping[str, tuple[int, int]]
"""Inclusive interval of every loop, by name."""


@frozen
class Nest:
    """Loops (outermost first) around a body that runs once per point for which all constraints are >= 0.

    `guard` (>= 0, over the loops around) decides whether any of it runs; `allocs` are private to a point.
    """

    name: str
    loops: tuple[Index, ...] = ()
    body: tuple[Node, ...] = ()
    constraints: tuple[Affine, ...] = ()
    guard: tuple[Affine, ...] = ()
    allocs: tuple[Refinement, ...] = ()

    @property
    def loop_names(self) -> tuple[str, ...]:
        return tuple(loop.name for loop in self.loops)

    def loop(self, name: str) -> Index | None:
        return next((i for i in self.loops if i.name == name), None)


@frozen
class Straight:
    """Statements of the block that the nest around them becomes, over whole buffers that it sees."""

    statements: tuple[Statement, ...]
    reads: frozenset[str]
    writes: frozenset[str]


Node = Nest | Stage | Straight | Sync | Wait


def open_tree(view: KernelView) -> Nest:
    """The kernel as it is before any decision: its shared loops around its stages, those of the grid around the others."""
    bound = tuple(i for i in view.loops if i.bind is Bind.GRID)
    free = tuple(i for i in view.loops if i.bind is not Bind.GRID)
    inner = Nest(view.name, free, view.stages, view.constraints, allocs=view.allocs)
    return Nest(view.name, bound, (inner,)) if bound else inner


# --- walking ---------------------------------------------------------------------------------------


def stages_of(node: Node) -> Iterator[Stage]:
    """Every stage, in order."""
    if isinstance(node, Stage):
        yield node
    elif isinstance(node, Nest):
        for inner in node.body:
            yield from stages_of(inner)


def nests_of(node: Node) -> Iterator[Nest]:
    """Every nest, outermost first."""
    if isinstance(node, Nest):
        yield node
        for inner in node.body:
            yield from nests_of(inner)


@frozen
class Around:
    """What is known where a node stands: the intervals of the loops around it, the buffers it sees, and forms that are >= 0."""

    ranges: Ranges
    buffers: Mapping[str, Refinement]
    facts: tuple[Affine, ...] = ()

    def stride(self, use: Use, loop: str) -> int:
        """Elements between the accesses of consecutive iterations of a loop."""
        strides = self.buffers[use.buffer].type.strides
        return sum(form.coefficient(loop) * s for form, s in zip(use.forms, strides, strict=True))

    def in_registers(self, buffer: str) -> bool:
        return self.buffers[buffer].loc.unit == "REG"

    @staticmethod
    def of(view: KernelView) -> Around:
        """Around a whole kernel."""
        return Around({}, {r.into: r for r in view.refs})

    def within(self, nest: Nest) -> Around:
        """Around what stands in `nest`."""
        buffers = {**self.buffers, **{a.into: a for a in nest.allocs}}
        return Around({**self.ranges, **spans(nest.loops)}, buffers, (*self.facts, *nest.guard, *nest.constraints))


def innermost(nest: Nest, step: Callable[[Nest, Around], Nest], around: Around) -> Nest:
    """The tree with `step` applied to every nest that holds no other nest."""
    if not any(isinstance(n, Nest) for n in nest.body):
        return step(nest, around)
    inside = around.within(nest)
    return replace(nest, body=tuple(innermost(n, step, inside) if isinstance(n, Nest) else n for n in nest.body))


def map_stages(nest: Nest, step: Callable[[Stage], Node | None]) -> Nest:
    """The tree with every stage replaced, or left out where `step` gives None."""
    body: list[Node] = []
    for node in nest.body:
        made = map_stages(node, step) if isinstance(node, Nest) else step(node) if isinstance(node, Stage) else node
        if made is not None:
            body.append(made)
    return replace(nest, body=tuple(body))


def map_nests(nest: Nest, step: Callable[[Nest], Nest]) -> Nest:
    """The tree with every nest replaced, the inner ones first."""
    return step(replace(nest, body=tuple(map_nests(n, step) if isinstance(n, Nest) else n for n in nest.body)))


def each_stage(nest: Nest, step: Callable[[Stage, Around], Node], around: Around) -> Nest:
    """The tree with every stage replaced by what `step` makes of it where it stands."""
    inside = around.within(nest)

    def made(node: Node) -> Node:
        if isinstance(node, Nest):
            return each_stage(node, step, inside)
        return step(node, inside) if isinstance(node, Stage) else node

    return replace(nest, body=tuple(made(n) for n in nest.body))


@overload
def substitute(node: Nest, values: dict[str, Affine]) -> Nest: ...
@overload
def substitute(node: Node, values: dict[str, Affine]) -> Node: ...
def substitute(node: Node, values: dict[str, Affine]) -> Node:
    """Names of loops around `node` replaced by forms in every access, constraint and guard within."""
    if isinstance(node, Stage):
        return node.substitute(values)
    if not isinstance(node, Nest) or not values:
        return node
    return replace(
        node,
        body=tuple(substitute(n, values) for n in node.body),
        constraints=tuple(c.substitute(values) for c in node.constraints),
        guard=tuple(c.substitute(values) for c in node.guard),
    )


def spans(loops: tuple[Index, ...]) -> dict[str, tuple[int, int]]:
    """The interval of each loop."""
    return {i.name: (0, i.range - 1) for i in loops}


# --- closing ---------------------------------------------------------------------------------------


@frozen
class _Needs:
    """What a block needs of those around it: loops by name, and the direction in which it uses each buffer."""

    names: frozenset[str]
    reads: frozenset[str]
    writes: frozenset[str]

    def without(self, loops: tuple[Index, ...], allocs: tuple[Refinement, ...]) -> _Needs:
        own = {a.into for a in allocs}
        return _Needs(self.names - {i.name for i in loops}, self.reads - own, self.writes - own)


def close_tree(view: KernelView, nest: Nest) -> Block:
    """The scheduled Stripe block of a tree over the buffers of `view`."""
    block, needs = _closed(nest, {r.into: r for r in view.refs}, ())
    refs = tuple(replace(r, dir=_direction(r.into, needs)) for r in view.refs if _used(r.into, needs))
    return replace(
        block,
        name=view.name,
        refs=refs + nest.allocs,
        tags=view.tags | {"scheduled"},
        comment=view.comment,
        origin=view.origin,
    )


def _closed(nest: Nest, buffers: dict[str, Refinement], known: tuple[str, ...]) -> tuple[Block, _Needs]:
    """The block of a nest, and what it needs."""
    own = tuple(i.name for i in nest.loops)
    inside = buffers | {a.into: a for a in nest.allocs}
    closed = [_statements(n, inside, (*known, *own)) for n in nest.body]
    names = names_in((*nest.constraints, *nest.guard)).union(*(m.names for _, m in closed))
    reads, writes = (frozenset[str]().union(*(getattr(m, k) for _, m in closed)) for k in ("reads", "writes"))
    needs = _Needs(frozenset(names), reads, writes).without(nest.loops, nest.allocs)
    passed = tuple(Index(n, 1, Affine.var(n)) for n in known if n in needs.names)
    block = Block(
        nest.name,
        indexes=passed + nest.loops,
        constraints=nest.constraints,
        guard=nest.guard,
        refs=tuple(_whole(b, needs) for n, b in buffers.items() if _used(n, needs)) + nest.allocs,
        body=tuple(b for made, _ in closed for b in made),
    )
    return block, needs


def _statements(
    node: Node, buffers: dict[str, Refinement], known: tuple[str, ...]
) -> tuple[tuple[Statement, ...], _Needs]:
    none = frozenset[str]()
    match node:
        case Nest():
            block, needs = _closed(node, buffers, known)
            return (block,), needs
        case Stage():
            reads = frozenset(u.buffer for u in node.uses if u.reads)
            writes = frozenset(u.buffer for u in node.uses if u.writes)
            needs = _Needs(frozenset(node.names() - set(node.loop_names)), reads, writes)
            return (close_stage(node, buffers, known),), needs
        case Straight():
            return node.statements, _Needs(none, node.reads, node.writes)
        case _:
            return (node,), _Needs(none, none, none)


def _used(name: str, needs: _Needs) -> bool:
    return name in needs.reads or name in needs.writes


def _direction(name: str, needs: _Needs) -> Direction:
    if name not in needs.writes:
        return Direction.IN
    return Direction.INOUT if name in needs.reads else Direction.OUT


def _whole(ref: Refinement, needs: _Needs) -> Refinement:
    """A parent's buffer under its own name."""
    return whole_ref(ref, _direction(ref.into, needs))


def whole_ref(ref: Refinement, dir: Direction) -> Refinement:
    """The whole of a buffer of the enclosing block, under its own name."""
    return replace(ref, dir=dir, source=ref.into, access=(Affine(),) * len(ref.type.sizes))


def element(type: TensorType) -> TensorType:
    """One element of a view."""
    return replace(type, sizes=(1,) * len(type.sizes))
