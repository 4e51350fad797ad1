"""Whole programs on a device: compile, fill inputs, run, compare with the reference evaluator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import tile_lang
import tile_opt
from tile_ir.dtype import DType
from tile_ir.kernels import BufferKind
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import Program, TensorType

import tile_hal
from tile_hal.conformance import tolerance
from tile_hal.conformance.buffers import Guarded, check_guards, download, guarded
from tile_hal.conformance.kernels import assert_same, hard_values
from tile_hal.conformance.strategies import Case, Data
from tile_hal.interfaces import Device

Array = npt.NDArray[Any]


def bind(source: str, types: Mapping[str, TensorType]) -> Program:
    return tile_lang.bind(tile_lang.parse(source), types)


def run(device: Device, program: Program, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Compile `program` for the device and run it; outputs by public name."""
    compiled = tile_opt.compile(program, device.target)
    kernels = compiled.kernels
    library = device.compiler.build(kernels)
    buffers: dict[int, Guarded] = {}
    numbers: dict[str, int] = {}
    for info in kernels.buffers:
        if info.kind is BufferKind.INPUT:
            buffers[info.id] = guarded(device, info.name, inputs[info.name])
        elif info.kind is BufferKind.OUTPUT:
            # Garbage first: a cell that nothing writes would show.
            buffers[info.id] = guarded(device, info.name, np.full(info.bytes, 0x5A, np.uint8))
            numbers[info.name] = info.id
    tile_hal.submit(device, library, kernels, {n: made.buffer for n, made in buffers.items()}).wait()
    check_guards(buffers.values())
    types = program.types()
    results: dict[str, Array] = {}
    for (public, value), name in zip(program.outputs, compiled.stripe.outputs, strict=True):
        type_ = types[value]
        results[public] = download(buffers[numbers[name]].buffer, type_.dtype)[: type_.size].reshape(type_.shape)
    return results


def check_case(device: Device, case: Case) -> None:
    """The device's outputs of a drawn program against `tile_lang.evaluate`."""
    program = bind(case.source, case.inputs)
    inputs = {name: fill(t, case.data, case.seed + n) for n, (name, t) in enumerate(case.inputs.items())}
    expected = tile_lang.evaluate(program, inputs)
    actual = run(device, program, inputs)
    for name, wanted in expected.items():
        bound = _bound(case, inputs, wanted, program.types()[dict(program.outputs)[name]].dtype)
        if bound is None:
            assert_same(actual[name].reshape(-1), wanted.reshape(-1), name)
        else:
            tolerance.assert_close(actual[name], wanted, bound, name)


def _bound(case: Case, inputs: Mapping[str, Array], expected: Array, dtype: DType) -> Array | None:
    """Allowed error of each output element; None for exact."""
    if case.data is not Data.REAL or case.agg not in (Aggregation.SUM, Aggregation.PROD):
        return None
    terms = _evaluate_float64(case, {n: np.ones(a.shape) for n, a in inputs.items()}, sums=True)
    if case.agg is Aggregation.PROD:
        return tolerance.product_bound(terms, dtype.accumulator, dtype, expected)
    absolute = _evaluate_float64(case, {n: np.abs(a.astype(np.float64)) for n, a in inputs.items()}, sums=True)
    return tolerance.sum_bound(terms, absolute, dtype.accumulator, dtype, expected)


def _evaluate_float64(case: Case, inputs: Mapping[str, Array], sums: bool) -> Array:
    """The case's contraction, summing, in float64: of ones it counts terms, of magnitudes it sums them."""
    source = case.source.replace("= *(", "= +(") if sums else case.source
    types = {name: TensorType(DType.FLOAT64, t.shape) for name, t in case.inputs.items()}
    return tile_lang.evaluate(bind(source, types), inputs)["O"]


def fill(type_: TensorType, data: Data, seed: int) -> Array:
    """Values of a type for a kind of data."""
    random = np.random.default_rng(seed)
    dtype, shape = type_.dtype, type_.shape
    if dtype is DType.BOOL:
        return random.integers(0, 2, shape).astype(bool)
    if data is Data.REAL and dtype.is_float:
        # Near one: long products stay in range.
        return (random.normal(0, 1, shape) + random.choice([-1.01, 0.0, 0.99], shape)).astype(dtype.numpy)
    if data is Data.SIGNS:
        return random.integers(-1 if dtype.is_float or dtype.is_signed else 0, 2, shape).astype(dtype.numpy)
    signed = dtype.is_float or dtype.is_signed
    small = random.choice([1, 2, 3, 4, 0, *([-1, -2, -3, -4] if signed else [])], shape).astype(dtype.numpy)
    if data is Data.SPECIAL:
        odd = random.choice(hard_values(dtype, 24, seed), shape)
        if dtype.is_float:
            odd = np.where(np.isfinite(odd.astype(np.float64)), small, odd)
        return np.where(random.random(shape) < 0.15, odd, small).astype(dtype.numpy)
    return small
