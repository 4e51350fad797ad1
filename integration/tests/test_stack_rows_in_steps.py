"""Attention as graphics processors are given it, one kernel that walks rows of scores piece by piece.

Some is run by an OpenCL device, some by the interpreter: PoCL takes half a minute to compile the largest kernels.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tile_autodiff
import tile_hal
import tile_opt
from hal_opencl.families import family_target
from stack import bind, on_device
from tile_hal.interfaces import Device
from tile_ir.dtype import DType
from tile_ir.emit.walker import walk_statements
from tile_ir.kernels import BufferKind
from tile_ir.matrix import MMA
from tile_ir.program.nodes import TensorType
from tile_ir.semtree.nodes import If
from tile_ir.target import Options, Target
from tile_opt.plan.space.gpu import rows_in_steps as space
from tile_opt.plan.space.tensor import rows_in_steps as tensor_space

Array = npt.NDArray[Any]
SOFTMAX = "M[b, g, s, z : B, G, S, 1] = >({x}[b, g, s, t]), z < 1; E = exp({x} - M); Z[b, g, s, z : B, G, S, 1] = +(E[b, g, s, t]), z < 1; Y = E / Z;"
CASES = {
    "biased": f"""function (Q[B, G, S, D], K[B, T, D], V[B, T, D], C[S, T]) -> (O) {{
        P[b, g, s, t : B, G, S, T] = +(Q[b, g, s, d] * K[b, t, d]); X = P + C; {SOFTMAX.format(x="X")}
        O[b, g, s, d : B, G, S, D] = +(Y[b, g, s, t] * V[b, t, d]); }}""",
    "heads inside, with the logarithm of the sums": f"""function (Q[B, S, G, D], K[B, T, D], V[B, T, D], C[S, T]) -> (O, L) {{
        P[b, g, s, t : B, G, S, T] = +(Q[b, s, g, d] * K[b, t, d]); X = C > 0 ? P : -1e30; {SOFTMAX.format(x="X")}
        L = M + log(Z); O[b, s, g, d : B, S, G, D] = +(Y[b, g, s, t] * V[b, t, d]); }}""",
}


def devices(driver: str = "opencl") -> list[Device]:
    return [d for d in tile_hal.devices(driver) if d.capabilities.executes]


def device_of(driver: str) -> Device:
    if found := devices(driver):
        return found[0]
    pytest.skip(f"no device of {driver}")


def expected(q: Array, k: Array, v: Array, x: Array) -> tuple[Array, Array]:
    """Of q with heads first and scores x: the result, and the logarithm of the sums of a row."""
    top = x.max(-1, keepdims=True)
    e = np.exp(x - top)
    return np.einsum("bgst,btd->bgsd", e / e.sum(-1, keepdims=True), v), top + np.log(e.sum(-1, keepdims=True))


def matrix_target(device: Device, names: tuple[str, ...]) -> Target:
    """A GPU with these matrix instructions that has the device's nodes: what it lacks of them is rewritten."""
    target = family_target("gpu-nvidia").resolved(cores=4)
    settings = replace(target.settings, static_local_bytes=1 << 17)
    nodes, options = device.capabilities.nodes, Options(reduced_precision=True)
    return replace(target, settings=settings, matrix=names, nodes=nodes, options=options)


ON_MATRICES = {
    "sub-groups": (tuple(i.name for i in MMA), {"WARPS": (2,), "TALL": (1,), "PIECES": (16,)}, (1, 2, 40, 133, 20)),
    "sub-groups, short rows": (
        tuple(i.name for i in MMA),
        {"WARPS": (2,), "TALL": (1,), "PIECES": (16,)},
        (1, 2, 40, 37, 20),
    ),
    "teams": (("wgmma_m64n64k16_f16",), {"PIECES": (64,)}, (1, 1, 40, 133, 64)),
    "teams, three panels": (("wgmma_m64n64k16_f16",), {"PIECES": (64,)}, (1, 1, 40, 133, 160)),
}
"""The instructions, options, and sizes with rows, scores and results left over."""
ARRIVAL = {"piece by piece": 1, "ahead": 2}
"""When what a piece reads arrives: versions of it in local memory."""


