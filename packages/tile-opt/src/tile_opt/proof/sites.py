"""A program laid flat: every place where statements run, with all loops around it, and every access to a buffer.

What blocks nest, this says outright: a site is one block's body with the loops of all blocks around it, an access the
cell that a load or store touches as forms of those loops. A cell of an allocation within loops is one of as many copies
as those loops have points, so that what is private to a thread, or new in every iteration, needs no rule of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

from tile_ir.frozen import frozen
from tile_ir.ops import Aggregation
from tile_ir.stripe.affine import Affine, DivMod, DivModOp, Quasi
from tile_ir.stripe.nodes import (
    Bind,
    Block,
    Const,
    Direction,
    Init,
    Load,
    LoadIndex,
    Location,
    Op,
    Order,
    Program,
    Reduce,
    Refinement,
    Scope,
    Special,
    Statement,
    Store,
    Sync,
    TensorType,
    Transfer,
    Wait,
    row_major_strides,
    same_element,
)
from tile_ir.stripe.verify import is_reshape
from tile_ir.stripe.walk import buffers_written, scalars_behind

THREADS = frozenset({Bind.GROUP, Bind.SUBGROUP, Bind.LANE})
"""Bindings whose points advance together from barrier to barrier."""
GRIDS = frozenset({Bind.GRID, Bind.CORE})

Form = tuple[Quasi, ...]
"""The sum of its parts."""


DATA = ("subscripts that are data", "foreign code")
"""How the reasons begin that no proof is meant to cover."""


class Unsupported(Exception):
    """What a proof does not cover, in a few words."""


@frozen
class Loop:
    """A loop with a name that no other loop of the program has."""

    name: str
    range: int
    bind: Bind = Bind.NONE


@dataclass(frozen=True, slots=True, eq=False)
class Buffer:
    """An allocation; a cell is one value of each loop around it, the copy where there are several, and its subscripts."""

    name: str
    type: TensorType
    home: tuple[Loop, ...] = ()
    versions: int = 1
    kernel: int = -1
    """The kernel that allocates it; -1 for those that kernels hand on."""
    scope: Scope = Scope.DEVICE
    """Who shares it."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of a cell's subscripts, those of loops and copies first."""
        copies = (self.versions,) if self.versions > 1 else ()
        return (*(loop.range for loop in self.home), *copies, *self.type.sizes)


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """A block's body and the loops around it, outermost first."""

    number: int
    kernel: int
    path: tuple[str, ...]
    loops: tuple[Loop, ...]
    constraints: tuple[Quasi, ...]
    """Forms of the loops, each >= 0."""
    time: tuple[int | str, ...]
    """When it runs: numbers of statements and names of loops, from the kernel inwards."""
    body: tuple[Statement, ...] = ()
    values: Mapping[str, Affine] = field(default_factory=dict[str, Affine])
    """The block's indexes as forms of the loops."""
    fence: str = ""
    """Of a barrier: the memory that it makes visible."""
    among: Scope = Scope.GROUP
    """Of a barrier: whose threads wait for one another."""
    fills: bool = False
    """It leaves zeros where a copy may not read."""


@dataclass(frozen=True, slots=True, eq=False)
class Access:
    """What a load or store of a site touches."""

    site: Site
    position: int
    buffer: Buffer
    at: tuple[Form, ...]
    value: str = ""
    """The scalar that a store stores, or merges; empty for a load."""
    agg: Aggregation | None = None
    """How a store merges with what is there."""
    atomic: bool = False
    windows: tuple[tuple[Form, int], ...] = ()
    """Positions within views, and the extents of those."""
    clamped: tuple[tuple[Form, Form, int], ...] = ()
    """For each dimension of a load that is clamped, where the view begins, the subscript in it, and its extent."""

    @property
    def writes(self) -> bool:
        return bool(self.value)


