"""Products of teams of sub-groups: their factors lie in local memory, where all items of a team read them."""

import numpy as np
import pytest
from tile_ir.dtype import DType
from tile_ir.semtree import launch, parse_function
from tile_ir.semtree.errors import SemtreeRuntimeError

BF16 = DType.BFLOAT16.numpy
SOURCE = """function product(write global float32* out, read global float32* in) group(128, 1, 1) subgroup(32) {
    alloc local bfloat16[4096] a [align=1024];
    alloc local bfloat16[2048] b [align=1024];
    let item = local_id(0);
    for (n = 0; n < 32; n += 1) { a[item * 32 + n] = bfloat16(in[item * 32 + n]); }
    FILL
    barrier("group", "local");
    var c = 1.0f32x4;
    var d = 0.0f32x4;
    var e = 0.0f32x4;
    var f = 0.0f32x4;
    for (k = 0; k < 32; k += 16) { team_mma "wgmma_m64n32k16_bf16" = a[k] * b[k], (c, d, e, f); }
    BEHIND
    async_wait(1, 0);
    out[item * 16] = c;
    out[item * 16 + 4] = d;
    out[item * 16 + 8] = e;
    out[item * 16 + 12] = f;
}"""
FILL = "for (n = 0; n < 16; n += 1) { b[item * 16 + n] = bfloat16(in[4096 + item * 16 + n]); }"


def produced(data: np.ndarray, fill: str = FILL, behind: str = "") -> np.ndarray:
    """[item, piece, register]"""
    out = np.zeros(2048, np.float32)
    launch(parse_function(SOURCE.replace("FILL", fill).replace("BEHIND", behind)), (1, 1, 1), [out, data])
    return out.reshape(128, 4, 4)


def unswizzled(flat: np.ndarray) -> np.ndarray:
    """Rows of 64 elements of 16 bits, eight of which stay together."""
    at = np.arange(flat.size)
    return flat[at ^ (at // 64 % 8 * 8)].reshape(-1, 64)


@pytest.mark.parametrize("scale", [1.0, 2.0**-70])
def test_each_item_has_its_own_elements(scale: float) -> None:
    """Also where products are smaller than what float32 holds with all of its bits."""
    data = np.random.default_rng(0).integers(-4, 5, 6144).astype(np.float32) * np.float32(scale)
    halves = data.astype(BF16).astype(np.float64)
    left, right = unswizzled(halves[:4096])[:, :32], unswizzled(halves[4096:])[:, :32]
    want = left @ right.T
    item, piece, register = np.meshgrid(np.arange(128), np.arange(4), np.arange(4), indexing="ij")
    rows = item // 32 * 16 + item % 32 // 4 + 8 * (register // 2)
    np.testing.assert_array_equal(produced(data), want[rows, 8 * piece + item % 4 * 2 + register % 2] + (piece == 0))


def test_sums_are_rounded_at_every_product() -> None:
    data = np.random.default_rng(1).standard_normal(6144).astype(np.float32)
    data[:4096:64] = 2.0**-14
    halves = data.astype(BF16).astype(np.float32)
    left, right = unswizzled(halves[:4096])[:, :32], unswizzled(halves[4096:])[:, :32]
    want = np.float32(1)
    for k in range(32):
        want = want + left[16, k] * right[0, k]
    assert produced(data)[32, 0, 0] == want


def test_nobody_writes_what_a_team_reads() -> None:
    """Not even an item that has its own elements already."""
    with pytest.raises(SemtreeRuntimeError, match=r"data race: write after read by several work items .* at b\[7\]"):
        produced(np.zeros(6144, np.float32), behind="if (item == 100) { b[7] = bfloat16(0.0f32); }")


def test_all_of_a_factor_is_there() -> None:
    with pytest.raises(SemtreeRuntimeError, match=r"nothing has written .* at b\[20"):
        produced(np.zeros(6144, np.float32), fill=f"if (item < 127) {{ {FILL} }}")


COPIES = """function product(write global float32* out, read global bfloat16* in) group(128, 1, 1) subgroup(32) {
    alloc local bfloat16[4096] b [align=1024];
    let item = local_id(0);
    async_copy b[item * 32] = in[item * 32], count=32;
    async_wait(0, 0);
    barrier("group", "local");
    READ
    BETWEEN
    if (item == 127) { async_copy b[0] = in[16], count=16; }
    barrier("group", "local");
    async_wait(0, 0);
}"""
READS = {
    "a product": "var c = 0.0f32x4; var d = c; var e = c; var f = c;"
    ' team_mma "wgmma_m64n32k16_bf16" = b[0] * b[0], (c, d, e, f); async_wait(1, 0);',
    "a load": "if (item == 5) { out[0] = float32(b[3]); }",
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_no_copy_begins_while_others_read_its_target(read: str) -> None:
    """Though it is waited for behind the next barrier: the hardware may write at once."""
    text = COPIES.replace("READ", read)
    data = np.ones(4096, BF16)
    launch(
        parse_function(text.replace("BETWEEN", 'barrier("group", "local");')),
        (1, 1, 1),
        [np.zeros(1, np.float32), data],
    )
    with pytest.raises(SemtreeRuntimeError, match=r"data race: write after read .* at b\[[03]\]"):
        launch(parse_function(text.replace("BETWEEN", "")), (1, 1, 1), [np.zeros(1, np.float32), data])
