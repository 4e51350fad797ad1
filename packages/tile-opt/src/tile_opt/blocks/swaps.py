"""Local copies of views in another memory, and the statements that fill and drain them."""

from __future__ import annotations

from collections.abc import Sequence

from tile_ir.frozen import frozen
from tile_ir.stripe.affine import Affine, Quasi, names_in
from tile_ir.stripe.nodes import (
    Block,
    Direction,
    Index,
    Load,
    Location,
    Refinement,
    Statement,
    Store,
    TensorType,
    Transfer,
)

from tile_opt.blocks.split import shifted


@frozen
class Clip:
    """Where a view lies inside its parent: forms >= 0 over the block's indexes and the cells c0, c1, … of the view."""

    cells: tuple[str, ...]
    inside: tuple[Affine, ...]

    @property
    def always(self) -> bool:
        return not self.inside


def clip(ref: Refinement, block: Block, parents: Sequence[Block]) -> Clip | None:
    """The cells of a view that exist in all views around it; None where their place is no affine form of the block's loops."""
    cells = tuple(f"c{d}" for d in range(len(ref.type.sizes)))
    if ref.dir is Direction.ALLOC or not parents:
        return Clip(cells, ())
    inside: list[Affine] = []
    forms, view = ref.access, ref
    for number in range(len(parents) - 1, -1, -1):
        source = next((r for r in parents[number].refs if r.into == view.source), None)
        if source is None or len(source.type.sizes) != len(cells) or len(forms) != len(cells):
            whole = source is not None and view is ref and ref.type.reshapes(source.type)
            return Clip(cells, ()) if whole and source is not None and source.dir is Direction.ALLOC else None
        limits = _limits(forms, ref, source, block)
        if limits is None:
            return None
        inside += limits
        if source.dir is Direction.ALLOC or _stays_inside(source, parents[: number + 1]):
            return Clip(cells, tuple(dict.fromkeys(inside)))
        forms = tuple(shifted(f, g) for f, g in zip(forms, source.access, strict=True) if isinstance(g, Affine))
        view = source
    return None


def _stays_inside(ref: Refinement, parents: Sequence[Block]) -> bool:
    """True when a view of the innermost of `parents` never leaves what the block around that sees."""
    block, outer = parents[-1], parents[:-1]
    source = next((r for r in outer[-1].refs if r.into == ref.source), None) if outer else None
    if source is None or len(source.type.sizes) != len(ref.type.sizes) or _limits(ref.access, ref, source, block) != ():
        return False
    return source.dir is Direction.ALLOC or _stays_inside(source, outer)


def _limits(forms: Sequence[Quasi], ref: Refinement, source: Refinement, block: Block) -> tuple[Affine, ...] | None:
    """Forms >= 0 where cells of `ref`, which is at `forms`, exist in `source`; None where no affine forms of the block's loops do."""
    ranges = {i.name: (0, i.range - 1) for i in block.indexes if i.value is None}
    found: list[Affine] = []
    for d, (form, size, limit) in enumerate(zip(forms, ref.type.sizes, source.type.sizes, strict=False)):
        if not isinstance(form, Affine) or not set(form.names) <= ranges.keys():
            return None
        low, high = form.bounds(ranges)
        at = form + Affine.var(f"c{d}")
        found += [at] if low < 0 else []
        found += [at * -1 + (limit - 1)] if high + size > limit else []
    return tuple(found)


def local_copy(
    ref: Refinement, name: str, loc: Location, offset: int = 0, versions: int = 1, align: int = 1
) -> Refinement:
    """An allocation that holds the cells of view `ref`, packed."""
    type_ = TensorType.row_major(ref.type.dtype, ref.type.sizes, align)
    zero = (Affine(),) * len(ref.type.sizes)
    return Refinement(Direction.ALLOC, name, "", zero, type_, loc=loc, offset=offset, versions=versions)


def move(
    dst: Refinement, src: Refinement, unit: str, where: Clip, tag: str, guard: tuple[Affine, ...] = ()
) -> Statement:
    """Copy one view of a block to another on `unit`: a Transfer, or a block where part of the view may not exist.

    With a `guard` over the block's indexes, only in iterations where its forms are >= 0.
    """
    if where.always and not guard:
        return Transfer(dst.into, src.into, unit)
    loops = {c: s for c, s in zip(where.cells, dst.type.sizes, strict=True) if s > 1}
    values = {c: Affine() for c in where.cells if c not in loops}
    forms = tuple(f.substitute(values) for f in where.inside)
    passed = sorted(names_in(forms) - set(where.cells))
    rename = {n: Affine.var(f"{n}_o") for n in passed if n in loops}
    rename |= {n: Affine.var(f"{n}_p") for n in passed if n not in loops}
    cells = tuple(Affine.var(c) if c in loops else Affine() for c in where.cells)
    return Block(
        f"{tag}({src.into})",
        (
            *(Index(rename[n].names[0], 1, Affine.var(n)) for n in passed),
            *(Index(c, s) for c, s in loops.items()),
        ),
        tuple(f.substitute(rename) for f in forms),
        guard,
        refs=(_cell(dst, Direction.OUT, cells), _cell(src, Direction.IN, cells)),
        body=(Load("$v", src.into), Store(dst.into, "$v")),
        loc=Location(unit),
        tags=frozenset((tag, "transfer")),
    )


def _cell(ref: Refinement, direction: Direction, cells: tuple[Affine, ...]) -> Refinement:
    type_ = TensorType(ref.type.dtype, (1,) * len(cells), ref.type.layout)
    return Refinement(direction, ref.into, ref.into, cells, type_, loc=Location(ref.loc.unit))
