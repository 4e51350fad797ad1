"""Which loops of several stages may run as one shared loop around all of them.

Two loops are the same when a buffer that passes between the stages is subscripted by them, plainly and
over its full extent, in the same dimension. A class of equal loops may be shared when every buffer that
the group writes is private to one iteration of it: then its iterations are independent, and a temporary
loses that dimension.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise

from tile_ir.frozen import frozen
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Index, TensorType

from tile_opt.kernel.bodies import facts
from tile_opt.kernel.digits import dense_digits
from tile_opt.kernel.view import KernelView, Stage, Use, Uses, is_parallel, written_uses

Loop = tuple[int, str]
"""A loop of a stage: (stage number, loop name)."""


@frozen
class SharedLoop:
    """Equal loops, one per stage, that may become one loop around all stages."""

    index: Index
    members: tuple[str, ...]
    """The loop's name in each stage."""


def shared_loops(view: KernelView) -> tuple[SharedLoop, ...]:
    """The loops that may be shared by all stages, in the order of the widest stage."""
    stages, types = view.stages, {r.into: r.type for r in (*view.refs, *view.allocs)}
    uses = written_uses(stages)
    # What one stage alone writes at data moves with the loops of its other dimensions.
    several = (access for accesses in uses.values() if len(accesses) > 1 for access in accesses)
    if any(is_indirect(stages[k], use) and not _within_lines(use, types[use.buffer]) for k, use in several):
        return ()
    classes, poisoned = _classes(stages, types, uses)
    widest = max(range(len(stages)), key=lambda k: len(stages[k].loops))
    found: list[SharedLoop] = []
    for loop in stages[widest].loops:
        root = classes.find((widest, loop.name))
        members = _one_per_stage(classes.members(root), stages)
        if members is None or root in poisoned or not _alike(members, stages):
            continue
        if _private_to_each_iteration(members, stages, types, uses):
            found.append(SharedLoop(loop, members))
    return _whole_numbers(tuple(found), uses)


def _within_lines(use: Use, whole: TensorType) -> bool:
    """Data chooses within lines of the buffer: the dimensions before are loops' own, and may go around."""
    last = max((d for d, n in enumerate(use.extent) if n == 1 < whole.sizes[d]), default=-1)
    return use.extent != () and all(n == 1 for n in use.extent[:last])


def _whole_numbers(found: tuple[SharedLoop, ...], written: Uses) -> tuple[SharedLoop, ...]:
    """The loops without those that are a digit of a subscript whose other digits are not shared."""
    shared = [{loop.members[k] for loop in found} for k in range(len(found[0].members))] if found else []
    split = {
        (k, n)
        for uses in written.values()
        for k, use in uses
        for form in (use.forms if found and len(uses) > 1 else ())
        for n in form.names
        if not set(form.names) <= shared[k]
    }
    kept = tuple(loop for loop in found if not any((k, n) in split for k, n in enumerate(loop.members)))
    return kept if len(kept) == len(found) else _whole_numbers(kept, written)


class _Classes:
    """Union-find over loops."""

    def __init__(self, loops: Iterable[Loop]) -> None:
        self._parent: dict[Loop, Loop] = {loop: loop for loop in loops}

    def find(self, loop: Loop) -> Loop:
        while self._parent[loop] != loop:
            loop = self._parent[loop]
        return loop

    def union(self, a: Loop, b: Loop) -> None:
        self._parent[self.find(a)] = self.find(b)

    def members(self, root: Loop) -> list[Loop]:
        return [loop for loop in self._parent if self.find(loop) == root]


