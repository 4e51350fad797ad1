"""Own loops of different stages that walk the same row get one name, so that a plan can say how all of them are split."""

from __future__ import annotations

from dataclasses import replace

from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Index

from tile_opt.kernel.unify import plain_loop
from tile_opt.kernel.view import KernelView, Stage

Dimension = tuple[str, int]
"""A dimension of a buffer."""


def alike(view: KernelView) -> KernelView:
    """`view` with stages' own loops renamed: equal extents, along the same dimensions of buffers where there is a choice."""
    known: dict[str, tuple[Index, set[Dimension]]] = {}
    stages: list[Stage] = []
    for stage in view.stages:
        names: dict[str, str] = {}
        for loop in stage.loops:
            walked = _walked(view, stage, loop)
            name = _same(known, loop, walked, set(names.values())) or _fresh(loop.name, set(known))
            index, seen = known.get(name, (replace(loop, name=name), set[Dimension]()))
            known[name] = (index, seen | walked)
            names[loop.name] = name
        stages.append(_renamed(stage, names))
    return replace(view, stages=tuple(stages))


def _walked(view: KernelView, stage: Stage, loop: Index) -> set[Dimension]:
    """Dimensions that the loop alone walks from end to end."""
    return {
        (use.buffer, d)
        for use in stage.uses
        for d, (form, size) in enumerate(zip(use.forms, view.type_of(use.buffer).sizes, strict=True))
        if plain_loop(form, stage, size) == loop.name
    }


def _same(
    known: dict[str, tuple[Index, set[Dimension]]], loop: Index, walked: set[Dimension], used: set[str]
) -> str | None:
    """The known loop of the same kind that walks the most of the same dimensions."""
    fits = {
        name: len(seen & walked)
        for name, (index, seen) in known.items()
        if name not in used and replace(index, name=loop.name) == loop
    }
    return max(fits, key=lambda name: fits[name], default=None)


def _fresh(name: str, taken: set[str]) -> str:
    return next(n for n in (name, *(f"{name}_{k}" for k in range(1, len(taken) + 2))) if n not in taken)


def _renamed(stage: Stage, names: dict[str, str]) -> Stage:
    if all(old == new for old, new in names.items()):
        return stage
    moved = stage.substitute({old: Affine.var(new) for old, new in names.items()})
    return replace(moved, loops=tuple(replace(i, name=names[i.name]) for i in stage.loops))
