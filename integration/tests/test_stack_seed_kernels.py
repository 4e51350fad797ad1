"""The two kernels of the seed's page about hardware modules, as OpenCL: structure, builtins, values.

The settings are those of docs/explain.md: 32 items a group, scalar accesses, rows staged in local memory, fast math.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
import tile_hal
import tile_opt
from hal_opencl.emit.dialect import Dialect
from hal_opencl.emit.source import emit_kernel
from hal_opencl.families import family_target
from stack import bind, on_device
from tile_hal.interfaces import Device
from tile_ir.dtype import DType
from tile_ir.kernels import Kernel
from tile_ir.program.nodes import TensorType
from tile_ir.target import Options, PassConfig, Target
from tile_opt.compiled import Compiled

LOG = "function (I) -> (L) { L = log(I); }"
SUM = "function (A[X, Y], B[X, Y]) -> (R) { T[x : X] = +(A[x, y] * B[x, y]); R = -T; }"
OPENCL = tile_hal.devices("opencl")


def seed_target() -> Target:
    base = family_target("gpu-default")
    staged = PassConfig("gpu_tile", options={"stage_rows": True})
    passes = tuple(staged if p.name == "gpu_tile" else p for p in base.passes)
    hardware = replace(base.settings, threads=32, vec_size=1)
    return replace(base, settings=hardware, passes=passes, options=Options(fast_math=True))


def compiled(source: str, *names: str, shape: tuple[int, int] = (10, 26)) -> Compiled:
    types = {n: TensorType(DType.FLOAT32, shape) for n in names}
    return tile_opt.compile(bind(source, types), seed_target())


def text_of(made: Compiled) -> tuple[Kernel, str]:
    (kernel,) = made.kernels.kernels
    return kernel, emit_kernel(kernel, Dialect(fast_math=made.kernels.target.options.fast_math)).text


def test_log_is_native_in_nine_groups_of_32() -> None:
    kernel, text = text_of(compiled(LOG, "I"))
    assert kernel.groups == (9, 1, 1) and "reqd_work_group_size(32, 1, 1)" in text
    assert text.count("native_log(") == 1 and text.count("if (") == 1
    assert "local float" not in text and "barrier" not in text


def test_the_sum_stages_both_rows_and_rolls_up_in_ten_groups_of_32() -> None:
    kernel, text = text_of(compiled(SUM, "A", "B"))
    assert kernel.groups == (10, 1, 1) and "reqd_work_group_size(32, 1, 1)" in text
    assert re.findall(r"local float (\w+)\[(\d+)\]", text) == [("A_local", "26"), ("B_local", "26"), ("exchange", "32")]
    order = re.findall(r"(A_local\[\w+\] =|B_local\[\w+\] =|barrier|mad|exchange\[\w+\] =)", text)
    assert [o.partition("[")[0] for o in order[:6]] == ["A_local", "B_local", "barrier", "mad", "barrier", "exchange"]
    steps = re.findall(r"if \((\w+) < (\d+)\) {\s*exchange\[\1\] = exchange\[\1\] \+ exchange\[\1 \+ (\d+)\];", text)
    assert [(int(items), int(far)) for _, items, far in steps] == [(16, 16), (8, 8), (4, 4), (2, 2), (1, 1)]


def test_a_longer_row_is_staged_in_a_loop() -> None:
    _, text = text_of(compiled(SUM, "A", "B", shape=(10, 270)))
    assert re.findall(r"local float \w+\[(\d+)\]", text) == ["32", "32", "32"]
    (loop,) = re.findall(r"for \(int (\w+) = 0; \1 < 9;", text)
    body = text.partition(f"for (int {loop}")[2].partition("\n    }")[0]
    assert body.count("barrier(") == 2 and body.count("mad(") == 1


@pytest.mark.skipif(not OPENCL, reason="no OpenCL device")
@pytest.mark.parametrize("opencl", OPENCL, ids=[d.id for d in OPENCL])
@pytest.mark.parametrize("columns", [26, 64, 270])
def test_both_give_the_right_values_on_opencl(opencl: Device, columns: int) -> None:
    rng = np.random.default_rng(columns)
    a, b = (rng.uniform(0.5, 2, (10, columns)).astype(np.float32) for _ in range(2))
    log = on_device(opencl, compiled(LOG, "I", shape=a.shape), {"I": a})["L"]
    np.testing.assert_allclose(log, np.log(a), rtol=1e-3, atol=1e-4)
    total = on_device(opencl, compiled(SUM, "A", "B", shape=a.shape), {"A": a, "B": b})["R"]
    np.testing.assert_allclose(total, -(a * b).sum(axis=1), rtol=1e-5)
