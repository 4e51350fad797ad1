"""Matrix instructions on whole stacks: the schedules on every device that runs groups, the instructions where they exist."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
import tile_hal
import tile_opt
import tile_runtime as tile
from stack import Array, bind, on_device
from tile_hal.interfaces import Device
from tile_ir.dtype import DType
from tile_ir.machine import LocalMemory, Machine, Occupancy
from tile_ir.matrix import MMA, WGMMA
from tile_ir.program.nodes import TensorType
from tile_ir.target import Options, PassConfig, Target

MATMUL = {
    "nn": "function (A[M, K], B[K, N]) -> (R) { R[i, j : M, N] = +(A[i, k] * B[k, j]); }",
    "tn": "function (A[K, M], B[K, N]) -> (R) { R[i, j : M, N] = +(A[k, i] * B[k, j]); }",
    "nt": "function (A[M, K], B[N, K]) -> (R) { R[i, j : M, N] = +(A[i, k] * B[j, k]); }",
}
"""``op(A) @ op(B)``: which of them is transposed."""
BIAS_RELU = """function (A[M, K], B[K, N], V[N]) -> (R) {
    P[i, j : M, N] = +(A[i, k] * B[k, j]); Q = P + V; R = (Q > 0 ? Q : 0);
}"""
DTYPES = (DType.FLOAT32, DType.BFLOAT16, DType.FLOAT16)
ITEMS = 128
"""Work items of a group of four warps."""
PASSES = tuple(PassConfig(n) for n in ("inline", "fuse", "merge", "accumulate", "tensor_tile", "gpu_tile"))
LOCAL = 18432
"""Bytes of local memory for the smallest tile, of 32 by 32, so that small products have several groups."""


@pytest.fixture(autouse=True)
def quick_builds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """PoCL takes two thirds of its time for optimizing these kernels; for those of teams it takes longer without."""
    if "teams" not in request.node.name:
        monkeypatch.setenv("POCL_EXTRA_BUILD_FLAGS", "-cl-opt-disable")


def gpu(device: Device) -> Target:
    """A GPU with instructions of one sub-group that has the device's nodes: what it lacks of them is rewritten."""
    able = device.capabilities
    if "Barrier" not in able.nodes or able.max_group_size < ITEMS:
        pytest.skip(f"device has no groups of {ITEMS} work items")
    hardware = replace(
        device.target.settings,
        threads=256,
        cores=1,  # groups that share sums make several kernels
        vec_size=4,
        use_global=False,
        max_regs=65536,
        index_bits=32,
        static_local_bytes=LOCAL,
    )
    return Target(
        "gpu", hardware, machine=Machine(occupancy=Occupancy()), passes=PASSES, nodes=able.nodes,
        matrix=tuple(i.name for i in MMA), options=Options(reduced_precision=True),
    )  # fmt: skip


def need(device: Device, dtype: DType) -> None:
    if dtype not in device.capabilities.dtypes:
        pytest.skip(f"device has no {dtype}")


def operands(layout: str, dtype: DType, sizes: tuple[int, int, int], seed: int = 0) -> dict[str, Array]:
    m, n, k = sizes
    rng = np.random.default_rng(seed)
    a, b = ((m, k), (k, m))[layout[0] == "t"], ((k, n), (n, k))[layout[1] == "t"]
    return {name: rng.standard_normal(s).astype(dtype.numpy) for name, s in {"A": a, "B": b}.items()}


def straight(layout: str, inputs: Mapping[str, Array]) -> tuple[Array, Array]:
    """The operands as they are multiplied."""
    return inputs["A"].T if layout[0] == "t" else inputs["A"], inputs["B"].T if layout[1] == "t" else inputs["B"]


def tf32(x: Array) -> Array:
    """Rounded to ten mantissa bits, away from zero in a tie, by their bits; 16-bit floats have no more."""
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)


