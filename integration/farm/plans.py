"""Plans that nobody would choose, and those that the compiler weighed."""

from __future__ import annotations

from itertools import islice
from random import Random

from tile_ir.stripe.nodes import Bind, Scope
from tile_ir.target import Target
from tile_opt.passes.scheduling import Decision
from tile_opt.plan.plan import Across, Cover, Edge, Level, Plan, Reduction, Staging

CPU_BINDS = (Bind.GRID, Bind.NONE, Bind.NONE, Bind.UNROLL, Bind.VECTOR)
GPU_BINDS = (Bind.GRID, Bind.GROUP, Bind.NONE, Bind.UNROLL, Bind.VECTOR)


def drawn(decision: Decision, target: Target, random: Random) -> Plan:
    """A plan of the decision's kernel: half of the time one that the compiler considers, else anything."""
    if random.random() < 0.5:
        others = list(islice(decision.others(target), 8))
        if others:
            return random.choice(others)
    return _anything(decision, GPU_BINDS if target.settings.threads > 1 else CPU_BINDS, random)


def _anything(decision: Decision, binds: tuple[Bind, ...], random: Random) -> Plan:
    left = dict(decision.view.ranges)
    levels = [_level(bind, left, random) for bind in random.choices(binds, k=random.randrange(6))]
    if random.random() < 0.8:
        levels.sort(key=lambda level: binds.index(level.bind))
    loops = sorted(decision.view.ranges) or ["none"]
    own = [loop.name for stage in decision.view.stages for loop in stage.loops] or ["none"]
    operands = sorted({u.buffer for s in decision.view.stages for u in s.uses}) or ["none"]
    stagings = [_staging(operands, len(levels), loops, random)] if random.random() < 0.4 else []
    reductions = {
        name: Reduction(name, random.choice((Across.LANES, Across.SERIAL, *Across)), random.randrange(1, 7))
        for name in random.sample(own, min(len(own), random.choice((0, 0, 1, 2))))
    }
    edges = [(n, random.choice([*Edge])) for n in random.sample(loops, min(len(loops), random.choice((0, 0, 1, 2))))]
    return Plan(tuple(levels), tuple(stagings), tuple(reductions.values()), tuple(edges))


def _level(bind: Bind, left: dict[str, int], random: Random) -> Level:
    """Covers no more than the level outside it, most often."""
    covers: list[Cover] = []
    for name in random.sample(sorted(left), min(len(left), random.choice((0, 1, 1, 2)))):
        left[name] = random.randrange(1, max(left[name], 1) + 1) if random.random() < 0.9 else random.randrange(1, 21)
        covers.append(Cover(name, left[name]))
    return Level(bind, tuple(covers), random.choice((1, 4, 4, 2)) if bind is Bind.VECTOR else 1)


def _staging(operands: list[str], levels: int, loops: list[str], random: Random) -> Staging:
    order = tuple(random.sample(loops, min(len(loops), random.randrange(3))))
    level = random.randrange(-1, max(1, levels))
    unit, scope = random.choice(("L2", "REG", "LOCAL")), random.choice((Scope.THREAD, Scope.GROUP))
    return Staging(random.choice(operands), level, unit, order, scope, random.randrange(3))
