"""What a statement touches: every load and store inside it as forms over uniquely named indexes.

Forms are relative to the views of the enclosing block, whose own indexes keep their names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tile_ir.frozen import frozen, replace
from tile_ir.stripe.affine import Affine, DivMod, Quasi
from tile_ir.stripe.nodes import Block, Direction, Init, Load, Refinement, Special, Statement, Store, Transfer

from tile_opt.analysis.sets import Sets


@frozen
class Access:
    """Cells of a buffer of the enclosing block: a box of `extent` at `forms`, for each point of the indexes.

    `forms` is None where the cells are not known; then they are anywhere in the buffer.
    """

    buffer: str
    forms: tuple[Affine, ...] | None
    extent: tuple[int, ...]
    ranges: tuple[tuple[str, int], ...]
    constraints: tuple[Affine, ...]
    certain: bool
    """False when a guard or a form that is no Affine may keep the access from happening."""
    reads: bool = False
    writes: bool = False
    own: int = 0
    """Number of the statement in the block."""


@frozen
class _View:
    buffer: str
    forms: tuple[Affine, ...] | None


@frozen
class _Scope:
    """Where a statement stands: its block's indexes as forms, its views, and the loops and constraints around it."""

    env: dict[str, Affine]
    views: dict[str, _View]
    ranges: tuple[tuple[str, int], ...]
    constraints: tuple[Affine, ...]
    certain: bool
    path: str


def accesses(block: Block) -> list[Access]:
    """Every access of the block's statements to its refinements, in order; its own loops and constraints count."""
    views = {r.into: _View(r.into, (Affine(),) * len(r.type.sizes)) for r in block.refs}
    env = {i.name: Affine.var(i.name) for i in block.indexes}
    ranges = tuple((i.name, i.range) for i in block.indexes if i.value is None)
    plain = tuple(c for c in block.constraints if isinstance(c, Affine))
    scope = _Scope(env, views, ranges, plain, len(plain) == len(block.constraints), "")
    found: list[Access] = []
    for number, statement in enumerate(block.body):
        found += _statement(statement, scope, {r.into: r for r in block.refs}, number)
    return found


def _statement(statement: Statement, scope: _Scope, refs: dict[str, Refinement], own: int) -> Iterator[Access]:
    match statement:
        case Load(_, name, at):
            yield replace(_element(scope, refs[name], at), reads=True, own=own)
        case Store(name, _, at):
            merges = refs[name].agg is not None
            yield replace(_element(scope, refs[name], at), reads=merges, writes=True, own=own)
        case Transfer(dst, src):
            yield replace(_whole(scope, refs[src]), reads=True, own=own)
            yield replace(_whole(scope, refs[dst]), reads=refs[dst].agg is not None, writes=True, own=own)
        case Special(_, outs, ins):
            unknown = (replace(_whole(scope, refs[n]), forms=None, extent=(), certain=False) for n in (*ins, *outs))
            for number, access in enumerate(unknown):
                yield replace(access, reads=True, writes=number >= len(ins), own=own)
        case Block():
            yield from _block(statement, scope, own)
        case _:
            pass


def _block(block: Block, outer: _Scope, own: int) -> Iterator[Access]:
    scope = _entered(block, outer, own)
    refs = {r.into: r for r in block.refs}
    for ref in block.refs:
        if ref.source and ref.init is Init.IDENTITY:
            yield replace(_whole(scope, ref), writes=True, own=own)
    for number, statement in enumerate(block.body):
        for access in _statement(statement, scope, refs, number):
            if access.buffer:
                yield replace(access, own=own)


def _entered(block: Block, outer: _Scope, own: int) -> _Scope:
    path = f"{outer.path}{own}."
    env = {
        i.name: Affine.var(path + i.name) if i.value is None else i.value.substitute(outer.env) for i in block.indexes
    }
    ranges = outer.ranges + tuple((path + i.name, i.range) for i in block.indexes if i.value is None)
    forms = [c for c in block.constraints if isinstance(c, Affine)]
    guards = [g for g in block.guard if isinstance(g, Affine)]
    added = (*(c.substitute(env) for c in forms), *(g.substitute(outer.env) for g in guards))
    certain = outer.certain and len(forms) == len(block.constraints) and len(guards) == len(block.guard)
    views = {r.into: _refined(r, outer, env) for r in block.refs}
    return _Scope(env, views, ranges, outer.constraints + added, certain, path)


