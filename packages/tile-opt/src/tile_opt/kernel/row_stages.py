"""The stages of a kernel over rows (`kernel.rows_in_steps`) in the order of what they do with rows, and the factors of its products by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tile_ir.names import claim
from tile_ir.stripe.affine import Affine, names_in
from tile_ir.stripe.nodes import Direction

from tile_opt.kernel.view import KernelView, Stage, Use

Products = Callable[[KernelView, Stage], bool]
"""Which stages are products: where a row has nothing in common with others, those of a matrix and a vector."""


def named_apart(view: KernelView, of: Products) -> KernelView:
    """Factors of products that lie in one buffer, such as keys beside values, under names of their own: each is copied by itself.

    Values that are keys, element by element, have the name of these: one copy serves both products.
    """
    refs, taken = {r.into: r for r in view.refs}, view.buffers
    keys, known, stages = dict[object, str](), set[str](), list[Stage]()
    for stage in view.stages:
        kind, names = kind_of(view, stage, of), dict[Use, str]()
        for use in (u for u in stage.uses if kind != BETWEEN and u.dir is Direction.IN and u.buffer in refs):
            place = use.buffer, _place(stage, use, kind)
            name = keys.get(place, "") if kind == WEIGHS else ""
            if not name:
                name = claim(use.buffer, taken) if use.buffer in known else use.buffer
                refs[name] = replace(refs[use.buffer], into=name)
                known.add(use.buffer)
            if kind == GIVES:
                keys.setdefault(place, name)
            names[use] = name
        stages.append(stage.map_uses(lambda use, names=names: replace(use, buffer=names[use]) if use in names else use))
    return replace(view, stages=tuple(stages), refs=tuple(refs.values()))


def _place(stage: Stage, use: Use, kind: int) -> tuple[Affine, ...]:
    """Where a factor lies, whatever its product calls the loop along the row, and the other one."""
    given = names_in(f for u in stage.uses if u.writes for f in u.forms)
    ranges = {i.name: i.range for i in stage.loops}
    own = dict.fromkeys(n for f in use.forms for n in f.names if n in ranges)
    alike = {n: Affine.var(f"{k} {(n in given) is (kind == GIVES)} {ranges[n]}") for k, n in enumerate(own)}
    return tuple(f.substitute(alike) for f in use.forms)


STARTS, GIVES, BETWEEN, WEIGHS, ENDS = range(5)
"""What stages do with rows, in order: they start sums, give rows, make others of them, or weigh with them; or they end all."""


def kind_of(view: KernelView, stage: Stage, of: Products) -> int:
    """Whether it is a product, of what is in memory, or of rows."""
    if not of(view, stage):
        return BETWEEN
    return WEIGHS if any(view.is_local(u.buffer) for u in stage.uses if u.reads and not u.writes) else GIVES


def in_order(view: KernelView, of: Products) -> Iterator[Stage]:
    """The stages with products that give rows first, and those that weigh with what is made of these behind it.

    What starts sums comes first of all, and what goes on with those of the last products last.
    """
    kinds = [kind_of(view, s, of) for s in view.stages]
    sums = {u.buffer for s, kind in zip(view.stages, kinds, strict=True) if kind != BETWEEN for u in s.uses if u.writes}
    ends = {u.buffer for s, kind in zip(view.stages, kinds, strict=True) if kind == WEIGHS for u in s.uses if u.writes}
    for k, stage in enumerate(view.stages):
        reads, writes = {u.buffer for u in stage.uses if u.reads}, {u.buffer for u in stage.uses if u.writes}
        if kinds[k] == BETWEEN and reads & ends:
            kinds[k] = ENDS
            ends |= writes
        elif kinds[k] == BETWEEN and not reads and writes <= sums:
            kinds[k] = STARTS
    for kind in (STARTS, GIVES, BETWEEN, WEIGHS, ENDS):
        yield from (s for s, its in zip(view.stages, kinds, strict=True) if its == kind)
