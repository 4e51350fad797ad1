"""Level 3, matrix instructions and the copies that feed them, against the semtree interpreter and NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from tile_ir.dots import DOTS
from tile_ir.dtype import DType
from tile_ir.matrix import DPAS, LANES, MATRIX_INSTRUCTIONS, MMA, TF32_BITS, MatrixInstruction, Operand, elements
from tile_ir.matrix.x86 import TILED_INSTRUCTIONS
from tile_ir.semtree import parse_function
from tile_ir.semtree.nodes import Function

from tile_hal.conformance import subnormals
from tile_hal.conformance.kernels import Array, assert_same, check, hard_values, lanes_of, launch, need, need_threads
from tile_hal.conformance.tolerance import assert_close
from tile_hal.interfaces import Device

pytestmark = pytest.mark.takes("semtree")

MMA_TOLERANCE = {DType.FLOAT32: 1e-5, DType.FLOAT64: 1e-14}
"""By dtype of the sums, of Σ|a||b| + |c|: hardware adds products in an order of its own, and may cut them below their last bit."""
SUBGROUPS = 2
INSTRUCTIONS = pytest.mark.parametrize("instruction", (*MMA, *DPAS), ids=lambda i: i.name)


def need_local(device: Device, elements: int, dtype: DType) -> None:
    if device.capabilities.local_bytes < elements * dtype.bytes:
        pytest.skip("device has too little local memory")


# --- rounding ----------------------------------------------------------------------------------------


def rounding_values(bits: int, count: int) -> Array:
    """Hard values, then ties and their neighbours for `bits` kept bits."""
    values = hard_values(DType.FLOAT32, count, bits)
    tie = 1 << (22 - bits)
    rng = np.random.default_rng(bits)
    normal = rng.integers(0, 1 << 32, count // 2, dtype=np.uint32) & np.uint32(0xFFFFFFFF & -(2 * tie))
    values[count // 2 :] = (normal + rng.choice(np.array([tie - 1, tie, tie + 1], np.uint32), count // 2)).view(
        np.float32
    )
    return values


@pytest.mark.parametrize("vector", [False, True], ids=["scalar", "vector"])
@pytest.mark.parametrize("bits", [1, 7, TF32_BITS, 22])
def test_round(tile_device: Device, bits: int, vector: bool) -> None:
    need(tile_device, "Round")
    lanes, count = lanes_of(tile_device, DType.FLOAT32) if vector else 1, 512
    loaded = f"in[i]:float32x{lanes}" if lanes > 1 else "in[i]"
    item = parse_function(f"""
function kernel(write global float32* out [elements={count}], read global float32* in [elements={count}]) group(1, 1, 1) {{
    for (i = 0; i < {count}; i += {lanes}) {{ out[i] = round_bits({loaded}, {bits}); }}
}}""")
    args = subnormals.operands(tile_device, [rounding_values(bits, count)])
    check(tile_device, item, [np.zeros(count, np.float32), *args])


# --- loads -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transpose", [False, True], ids=["plain", "transposed"])
@pytest.mark.parametrize("matrices", [1, 2, 4])
@pytest.mark.parametrize("dtype", [DType.BFLOAT16, DType.FLOAT16])
def test_matrix_load(tile_device: Device, dtype: DType, matrices: int, transpose: bool) -> None:
    """Rows lie apart and in reverse order; what the lanes without a row say must not matter."""
    need_threads(tile_device, LANES, "MatrixLoad", "Barrier", dtype)
    rows, lanes = 8 * matrices, 2 * matrices
    need_local(tile_device, 16 * rows, dtype)
    name = "matrix_load_transposed" if transpose else "matrix_load"
    item = parse_function(f"""