def _refined(ref: Refinement, outer: _Scope, env: dict[str, Affine]) -> _View:
    if ref.dir is Direction.ALLOC:
        return _View("", None)
    base = outer.views[ref.source]
    if base.forms is None or len(base.forms) != len(ref.access):
        return _View(base.buffer, None)
    return _View(base.buffer, _plus(base.forms, ref.access, env))


def _plus(base: tuple[Affine, ...], more: Sequence[Quasi | str], env: dict[str, Affine]) -> tuple[Affine, ...] | None:
    if any(isinstance(f, (str, DivMod)) for f in more):
        return None
    return tuple(b + f.substitute(env) for b, f in zip(base, more, strict=True) if isinstance(f, Affine))


def _element(scope: _Scope, ref: Refinement, at: tuple[Quasi | str, ...]) -> Access:
    """One element of a view; anywhere in it where data or a quotient says which."""
    whole = _whole(scope, ref)
    if any(isinstance(a, (str, DivMod)) for a in at):
        return replace(whole, certain=False)
    forms = whole.forms if not at or whole.forms is None else _plus(whole.forms, at, scope.env)
    return replace(whole, forms=forms, extent=(1,) * len(ref.type.sizes))


def _whole(scope: _Scope, ref: Refinement) -> Access:
    view = scope.views[ref.into]
    return Access(view.buffer, view.forms, ref.type.sizes, scope.ranges, scope.constraints, scope.certain)


# --- questions -------------------------------------------------------------------------------------


def hull(access: Access) -> tuple[tuple[int, int], ...] | None:
    """Inclusive bounds of the touched cells per dimension, by intervals; None when they are not known."""
    if access.forms is None:
        return None
    ranges = {n: (0, max(r - 1, 0)) for n, r in access.ranges}
    if any(n not in ranges for f in access.forms for n in f.names):
        return None
    found: list[tuple[int, int]] = []
    for form, extent in zip(access.forms, access.extent, strict=True):
        low, high = form.bounds(ranges)
        found.append((low, high + extent - 1))
    return tuple(found)


def written_before_read(block: Block, buffer: str, sets: Sets) -> bool:
    """True when, in each iteration of `block`, every cell of `buffer` that is read was written earlier in it."""
    mine = [a for a in accesses(block) if a.buffer == buffer]
    writes: list[Access] = []
    for access in mine:
        if access.reads and not any(_covers(w, access, block, sets) for w in writes):
            return False
        if access.writes and access.certain and access.forms is not None:
            writes.append(access)
    return True


def writes_all(block: Block, buffer: str, cells: Sequence[int], valid: Sequence[Affine], sets: Sets) -> bool:
    """True when the first write of `block` to `buffer` covers the cells c0, c1, … of the box `cells` where `valid` holds."""
    mine = [a for a in accesses(block) if a.buffer == buffer]
    if not mine or not mine[0].writes or mine[0].reads or not mine[0].certain or mine[0].forms is None:
        return False
    names = [f"c{d}" for d in range(len(cells))]
    ranges = (*((i.name, i.range) for i in block.indexes if i.value is None), *zip(names, cells, strict=True))
    target = Access(buffer, tuple(Affine.var(n) for n in names), (1,) * len(cells), ranges, tuple(valid), True)
    return _covers(mine[0], target, block, sets)


def _covers(write: Access, read: Access, block: Block, sets: Sets) -> bool:
    """True when every cell that `read` touches in an iteration of `block` is one that `write` touches in it."""
    if write.forms is None or read.forms is None:
        return False
    outer = [i.name for i in block.indexes if i.value is None]
    known = {n for a in (write, read) for n, _ in a.ranges} | set(outer)
    used = {n for a in (write, read) for f in (*(a.forms or ()), *a.constraints) for n in f.names}
    if not used <= known:
        return False
    return sets.contains(_image(write, outer), _image(read, outer))


def _image(access: Access, outer: Sequence[str]) -> tuple[list[str], list[Affine], list[Affine]]:
    """(names, constraints, image) of the cells of an access together with the outer indexes."""
    assert access.forms is not None
    extra = [f"+{d}" for d, extent in enumerate(access.extent) if extent != 1]
    offsets = [Affine.var(f"+{d}") if e != 1 else Affine() for d, e in enumerate(access.extent)]
    ranges = dict(access.ranges) | {f"+{d}": e for d, e in enumerate(access.extent) if e != 1}
    names = [*dict.fromkeys(n for n, _ in access.ranges), *extra]
    box = [f for n in names for f in (Affine.var(n), Affine.var(n, -1) + (ranges[n] - 1))]
    image = [Affine.var(n) for n in outer] + [f + o for f, o in zip(access.forms, offsets, strict=True)]
    return names, [*box, *access.constraints], image