def _classes(stages: tuple[Stage, ...], types: Mapping[str, TensorType], written: Uses) -> tuple[_Classes, set[Loop]]:
    classes = _Classes((k, loop.name) for k, stage in enumerate(stages) for loop in stage.loops)
    broken: list[Loop] = []
    for buffer, uses in written.items():
        if len(uses) == 1:
            continue
        for d, size in enumerate(types[buffer].sizes):
            if size == 1:
                continue
            counted = [(k, dense_digits(use.forms[d], stages[k], size)) for k, use in uses]
            for digits in zip(*([(k, i.name) for i in loops] for k, loops in counted if loops), strict=False):
                for a, b in pairwise(digits):
                    classes.union(a, b)
            if len({tuple(i.range for i in loops) for _, loops in counted}) > 1 or not all(
                loops for _, loops in counted
            ):
                broken += [(k, n) for k, use in uses for n in use.forms[d].names if (k, n) in classes._parent]  # pyright: ignore[reportPrivateUsage]
    return classes, {classes.find(loop) for loop in broken}


def plain_loop(form: Affine, stage: Stage, size: int) -> str | None:
    """The loop that alone, unscaled and over its full extent, forms this subscript."""
    if form.const or len(form.terms) != 1 or form.terms[0][1] != 1:
        return None
    name = form.terms[0][0]
    return next((loop.name for loop in stage.loops if loop.name == name and loop.range == size), None)


def _one_per_stage(members: list[Loop], stages: tuple[Stage, ...]) -> tuple[str, ...] | None:
    if sorted(k for k, _ in members) != list(range(len(stages))):
        return None
    return tuple(name for _, name in sorted(members))


def _alike(members: tuple[str, ...], stages: tuple[Stage, ...]) -> bool:
    loops = [next(i for i in s.loops if i.name == n) for s, n in zip(stages, members, strict=True)]
    first = loops[0]
    return all(i.range == first.range and is_parallel(i) for i in loops)


def _private_to_each_iteration(
    members: tuple[str, ...], stages: tuple[Stage, ...], types: Mapping[str, TensorType], written: Uses
) -> bool:
    """Each written buffer is subscripted by the class, the same way wherever it is used."""
    for buffer, uses in written.items():
        if len(uses) == 1:
            ((k, use),) = uses
            if not is_atomic(stages[k], use) and not moves_alone(use, members[k], stages[k]):
                return False
            continue
        dims = {_dims(use, members[k], stages[k], types[buffer]) for k, use in uses}
        if len(dims) != 1 or not next(iter(dims)):
            return False
    return True


def moves_alone(use: Use, name: str, stage: Stage) -> bool:
    """Iterations of the loop touch cells of their own: a dimension that it subscripts has a form that never repeats."""
    ranges = {i.name: i.range for i in stage.loops}
    direct = (f for d, f in enumerate(use.forms) if not use.extent or use.extent[d] == 1)
    return any(name in form.names and never_repeats(form, ranges) for form in direct)


def never_repeats(form: Affine, ranges: Mapping[str, int]) -> bool:
    """A mixed-radix number, such as ``y0 + 2*y1`` with y0 below 2: every combination of loops gives another value."""
    reach = 1
    for coefficient, name in sorted((abs(c), n) for n, c in form.terms):
        if coefficient < reach or name not in ranges:
            return False
        reach = coefficient * ranges[name]
    return True


def _dims(use: Use, name: str, stage: Stage, whole: TensorType) -> tuple[tuple[int, int], ...]:
    """Dimensions that `name` alone subscripts, or as a digit of their number, and its place value; none where it does otherwise."""
    found = [(d, form.coefficient(name)) for d, form in enumerate(use.forms) if name in form.names]
    alone = all(len(use.forms[d].terms) == 1 or dense_digits(use.forms[d], stage, whole.sizes[d]) for d, _ in found)
    return tuple(found) if alone else ()


def is_indirect(stage: Stage, use: Use) -> bool:
    """The body adds subscripts of its own to this access."""
    return use.name in facts(stage.body).indirect


def is_atomic(stage: Stage, use: Use) -> bool:
    """Any iterations may merge into the same cell of it at once."""
    return use.name in facts(stage.body).atomic
