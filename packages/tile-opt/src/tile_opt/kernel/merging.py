"""Merging: two loops with consistent strides become a single longer one.

Loops a and b merge when every buffer that one of them subscripts has them in neighbouring dimensions, b plainly and in
full, a from any row on or within runs that other loops choose. The two dimensions become one, so a whole contiguous tensor
ends up as one loop, and so does a chunk of its rows: each operand of a concatenation, for one. A buffer may have them in one
dimension already, as runs of it, which is what a reshape beside other stages leaves.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Block, Index, Layout, Refinement, TensorType

from tile_opt.kernel.view import KernelView, Stage, Use, close_kernel, is_parallel, open_kernel

Pair = tuple[Index, Index]
Dims = dict[str, tuple[int, int]]
"""The two dimensions of each buffer that a pair of loops subscripts, or twice the one that has both."""
NOWHERE = (-1, -1)
"""None of a buffer's."""


def merged(kernel: Block) -> Block:
    """The kernel with as few loops as its buffers allow."""
    first = view = open_kernel(kernel)
    while view is not None and (step := _merge_once(view)) is not None:
        view = step
    return kernel if view is None or view is first else close_kernel(view)


def _merge_once(view: KernelView) -> KernelView | None:
    for a, b in combinations(view.loops, 2):
        dims = _merge_dims(view, view.stages, a, b)
        if dims is not None:
            return _merged(view, dict.fromkeys(range(len(view.stages)), (a, b)), dims)
    for number, stage in enumerate(view.stages):
        for pair in combinations(stage.loops, 2):
            found = _own_pairs(view, number, pair)
            if found is not None:
                return _merged(view, *found)
    return None


def _own_pairs(view: KernelView, number: int, pair: Pair) -> tuple[dict[int, Pair], Dims] | None:
    """The pairs of own loops, by stage, that merge with this one: all stages that use a buffer whose type changes take part."""
    pairs, dims, todo = {number: pair}, Dims(), [number]
    while todo:
        k = todo.pop()
        found = _merge_dims(view, (view.stages[k],), *pairs[k])
        if found is None or any(dims.setdefault(buffer, at) != at for buffer, at in found.items()):
            return None
        for other, stage in enumerate(view.stages):
            if other not in pairs and any(_joins(dims.get(u.buffer, NOWHERE)) for u in stage.uses):
                joining = _partner(view, stage, dims)
                if joining is None:
                    return None
                pairs[other] = joining
                todo.append(other)
    return pairs, dims


def _partner(view: KernelView, stage: Stage, dims: Dims) -> Pair | None:
    """The two own loops of a stage that walk the same two dimensions of the buffers in `dims`."""
    wanted = {u.buffer: dims[u.buffer] for u in stage.uses if _joins(dims.get(u.buffer, NOWHERE))}
    for a, b in combinations(stage.loops, 2):
        found = _merge_dims(view, (stage,), a, b)
        if found is not None and all(found[buffer] == at for buffer, at in wanted.items()):
            return a, b
    return None


def _merge_dims(view: KernelView, stages: tuple[Stage, ...], a: Index, b: Index) -> Dims | None:
    """What a and b subscript; None when the loops cannot merge, or should not: rows that are read at several offsets stay rows."""
    if not (_free(a) and _free(b)):
        return None
    dims, starts = Dims(), dict[str, int]()
    if not _only_bounds(view.constraints, a.name, b.name):
        return None
    for stage in stages:
        if _tied(stage, a.name, b.name):
            return None
        for use in stage.uses:
            found = _neighbours(use, view.type_of(use.buffer), a, b)
            if found is None or dims.setdefault(use.buffer, found) != found:
                return None
            start = use.forms[found[0]].const if _joins(found) else 0
            if starts.setdefault(use.buffer, start) != start:
                return None
    return dims if any(at != NOWHERE for at in dims.values()) else None


def _joins(at: tuple[int, int]) -> bool:
    """The two dimensions of a pair of loops are to become one."""
    return at[0] != at[1]


def _free(index: Index) -> bool:
    return is_parallel(index) and index.value is None


def _tied(stage: Stage, a: str, b: str) -> bool:
    """One of the loops appears outside of subscripts and of constraints that bound a alone: as an index value, say."""
    outside = replace(stage, uses=(), constraints=()).names()
    return not _only_bounds(stage.constraints, a, b) or a in outside or b in outside


