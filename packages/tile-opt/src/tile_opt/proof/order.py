"""Which points of a site run before those of another, in the one order that loops and barriers allow.

Threads of a group advance together, so that their numbers order nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from tile_ir.stripe.affine import Affine

from tile_opt.proof.sites import THREADS, Form, Site
from tile_opt.proof.spaces import Relation, Spaces, isl


def before(spaces: Spaces, one: Site, at: Sequence[int], other: Site, then: Sequence[int]) -> Relation | None:
    """From points of a site to those of another that run later, a statement `at` in the one and `then` in the other.

    None where none do.
    """
    first, second = list[Form](), list[Form]()
    threads = {loop.name for site in (one, other) for loop in site.loops if loop.bind in THREADS}
    for a, b in zip((*one.time, *at), (*other.time, *then), strict=False):
        if isinstance(a, int) and isinstance(b, int):
            if a != b:
                return _ordered(spaces, (one, first), (other, second), at_once=a < b)
        elif a not in threads and b not in threads:
            first.append(_form(a))
            second.append(_form(b))
    return _ordered(spaces, (one, first), (other, second), at_once=False)


def _form(step: int | str) -> Form:
    return (Affine.var(step) if isinstance(step, str) else Affine((), step),)


def _ordered(
    spaces: Spaces, first: tuple[Site, list[Form]], second: tuple[Site, list[Form]], at_once: bool
) -> Relation | None:
    """By their loops; `at_once`: also within the same iterations of these."""
    (one, steps), (other, others) = first, second
    if not steps:
        return isl.Map.from_domain_and_range(spaces.domain(one), spaces.domain(other)) if at_once else None
    times = spaces.forms(one, steps), spaces.forms(other, others)
    return times[0].lex_le_map(times[1]) if at_once else times[0].lex_lt_map(times[1])
