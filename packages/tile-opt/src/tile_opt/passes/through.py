"""Prologue fusion: elementwise producers are computed while their consumer copies the operand into local memory.

Then nobody reads what the first kernel writes, and it is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tile_ir.dots import WORD
from tile_ir.frozen import frozen, replace
from tile_ir.names import claim
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Block, Direction, Index, Program, Refinement, TensorType

from tile_opt.blocks.buffers import drop_unused_temporaries, fixed_kernels, in_the_way, temporaries, users, wholes
from tile_opt.blocks.tree import kernels_of, with_kernels
from tile_opt.kernel.inlining import producer_of
from tile_opt.kernel.strides import flat_stride
from tile_opt.kernel.view import KernelView, Stage, Use, open_kernel


def made_for_one(program: Program) -> Mapping[str, KernelView]:
    """By buffer the kernel that makes it, all loops its stage's own, where one later kernel alone reads it."""
    return {buffer: view for _, buffer, view in _makers(program)}


def seen_alike(view: KernelView, ref: Refinement, maker: KernelView) -> KernelView | None:
    """`maker` as the kernel sees what it writes; None where one of them sees something else that both name in another way.

    Kernels may see neighbouring dimensions of a buffer as one: the maker's loops are cut where the kernel has several.
    """
    maker = with_dimensions(maker, ref)
    known = {r.into: (r.source, r.type.sizes, r.type.strides) for r in view.refs}
    mine = {r.into: (r.source, r.type.sizes, r.type.strides) for r in maker.refs}
    plain = ref.dir is Direction.IN and all(into == source for into, (source, _, _) in mine.items())
    alike = plain and ref.into == ref.source and all(known.get(name, seen) == seen for name, seen in mine.items())
    return maker if alike else None


def without_unread(program: Program, made: Mapping[str, KernelView]) -> Program:
    """`program` without the kernels of `made` whose results nobody reads any more."""
    named, kernels = users(program), kernels_of(program)
    makers = {view.name: buffer for buffer, view in made.items()}
    writers = ((k, makers.get(kernel.name)) for k, kernel in enumerate(kernels) if isinstance(kernel, Block))
    unread = {k for k, buffer in writers if buffer is not None and named[buffer] == frozenset({k})}
    kept = tuple(kernel for k, kernel in enumerate(kernels) if k not in unread)
    return drop_unused_temporaries(with_kernels(program, kept)) if unread else program


def _makers(program: Program) -> Iterator[tuple[int, str, KernelView]]:
    kernels, named = kernels_of(program), users(program)
    temps, fixed, parts = temporaries(program), fixed_kernels(program), wholes(program)
    for k, kernel in enumerate(kernels):
        view = _flat(kernel) if isinstance(kernel, Block) and k not in fixed else None
        out = producer_of(view, temps) if view is not None else None
        if view is None or out is None or len(named[out.buffer]) != 2 or _gathers(view, out):
            continue
        reader = max(named[out.buffer])
        if reader > k and not in_the_way(kernels[k + 1 : reader], view.reads(), view.writes(), parts):
            yield k, out.buffer, view


def _gathers(view: KernelView, out: Use) -> bool:
    """Rows of the result are made of elements that lie apart: that is done once, and not in each copy."""
    along = out.forms[-1].names if out.forms else ()
    reads = [(flat_stride(view, u, n), view.type_of(u.buffer).dtype) for u in view.uses if u.reads for n in along]
    return any(abs(stride) * dtype.bytes > WORD.bytes for stride, dtype in reads)


def _flat(kernel: Block) -> KernelView | None:
    """A kernel of one stage, all loops of which are its own."""
    view = open_kernel(kernel)
    return None if view is None else view.unshared()


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