function kernel(write global {dtype.value}* out [elements={2 * LANES * lanes}], read global {dtype.value}* in [elements={32 * rows}])
        group({LANES}, 1, 1) subgroup({LANES}) {{
    let l = local_id(0);
    alloc local {dtype.value}[{16 * rows}] tile;
    for (i = l; i < {16 * rows}; i += {LANES}) {{ tile[i] = in[group_id(0) * {16 * rows} + i]; }}
    barrier("group", "local");
    let row = select(l < {rows}, {rows - 1} - l, 0);
    let got = {name}(tile, row * 16 + row % 2 * 8):{dtype.value}x{lanes};
    out[(group_id(0) * {LANES} + l) * {lanes}] = got;
}}""")
    data = np.arange(32 * rows).astype(np.float32).astype(dtype.numpy)
    check(tile_device, item, [np.zeros(2 * LANES * lanes, dtype.numpy), data], (2, 1, 1))


# --- products ----------------------------------------------------------------------------------------


def product_kernel(instruction: MatrixInstruction, steps: int) -> Function:
    """c += a · b for every sub-group, `steps` times with other operands; the caller dealt the registers."""
    dtype, sums = instruction.a.dtype.value, instruction.c.dtype.value
    ra, rb, rc = (o.registers for o in (instruction.a, instruction.b, instruction.c))
    m, n, k = instruction.shape
    items = instruction.lanes
    lanes = items * SUBGROUPS
    return parse_function(f"""