@dataclass(slots=True)
class Flat:
    """All sites and accesses of a program, in the order of their text."""

    sites: list[Site] = field(default_factory=list[Site])
    accesses: list[Access] = field(default_factory=list[Access])
    barriers: list[Site] = field(default_factory=list[Site])
    """One for each barrier; its time ends with the number of the statement."""
    handed: dict[str, Buffer] = field(default_factory=dict[str, Buffer])
    """What kernels hand on, inputs and outputs among them."""
    kernels: list[str] = field(default_factory=list[str])
    writers: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    """The kernels that write what is handed on."""
    unsupported: dict[int, str] = field(default_factory=dict[int, str])
    """What no proof covers, by the kernel that it is in."""


@frozen
class _View:
    """What a refinement shows: `origin` in the buffer, or in a view of it under another shape."""

    buffer: Buffer
    ref: Refinement
    origin: tuple[Form, ...]
    version: Form | None
    """Which copy, once that is said; None while a view shows them all."""
    reshaped: _View | None = None
    """The whole buffer that this one shows under another shape, `shape`."""
    shape: tuple[int, ...] = ()
    windows: tuple[tuple[tuple[Form, ...], tuple[int, ...]], ...] = ()


@frozen
class _Frame:
    """Where the walk is."""

    kernel: int
    path: tuple[str, ...]
    loops: tuple[Loop, ...]
    constraints: tuple[Quasi, ...]
    time: tuple[int | str, ...]
    values: Mapping[str, Affine]
    """The block's indexes as forms of the loops."""
    views: Mapping[str, _View]


def flatten(program: Program) -> Flat:
    """The program's sites and accesses; what no proof covers is noted for its kernel."""
    flat = Flat()
    frame = _Frame(-1, (), (), (), (), {}, _allocated(program.entry, (), -1, flat))
    for number, main in enumerate(program.entry.body):
        if isinstance(main, Block):
            inner = _entered(flat, frame, main, number)
            if inner is not None:
                for kernel, statement in enumerate(main.body):
                    _kernel(flat, inner, statement, kernel)
    return flat


def _kernel(flat: Flat, frame: _Frame, statement: Statement, number: int) -> None:
    flat.kernels.append(statement.name if isinstance(statement, Block) else type(statement).__name__.lower())
    for name in buffers_written(statement):
        flat.writers.setdefault(frame.views[name].buffer.name, []).append(number)
    frame = _Frame(number, (), frame.loops, frame.constraints, (), frame.values, frame.views)
    try:
        match statement:
            case Block():
                _block(flat, frame, statement, number)
            case Transfer():
                _transfer(flat, frame, statement, number)
            case Wait():
                pass
            case _:
                raise Unsupported(f"{type(statement).__name__.lower()} beside kernels")
    except Unsupported as reason:
        flat.unsupported[number] = str(reason)


def _block(flat: Flat, frame: _Frame, block: Block, position: int) -> None:
    inner = _entered(flat, frame, block, position)
    if inner is None:
        return
    for ref in block.refs:
        if ref.init is Init.IDENTITY and ref.source:
            _identity(flat, frame, inner, ref, position)
        if ref.acc is not None and ref.acc is not ref.type.dtype:
            raise Unsupported("an accumulator of another dtype than its buffer")
    site = _site(flat, inner, block.body)
    if _clears(inner, block.body):
        site = flat.sites[-1] = replace(site, fills=True)
    for number, statement in enumerate(block.body):
        if isinstance(statement, Block):
            _block(flat, inner, statement, number)
        else:
            _statement(flat, inner, site, statement, number)


def _statement(flat: Flat, frame: _Frame, site: Site, statement: Statement, number: int) -> None:
    match statement:
        case Load():
            flat.accesses.append(_load(frame, site, number, statement))
        case Store():
            flat.accesses.append(_store(frame, site, number, statement))
        case Transfer():
            _transfer(flat, frame, statement, number)
        case Sync(scope, fence):
            if scope is not Scope.THREAD:
                flat.barriers.append(replace(_at(frame, number), fence=fence, among=scope))
        case Special(name):
            raise Unsupported(f"foreign code {name!r}")
        case Const() | LoadIndex() | Op() | Reduce() | Wait() | Block():
            pass
        case _:
            assert_never(statement)


