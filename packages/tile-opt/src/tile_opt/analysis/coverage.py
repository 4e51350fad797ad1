"""Which output cells a domain writes, and whether it writes any of them twice.

The indexes and output dimensions of a domain fall apart into components that share neither a constraint
nor a dimension (x with its window index, y with its own, …), so every question to ISL is a small one.
"""

from __future__ import annotations

from collections.abc import Sequence

from tile_ir.diagnostics import Diagnostic, TileTypeError
from tile_ir.frozen import frozen
from tile_ir.program.nodes import Contraction
from tile_ir.stripe.affine import Affine

from tile_opt.analysis.domain import FlatDomain
from tile_opt.analysis.sets import MAX_PARTS, Part, Sets


@frozen
class Region:
    """Output cells as a loop nest: ``cell[d]`` over indexes from 0 and constraints (>= 0), without existentials."""

    names: tuple[str, ...]
    ranges: tuple[int, ...]
    constraints: tuple[Affine, ...]
    cell: tuple[Affine, ...]


@frozen
class _Component:
    names: tuple[str, ...]
    dims: tuple[int, ...]


def check_assigned_once(contraction: Contraction, domain: FlatDomain, sets: Sets) -> None:
    """TileTypeError when an ``=`` contraction writes a cell more than once."""
    if domain.empty or _plainly_injective(domain):
        return
    sets.begin(contraction.name, contraction.origin)
    if sets.injective(domain.names, (*domain.box, *domain.constraints), domain.output):
        return
    raise TileTypeError(
        Diagnostic(
            "TILE-E132",
            "Multiple assignment: two index tuples of this '=' contraction write the same output cell",
            contraction.origin,
            "use an aggregation such as '+' or '>', or make every index part of the output subscripts",
        )
    )


def _plainly_injective(domain: FlatDomain) -> bool:
    alone = {form.terms[0][0] for form in domain.output if len(form.terms) == 1}
    return alone.issuperset(domain.names)


def uncovered(domain: FlatDomain, shape: Sequence[int], sets: Sets) -> tuple[Region, ...] | None:
    """Cells of `shape` that no tuple writes, as at most 4 regions; () when all are written, None when more."""
    whole = _whole(shape)
    if 0 in shape:
        return ()
    if domain.empty:
        return (whole,)
    regions: list[Region] = []
    for component in _components(domain):
        parts = _component_parts(domain, component, shape, sets)
        if parts is None or len(regions) + len(parts) > MAX_PARTS:
            return None
        regions += [_region(whole, component.dims, part) for part in parts]
    return tuple(regions)


def _whole(shape: Sequence[int]) -> Region:
    names = tuple(f"i{k}" for k, size in enumerate(shape) if size != 1)
    cell = tuple(Affine.var(f"i{k}") if size != 1 else Affine() for k, size in enumerate(shape))
    return Region(names, tuple(size for size in shape if size != 1), (), cell)


def _components(domain: FlatDomain) -> list[_Component]:
    """Groups of indexes and output dimensions; indexes without any output dimension of their own join none."""
    leader = {name: name for name in domain.names}

    def find(name: str) -> str:
        while leader[name] != name:
            name = leader[name]
        return name

    for form in (*domain.constraints, *domain.output):
        for name in form.names[1:]:
            leader[find(name)] = find(form.names[0])
    groups: dict[str, list[int]] = {}
    for dim, form in enumerate(domain.output):
        groups.setdefault(find(form.names[0]) if form.terms else f"={dim}", []).append(dim)
    return [_Component(tuple(n for n in domain.names if find(n) == root), tuple(dims)) for root, dims in groups.items()]


def _component_parts(
    domain: FlatDomain, component: _Component, shape: Sequence[int], sets: Sets
) -> tuple[Part, ...] | None:
    image = [domain.output[d] for d in component.dims]
    sizes = [shape[d] for d in component.dims]
    names = set(component.names)
    constraints = [f for f in domain.constraints if names.intersection(f.names)]
    ranges = domain.extents
    if not constraints and _dense(image, sizes, ranges):
        return ()
    box = [f for f in domain.box if f.names[0] in names]
    return sets.uncovered(component.names, [*box, *constraints], image, sizes)


def _dense(image: Sequence[Affine], sizes: Sequence[int], ranges: dict[str, int]) -> bool:
    """True when each dimension is its own index over the full range, or of size 1."""
    used: list[str] = []
    for form, size in zip(image, sizes, strict=True):
        if size == 1 and not form.terms:
            continue
        if len(form.terms) != 1 or abs(form.terms[0][1]) != 1 or ranges[form.names[0]] != size:
            return False
        used.append(form.names[0])
    return len(used) == len(set(used))


def _region(whole: Region, dims: Sequence[int], part: Part) -> Region:
    """`whole` with dimensions `dims` limited to `part`; indexes are i0, i1, … from 0."""
    sizes = {f"i{d}": high - low + 1 for d, (low, high) in zip(dims, part.bounds, strict=True)}
    shift = {
        f"d{k}": (Affine.var(f"i{d}") if high > low else Affine()) + low
        for k, (d, (low, high)) in enumerate(zip(dims, part.bounds, strict=True))
    }
    cell = list(whole.cell)
    for k, d in enumerate(dims):
        cell[d] = shift[f"d{k}"]
    full = {name: sizes.get(name, size) for name, size in zip(whole.names, whole.ranges, strict=True)}
    ranges = {name: size for name, size in full.items() if size != 1}
    constraints = tuple(form.substitute(shift) for form in part.constraints)
    return Region(tuple(ranges), tuple(ranges.values()), constraints, tuple(cell))
