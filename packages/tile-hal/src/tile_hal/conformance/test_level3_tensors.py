"""Level 3, copies of boxes of tensors: what is rounded, what is outside, and batches under way, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from tile_ir.semtree import parse_function

from tile_hal.conformance.kernels import Array, assert_same, launch, need_threads
from tile_hal.interfaces import Device

pytestmark = pytest.mark.takes("semtree")

ROWS, COLUMNS, STEPS = 21, 228, 8
"""Of the tensor: its last box has columns behind the end, and all have rows there."""
KERNEL = f"""function kernel(readwrite global float32* out [elements={24 * 32 * STEPS}],
        read global float32* in [elements={ROWS * COLUMNS}, align=16]) group(64, 1, 1) {{
    alloc local float32[{2 * 24 * 32}] box [align=1024];
    let item = local_id(0);
    tensor_copy box[0] = in, (0, {ROWS}, {COLUMNS}, 24, 1), (0, {COLUMNS}, 1, 32, 1), 0;
    for (step = 0; step < {STEPS}; step += 1) {{
        if (step > 0) {{ barrier("group", "local"); }}
        async_wait(0, 0);
        barrier("group", "local");
        if (step < {STEPS - 1}) {{
            tensor_copy box[(step + 1) % 2 * 768] = in, (0, {ROWS}, {COLUMNS}, 24, 1), ((step + 1) * 32, {COLUMNS}, 1, 32, 1), 0;
        }}
        for (n = 0; n < 12; n += 1) {{
            let at = n * 64 + item;
            out[step * 768 + at] = box[step % 2 * 768 + (at ^ at / 32 % 8 * 4)];
        }}
    }}
}}"""
"""A text: every run of the suite collects this file, whether it runs the test or not, and few parse anything else."""


def wanted(a: Array) -> Array:
    """The boxes of all steps: ties go to even, and what is no number stays none."""
    bits = a.view(np.uint32)
    rounded = (bits + np.uint32(0xFFF) + (bits >> np.uint32(13) & np.uint32(1))) & np.uint32(0xFFFFE000)
    whole = np.zeros((24, 32 * STEPS), np.float32)
    whole[:ROWS, :COLUMNS] = np.where(np.isfinite(a), rounded.view(np.float32), a)
    return whole.reshape(24, STEPS, 32).transpose(1, 0, 2).reshape(-1)


def test_boxes_of_a_tensor(tile_device: Device) -> None:
    need_threads(tile_device, 64, "TensorCopy", "AsyncWait", "Barrier")
    a = np.random.default_rng(5).standard_normal((ROWS, COLUMNS)).astype(np.float32)
    a[0, :4] = np.array([0x3F801000, 0x3F803000, 0xBF801000, 0x7F800000], np.uint32).view(np.float32)
    a[20, 227], a[3, 40] = -np.inf, np.nan
    out = np.full(24 * 32 * STEPS, 7, np.float32)
    assert_same(launch(tile_device, parse_function(KERNEL), [out, a.reshape(-1)])[0], wanted(a))


WINDOW = """function kernel(readwrite global float32* out [elements=384],
        read global float32* in [elements=1080, align=16]) group(64, 1, 1) {
    alloc local float32[384] box [align=1024];
    let item = local_id(0);
    tensor_copy box[0] = in, (2, 3, 360, 2, 1), (group_id(0) - 1, 9, 40, 6, 2), (16, 40, 1, 32, 1), 0;
    async_wait(0, 0);
    barrier("group", "local");
    for (n = 0; n < 6; n += 1) {
        let at = n * 64 + item;
        out[at] = box[at ^ at / 32 % 8 * 4];
    }
}"""


def test_boxes_that_begin_in_front_of_a_tensor(tile_device: Device) -> None:
    """Of three dimensions; every second row, of which the first is none; the last image is behind the end."""
    need_threads(tile_device, 64, "TensorCopy", "AsyncWait", "Barrier")
    a = np.random.default_rng(6).integers(-500, 500, (3, 9, 40)).astype(np.float32)
    whole = np.zeros((2, 6, 32), np.float32)
    whole[0, 1:5, :24] = a[2, 1:9:2, 16:]
    out = np.full(384, 7, np.float32)
    assert_same(launch(tile_device, parse_function(WINDOW), [out, a.reshape(-1)])[0], whole.reshape(-1))