def _site(flat: Flat, frame: _Frame, body: tuple[Statement, ...]) -> Site:
    number = len(flat.sites)
    flat.sites.append(
        Site(number, frame.kernel, frame.path, frame.loops, frame.constraints, frame.time, body, frame.values)
    )
    return flat.sites[-1]


def _clears(frame: _Frame, body: tuple[Statement, ...]) -> bool:
    """It sets zeros in a group's memory: for what constraints leave out of a factor's copy."""
    match body:
        case (Const(dst, 0), Store(home, src)) if dst == src:
            return frame.views[home].ref.loc == Location("LOCAL", scope=Scope.GROUP)
        case _:
            return False


# --- blocks ----------------------------------------------------------------------------------------


def _entered(flat: Flat, frame: _Frame, block: Block, position: int) -> _Frame | None:
    """Inside a block; None when it never runs."""
    loops, values = [*frame.loops], dict[str, Affine]()
    own: list[Loop] = []
    for index in block.indexes:
        if index.value is not None:
            values[index.name] = index.value.substitute(frame.values)
        elif index.range == 0:
            return None
        elif index.range == 1:
            values[index.name] = Affine()
        else:
            own.append(Loop(f"{index.name}.{len(flat.sites)}.{position}", index.range, index.bind))
            values[index.name] = Affine.var(own[-1].name)
    loops += own
    guards = tuple(form.substitute(frame.values) for form in block.guard)
    limits = tuple(form.substitute(values) for form in block.constraints)
    time = (*frame.time, position, *(loop.name for loop in own))
    path = (*frame.path, block.name)
    views = {ref.into: _refined(block, ref, frame.views, values) for ref in block.refs if ref.source}
    views |= _allocated(block, tuple(loops), frame.kernel, flat)
    return _Frame(frame.kernel, path, tuple(loops), (*frame.constraints, *guards, *limits), time, values, views)


def _allocated(block: Block, home: tuple[Loop, ...], kernel: int, flat: Flat) -> dict[str, _View]:
    views: dict[str, _View] = {}
    for ref in block.refs:
        if ref.dir is Direction.ALLOC:
            name = ref.into if kernel < 0 else f"{ref.into}.{len(flat.sites)}"
            buffer = Buffer(name, ref.type, home, ref.versions, kernel, ref.loc.scope)
            views[ref.into] = _View(buffer, ref, ((),) * len(ref.type.sizes), None)
            if kernel < 0:
                flat.handed[name] = buffer
    return views


def _refined(block: Block, ref: Refinement, parents: Mapping[str, _View], values: Mapping[str, Affine]) -> _View:
    parent = parents[ref.source]
    if is_reshape(ref, parent.ref):
        if ref.type.dtype is not parent.ref.type.dtype:  # words of what no kernel writes
            return _View(replace(parent.buffer, name=ref.into, type=ref.type), ref, ((),) * len(ref.type.sizes), None)
        return _View(parent.buffer, ref, ((),) * len(ref.type.sizes), None, parent, ref.type.sizes)
    access = tuple(form.substitute(dict(values)) for form in ref.access)
    rank = len(ref.type.sizes)
    version = parent.version
    if parent.buffer.versions > 1 and version is None and ref.versions == 1:
        version = _version(block, access, rank, values, parent.buffer.versions)
    subscripts = access[len(access) - rank :]
    origin = tuple((*start, form) for start, form in zip(parent.origin, subscripts, strict=True))
    windows = (*parent.windows, (parent.origin, parent.ref.type.sizes))
    return _View(parent.buffer, ref, origin, version, parent.reshaped, parent.shape, windows)


def _version(block: Block, access: tuple[Quasi, ...], rank: int, values: Mapping[str, Affine], count: int) -> Form:
    ordered = (values[i.name] for i in block.indexes if i.order is Order.ORDERED)
    number = access[0] if len(access) > rank else next(ordered, Affine())
    if isinstance(number, DivMod) and number == DivMod(number.num, count, DivModOp.MOD):
        return (number,)
    if not isinstance(number, Affine):
        raise Unsupported("a copy chosen by a quotient")
    return (DivMod(number, count, DivModOp.MOD),)


