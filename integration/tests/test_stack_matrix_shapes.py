"""Convolutions and their gradients as the benchmark draws them: teams of sub-groups can multiply every one of many channels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import pytest
import tile_runtime as tile
from hal_opencl.families import family_target
from stack import ROOT
from tile_ir.dtype import DType
from tile_ir.matrix import MATRIX_INSTRUCTIONS, WGMMA
from tile_ir.program.nodes import Program, TensorType
from tile_ir.target import Options, Target
from tile_opt.kernel.view import KernelView
from tile_opt.model.contraction import contraction
from tile_opt.passes.kernels.tensor_tile import TensorTile
from tile_opt.pipeline import schedule
from tile_opt.plan.checks import loops_are_known, operands_are_known
from tile_opt.translate import to_stripe

LEAST = 32
"""Channels."""
SEED = 2026
PLANS = 40
"""Of each kernel: they name what it has, so that they fit an equal one, too."""


def target(*, teams: bool) -> Target:
    """A graphics processor whose compiler takes matrix instructions, for a user who allows them; of teams or none."""
    base = family_target("gpu-nvidia").resolved(cores=132)
    names = tuple(i.name for i in WGMMA) if teams else ()
    nodes = base.nodes | {"MatrixLoad", "Mma", "TeamMma"}
    assert set(names) <= set(MATRIX_INSTRUCTIONS)
    return replace(base, matrix=names, nodes=nodes, options=Options(reduced_precision=teams))


def drawn(name: str, count: int) -> Iterator[tuple[str, Program]]:
    """Cases of a class with many channels on both sides, bound."""
    from classes.gpu import CLASSES

    class_ = CLASSES[name]
    wide = (c for c in class_.cases(name, SEED) if min(int(c.values["ci"]), int(c.values["co"])) >= LEAST)
    for _, case in zip(range(count), wide, strict=False):
        function = tile.Function(case.work.tile)
        made = tile.vjp(function, wrt=case.work.gradients) if case.work.gradients else function
        types = [TensorType(DType(case.work.dtype_of(n)), s) for n, s in case.work.inputs.items()]
        yield case.name, made.bind(dict(zip(made.inputs, types, strict=True)))


def sums(program: Program) -> Iterator[KernelView]:
    """The contractions of a program, as the passes that choose a plan see them."""
    plain = target(teams=False)
    decisions = schedule(to_stripe(program), plain).decisions
    added = {name for decision in decisions.values() for name in decision.made[1:]}
    for name, decision in decisions.items():
        if name not in added and contraction(decision.view) is not None:
            yield decision.view


@pytest.mark.parametrize(("name", "kernels"), [("matrix convs", 1), ("matrix gradients", 2)])
def test_teams_can_multiply_what_is_drawn(name: str, kernels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "integration" / "bench"))
    able = target(teams=True)
    for case, program in drawn(name, 2):
        found = list(sums(program))
        assert len(found) == kernels, case
        for view in found:
            plans = list(islice(TensorTile().candidates(view, able), PLANS))
            assert plans and all(plan.instruction is not None for plan in plans), f"{case}: {view.name}"
            wrong = [f for p in plans for check in (loops_are_known, operands_are_known) for f in check(view, p, able)]
            assert not wrong, f"{case}: {view.name} {wrong}"
