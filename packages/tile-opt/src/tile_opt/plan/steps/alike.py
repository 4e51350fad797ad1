"""Own loops of different stages that walk the same row get one name, so that a plan can say how all of them are split."""

from __future__ import annotations

from math import prod

from tile_ir.frozen import replace
from tile_ir.names import claim
from tile_ir.stripe.nodes import Index, number_of

from tile_opt.kernel.unify import plain_loop
from tile_opt.kernel.view import KernelView, Stage
from tile_opt.kernel.work import merged_use

Dimension = tuple[str, int]
"""A dimension of a buffer."""


def alike(view: KernelView) -> KernelView:
    """`view` with stages' own loops renamed: equal extents, along the same dimensions of buffers where there is a choice.

    The name is the one where the loop is reduced, if it is. A loop over all iterations of several loops of another stage
    becomes as many.
    """
    view = replace(view, stages=tuple(_apart(s, view) for s in view.stages))
    classes = _classes(view)
    names = _names(view, classes)
    stages = (
        s.renamed({i.name: names[number] for i, number in zip(s.loops, numbers, strict=True)})
        for s, numbers in zip(view.stages, classes, strict=True)
    )
    return replace(view, stages=tuple(stages))


def _apart(stage: Stage, view: KernelView) -> Stage:
    """The stage with its one loop as those of another stage, where none has a loop as long."""
    if len(stage.loops) != 1:
        return stage
    (loop,) = stage.loops
    ranges = [tuple(i.range for i in s.loops) for s in view.stages if s is not stage]
    several = next((r for r in ranges if len(r) > 1 and prod(r) == loop.range), None)
    if several is None or any(loop.range in r for r in ranges):
        return stage
    taken = {loop.name, *(i.name for i in view.loops)}
    parts = tuple(replace(loop, name=claim(loop.name, taken), range=r) for r in several)
    return replace(stage.substitute({loop.name: number_of(parts)}), loops=parts)


def _classes(view: KernelView) -> list[list[int]]:
    """For each stage the numbers of the classes that its loops belong to."""
    known: list[tuple[Index, set[Dimension]]] = []
    found: list[list[int]] = []
    for stage in view.stages:
        numbers: list[int] = []
        for loop in stage.loops:
            walked = _walked(view, stage, loop)
            number = _same(known, loop, walked, numbers)
            if number is None:
                number = len(known)
                known.append((loop, set()))
            known[number][1].update(walked)
            numbers.append(number)
        found.append(numbers)
    return found


def _names(view: KernelView, classes: list[list[int]]) -> dict[int, str]:
    members = [
        (number, not _reduces(s, i.name), i.name)
        for s, numbers in zip(view.stages, classes, strict=True)
        for i, number in zip(s.loops, numbers, strict=True)
    ]
    names: dict[int, str] = {}
    taken = {i.name for i in view.loops}
    for number, _, name in sorted(members, key=lambda m: m[:2]):
        if number not in names:
            names[number] = claim(name, taken)
    return names


def _reduces(stage: Stage, loop: str) -> bool:
    merged = merged_use(stage)
    return merged is not None and not any(loop in f.names for f in merged.forms)


def _walked(view: KernelView, stage: Stage, loop: Index) -> set[Dimension]:
    """Dimensions that the loop alone walks from end to end."""
    return {
        (use.buffer, d)
        for use in stage.uses
        for d, (form, size) in enumerate(zip(use.forms, view.type_of(use.buffer).sizes, strict=True))
        if plain_loop(form, stage, size) == loop.name
    }


def _same(
    known: list[tuple[Index, set[Dimension]]], loop: Index, walked: set[Dimension], used: list[int]
) -> int | None:
    """The known loop of the same kind that walks the most of the same dimensions."""
    fits = {
        number: len(seen & walked)
        for number, (index, seen) in enumerate(known)
        if number not in used and replace(index, name=loop.name) == loop
    }
    return max(fits, key=lambda number: fits[number], default=None)
