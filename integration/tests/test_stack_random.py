"""Random programs: reference evaluator = Stripe interpreter = semtree interpreter = every device.

With the target's passes, without any, and in random order. The target is a machine small enough that
small tensors meet every kind of tile; programs are exact on their data or compared within proved bounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tile_hal
import tile_lang
import tile_opt
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from stack import Array, bind, on_device, on_stripe
from tile_hal.conformance import strategies, tolerance
from tile_hal.conformance.kernels import assert_same
from tile_hal.conformance.programs import (
    _bound as allowed,  # pyright: ignore[reportPrivateUsage]
)
from tile_hal.conformance.programs import fill
from tile_hal.conformance.strategies import Case
from tile_hal.interfaces import Device
from tile_ir.dtype import DType
from tile_ir.semtree.verify import OPTIONAL_NODES
from tile_ir.target import HardwareSettings, PassConfig, Target

SMALL = HardwareSettings(vec_size=4, vector_bytes=16, registers=16, l1_bytes=256, l2_bytes=1024, l3_bytes=64, cores=2)
PASSES = tile_hal.device("interp").target.passes or tile_hal.device("llvm").target.passes
DEVICES = [d for d in tile_hal.devices() if d.capabilities.executes]
QUICK = ("interp", "llvm")
"""Drivers whose compilers are quick enough for every program; others see one in so many, with all passes."""
ONE_IN = 10


def target(device: Device, passes: tuple[PassConfig, ...]) -> Target:
    """A tiny machine whose kernels `device` can run: small groups, so that work is split."""
    small = tuple(
        replace(p, options={**p.options, "group_ops": 64}) if p.name == "schedule_kernels" else p for p in passes
    )
    nodes = device.target.nodes if device.target.nodes else OPTIONAL_NODES & device.capabilities.nodes
    return Target("small", SMALL, passes=small, nodes=nodes)


def orders(draw: st.DrawFn) -> dict[str, tuple[PassConfig, ...]]:
    """Pass lists by name: none, the target's, and a random choice in random order."""
    shuffled = draw(st.permutations(PASSES))
    return {"no passes": (), "all passes": PASSES, "shuffled": tuple(shuffled[: draw(st.integers(1, len(PASSES)))])}


def agree(case: Case, lists: Mapping[str, tuple[PassConfig, ...]]) -> None:
    program = bind(case.source, case.inputs)
    inputs = {name: fill(t, case.data, case.seed + n) for n, (name, t) in enumerate(case.inputs.items())}
    expected = tile_lang.evaluate(program, inputs)
    types = program.types()
    bounds = {public: allowed(case, inputs, expected[public], types[value].dtype) for public, value in program.outputs}

    def check(actual: Mapping[str, Array], where: str) -> None:
        for name, wanted in expected.items():
            what = f"{name} on {where}"
            assert actual[name].dtype == wanted.dtype and actual[name].shape == wanted.shape, what
            bound = bounds[name]
            if bound is None:
                assert_same(actual[name].reshape(-1), wanted.reshape(-1), what)
            else:
                tolerance.assert_close(actual[name], wanted, bound, what)

    for label, passes in lists.items():
        for device in DEVICES:
            if device.id.partition(":")[0] not in QUICK and (case.seed % ONE_IN or passes is not PASSES):
                continue
            compiled = tile_opt.compile(program, target(device, passes), verify=True)
            if device is DEVICES[0]:
                check(on_stripe(compiled, inputs), f"the Stripe interpreter, {label} {_names(passes)}")
            check(on_device(device, compiled, inputs), f"{device.id}, {label} {_names(passes)}")


def _names(passes: tuple[PassConfig, ...]) -> str:
    return "[" + ", ".join(p.name for p in passes) + "]"


@st.composite
def experiments(draw: st.DrawFn, kind: str, dtypes: tuple[DType, ...]) -> tuple[Case, dict[str, Any]]:
    return draw(getattr(strategies, kind)(dtypes)), orders(draw)


def explore(kind: str, dtypes: tuple[DType, ...], examples: int) -> None:
    @settings(max_examples=examples, suppress_health_check=list(HealthCheck), phases=(Phase.generate, Phase.shrink))
    @given(experiments(kind, dtypes))
    def run(experiment: tuple[Case, dict[str, Any]]) -> None:
        agree(*experiment)

    run()


COMMON = tuple(t for t in DType if all(t in d.capabilities.dtypes for d in DEVICES))
GROUPS = {
    "floats": tuple(t for t in COMMON if t.is_float),
    "whole numbers": tuple(t for t in COMMON if not t.is_float),
    "float32": (DType.FLOAT32,),
    "every dtype": COMMON,
}


def test_there_are_passes_and_devices_to_compare() -> None:
    assert len(PASSES) >= 3
    assert {"interp:0", "llvm:0"} <= {d.id for d in DEVICES}


@pytest.mark.parametrize("group", GROUPS)
def test_contractions(group: str) -> None:
    explore("contractions", GROUPS[group], 15)


@pytest.mark.parametrize("group", ["float32", "every dtype"])
def test_elementwise(group: str) -> None:
    explore("elementwise", tuple(t for t in GROUPS[group] if t is not DType.BOOL), 8)


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_many_contractions(group: str) -> None:
    explore("contractions", GROUPS[group], 1500)


@pytest.mark.slow
def test_many_elementwise() -> None:
    explore("elementwise", COMMON, 800)


def test_a_wrong_answer_would_show() -> None:
    """The comparison is not vacuous: one changed value fails."""
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        assert_same(np.array([1.0, 2.0]), np.array([1.0, 2.5]), "O")