function kernel(readwrite global {sums}* c [elements={lanes * rc}], read global {dtype}* a [elements={steps * lanes * ra}],
        read global {dtype}* b [elements={steps * lanes * rb}]) group({items}, {SUBGROUPS}, 1) subgroup({items}) {{
    let l = local_id(1) * {items} + local_id(0);
    var sum = c[l * {rc}]:{sums}x{rc};
    for (s = 0; s < {steps}; s += 1) {{
        let left = a[(s * {lanes} + l) * {ra}]:{dtype}x{ra};
        let right = b[(s * {lanes} + l) * {rb}]:{dtype}x{rb};
        sum = mma({m}, {n}, {k}, [left], [right], [sum]);
    }}
    c[l * {rc}] = sum;
}}""")


def dealt(operand: Operand, matrices: Array) -> Array:
    """Matrices as the lanes hold them, lane after lane."""
    places = elements(operand)
    rows, columns = np.array([places[at] for at in sorted(places)]).T
    return matrices[..., rows, columns].reshape(-1)


def product(device: Device, instruction: MatrixInstruction, c: Array, a: Array, b: Array) -> Array:
    """The sum over the steps on the device; a and b have a matrix per step and sub-group."""
    need_threads(device, instruction.lanes * SUBGROUPS, "Mma", instruction.a.dtype)
    if device.capabilities.subgroup != instruction.lanes:
        pytest.skip(f"device has sub-groups of {device.capabilities.subgroup}, not of {instruction.lanes}")
    item = product_kernel(instruction, len(a))
    operands = ((instruction.c, c), (instruction.a, a), (instruction.b, b))
    given = [dealt(operand, values).astype(operand.dtype.numpy) for operand, values in operands]
    return launch(device, item, given)[0]


def whole_numbers(instruction: MatrixInstruction, steps: int) -> list[Array]:
    """c, a and b of small whole numbers, whose products are exact in any order."""
    m, n, k = instruction.shape
    rng = np.random.default_rng(1)
    shapes = ((SUBGROUPS, m, n), (steps, SUBGROUPS, m, k), (steps, SUBGROUPS, k, n))
    return [rng.integers(-8, 9, shape).astype(np.float32) for shape in shapes]


@INSTRUCTIONS
def test_matrix_product_of_whole_numbers(tile_device: Device, instruction: MatrixInstruction) -> None:
    c, a, b = whole_numbers(instruction, 3)
    want = dealt(instruction.c, c + (a @ b).sum(0)).astype(instruction.c.dtype.numpy)
    assert_same(product(tile_device, instruction, c, a, b), want)


@INSTRUCTIONS
def test_matrix_product(tile_device: Device, instruction: MatrixInstruction) -> None:
    m, n, k = instruction.shape
    rng = np.random.default_rng(2)
    c = rng.normal(0, 1, (SUBGROUPS, m, n)).astype(np.float32)
    factors = (rng.normal(0, 1, (4, SUBGROUPS, *shape)) for shape in ((m, k), (k, n)))
    a, b = (x if instruction.a.dtype is DType.FLOAT64 else cut(x, 16) for x in factors)
    got = product(tile_device, instruction, c, a, b)
    exact = c + (a.astype(np.float64) @ b).sum(0)
    bound = MMA_TOLERANCE[instruction.c.dtype] * (np.abs(c) + (np.abs(a) @ np.abs(b)).sum(0))
    assert_close(got, dealt(instruction.c, exact), dealt(instruction.c, bound), instruction.name)


@INSTRUCTIONS
def test_matrix_product_of_what_is_not_finite(tile_device: Device, instruction: MatrixInstruction) -> None:
    """Infinities and NaN reach the cells of their row or column, and no others; infinity times zero is NaN."""
    c, a, b = whole_numbers(instruction, 1)
    a[0, :, 1, 0], a[0, :, 2, 1], b[0, :, 3, 2], c[:, 5, 4] = np.inf, np.nan, -np.inf, np.inf
    with np.errstate(invalid="ignore"):
        want = c + (a[0][..., :, :, None] * b[0][..., None, :, :]).sum(-2)
    got, want = product(tile_device, instruction, c, a, b), dealt(instruction.c, want)
    assert np.isinf(want).any() and np.isnan(want).any()
    np.testing.assert_array_equal(got, want)


def cut(values: Array, bits: int) -> Array:
    """float32 without the lowest `bits` bits: with 16, exact in bfloat16 and TF32 both."""
    return (values.astype(np.float32).view(np.uint32) & np.uint32(0xFFFFFFFF << bits & 0xFFFFFFFF)).view(np.float32)


def test_matrix_product_ignores_the_low_bits_of_float32(tile_device: Device) -> None:
    instruction = MATRIX_INSTRUCTIONS["mma_m16n8k8_tf32"]
    c, a, b = whole_numbers(instruction, 1)
    low = np.random.default_rng(3).integers(0, 1 << (23 - TF32_BITS), a.shape, dtype=np.uint32)
    noisy = np.where(a == 0, a, (a.view(np.uint32) | low).view(np.float32))
    assert_same(product(tile_device, instruction, c, noisy, b), dealt(instruction.c, c + (a @ b).sum(0)))


# --- copies ------------------------------------------------------------------------------------------

THREADS = 8


def copy_kernel(dtype: str, elements: int, local: int, body: str) -> Function:
    """Work items with a local array `tile`; parameters have 16-byte alignment, as buffers of their own."""
    return parse_function(f"""