def near(got: Array, operands: tuple[Array, Array], share: float) -> None:
    """`got` is the product of the operands in TF32, within a share of ``|left| @ |right|`` and a rounding of its dtype."""
    left, right = (tf32(x) for x in operands)
    want, size = left @ right, np.abs(left) @ np.abs(right)
    step = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}[str(got.dtype)]
    worst = np.max(np.abs(got.astype(np.float64) - want) / (share * size + step * np.abs(want)))
    assert worst <= 1, f"{worst:.2f} times what is allowed"


def run(device: Device, target: Target, source: str, inputs: Mapping[str, Array]) -> Array:
    """R of the one kernel that the program is for the target, on the device."""
    program = bind(source, {n: TensorType(DType(str(x.dtype)), x.shape) for n, x in inputs.items()})
    compiled = tile_opt.compile(program, target, verify=True)
    (kernel,) = compiled.kernels.kernels
    assert kernel.function is not None and np.prod(kernel.function.group_size) == ITEMS
    return on_device(device, compiled, inputs)["R"]


# --- the schedules, everywhere -----------------------------------------------------------------------


@pytest.mark.diagonal(3)
@pytest.mark.parametrize("layout", MATMUL)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_schedule_on_a_device(device: Device, dtype: DType, layout: str) -> None:
    """TF32 products to the last bits; those of the interpreter, but where hardware adds up in its own order."""
    need(device, dtype)
    target, interpreter = gpu(device), tile_hal.device("interp")
    inputs = operands(layout, dtype, (40, 24, 48))
    got = run(device, target, MATMUL[layout], inputs)
    near(got, straight(layout, inputs), 1e-6)
    if device is not interpreter and "Mma" not in device.capabilities.nodes:
        assert got.tobytes() == run(interpreter, gpu(interpreter), MATMUL[layout], inputs).tobytes()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_follows_a_product_on_a_device(device: Device, dtype: DType) -> None:
    need(device, dtype)
    inputs = operands("nn", dtype, (40, 24, 32)) | {"V": np.linspace(-1, 1, 24).astype(dtype.numpy)}
    got = run(device, gpu(device), BIAS_RELU, inputs).astype(np.float64)
    product, bias = tf32(inputs["A"]) @ tf32(inputs["B"]), inputs["V"].astype(np.float64)
    step = {DType.FLOAT32: 1e-6, DType.FLOAT16: 2.0**-10, DType.BFLOAT16: 2.0**-7}[dtype]
    np.testing.assert_allclose(got, np.maximum(product + bias, 0), rtol=0, atol=step * np.abs(product).max())


def test_the_schedule_of_teams_on_a_device(device: Device) -> None:
    """Swizzled panels in local memory, along the reduction and across it, and zeros behind the end of the sum."""
    need(device, DType.BFLOAT16)
    target = gpu(device)
    if device.id.startswith("interp"):
        pytest.skip("minutes: the optimizer's tests have smaller ones")
    local = LocalMemory(bytes=64 << 10)
    teams = replace(target, machine=replace(target.machine, local=local), matrix=tuple(i.name for i in WGMMA))
    inputs = operands("nn", DType.BFLOAT16, (72, 40, 136))
    program = bind(MATMUL["nn"], {n: TensorType(DType(str(x.dtype)), x.shape) for n, x in inputs.items()})
    compiled = tile_opt.compile(program, teams, verify=True)
    assert "wgmma" in str(compiled.stripe)
    near(on_device(device, compiled, inputs)["R"], straight("nn", inputs), 1e-6)


BYTES = "{ P = as_int(A, 32); Q = as_int(B, 32); R[i, j : M, N] = +(P[i, k] * Q[%s]); }"


