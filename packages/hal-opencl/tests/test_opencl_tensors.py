"""Copies of boxes of tensors: their PTX, what a kernel has beside them, and the probe."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hal_opencl import tensors as probing
from hal_opencl.context import COUNT_BYTES
from hal_opencl.emit import tensors
from hal_opencl.emit.arrivals import arrives
from hal_opencl.emit.dialect import Dialect
from hal_opencl.emit.source import emit_kernel
from hal_opencl.emit.teams import HIDDEN, retargeted
from tile_ir.kernels import Kernel
from tile_ir.semtree import parse_function
from tile_ir.semtree.errors import SemtreeError
from tile_ir.semtree.nodes import MOST_COUNTS
from tile_ir.stripe import nodes as stripe

COPIES = """function copies(readwrite global float32* out, read global float32* a) group(64, 1, 1) {
    alloc local float32[4096] box [align=1024];
    let item = local_id(0);
    tensor_copy box[0] = a, (16, 70, 100, 64, 1), (0, 100, 1, 32, 1), 0;
    async_wait(0, 1);
    tensor_copy box[2048] = a, (16, 70, 100, 64, 1), (32, 100, 1, 32, 1), 0;
    async_wait(0, 1);
    barrier("group", "local");
    out[item] = box[item];
    async_wait(0, 0);
    barrier("group", "local");
    out[item] = box[2048 + item];
}"""
TEAMS = Dialect(ptx=True, teams=True)


def text(dialect: Dialect = TEAMS) -> str:
    return emit_kernel(Kernel("copies", stripe.Block("b"), parse_function(COPIES), (1, 1, 1)), dialect).text


def test_the_text_of_copies() -> None:
    """One descriptor for all boxes of a tensor; a barrier per batch, and waits that leave none behind."""
    head, body = text().split("kernel __attribute__")
    calls = re.findall(r"tile_(\w+)\((.*)\);", body)
    assert [name for name, _ in calls] == [
        "describe_70x100x100x1x64x32x1x1", "ready_barriers_4", "known_tensor",
        "copy_box_64x32", "close_boxes", "wait_boxes_4_1",
        "copy_box_64x32", "close_boxes", "wait_boxes_4_1", "close_boxes", "wait_boxes_4_1_0",
    ]  # fmt: skip
    assert calls[3][1] == "box, map, barriers + closed % 4, 16, 0" and calls[6][1].startswith("box + 2048, map,")
    assert body.count("closed += 1;") == 3 and "volatile global uint* arrivals" in body
    assert "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], 8192;" in head
    assert head.count(f"{HIDDEN}tensormap.replace") == 13


def test_dimensions_are_told_innermost_first() -> None:
    made = tensors.describe("describe", tensors.Tensor("a", (5, 70, 100), (7000, 100, 1), (1, 64, 32), (1, 2, 1)))
    assert re.findall(r'global_dim\.\S+ \[%0\], (\d), %1;" :: "r"\(words\), "r"\((\d+)u\)', made) == [
        ("0", "100"),
        ("1", "70"),
        ("2", "5"),
    ]
    assert re.findall(r'global_stride\.\S+ \[%0\], (\d), %1;" :: "r"\(words\), "l"\((\d+)ul\)', made) == [
        ("0", "400"),
        ("1", "28000"),
    ]
    boxes = re.findall(r'(box_dim|element_stride)\.\S+ \[%0\], (\d), %1;" :: "r"\(words\), "r"\((\d+)u\)', made)
    assert [n for what, _, n in boxes if what == "box_dim"] == ["32", "128", "1"]
    assert [n for what, _, n in boxes if what == "element_stride"] == ["1", "2", "1"]
    start = tensors.start("start", (1, 64, 32))
    assert '"r"(x2), "r"(x1), "r"(x0), "r"(there)' in start and "tensor.3d" in start


def test_descriptors_lie_behind_the_counts() -> None:
    assert arrives(parse_function(COPIES))
    assert COUNT_BYTES == 4 * MOST_COUNTS + tensors.PLACES * 128
    assert tensors.local_bytes(parse_function(COPIES)) == 128 + 4 * 8


@pytest.mark.parametrize("pending", range(6))
def test_no_barrier_is_used_anew_before_its_batch_was_waited_for(pending: int) -> None:
    found = tensors.Tensors((), 0, pending)
    assert found.ring >= pending + 2 and found.ring & (found.ring - 1) == 0
    assert [*found.waits(0)] == [*range(pending, -1, -1)] and [*found.waits(pending)] == [pending]


def test_devices_without_them_refuse() -> None:
    with pytest.raises(SemtreeError, match="of a device that can"):
        text(Dialect(ptx=True))


def test_the_probe_tries_all_of_it() -> None:
    """The instructions of a kernel are those of the probe, and it knows what they bring: ties go to even."""
    instructions = set(
        re.findall(r"(?:tensormap\.\w+|mbarrier\.\w+|cp\.async\.bulk\.tensor|fence\.proxy\.\w+)", text())
    )
    assert all(i in probing.probe() for i in instructions)
    assert HIDDEN not in retargeted(probing.probe())
    rows = probing.wanted()
    assert rows.shape == (8, 32) and not rows[6:].any() and rows[:6].min() > 1
    assert np.unique(rows[0][:5].view(np.uint32) & np.uint32(0x1FFF)).tolist() == [0]
