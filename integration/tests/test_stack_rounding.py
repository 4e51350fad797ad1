"""Certified bounds on rounding errors hold: random programs on real data, beside float64, on every device."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import tile_hal
import tile_lang
import tile_opt
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from stack import Array, bind, on_device, on_stripe
from test_stack_proofs import TARGETS
from tile_hal.conformance import strategies
from tile_hal.conformance.programs import fill
from tile_hal.conformance.strategies import Case, Data
from tile_ir.dtype import DType
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import Contraction, Elementwise, Literal, Param, Program, Reshape, TensorType
from tile_opt.compiled import Compiled
from tile_opt.explain import ErrorReport, errors

DTYPES = (DType.FLOAT32, DType.FLOAT32, DType.FLOAT16)
DEVICES = [d for d in tile_hal.devices() if d.capabilities.executes]
ONE_IN = 10
"""Programs that devices with slow compilers get one of."""
AFTER = (
    "R = {0};", "R = {0} * E;", "R = {0} + E;", "R = {0} - E;", "R = {0} / (E * E + 1);", "R = {0} > 0 ? {0} : 0;", "R = max({0}, E);",
    "T = exp(E); R = {0} * T;", "R = tanh(E) - {0};", "T = 1 / (1 + exp(-E)); R = T * {0};", "R = sqrt({0} * {0});", "R = abs({0}) / 3;",
    "R = tanh({0} * {0});", "T = E * E; R = {0} / sqrt(T + 0.5);",
    "T = exp(({0} - E) * 0.125); R = T * E;", "T = exp({0} * 0.125); R = log(T + 1) - E;", "T = exp({0} - {0} * 0.5); R = T / (T + 1);",
)  # fmt: skip


@st.composite
def programs(draw: st.DrawFn) -> Case:
    """A contraction of real numbers, and operations on its result."""
    sums = strategies.contractions(DTYPES).filter(lambda c: c.data is Data.REAL and "= *(" not in c.source)
    case = draw(sums)
    element = bind(case.source, case.inputs).types()["O"]
    inputs = {**case.inputs, "E": element}
    dims = ", ".join(f"E{n}" for n in range(len(element.shape)))
    source = case.source.replace(") -> (O) {", f", E[{dims}]) -> (R) {{")
    return replace(
        case,
        source=f"{source.rstrip().removesuffix('}')}    {draw(st.sampled_from(AFTER)).format('O')}\n}}",
        inputs=inputs,
    )


@dataclass
class Exact:
    """A program's values in float64, and those of its expressions with every input and difference made positive."""

    values: dict[str, Array]
    sizes: dict[str, Array] = field(default_factory=dict[str, Array])
    exponent: float = 0.0
    """The largest exponent, of absolute values."""

    @staticmethod
    def of(source: str, inputs: dict[str, Array]) -> tuple[Program, Exact]:
        wide = {n: a.astype(np.float64) for n, a in inputs.items()}
        program = bind(source, {n: TensorType(DType.FLOAT64, a.shape) for n, a in inputs.items()})
        ops: list[Any] = list(program.ops)
        every = replace(program, outputs=tuple((op.name, op.name) for op in ops))
        made = Exact({**wide, **tile_lang.evaluate(every, wide)}, {n: np.abs(a) for n, a in wide.items()})
        for op in ops:
            made.sizes[op.name] = made.size(op)
        return program, made

    def size(self, op: Any) -> Array:
        match op:
            case Contraction():
                return self._summed(op)
            case Elementwise(_, _, fn, args):
                return self._applied(op.name, fn, [self._operand(a, self.sizes) for a in args], args)
            case Reshape():
                return self.sizes[op.arg].reshape(op.type.shape)
            case _:
                return np.abs(self.values[op.name])

    def _summed(self, op: Contraction) -> Array:
        positive = tuple(replace(s, fn="add") if s.fn == "sub" else s for s in op.body)
        agg = Aggregation.MAX if op.agg is Aggregation.MIN else op.agg
        names = {n for n in (*(load.tensor for load in op.loads), op.default) if isinstance(n, str)}
        params = tuple(Param(n, TensorType(DType.FLOAT64, self.sizes[n].shape)) for n in sorted(names))
        program = Program("size", params, (replace(op, body=positive, agg=agg),), ((op.name, op.name),))
        return tile_lang.evaluate(program, {n: self.sizes[n] for n in names})[op.name]

    def _applied(self, name: str, fn: str, sizes: list[Array], args: Any) -> Array:
        match fn:
            case "add" | "sub":
                return sizes[0] + sizes[1]
            case "mul":
                return sizes[0] * sizes[1]
            case "div":
                return sizes[0] / np.abs(self._operand(args[1], self.values))
            case "max" | "min":
                return np.maximum(*sizes)
            case "cond":
                return np.maximum(sizes[1], sizes[2]) + 0 * sizes[0]
            case "exp":
                self.exponent = max(self.exponent, float(np.max(sizes[0], initial=0.0)))
                return np.abs(self.values[name])
            case "log":
                return 1 + np.abs(self.values[name])
            case "neg" | "abs" | "ident" | "relu":
                return sizes[0]
            case _:
                return np.abs(self.values[name])

    @staticmethod
    def _operand(arg: Any, table: dict[str, Array]) -> Array:
        return np.abs(np.float64(arg.value)) if isinstance(arg, Literal) else table[arg].astype(np.float64)


