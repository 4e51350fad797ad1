"""Where results are cut: as the operands they follow are, and reductions over cut axes where these are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil, prod

from tile_ir.ops import Aggregation
from tile_ir.program.nodes import (
    Argsort,
    Contraction,
    Elementwise,
    Gather,
    IndexOf,
    Lookup,
    Poly,
    Reshape,
    Scatter,
    TensorType,
)
from tile_ir.stripe.affine import Affine, intervals, names_in
from tile_opt.analysis import FlatDomain
from tile_opt.regions.reshape import groups
from tile_opt.regions.scatter import coordinate

from tile_dask.partitions.chunks import Grid

Types = Mapping[str, TensorType]
Grids = Mapping[str, Grid]
Candidate = tuple[int, tuple[int, ...]]
"""Bytes of the tensor that a cut comes from, and the cells before which it cuts."""


def elementwise_grid(op: Elementwise, types: Types, grids: Grids) -> Grid:
    """Cut as the largest operand that has the axis."""
    rank = len(op.type.shape)
    found: list[list[Candidate]] = [[] for _ in range(rank)]
    for name in (a for a in op.args if isinstance(a, str)):
        shape = types[name].shape
        for k, size in enumerate(shape):
            axis = rank - len(shape) + k
            if size == op.type.shape[axis]:
                found[axis].append((types[name].nbytes, grids[name].cuts(k)))
    return _grid(op.type.shape, found)


def contraction_grid(op: Contraction, domain: FlatDomain, types: Types, grids: Grids) -> Grid:
    """Each subscript that has an index is cut where that index meets the cuts of what is read by it."""
    found: list[list[Candidate]] = [[] for _ in op.type.shape]
    for axis, form in enumerate(domain.output):
        if len(form.terms) != 1:
            continue
        ((index, step),) = form.terms
        for tensor, cuts in _meeting(index, op, domain, types, grids):
            found[axis].append((types[tensor].nbytes, tuple(step * c + form.const for c in cuts)))
    if op.default is not None:
        for axis, candidates in enumerate(found):
            candidates.append((types[op.default].nbytes, grids[op.default].cuts(axis)))
    return _grid(op.type.shape, found)


def reduction_cuts(op: Contraction, domain: FlatDomain, types: Types, grids: Grids) -> dict[str, tuple[int, ...]]:
    """For indexes that no subscript of the result has: the sizes they are cut into, where there are several."""
    if op.agg is Aggregation.ASSIGN or domain.empty:
        return {}
    kept = names_in(domain.output)
    found: dict[str, tuple[int, ...]] = {}
    for index, size in domain.extents.items():
        if index in kept:
            continue
        candidates = [(types[t].nbytes, cuts) for t, cuts in _meeting(index, op, domain, types, grids)]
        sizes = _cut(size, candidates)
        if len(sizes) > 1:
            found[index] = sizes
    return found


def gather_grid(op: Gather, types: Types, grids: Grids) -> Grid:
    """Cut as the data where a subscript is a coordinate, as the subscripts' own tensors elsewhere."""
    found: list[list[Candidate]] = [[] for _ in op.type.shape]
    for axis, subscript in enumerate(op.subscripts):
        if isinstance(subscript, Lookup):
            for k, formula in enumerate(subscript.formulas):
                _follow(formula, types[subscript.tensor], grids[subscript.tensor].cuts(k), found)
        else:
            _follow(subscript, types[op.data], grids[op.data].cuts(axis), found)
    return _grid(op.type.shape, found)


def argsort_grid(op: Argsort, grids: Grids) -> Grid:
    """Rows are whole."""
    given = grids[op.arg].sizes
    return Grid(tuple((op.type.shape[k],) if k == op.axis else sizes for k, sizes in enumerate(given)))


