"""Loops that count the same cells differently: ``R[8*g + o]`` in one stage, ``R[i]`` in another.

A grouped contraction may come out of the analysis with a loop over groups and one over members, while the stage that
starts its cells, and whatever reads them, have one loop over both. Split into the same digits, they can be shared.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from tile_ir.frozen import frozen, replace
from tile_ir.names import claim
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Index, number_of

from tile_opt.kernel.view import KernelView, Stage, is_parallel, written_uses


@frozen
class _Spelling:
    """A loop of a stage is to become loops of these ranges, outermost first."""

    stage: int
    loop: str
    ranges: tuple[int, ...]


def dense_digits(form: Affine, stage: Stage, size: int) -> tuple[Index, ...]:
    """The stage's loops, outermost first, whose mixed-radix number is the form and counts from 0 to `size`; () for others."""
    if form.const or not form.terms:
        return ()
    if len(form.terms) == 1:  # most are
        ((name, step),) = form.terms
        return tuple([i for i in stage.loops if i.name == name and i.range == size]) if step == 1 else ()
    loops = {i.name: i for i in stage.loops}
    if any(n not in loops for n in form.names):
        return ()
    terms = sorted(((c, loops[n]) for n, c in form.terms), key=lambda t: -t[0])
    found = tuple(i for _, i in terms)
    return found if form == number_of(found) and prod(i.range for i in found) == size else ()


def same_digits(view: KernelView) -> KernelView:
    """`view` with loops split where another stage has several loops for the same cells of a buffer."""
    while (found := next(_spellings(view), None)) is not None:
        view = _split(view, found)
    return view


def _spellings(view: KernelView) -> Iterator[_Spelling]:
    """Single loops beside several ones over the same dimension of a buffer that some stage writes."""
    written = written_uses(view.stages)
    for buffer in sorted(written):
        uses = [(k, u) for k, u in written[buffer] if not u.extent]
        for d, size in enumerate(view.type_of(buffer).sizes if len(uses) > 1 else ()):
            if not any(len(u.forms[d].terms) > 1 for _, u in uses):
                continue
            counted = [(k, dense_digits(u.forms[d], view.stages[k], size)) for k, u in uses]
            ranges = next((tuple(i.range for i in loops) for _, loops in counted if len(loops) > 1), ())
            single = ((k, loops[0]) for k, loops in counted if len(loops) == 1 and is_parallel(loops[0]))
            yield from (_Spelling(k, loop.name, ranges) for k, loop in single if ranges)


def _split(view: KernelView, spelling: _Spelling) -> KernelView:
    taken = view.taken
    stage = view.stages[spelling.stage]
    digits = tuple(Index(claim(spelling.loop, taken), n) for n in spelling.ranges)
    place = stage.loop_names.index(spelling.loop)
    loops = (*stage.loops[:place], *digits, *stage.loops[place + 1 :])
    made = replace(stage.substitute({spelling.loop: number_of(digits)}), loops=loops)
    return replace(view, stages=tuple(made if s is stage else s for s in view.stages))