function kernel(readwrite global {dtype}* out [align=16, elements={elements}], read global {dtype}* in [align=16, elements={elements}])
        group({THREADS}, 1, 1) {{
    let l = local_id(0);
    alloc local {dtype}[{local}] tile;
{body}
}}""")


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.BFLOAT16, DType.UINT8])
@pytest.mark.parametrize("chunks", [1, 3])
@pytest.mark.parametrize("align", [4, 8, 16])
def test_aligned_copies(tile_device: Device, align: int, chunks: int, dtype: DType) -> None:
    """Every work item copies a piece and reads that of another; one in four has a guard that says no."""
    need_threads(tile_device, THREADS, "AsyncCopy", "AsyncWait", "Barrier", dtype)
    piece = align // dtype.bytes * chunks
    total = 2 * THREADS * piece
    need_local(tile_device, total // 2, dtype)
    body = f"""
    let base = group_id(0) * {THREADS * piece};
    for (i = 0; i < {piece}; i += 1) {{ tile[l * {piece} + i] = {seven(dtype)}; }}
    async_copy tile[l * {piece}] = in[base + l * {piece}], count={piece}, guard=l % 4 != 3, group=2, align={align};
    async_wait(2, 0);
    barrier("group", "local");
    for (i = 0; i < {piece}; i += 1) {{ out[base + l * {piece} + i] = tile[({THREADS - 1} - l) * {piece} + i]; }}"""
    item = copy_kernel(dtype.value, total, THREADS * piece, body)
    data = (np.arange(total) % 251).astype(np.float32).astype(dtype.numpy)
    check(tile_device, item, [np.zeros(total, dtype.numpy), data], (2, 1, 1))


def seven(dtype: DType) -> str:
    return {DType.FLOAT32: "7.0", DType.BFLOAT16: "7bf16"}.get(dtype, f"7u{dtype.bits}")


def test_copies_in_flight(tile_device: Device) -> None:
    """A ring of four tiles: two batches of each work item stay in flight while the tile before them is read.

    At the end waits close empty batches, so that the same number may stay.
    """
    need_threads(tile_device, THREADS, "AsyncCopy", "AsyncWait", "Barrier")
    steps, tile = 7, THREADS * 4

    def start(step: str) -> str:
        return f"async_copy tile[({step}) % 4 * {tile} + l * 4] = in[({step}) * {tile} + l * 4], count=4, align=16;"

    def use(step: str, pending: int) -> str:
        read = f"tile[({step}) % 4 * {tile} + ({THREADS - 1} - l) * 4 + i]"
        return f"""
        async_wait(0, {pending});
        barrier("group", "local");
        for (i = 0; i < 4; i += 1) {{ out[l * 4 + i] = out[l * 4 + i] * 2.0 + {read}; }}"""

    body = f"""
    {start("0")}
    async_wait(0, 2);
    {start("1")}
    async_wait(0, 2);
    for (s = 0; s < {steps - 2}; s += 1) {{
        {start("s + 2")}{use("s", 2)}
    }}{use(str(steps - 2), 2)}{use(str(steps - 1), 2)}"""
    item = copy_kernel("float32", steps * tile, 4 * tile, body)
    data = np.arange(steps * tile).astype(np.float32)
    got = check(tile_device, item, [np.zeros(steps * tile, np.float32), data])
    weights = 2.0 ** np.arange(steps - 1, -1, -1, dtype=np.float32)
    assert_same(got[0][:tile], np.tensordot(weights, data.reshape(steps, THREADS, 4)[:, ::-1], 1).reshape(-1))


def test_copies_of_several_groups(tile_device: Device) -> None:
    """Waiting for one group says nothing of the other; a guard that says no leaves its batch empty."""
    need_threads(tile_device, THREADS, "AsyncCopy", "AsyncWait", "Barrier")
    total = THREADS * 4
    body = f"""
    async_copy tile[l * 4] = in[l * 4], count=2, group=0, align=8;
    async_wait(0, 1);
    async_copy tile[{total} + l * 4] = in[l * 4], count=4, guard=l != 2, group=1, align=16;
    async_copy tile[l * 4 + 2] = in[l * 4 + 2], count=2, group=0, align=8;
    async_wait(1, 0);
    if (l != 2) {{
        for (i = 0; i < 4; i += 1) {{ out[l * 4 + i] = tile[{total} + l * 4 + i]; }}
    }}
    async_wait(0, 1);
    for (i = 0; i < 2; i += 1) {{ out[l * 4 + i] = out[l * 4 + i] + tile[l * 4 + i]; }}
    async_wait(0, 0);
    barrier("group", "local");
    for (i = 0; i < 4; i += 1) {{ out[l * 4 + i] = out[l * 4 + i] + 3.0 * tile[({THREADS - 1} - l) * 4 + i]; }}"""
    item = copy_kernel("float32", total, 2 * total, body)
    check(tile_device, item, [np.zeros(total, np.float32), np.arange(total).astype(np.float32) + 1])


# --- tile registers --------------------------------------------------------------------------------------

BITS_OF_HALVES = {
    DType.BFLOAT16: (0x80FF80FF, 0x3F003F00, 0x007F007F),
    DType.FLOAT16: (0x83FF83FF, 0x38003800, 0x03FF03FF),
}
"""Of two 16-bit floats in a word: those that are drawn, those of the exponent beside them, and those that subnormal numbers keep."""


@pytest.mark.parametrize(
    "instruction", [i for i in TILED_INSTRUCTIONS.values() if i.c.dtype.is_float], ids=lambda i: i.name
)
def test_what_is_no_number_stays_in_its_rows_and_columns(tile_device: Device, instruction: MatrixInstruction) -> None:
    """An infinite factor makes its row infinite, and NaN where it meets a zero; a NaN makes its column NaN."""
    need(tile_device, "TileStep", instruction.c.dtype, DType.INT32)
    listed = tile_device.target.matrix
    if listed and instruction.name not in listed:
        pytest.skip(f"device has no {instruction.name}")
    item = parse_function(f"""