def reshape_grid(op: Reshape, types: Types, grids: Grids) -> Grid:
    """Cuts of the first axis of a group become cuts of the first axis it has then."""
    before, after = types[op.arg].shape, op.type.shape
    sizes: list[tuple[int, ...]] = [(n,) for n in after]
    for group in groups(before, after) if op.type.size else ():
        if group.before and group.after:
            lead, target = _first(group.before, before), _first(group.after, after)
            row = prod(before[k] for k in group.before if k > lead)
            step = prod(after[k] for k in group.after if k > target)
            cells = [c * row for c in grids[op.arg].cuts(lead)]
            sizes[target] = Grid.cut(after[target], [c // step for c in cells])
    return Grid(tuple(sizes))


def index_grid(op: IndexOf, grids: Grids) -> Grid:
    """As the arrays of the same shape are cut, since such an index is used beside them."""
    alike = [g for g in grids.values() if g.shape == op.type.shape]
    return max(alike, key=lambda g: g.chunks, default=Grid.single(op.type.shape))


def _first(axes: Sequence[int], shape: Sequence[int]) -> int:
    return next((k for k in axes if shape[k] > 1), axes[0])


def _follow(formula: Poly, type: TensorType, cuts: tuple[int, ...], found: list[list[Candidate]]) -> None:
    if len(formula.terms) == 1:
        name, step = formula.terms[0]
        places = tuple(ceil((c - formula.const) / step) if step > 0 else 0 for c in cuts)
        found[int(name[1:])].append((type.nbytes, places))


def _meeting(
    index: str, op: Contraction, domain: FlatDomain, types: Types, grids: Grids
) -> Iterable[tuple[str, tuple[int, ...]]]:
    """(tensor, values of the index at which a subscript of it meets a cut), the other indexes at their middle."""
    ranges = intervals(domain.extents)
    for load, access in zip(op.loads, domain.accesses, strict=not domain.empty):
        if not isinstance(load.tensor, str):
            continue
        for axis, form in enumerate(access):
            step = form.coefficient(index)
            if step > 0 and _leads(index, form, ranges):
                low, high = (form - Affine.var(index, step)).bounds(ranges)
                middle = (low + high) // 2
                cuts = tuple(-(-(cut - middle) // step) for cut in grids[load.tensor].cuts(axis))
                yield load.tensor, cuts


def _leads(index: str, form: Affine, ranges: Mapping[str, tuple[int, int]]) -> bool:
    """The index moves the subscript further than the others do."""
    mine = abs(form.coefficient(index)) * ranges[index][1]
    return all(abs(c) * ranges[n][1] <= mine for n, c in form.terms if n != index)


def _grid(shape: Sequence[int], found: Sequence[Sequence[Candidate]]) -> Grid:
    return Grid(tuple(_cut(size, candidates) for size, candidates in zip(shape, found, strict=True)))


def _cut(size: int, candidates: Iterable[Candidate]) -> tuple[int, ...]:
    """The cuts of the largest tensor that has any."""
    _, cuts = max(((n, c) for n, c in candidates if c), key=lambda found: found[0], default=(0, ()))
    return Grid.cut(size, cuts)


def scatter_grid(op: Scatter, grids: Mapping[str, Grid]) -> Grid:
    """Cut as the updates along coordinates of theirs, elsewhere as the tensor scattered into."""
    into = None if op.default is None else grids[op.default]
    sizes: list[tuple[int, ...]] = []
    for axis, (subscript, size) in enumerate(zip(op.subscripts, op.type.shape, strict=True)):
        found = coordinate(subscript)
        cuts = [c + found[1] for c in grids[op.updates].cuts(found[0])] if found else into.cuts(axis) if into else ()
        sizes.append(Grid.cut(size, cuts))
    return Grid(tuple(sizes))


def scatter_cuts(op: Scatter, grids: Mapping[str, Grid]) -> dict[str, tuple[int, ...]]:
    """The sizes into which the updates are cut along axes that are no coordinates of the result."""
    if op.agg is Aggregation.ASSIGN:
        return {}
    kept = {found[0] for s in op.subscripts if (found := coordinate(s))}
    grid = grids[op.updates]
    return {f"i{k}": sizes for k, sizes in enumerate(grid.sizes) if len(sizes) > 1 and k not in kept}
