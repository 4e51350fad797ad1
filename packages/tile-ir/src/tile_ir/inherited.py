"""Outputs in the memory of inputs that nobody needs any more: what only copies the one to the other goes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from tile_ir.kernels import KernelList, Loop, Step, Window

Pair = tuple[int, int]
"""An output, and the input whose memory it takes over."""


def takeable(kernels: KernelList, wanted: Iterable[Pair]) -> frozenset[Pair]:
    """Those of the pairs that a list allows: no output or input twice, and all that a step copies, or nothing of it."""
    found: dict[int, int] = {}
    for output, given in wanted:
        if (output, given) in kernels.inherits and output not in found and given not in found.values():
            found[output] = given
    pairs = frozenset(found.items())
    while cut := {pair for step in kernels.steps if not pairs.issuperset(step.copies) for pair in step.copies} & pairs:
        pairs -= cut
    return pairs


def inherited(kernels: KernelList, pairs: frozenset[Pair]) -> KernelList:
    """The list with outputs that hold what their inputs do when it begins; these inputs are gone.

    `pairs` are `takeable`. Steps that wrote an output wait for those that read its input.
    """
    output_of = {given: output for output, given in pairs}
    places: list[int | None] = []
    """Where each step is now; None: gone."""
    waits: list[frozenset[int]] = []
    """What waiting for each step means, in the old numbers."""
    steps: list[Step] = []
    readers = {output: set[int]() for output, _ in pairs}
    for number, step in enumerate(kernels.steps):
        after = frozenset(d for old in step.deps for d in waits[old])
        if step.copies and pairs.issuperset(step.copies):
            places.append(None)
            waits.append(after)
            continue
        after |= {n for b in step.buffers for n in readers.get(b, ())}
        for b in step.buffers:
            if b in output_of:
                readers[output_of[b]].add(number)
        deps = tuple(sorted(place for d in after if (place := places[d]) is not None))
        places.append(len(steps))
        waits.append(frozenset((number,)))
        steps.append(replace(_renamed(step, output_of), deps=deps))
    left = tuple(b for b in kernels.buffers if b.id not in output_of)
    rest = tuple(pair for pair in kernels.inherits if pair not in pairs)
    return replace(kernels, buffers=left, steps=tuple(steps), inherits=rest)


def _renamed(step: Step, names: Mapping[int, int]) -> Step:
    def new(numbers: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(names.get(n, n) for n in numbers)

    def window(w: Window) -> Window:
        return replace(w, first=new(w.first), cycle=new(w.cycle))

    loop = step.loop
    if loop is not None:
        loop = Loop(loop.count, tuple(map(window, loop.windows)), tuple(_renamed(s, names) for s in loop.steps))
    copies = tuple((names.get(a, a), names.get(b, b)) for a, b in step.copies)
    return replace(step, buffers=new(step.buffers), loop=loop, copies=copies)