# --- accesses --------------------------------------------------------------------------------------


def _access(
    frame: _Frame, site: Site, position: int, name: str, at: Sequence[Quasi | str], value: str = "",
    agg: Aggregation | None = None, atomic: bool = False,
) -> Access:  # fmt: skip
    view = frame.views[name]
    forms = _direct(at, frame.values)
    sizes = view.ref.type.sizes
    subscripts = tuple((*o, f) for o, f in zip(view.origin, forms or (Affine(),) * len(sizes), strict=True))
    windows = [*zip(((f,) for f in forms), sizes, strict=True)] if forms else []
    for origin, extents in view.windows:
        windows += [(_less(s, o), e) for s, o, e in zip(subscripts, origin, extents, strict=True)]
    home = tuple((Affine.var(loop.name),) for loop in view.buffer.home)
    copies = (view.version or (),) if view.buffer.versions > 1 else ()
    cell = (*home, *copies, *_unshaped(view, subscripts))
    return Access(site, position, view.buffer, cell, value, agg, atomic, tuple(windows))


def _load(frame: _Frame, site: Site, position: int, load: Load) -> Access:
    access = _access(frame, site, position, load.src, load.at)
    if not load.clamp or not load.at:
        return access
    view = frame.views[load.src]
    if view.reshaped is not None:
        raise Unsupported("clamped subscripts of a reshaped view")
    forms = ((form,) for form in _direct(load.at, frame.values))
    return replace(access, windows=(), clamped=tuple(zip(view.origin, forms, view.ref.type.sizes, strict=True)))


def _direct(at: Sequence[Quasi | str], values: Mapping[str, Affine]) -> tuple[Quasi, ...]:
    forms: list[Quasi] = []
    for form in at:
        if isinstance(form, str):
            raise Unsupported("subscripts that are data")
        forms.append(form.substitute(dict(values)))
    return tuple(forms)


def _less(whole: Form, start: Form) -> Form:
    """What a subscript has beyond the parts that it begins with."""
    return whole[len(start) :]


def _unshaped(view: _View, subscripts: tuple[Form, ...]) -> tuple[Form, ...]:
    """Subscripts in the buffer of those in a view under another shape: digits of the element's number."""
    if view.reshaped is None:
        return subscripts
    number = Affine()
    for form, stride in zip(subscripts, row_major_strides(view.shape), strict=True):
        for part in form:
            if not isinstance(part, Affine):
                raise Unsupported("quotients within a reshaped view")
            number = number + part * stride
    sizes = view.reshaped.ref.type.sizes
    digits = (_digit(number, s, e) for s, e in zip(row_major_strides(sizes), sizes, strict=True))
    if view.reshaped.reshaped is not None:
        raise Unsupported("a view reshaped twice")
    return tuple((*start, *digit) for start, digit in zip(view.reshaped.origin, digits, strict=True))


def _digit(number: Affine, stride: int, size: int) -> Form:
    return (
        DivMod(number, max(stride, 1), DivModOp.DIV),
        DivMod(number, max(stride * size, 1), DivModOp.DIV, -size),
    )


def _store(frame: _Frame, site: Site, position: int, store: Store) -> Access:
    """A store; one of what its cell held and something more, merged, is an aggregation however it is written."""
    agg, value = frame.views[store.dst].ref.agg, store.src
    if agg is Aggregation.ASSIGN:
        agg = None
    if store.clamp:
        raise Unsupported("clamped stores")
    if agg is None:
        agg, value = _merging(site.body, position, store)
    return _access(frame, site, position, store.dst, store.at, value, agg, store.atomic)


_MERGES = {agg.op: agg for agg in Aggregation if agg is not Aggregation.ASSIGN}