function kernel(readwrite global float32* c [elements=256], read global int32* a [elements=256],
                read global int32* b [elements=256]) group(1, 1, 1) {{
    tile_step tile_load(0), c[0, pitch=16];
    tile_step tile_load(1), a[0, pitch=16];
    tile_step tile_load(2), b[0, pitch=16];
    tile_step {instruction.name}(0, 1, 2);
    tile_step tile_store(0), c[0, pitch=16];
}}""")
    one, infinite = {DType.BFLOAT16: (0x3F80, 0x7F80), DType.FLOAT16: (0x3C00, 0x7C00)}[DOTS[instruction.product].a]
    a, b = (np.full((16, 16), one, np.int32) for _ in range(2))
    a[3, 5], b[5, 2], b[7, 11] = infinite, 0, infinite | 1
    got = check(tile_device, item, [np.zeros(256, np.float32), a.reshape(-1), b.reshape(-1)])[0].reshape(16, 16)
    want = np.full((16, 16), 16, np.float32)
    want[:, 2], want[3], want[3, 2], want[:, 11] = 15, np.inf, np.nan, np.nan
    assert_same(got, want)


@pytest.mark.parametrize("instruction", TILED_INSTRUCTIONS.values(), ids=lambda i: i.name)
def test_products_of_tiles(tile_device: Device, instruction: MatrixInstruction) -> None:
    """To the bit: the order of a sum's roundings is part of the instruction, and so is what becomes of subnormal numbers."""
    need(tile_device, "TileStep", instruction.c.dtype, DType.INT32)
    listed = tile_device.target.matrix
    if listed and instruction.name not in listed:
        pytest.skip(f"device has no {instruction.name}")
    total, pitch = instruction.c.dtype, 24
    item = parse_function(f"""
function kernel(readwrite global {total}* c [elements=256], read global int32* a [elements={16 * pitch}],
                read global int32* b [elements={16 * pitch}]) group(1, 1, 1) {{
    tile_step tile_load(0), c[0, pitch=16];
    tile_step tile_load(4), a[3, pitch={pitch - 1}];
    tile_step tile_load(6), b[1, pitch={pitch - 1}];
    tile_step {instruction.name}(0, 4, 6);
    tile_step {instruction.name}(0, 4, 6);
    tile_step tile_store(0), c[0, pitch=16];
}}""")
    rng = np.random.default_rng(7)
    words = rng.integers(0, 1 << 32, (2, 16 * pitch), np.uint32)
    if total.is_float:
        # Exponents beside 1, and some subnormal factors; no infinities, whose sums have no one sign.
        kept, near_one, subnormal = BITS_OF_HALVES[DOTS[instruction.product].a]
        words = (words & np.uint32(kept)) | np.uint32(near_one)
        words[:, ::7] &= np.uint32(subnormal)
    start = (
        rng.standard_normal(256).astype(np.float32) if total.is_float else rng.integers(-99, 99, 256).astype(np.int32)
    )
    check(tile_device, item, [start, *words.view(np.int32)])