SEEN: Counter[str] = Counter()
LOOSE: list[float] = []


def holds(bound: ErrorReport, got: Array, value: Array, size: Array, exponent: float, where: str) -> None:
    """The error is within the bound; how loose that is, is kept."""
    factor = bound.factor_for(exponent)
    assert factor is not None
    finite = np.isfinite(value) & np.isfinite(got)
    error = np.where(finite, np.abs(got.astype(np.float64) - value), 0.0)
    relative = {"exact": 0.0 * size, "value": np.abs(value), "terms": size}[bound.relation]
    # What underflows is not part of the statement; float64's own error is.
    tiny = float(np.finfo(got.dtype).smallest_normal)
    allowed = np.where(relative > 0, factor * relative, 0.0) + 1e-13 * size + tiny
    bad = ~(error <= allowed) & finite
    assert not bad.any(), f"{where}: {bound.text}, error {error[bad][0]!r}, allowed {allowed[bad][0]!r}"
    worst = float(np.max(np.where(relative > tiny, error / np.maximum(relative, tiny), 0.0), initial=0.0))
    if np.isfinite(factor) and factor and worst:
        LOOSE.append(factor / worst)


def agree(case: Case, target: str) -> None:
    inputs = {name: fill(t, Data.REAL, case.seed + n) for n, (name, t) in enumerate(case.inputs.items())}
    program = bind(case.source, case.inputs)
    wide, exact = Exact.of(case.source, inputs)
    values = dict(wide.outputs)

    def check(compiled: Compiled, got: dict[str, Array], where: str) -> None:
        for bound in errors(compiled):
            SEEN[bound.relation] += 1
            if bound.relation != "none":
                name = values[bound.output]
                value, size = exact.values[name], exact.sizes[name]
                holds(bound, got[bound.output], value, size, exact.exponent, f"{where}\n{case}")

    compiled = tile_opt.compile(program, TARGETS[target])
    check(compiled, on_stripe(compiled, inputs), f"the Stripe interpreter, {target}")
    for device in DEVICES:
        if not device.id.startswith("opencl") or case.seed % ONE_IN == 0:
            compiled = tile_opt.compile(program, device.target)
            check(compiled, on_device(device, compiled, inputs), device.id)


def explore(examples: int) -> None:
    SEEN.clear()
    LOOSE.clear()

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), phases=(Phase.generate,))
    @given(programs(), st.sampled_from(sorted(TARGETS)))
    def run(case: Case, target: str) -> None:
        agree(case, target)

    run()
    assert SEEN["none"] <= 0.2 * sum(SEEN.values()), SEEN


def test_bounds_are_never_exceeded(capsys: pytest.CaptureFixture[str]) -> None:
    explore(20)
    with capsys.disabled():
        print(f"\nbounds {dict(SEEN)}; bound / largest error: median {np.median(LOOSE):.1f}, least {min(LOOSE):.2f}")
    assert min(LOOSE) >= 1.0
    assert np.median(LOOSE) < 1000


@pytest.mark.slow
def test_many_bounds_are_never_exceeded() -> None:
    explore(5000)
