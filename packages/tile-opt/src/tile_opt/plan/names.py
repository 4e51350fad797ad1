"""The loop and operand names that a plan mentions, and renaming a plan for an equal kernel."""

from __future__ import annotations

from collections.abc import Mapping

from tile_ir.frozen import frozen, replace

from tile_opt.kernel.view import KernelView
from tile_opt.plan.plan import Plan


@frozen
class Names:
    """Loops and buffers of a kernel by their order; equal kernels have as many of each."""

    loops: tuple[str, ...]
    buffers: tuple[str, ...]

    @staticmethod
    def of(view: KernelView) -> Names:
        own = [loop.name for stage in view.stages for loop in stage.loops]
        used = [use.buffer for stage in view.stages for use in stage.uses]
        return Names((*(loop.name for loop in view.loops), *own), tuple(used))


def operands(view: KernelView) -> tuple[str, ...]:
    """The buffers that a plan of the kernel may stage, each once."""
    return tuple(dict.fromkeys(Names.of(view).buffers))


def numbered(names: Names) -> Names:
    """Names that only say which loop and which buffer, the same for all equal kernels."""
    return Names(_numbered(names.loops, "loop{}"), _numbered(names.buffers, "buffer{}"))


def _numbered(names: tuple[str, ...], form: str) -> tuple[str, ...]:
    order = list(dict.fromkeys(names))
    return tuple(form.format(order.index(name)) for name in names)


def renamed(plan: Plan, old: Names, new: Names) -> Plan | None:
    """`plan` with names of `old` replaced by those of `new`; None where one name would have to become two."""
    loops, buffers = _table(old.loops, new.loops), _table(old.buffers, new.buffers)
    if loops is None or buffers is None:
        return None
    return _renamed(plan, loops, buffers)


def _table(old: tuple[str, ...], new: tuple[str, ...]) -> Mapping[str, str] | None:
    pairs = set(zip(old, new, strict=False))
    unique = len({a for a, _ in pairs}) == len({b for _, b in pairs}) == len(pairs)
    return dict(pairs) if unique and len(old) == len(new) else None


def _renamed(plan: Plan, loops: Mapping[str, str], buffers: Mapping[str, str]) -> Plan:
    def loop(name: str) -> str:
        return loops.get(name, name)

    levels = tuple(
        replace(level, covers=tuple(replace(c, loop=loop(c.loop)) for c in level.covers)) for level in plan.levels
    )
    stagings = tuple(
        replace(s, operand=buffers.get(s.operand, s.operand), order=tuple(map(loop, s.order))) for s in plan.stagings
    )
    instruction = plan.instruction
    if instruction is not None:
        instruction = replace(instruction, loops=tuple((role, loop(name)) for role, name in instruction.loops))
    return replace(
        plan,
        levels=levels,
        stagings=stagings,
        reductions=tuple(replace(r, loop=loop(r.loop)) for r in plan.reductions),
        edges=tuple((loop(name), edge) for name, edge in plan.edges),
        instruction=instruction,
    )