@pytest.mark.parametrize(
    ("first", "second", "right"), [(np.int8, np.int8, "j, k"), (np.uint8, np.int8, "k, j")], ids=["nt", "nn"]
)
def test_bytes_by_teams_on_a_device(device: Device, first: type, second: type, right: str) -> None:
    """Exact, and no user has to allow it; rows that run across the reduction are copied before."""
    target = gpu(device)
    if device.id.startswith("interp"):
        pytest.skip("minutes: the optimizer's tests have smaller ones")
    local = LocalMemory(bytes=64 << 10)
    machine = replace(target.machine, local=local)
    teams = replace(target, machine=machine, matrix=tuple(i.name for i in WGMMA), options=Options())
    sides = {"k, j": "B[K, N]", "j, k": "B[N, K]"}
    rng = np.random.default_rng(1)
    a, b = (rng.integers(*limits(d), s, d, endpoint=True) for d, s in ((first, (72, 136)), (second, (136, 40))))
    inputs = {"A": a, "B": b if right == "k, j" else b.T.copy()}
    source = f"function (A[M, K], {sides[right]}) -> (R) {BYTES % right}"
    program = bind(source, {n: TensorType(DType(str(x.dtype)), x.shape) for n, x in inputs.items()})
    compiled = tile_opt.compile(program, teams, verify=True)
    assert "wgmma" in str(compiled.stripe)
    np.testing.assert_array_equal(on_device(device, compiled, inputs)["R"], a.astype(np.int32) @ b.astype(np.int32))


def limits(dtype: type) -> tuple[int, int]:
    """The smallest and the largest value."""
    return np.iinfo(dtype).min, np.iinfo(dtype).max


def test_a_retargeted_stage_on_a_device(device: Device) -> None:
    """The way of the runtime: a lowered function, its target exchanged."""
    target = gpu(device)
    inputs = operands("nn", DType.FLOAT32, (40, 24, 32))
    lowered = tile.Function(MATMUL["nn"]).lower(*inputs.values(), device=device).retargeted(target)
    assert "mma_m16n8k8_tf32" in str(lowered.stripe)
    near(on_device(device, lowered.compiled, inputs)["R"], (inputs["A"], inputs["B"]), 1e-6)


# --- evaluators --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_reduced_precision_changes_nothing_without_matrix_instructions(device: Device, dtype: DType) -> None:
    need(device, dtype)
    if device.target.matrix:
        pytest.skip("device has matrix instructions")
    inputs = operands("nn", dtype, (40, 24, 32))
    function = tile.Function(MATMUL["nn"])
    plain, reduced = (tile.Evaluator(device, reduced_precision=r)(function, *inputs.values()) for r in (False, True))
    assert plain.tobytes() == reduced.tobytes()


def native(device: Device) -> None:
    if "Mma" not in device.capabilities.nodes or not device.target.matrix:
        pytest.skip("device has no matrix instructions")


@pytest.mark.parametrize("sizes", [(256, 256, 256), (200, 120, 96)], ids=["even", "ragged"])
@pytest.mark.parametrize("layout", MATMUL)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_instructions(device: Device, dtype: DType, layout: str, sizes: tuple[int, int, int]) -> None:
    """Hardware adds up products in an order and with roundings of its own."""
    native(device)
    inputs = operands(layout, dtype, sizes)
    evaluator, function = tile.Evaluator(device, reduced_precision=True), tile.Function(MATMUL[layout])
    assert "mma_m" in str(evaluator.lower(function, *inputs.values()).stripe)
    near(evaluator(function, *inputs.values()), straight(layout, inputs), 2e-6)


@pytest.mark.parametrize("layout", MATMUL)
def test_precision_is_kept_unless_it_may_be_reduced(device: Device, layout: str) -> None:
    native(device)
    inputs = operands(layout, DType.FLOAT32, (256, 256, 256))
    evaluator, function = tile.Evaluator(device), tile.Function(MATMUL[layout])
    assert "mma_m" not in str(evaluator.lower(function, *inputs.values()).stripe)
    left, right = (x.astype(np.float64) for x in straight(layout, inputs))
    got = evaluator(function, *inputs.values())
    np.testing.assert_allclose(got, left @ right, rtol=0, atol=1e-5 * np.abs(left @ right).max())
    assert np.abs(tf32(left) @ tf32(right) - left @ right).max() > 1e-4 * np.abs(left @ right).max()
