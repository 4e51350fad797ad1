"""Orders of loops that walk what lies afar as it lies in memory."""

from __future__ import annotations

from collections.abc import Collection
from math import prod

from tile_opt.kernel.view import Use
from tile_opt.kernel.work import nbytes
from tile_opt.plan.space.cpu.facts import Facts, Operand
from tile_opt.plan.space.cpu.operands import SHALLOW

RUN = 512
"""Bytes from which on a run is long."""


def is_streamed(facts: Facts) -> bool:
    """The result does not stay in the second cache, and steps are few beside it."""
    written = max((nbytes(facts.view.type_of(u.buffer)) for u in facts.memory_uses() if u.writes), default=0)
    return written > facts.cache(2).bytes and max((o.rows for o in facts.operands), default=0) <= SHALLOW


def walked(facts: Facts) -> dict[str, int] | None:
    """Strides of an operand from afar beside which all others stay in the first cache: it is read once, as it lies."""
    largest = max(facts.operands, key=lambda o: o.elements * o.bytes)
    others = sum(o.elements * o.bytes for o in facts.operands if o is not largest)
    afar = largest.elements * largest.bytes > facts.cache(2).bytes
    return _steps(facts, largest.use) if afar and others <= facts.cache(1).bytes // 2 else None


def in_pieces(facts: Facts, order: list[str], sizes: Collection[str]) -> dict[str, int] | None:
    """Strides of the largest buffer from afar, where a loop around the tile's takes pieces of rows that the tile's walk.

    Each piece is waited for, or lies in a page of its own. None where what tiles of whole rows meet again does not stay near.
    """
    near = facts.cache(2).bytes // 2
    largest = max(facts.memory_uses(), key=lambda u: nbytes(facts.view.type_of(u.buffer)))
    steps, tiled = _steps(facts, largest), [n for n in order if n in sizes]
    around = [n for n in order if n not in sizes and facts.extents[n] > 1]
    if nbytes(facts.view.type_of(largest.buffer)) <= 2 * near:
        return None
    if not any(steps[n] < steps[t] for n in around for t in tiled):
        return None
    return _in_sequence(facts, order, largest)


def in_windows(facts: Facts, order: list[str]) -> dict[str, int] | None:
    """Strides of the largest operand, whose elements are met again by neighbours' windows alone: in this order they are near yet.

    None where what all of it meets again does not stay near.
    """
    if not facts.operands or not all(facts.is_free(n) or facts.extents[n] == 1 for n in order):
        return None
    return _in_sequence(facts, order, max(facts.operands, key=lambda o: o.elements * o.bytes).use)


def _in_sequence(facts: Facts, order: list[str], largest: Use) -> dict[str, int] | None:
    """Strides of a buffer, where what others' elements are met again after stays near while loops walk it as it lies in memory."""
    steps = _steps(facts, largest)
    inwards = sorted(order, key=lambda n: -steps[n])
    again = sum(_met_again(facts, o, inwards) for o in facts.operands if o.use != largest)
    return steps if again <= facts.cache(2).bytes // 2 else None


def _met_again(facts: Facts, operand: Operand, order: list[str]) -> int:
    """Bytes of an operand that lie between two looks at the same element, where loops have this order."""
    first = next((k for k, n in enumerate(order) if n not in operand.strides and facts.extents[n] > 1), None)
    inside = [n for n in operand.strides if first is not None and (n not in order or order.index(n) > first)]
    reach = {abs(operand.strides[n]): 1 for n in inside}
    for n in inside:
        reach[abs(operand.strides[n])] += facts.extents[n] - 1
    return prod(reach.values()) * operand.bytes if inside else 0


def _steps(facts: Facts, use: Use) -> dict[str, int]:
    """Elements between neighbouring iterations of shared loops."""
    return {n: abs(facts.stride(use, n)) for n in facts.shared}


def largest_result(facts: Facts) -> Use:
    """The access to the largest buffer of main that the kernel writes."""
    return max((u for u in facts.memory_uses() if u.writes), key=lambda u: nbytes(facts.view.type_of(u.buffer)))


def as_written(facts: Facts, order: list[str], sizes: Collection[str]) -> list[str]:
    """Loops with those of the tile innermost, in the order in which the largest result lies in memory."""
    out = largest_result(facts)
    tiled = sorted((n for n in order if n in sizes), key=lambda n: -abs(facts.stride(out, n)))
    return [*(n for n in order if n not in sizes), *tiled]


def neighbours(facts: Facts, sums: int) -> tuple[str, int] | None:
    """A shared loop from one short run of an operand in memory to the next, and as many runs of `sums` registers as had better go together.

    That is where the next step of a sum lies pages away: nothing fetches it ahead, and long runs are waited for less often.
    """
    large = [o for o in facts.operands if o.elements * o.bytes > facts.settings.l3_bytes // 4]
    if len(large) != 1 or not any(_from_page_to_page(facts, large[0], n) for n in facts.main.loop_names):
        return None
    found, run = _next_run(facts, large[0])
    if found is None or run < facts.lanes or found in facts.constrained or not facts.is_free(found):
        return None
    room = facts.settings.registers * 3 // 4 // sums
    count = min(-(-RUN // (run * large[0].bytes)), room, facts.extents[found])
    return (found, count) if count > 1 else None


def _next_run(facts: Facts, operand: Operand) -> tuple[str | None, int]:
    """The shared loop from one run of neighbours to the next, which begins where the last one ends, and elements of a run."""
    run = 1
    for name, stride in sorted(operand.strides.items(), key=lambda item: abs(item[1])):
        if abs(stride) != run:
            break
        if name in facts.shared:
            return name, run
        run *= facts.extents[name]
    return None, run


def _from_page_to_page(facts: Facts, operand: Operand, loop: str) -> bool:
    return abs(operand.strides.get(loop, 0)) * operand.bytes >= facts.pages()