def _merging(body: Sequence[Statement], position: int, store: Store) -> tuple[Aggregation | None, str]:
    made = {s.dst: s for s in body[:position] if isinstance(s, Op | Load)}
    merged = made.get(store.src)
    touched = any(isinstance(s, Block) or (isinstance(s, Store) and s.dst == store.dst and s.at == store.at)
                  for s in body[:position])  # fmt: skip
    if not isinstance(merged, Op) or merged.name not in _MERGES or touched:
        return None, store.src
    for old, other in (merged.args, merged.args[::-1]):
        load = made.get(old)
        if (
            isinstance(load, Load)
            and (load.src, load.at) == (store.dst, store.at)
            and old not in scalars_behind(other, made)
        ):
            return _MERGES[merged.name], other
    return None, store.src


def _at(frame: _Frame, position: int) -> Site:
    time = (*frame.time, position)
    return Site(-1, frame.kernel, frame.path, frame.loops, frame.constraints, time)


# --- statements that stand for many ----------------------------------------------------------------


def _transfer(flat: Flat, frame: _Frame, copy: Transfer, position: int) -> None:
    """The copy where it may read, and zeros where a form is the first that says it may not."""
    target, source = frame.views[copy.dst].ref, frame.views[copy.src].ref
    there = tuple(form.substitute(frame.values) for form in copy.where)
    inner, at = _boxed(flat, _limited(frame, there), target.type.sizes, position)
    there_at = same_element(at, target.type.sizes, source.type.sizes)
    body = (Load("$x", copy.src, there_at), Store(copy.dst, "$x", at))
    site = _site(flat, inner, body)
    flat.accesses.append(_access(inner, site, 0, copy.src, there_at))
    flat.accesses.append(_access(inner, site, 1, copy.dst, at, "$x", target.agg))
    for n, form in enumerate(there):
        inner, at = _boxed(flat, _limited(frame, (*there[:n], _negative(form))), target.type.sizes, position)
        body = (Const("$x", 0, target.type.dtype), Store(copy.dst, "$x", at))
        site = replace(_site(flat, inner, body), fills=True)
        flat.sites[-1] = site
        flat.accesses.append(_access(inner, site, 1, copy.dst, at, "$x", target.agg))


def _negative(form: Quasi) -> Quasi:
    """A form that is >= 0 where this one is not."""
    if isinstance(form, Affine):
        return form * -1 + -1
    return DivMod(form.num, form.den, form.op, -form.scale, form.plus * -1 + -1)


def _limited(frame: _Frame, limits: tuple[Quasi, ...]) -> _Frame:
    """The frame where forms of its loops are >= 0."""
    return replace(frame, constraints=(*frame.constraints, *limits))


def _identity(flat: Flat, outer: _Frame, frame: _Frame, ref: Refinement, position: int) -> None:
    """A view set to its aggregation's identity before its block runs."""
    assert ref.agg is not None
    inner, at = _boxed(flat, frame, ref.type.sizes, -1)
    time = (
        *outer.time,
        position,
        *(0 for _ in frame.time[len(outer.time) + 1 :]),
        -1,
        *inner.time[len(frame.time) + 1 :],
    )
    body = (Const("$z", ref.agg.identity(ref.type.dtype), ref.type.dtype), Store(ref.into, "$z", at))
    site = replace(_site(flat, inner, body), time=time)
    flat.sites[-1] = site
    flat.accesses.append(_access(inner, site, 1, ref.into, at, "$z"))


def _boxed(flat: Flat, frame: _Frame, sizes: Sequence[int], position: int) -> tuple[_Frame, tuple[Affine, ...]]:
    """Loops over the elements of a view, within the frame."""
    loops = tuple(Loop(f"d{n}.{len(flat.sites)}.{position}", size) for n, size in enumerate(sizes))
    at = tuple(Affine.var(loop.name) for loop in loops)
    values = {**frame.values, **{loop.name: form for loop, form in zip(loops, at, strict=True)}}
    time = (*frame.time, position, *(loop.name for loop in loops))
    return _Frame(frame.kernel, frame.path, (*frame.loops, *loops), frame.constraints, time, values, frame.views), at
