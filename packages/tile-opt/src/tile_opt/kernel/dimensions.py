"""A kernel that makes a buffer, with the dimensions that one which reads it sees: neighbouring ones may be one for either of them."""

from __future__ import annotations

from collections.abc import Iterator

from tile_ir.frozen import frozen, replace
from tile_ir.names import claim
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Index, Refinement, TensorType

from tile_opt.kernel.view import KernelView, Stage, Use


@frozen
class _Cut:
    """A loop of the maker as loops along several dimensions."""

    loops: tuple[Index, ...]
    value: Affine


def with_dimensions(maker: KernelView, ref: Refinement) -> KernelView:
    """`maker`, of one stage that walks each dimension by a loop, writing the dimensions of `ref`; as it is where it cannot."""
    (stage,) = maker.stages
    out = next(u for u in stage.uses if u.writes)
    own = maker.type_of(out.buffer)
    shares = list(_shares(own, ref.type))
    if out.buffer != ref.into or own.sizes == ref.type.sizes or any(s is None for s in shares):
        return maker
    taken = set(stage.loop_names)
    whole = {i.name: i for i in stage.loops}
    cuts: dict[str, _Cut] = {}
    forms = [Affine()] * len(ref.type.sizes)
    for form, stride, share in zip(out.forms, own.strides, shares, strict=True):
        for name in form.names:
            cuts[name] = _cut(whole[name], ref.type, share or (), stride, taken)
            for dim, loop in zip(share or (), cuts[name].loops, strict=True):
                forms[dim] = Affine.var(loop.name)
    made = replace(maker, stages=(_walked(stage, out, tuple(forms), cuts),))
    refs = (
        replace(r, type=ref.type, access=(Affine(),) * len(forms)) if r.into == out.buffer else r for r in made.refs
    )
    return replace(made, refs=tuple(refs))


def _shares(own: TensorType, wanted: TensorType) -> Iterator[tuple[int, ...] | None]:
    """For each dimension of `own` those of `wanted` that it is; None where it is none of them."""
    rest = [d for d, size in enumerate(wanted.sizes) if size > 1]
    for size, stride in zip(own.sizes, own.strides, strict=True):
        share: list[int] = []
        count = 1
        while rest and count < size:
            share.append(rest.pop(0))
            count *= wanted.sizes[share[-1]]
        steps = [wanted.strides[d] for d in share]
        follow = all(a == wanted.sizes[d] * b for a, b, d in zip(steps, steps[1:], share[1:], strict=False))
        fits = count == size and follow and (not share or steps[-1] == stride)
        yield tuple(share) if fits else None
    if rest:
        yield None


def _cut(loop: Index, type: TensorType, share: tuple[int, ...], stride: int, taken: set[str]) -> _Cut:
    loops = tuple(replace(loop, name=claim(loop.name, taken), range=type.sizes[d]) for d in share)
    steps = {i.name: type.strides[d] // stride for i, d in zip(loops, share, strict=True)}
    return _Cut(loops, Affine.of(steps))


def _walked(stage: Stage, out: Use, forms: tuple[Affine, ...], cuts: dict[str, _Cut]) -> Stage:
    """The stage by the loops of `cuts`."""
    moved = stage.substitute({name: cut.value for name, cut in cuts.items()})
    uses = tuple(replace(u, forms=forms) if u.name == out.name else u for u in moved.uses)
    others = (i for i in stage.loops if i.name not in cuts)
    return replace(moved, loops=(*(i for cut in cuts.values() for i in cut.loops), *others), uses=uses)
