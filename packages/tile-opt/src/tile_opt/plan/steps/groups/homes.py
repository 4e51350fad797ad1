"""Where the kernel's own buffers lie: registers of an item, its private memory, or the group's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from math import prod

from tile_ir.frozen import frozen, replace
from tile_ir.stripe.affine import Affine, names_in
from tile_ir.stripe.nodes import STATIC, Bind, Layout, Load, Location, Refinement, Statement, Store, TensorType

from tile_opt.kernel.bodies import facts
from tile_opt.kernel.unify import is_indirect
from tile_opt.kernel.view import Stage, Use
from tile_opt.plan.steps.digits import Digit
from tile_opt.plan.steps.groups.banks import BANK_BYTES
from tile_opt.plan.steps.groups.parts import DEVICE_MEMORY
from tile_opt.plan.tree import ARRAY, GROUP_MEMORY, REGISTER


@frozen
class Home:
    """Where a buffer of the kernel's own lies, and how it is subscripted: by `dims` in place of, or after, its own."""

    alloc: Refinement
    dims: tuple[Affine, ...]
    rows: bool
    """An item's own part of a row: `dims` take the place of the subscripts."""
    shared: bool = False

    def use(self, use: Use) -> Use:
        kept = (Affine(),) * len(use.forms) if self.rows else use.forms
        return replace(use, forms=(*kept, *self.dims))


def at_home(stage: Stage, homes: Mapping[str, Home]) -> Stage:
    """The stage with its accesses to the kernel's own buffers where those lie, what data subscripts of them, too."""
    own = {u.name: homes[u.buffer] for u in stage.uses if u.buffer in homes}
    uses = tuple(own[u.name].use(u) if u.name in own else u for u in stage.uses)
    if own.keys().isdisjoint(facts(stage.body).indirect):
        return replace(stage, uses=uses)
    return replace(stage, uses=uses, body=tuple(_subscripted(s, own) for s in stage.body))


def _subscripted(statement: Statement, own: Mapping[str, Home]) -> Statement:
    """A statement with a subscript for each dimension that its buffer has now."""
    if not isinstance(statement, Load | Store) or not statement.at:
        return statement
    home = own.get(statement.src if isinstance(statement, Load) else statement.dst)
    return statement if home is None else replace(statement, at=(*statement.at, *(Affine(),) * len(home.dims)))


def private(alloc: Refinement, digits: Sequence[Digit]) -> Home:
    """A buffer that each item has for itself, once per point of `digits`."""
    return _made(alloc, alloc.type.sizes, digits, rows=False)


def row_part(alloc: Refinement, digits: Sequence[Digit]) -> Home:
    """An item's own part of a row: a cell per point of `digits`."""
    return _made(alloc, (1,) * len(alloc.type.sizes), digits, rows=True)


def _made(alloc: Refinement, sizes: tuple[int, ...], digits: Sequence[Digit], rows: bool) -> Home:
    static = all(d.index.bind in STATIC for d in digits) and all(size == 1 for size in sizes)
    digits = sorted(digits, key=lambda d: d.index.bind is Bind.VECTOR)
    made = sized(alloc, (*sizes, *(d.index.range for d in digits)), REGISTER if static else ARRAY)
    return Home(made, tuple(Affine.var(d.index.name) for d in digits), rows)


def in_group(alloc: Refinement, digits: Sequence[Digit], local_bytes: int, side_by_side: bool = False) -> Home:
    """A buffer that the items of a group share, once per point of `digits`; too long for it, in the device's memory.

    Those of different points come one after the other, so that an item's neighbours have neighbouring cells; where the
    items beside it have other points, `side_by_side`, an odd number of banks apart.
    """
    counts, dtype = tuple(d.index.range for d in digits), alloc.type.dtype
    vectors = any(d.index.bind is Bind.VECTOR for d in digits)
    row = prod(alloc.type.sizes) * dtype.bytes
    row += BANK_BYTES if side_by_side and not vectors and row % (2 * BANK_BYTES) == 0 else 0
    outer = TensorType.row_major(dtype, counts).strides
    strides = (*TensorType.row_major(dtype, alloc.type.sizes).strides, *(row // dtype.bytes * s for s in outer))
    shape = (*alloc.type.sizes, *counts)
    type = TensorType(dtype, shape, Layout(strides, 16))
    made = sized(alloc, shape, GROUP_MEMORY if type.nbytes <= local_bytes else DEVICE_MEMORY)
    dims = tuple(Affine.var(d.index.name) for d in digits)
    return Home(replace(made, type=type), dims, rows=False, shared=True)


def is_plain(users: Sequence[tuple[Stage, Use]]) -> bool:
    """All accesses are the same, each subscript a loop of its own: an item meets only what it stored itself."""
    forms = users[0][1].forms
    names = [n for f in forms for n in f.names]
    alike = all(u.forms == forms and not u.extent and not is_indirect(s, u) for s, u in users)
    plain = all(f.is_const or f in (Affine.var(n) for n in f.names) for f in forms)
    return alike and plain and len(set(names)) == len(names)


def keeps_apart(users: Sequence[tuple[Stage, Use]], loops: Set[str]) -> bool:
    """What an item stores to memory, no other item of its group stores or reads: nothing makes it wait for that.

    `users` are the accesses to one buffer; items share the iterations of the own loops `loops`. What is stored in a stage
    without some of them, one item stores for all.
    """
    if len(users) == 1 or not loops:
        return True
    forms = users[0][1].forms
    alike = all(u.forms == forms and not is_indirect(s, u) for s, u in users)
    moved = names_in(forms)
    divided = [loops & {*s.loop_names} for s, _ in users]
    if any(own != divided[0] for own in divided):
        return False
    if any(u.reads for _, u in users):
        return alike and loops <= moved
    return not divided[0] or (alike and divided[0] <= moved)


def sized(alloc: Refinement, shape: tuple[int, ...], loc: Location) -> Refinement:
    """`alloc` with another shape, packed, in another place."""
    type = TensorType.row_major(alloc.type.dtype, shape, align=16)
    return replace(alloc, type=type, access=(Affine(),) * len(shape), loc=loc)