def _only_bounds(constraints: tuple[Affine, ...], a: str, b: str) -> bool:
    """What the constraints say of the two loops are bounds of a."""
    return all(abs(c.coefficient(a)) <= 1 and b not in c.names for c in constraints)


def _bound(constraint: Affine, a: Index, b: Index) -> Affine:
    """A bound of a, as one of the loop over both."""
    sign = constraint.coefficient(a.name)
    if not sign:
        return constraint
    rest = (constraint - Affine.var(a.name, sign)) * b.range
    return rest + Affine.var(b.name, sign) + (b.range - 1 if sign < 0 else 0)


def _neighbours(use: Use, whole: TensorType, a: Index, b: Index) -> tuple[int, int] | None:
    """Dimensions of a and b where b's is full and the next one, or twice the one in which runs of b follow each other.

    `NOWHERE` when neither occurs; else None.
    """
    match [d for d, f in enumerate(use.forms) if a.name in f.names or b.name in f.names]:
        case []:
            return NOWHERE
        case [one]:
            runs = use.forms[one].coefficient(a.name) == b.range * use.forms[one].coefficient(b.name)
            return (one, one) if runs else None
        case [first, second]:
            return (first, second) if _are_one(use, whole, first, second, a, b) else None
        case _:
            return None


def _are_one(use: Use, whole: TensorType, first: int, second: int, a: Index, b: Index) -> bool:
    """The two dimensions, which a and b walk, lie in memory as one."""
    plain = _in_blocks(use.forms[first], a) and use.forms[second] == Affine.var(b.name)
    full = whole.sizes[second] == b.range
    packed = whole.strides[first] == whole.strides[second] * b.range
    between = all(whole.sizes[d] == 1 for d in range(first + 1, second))
    return plain and full and packed and between


def _in_blocks(form: Affine, loop: Index) -> bool:
    """The loop walks a dimension from anywhere on, or runs of it that other loops choose, none of which overlap."""
    others = [c for n, c in form.terms if n != loop.name]
    return form.coefficient(loop.name) == 1 and all(abs(c) >= loop.range for c in others)


def _merged(view: KernelView, pairs: dict[int, Pair], dims: Dims) -> KernelView:
    """Each stage in `pairs` with its pair as one loop; shared loops are the pair of all stages."""
    touched = {buffer: at for buffer, at in dims.items() if at != NOWHERE}

    def moved(stage: Stage, a: Index, b: Index) -> Stage:
        uses = tuple(_merged_use(u, touched.get(u.buffer), a, b) for u in stage.uses)
        constraints = tuple(_bound(c, a, b) for c in stage.constraints)
        return replace(stage, uses=uses, constraints=constraints, loops=_joined(stage.loops, a, b))

    stages = tuple(moved(s, *pairs[k]) if k in pairs else s for k, s in enumerate(view.stages))
    a, b = next(iter(pairs.values()))
    return replace(
        view,
        loops=_joined(view.loops, a, b),
        constraints=tuple(_bound(c, a, b) for c in view.constraints),
        stages=stages,
        refs=tuple(_merged_ref(r, touched.get(r.into)) for r in view.refs),
        allocs=tuple(_merged_ref(r, touched.get(r.into)) for r in view.allocs),
    )


def _joined(loops: tuple[Index, ...], a: Index, b: Index) -> tuple[Index, ...]:
    both = replace(b, range=a.range * b.range)
    return tuple(both if i.name == b.name else i for i in loops if i.name != a.name)


def _merged_use(use: Use, dims: tuple[int, int] | None, a: Index, b: Index) -> Use:
    if dims is None:
        return use
    first, second = dims
    if not _joins(dims):
        rest = use.forms[first] - Affine.var(a.name, use.forms[first].coefficient(a.name))
        return replace(use, forms=(*use.forms[:first], rest, *use.forms[first + 1 :]))
    blocks = (use.forms[first] - Affine.var(a.name)) * b.range
    new = {first: Affine(), second: blocks + Affine.var(b.name)}
    return replace(use, forms=tuple(new.get(d, f) for d, f in enumerate(use.forms)))


def _merged_ref(ref: Refinement, dims: tuple[int, int] | None) -> Refinement:
    if dims is None or not _joins(dims):
        return ref
    first, second = dims
    sizes = list(ref.type.sizes)
    strides = list(ref.type.strides)
    sizes[second] *= sizes[first]
    sizes[first] = 1
    strides[first] = sizes[second] * strides[second]
    layout = Layout(tuple(strides), ref.type.layout.align)
    return replace(ref, type=TensorType(ref.type.dtype, tuple(sizes), layout))