@pytest.mark.parametrize(
    ("name", "arrival", "driver"),
    [
        ("sub-groups", "ahead", "opencl"),
        ("sub-groups, short rows", "piece by piece", "interp"),
        ("teams", "piece by piece", "interp"),
        ("teams", "ahead", "interp"),
        pytest.param("teams, three panels", "piece by piece", "opencl", marks=pytest.mark.slow),
    ],
)
def test_values_of_short_floats_are_numpys_by_matrix_instructions(
    name: str, arrival: str, driver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = device_of(driver)
    monkeypatch.setattr("tile_opt.passes.kernels.join_rows.NEAR", 1e9)
    monkeypatch.setattr(tensor_space, "AHEAD", (ARRIVAL[arrival],))
    names, options, (b, g, s, t, d) = ON_MATRICES[name]
    for option, value in options.items():
        monkeypatch.setattr(tensor_space, option, value)
    random = np.random.default_rng(0)
    shapes = {"Q": (b, s, g, d), "K": (b, t, d), "V": (b, t, d), "C": (s, t)}
    inputs = {n: random.normal(0, 1, shape).astype(np.float16) for n, shape in shapes.items()}
    text = CASES["heads inside, with the logarithm of the sums"].replace("-1e30", "-30000")
    types = {n: TensorType(DType.FLOAT16, shape) for n, shape in shapes.items()}
    compiled = tile_opt.compile(bind(text, types), matrix_target(device, names), verify=True)
    assert len(compiled.kernels.steps) == 1, "one kernel"
    q, k, v = (inputs[n].astype(float) for n in "QKV")
    x = np.where(inputs["C"] > 0, np.einsum("bsgd,btd->bgst", q, k), -3e4)
    o, sums = expected(q.transpose(0, 2, 1, 3), k, v, x)
    found = on_device(device, compiled, inputs)
    np.testing.assert_allclose(found["O"].transpose(0, 2, 1, 3).astype(float), o, 2e-2, 2e-2)
    np.testing.assert_allclose(found["L"].astype(float), sums, 2e-2, 2e-2)


MASKED = """function (Q[B, H, S, D], K[B, H, T, D], V[B, H, T, D]) -> (O) {{
    P[b, h, s, t : B, H, S, T] = +(Q[b, h, s, d] * K[b, h, t, d]); C = P * 0.25; {0}
    M[b, h, s, z : B, H, S, 1] = >(X[b, h, s, t]), z < 1; {1} E = exp(X - N);
    Z[b, h, s, z : B, H, S, 1] = +(E[b, h, s, t]), z < 1; Y = E / Z;
    O[b, h, s, d : B, H, S, D] = +(Y[b, h, s, t] * V[b, h, t, d]); }}"""
GRADIENTS = {
    "all scores": ("X = C;", "N = M;"),
    "causal": ("X = index(P, 3) <= index(P, 2) ? C : -1.0 / 0.0;", "N = M;"),
    "a window": ("X = index(P, 3) <= index(P, 2) + 20 & index(P, 3) > index(P, 2) - 10 ? C : -1.0 / 0.0;", "N = M;"),
    "bounded": ("X = 3.0 * tanh(C / 3.0);", "N = M;"),
}  # fmt: skip


def reference_gradients(name: str, inputs: dict[str, Array]) -> list[Array]:
    """By the rules of differentiation, of rows that all see something, in float64."""
    q, k, v, g = (a.astype(float) for a in inputs.values())
    c = np.einsum("bhsd,bhtd->bhst", q, k) * 0.25
    s, t = np.indices(c.shape[2:])
    sees = {"causal": t <= s, "a window": (t <= s + 20) & (t > s - 10)}.get(name, t >= 0)
    x = np.where(sees, 3 * np.tanh(c / 3) if name == "bounded" else c, -np.inf)
    e = np.exp(x - x.max(-1, keepdims=True))
    y = e / e.sum(-1, keepdims=True)
    w = np.einsum("bhsd,bhtd->bhst", g, v)
    dx = y * (w - (w * y).sum(-1, keepdims=True))
    dp = dx * 0.25 * (1 - np.tanh(c / 3) ** 2 if name == "bounded" else 1)
    return [
        np.einsum("bhst,bhtd->bhsd", dp, k),
        np.einsum("bhst,bhsd->bhtd", dp, q),
        np.einsum("bhst,bhsd->bhtd", y, g),
    ]


@pytest.mark.parametrize(
    ("units", "name", "arrival", "driver"),
    [
        ("sub-groups", "all scores", "piece by piece", "interp"),
        pytest.param("sub-groups", "causal", "piece by piece", "opencl", marks=pytest.mark.slow),
        pytest.param("sub-groups", "a window", "ahead", "opencl", marks=pytest.mark.slow),
        ("sub-groups", "bounded", "ahead", "interp"),
        pytest.param("teams", "causal", "piece by piece", "opencl", marks=pytest.mark.slow),
        ("teams", "a window", "ahead", "interp"),
    ],
)
def test_gradients_keep_no_scores(
    units: str, name: str, arrival: str, driver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows, scores and results left over; groups and pieces for which nothing is left by the window."""
    device = device_of(driver)
    monkeypatch.setattr(tensor_space, "AHEAD", (ARRIVAL[arrival],))
    monkeypatch.setattr("tile_opt.passes.kernels.join_rows.NEAR", 1e9)
    names, options, _ = ON_MATRICES[units]
    for option, value in options.items():
        monkeypatch.setattr(tensor_space, option, value)
    b, h, s, t, d = (1, 2, 20, 37, 24) if units == "sub-groups" else (1, 1, 40, 70, 64)
    random = np.random.default_rng(0)
    shapes = {"Q": (b, h, s, d), "K": (b, h, t, d), "V": (b, h, t, d)}
    types = {n: TensorType(DType.FLOAT16, shape) for n, shape in shapes.items()}
    program = tile_autodiff.gradient(bind(MASKED.format(*GRADIENTS[name]), types), list(shapes))
    compiled = tile_opt.compile(program, matrix_target(device, names), verify=True)
    temporaries = [x.bytes for x in compiled.kernels.buffers if x.kind is BufferKind.TEMP]
    assert max(temporaries) < 2 * b * h * s * t, "nobody stores scores"
    (queries,) = (buffer.id for buffer in compiled.kernels.buffers if buffer.name == "Q")
    walks = [step for step in compiled.kernels.steps if queries in step.buffers]
    assert len(walks) == 2, "that of queries, with sums of its rows, and that of keys and values"
    assert len(compiled.kernels.steps) <= 4, "what elements of a row have in common, beside these"
    nested = [walk_statements(k.function.body) for k in compiled.kernels.kernels if k.function is not None]
    branches = sum(isinstance(statement, If) for statements in nested for statement in statements)
    assert units != "teams" or branches < t, "rows that are not there have a branch each, not one for every score"
    cotangent = random.normal(0, 1, shapes["Q"]).astype(np.float16)
    inputs = {n: random.normal(0, 1, shape).astype(np.float16) for n, shape in shapes.items()} | {"d_O": cotangent}
    found = on_device(device, compiled, inputs)
    for n, want in zip(shapes, reference_gradients(name, inputs), strict=True):
        np.testing.assert_allclose(found[f"d_{n}"].astype(float), want, 1e-2, 1e-2 * np.abs(want).max(), err_msg=n)


@pytest.mark.skipif(not devices(), reason="no OpenCL device")
@pytest.mark.parametrize("name", CASES)
def test_values_are_numpys(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for option, value in {"HIGH": 2, "WIDE": (2,), "SCORES": (4,), "SUBGROUP": 4, "ACROSS": 2, "DEPTH": 4}.items():
        monkeypatch.setattr(space, option, value)
    monkeypatch.setattr("tile_opt.passes.kernels.join_rows.NEAR", 1e9)
    b, g, s, t, d = 2, 2, 19, 133, 6
    first = (b, g, s, d) if name == "biased" else (b, s, g, d)
    random = np.random.default_rng(0)
    shapes = {"Q": first, "K": (b, t, d), "V": (b, t, d), "C": (s, t)}
    inputs = {n: random.normal(0, 1, shape).astype(np.float32) for n, shape in shapes.items()}
    types = {n: TensorType(DType.FLOAT32, shape) for n, shape in shapes.items()}
    compiled = tile_opt.compile(bind(CASES[name], types), family_target("gpu-nvidia").resolved(cores=4), verify=True)
    assert len(compiled.kernels.steps) == 1, "one kernel"
    q = inputs["Q"] if name == "biased" else inputs["Q"].transpose(0, 2, 1, 3)
    p = np.einsum("bgsd,btd->bgst", q.astype(float), inputs["K"])
    x = p + inputs["C"] if name == "biased" else np.where(inputs["C"] > 0, p, -1e30)
    o, sums = expected(q, inputs["K"], inputs["V"], x)
    found = on_device(devices()[0], compiled, inputs)
    np.testing.assert_allclose(found["O"] if name == "biased" else found["O"].transpose(0, 2, 1, 3), o, 2e-5, 2e-5)
    if name != "biased":
        np.testing.assert_allclose(found["L"], sums, 2e-5, 2e-5)
