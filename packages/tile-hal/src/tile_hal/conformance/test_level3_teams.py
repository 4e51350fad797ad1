"""Level 3, products of teams of sub-groups, whose factors lie swizzled in local memory, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from tile_ir.dtype import DType
from tile_ir.matrix import CHUNK_BYTES, LANES, OWN_BYTES, PANEL_BYTES, WGMMA, MatrixInstruction, elements
from tile_ir.semtree import parse_function
from tile_ir.semtree.nodes import Function

from tile_hal.conformance.kernels import Array, assert_same, launch, need_threads
from tile_hal.conformance.tolerance import assert_close
from tile_hal.interfaces import Device

pytestmark = pytest.mark.takes("semtree")

SWIZZLED = 8
"""Rows after which the order of chunks begins anew at the latest; local arrays start at a multiple of so many rows."""
TOLERANCE = 1e-5
"""Of Σ|a||b| + |c|: hardware adds products in an order of its own, and may cut them below float32's last bit."""
NARROW = [i for i in WGMMA if i.sides["n"] in (32, 64)]
"""Wider ones differ in the number of pieces alone."""
INSTRUCTIONS = pytest.mark.parametrize("instruction", [i for i in NARROW if not i.is_exact], ids=lambda i: i.name)
LAID = [(i, panels) for i in NARROW for panels in (False, True) if not (panels and i.along_depth)]
"""With how their factors lie: some along the depth alone."""


def sizes(instruction: MatrixInstruction) -> tuple[int, int, int]:
    """Rows and columns of the team's product, and its depth."""
    _, n, k = instruction.shape
    return instruction.sides["m"] * instruction.team, n, k


def row_of(width: int) -> int:
    """Elements of so many bytes in a row of local memory."""
    return PANEL_BYTES // width


# --- how factors and sums lie ------------------------------------------------------------------------


def swizzled(flat: Array, together: int = CHUNK_BYTES) -> Array:
    """Rows of a factor as a team, or its items, read them: so many bytes stay together."""
    row, chunk = row_of(flat.itemsize), together // flat.itemsize
    at = np.arange(flat.size)
    return flat[at ^ (at // row % (row // chunk) * chunk)]


def along_k(lines: Array, dtype: DType) -> Array:
    """[line, k] as rows that hold neighbours along k; what lies behind them is not to be read."""
    whole = np.full((len(lines), row_of(dtype.bytes)), np.nan if dtype.is_float else dtype.max_value, np.float32)
    whole[:, : lines.shape[1]] = lines
    return swizzled(whole.ravel().astype(dtype.numpy))


def in_panels(lines: Array, dtype: DType, together: int = CHUNK_BYTES) -> Array:
    """[line, k] as rows that hold neighbouring lines, one k after another; panels follow each other."""
    row = row_of(dtype.bytes)
    count = -(-len(lines) // row)
    whole = np.full((count * row, lines.shape[1]), np.nan, np.float32)
    whole[: len(lines)] = lines
    return swizzled(whole.reshape(count, row, -1).transpose(0, 2, 1).ravel().astype(dtype.numpy), together)


def dealt(instruction: MatrixInstruction, sums: Array) -> Array:
    """[item, piece, register] of the team's sums."""
    rows, wide = instruction.c.sizes
    places = elements(instruction.c)
    row, column = np.array([places[lane, r] for lane in range(LANES) for r in range(instruction.c.registers)]).T
    tiles = sums.reshape(instruction.team, rows, -1, wide).transpose(0, 2, 1, 3)[..., row, column]
    return tiles.reshape(instruction.team, -1, LANES, instruction.c.registers).transpose(0, 2, 1, 3).ravel()


# --- the kernel --------------------------------------------------------------------------------------


def product_kernel(
    instruction: MatrixInstruction, left: Array, right: Array, panels: tuple[int, int], rounded: bool
) -> Function:
    """c += a · b by one team; both factors come as they are to lie in local memory."""
    first, second, sums = (operand.dtype.value for operand in (instruction.a, instruction.b, instruction.c))
    items, register = LANES * instruction.team, instruction.c.registers
    pieces = instruction.sides["n"] // instruction.c.sizes[1]
    places = [f"(local_id(0) * {pieces} + {p}) * {register}" for p in range(pieces)]
    indexes = [f"0, panels={p}" if p else "0" for p in panels]
    indexes[0] += ", rounded=1" if rounded else ""
    return parse_function(f"""
function kernel(readwrite global {sums}* c [elements={items * pieces * register}],
        read global {first}* a [elements={left.size}], read global {second}* b [elements={right.size}])
        group({items}, 1, 1) subgroup({LANES}) {{
    alloc local {first}[{left.size}] left [align={SWIZZLED * PANEL_BYTES}];
    alloc local {second}[{right.size}] right [align={SWIZZLED * PANEL_BYTES}];
    for (i = local_id(0); i < {left.size}; i += {items}) {{ left[i] = a[i]; }}
    for (i = local_id(0); i < {right.size}; i += {items}) {{ right[i] = b[i]; }}
    {" ".join(f"var sum{p} = c[{at}]:{sums}x{register};" for p, at in enumerate(places))}
    barrier("group", "local");
    team_mma "{instruction.name}" = left[{indexes[0]}] * right[{indexes[1]}], ({", ".join(f"sum{p}" for p in range(pieces))});
    async_wait(1, 0);
    {" ".join(f"c[{at}] = sum{p};" for p, at in enumerate(places))}
}}""")


def product(
    device: Device,
    instruction: MatrixInstruction,
    c: Array,
    a: Array,
    b: Array,
    *,
    panels: bool | tuple[bool, bool],
    rounded: bool = False,
) -> Array:
    """c + a @ b on the device, [item, piece, register]; both factors in `panels`, or either of them."""
    dtype, other = instruction.a.dtype, instruction.b.dtype
    need_threads(device, LANES * instruction.team, "TeamMma", "Barrier", dtype)
    which = panels if isinstance(panels, tuple) else (panels, panels)
    left = in_panels(a, dtype, OWN_BYTES if rounded else CHUNK_BYTES) if which[0] else along_k(a, dtype)
    right = in_panels(b.T, other) if which[1] else along_k(b.T, other)
    if device.capabilities.local_bytes < left.nbytes + right.nbytes:
        pytest.skip("device has too little local memory")
    apart = row_of(dtype.bytes) * a.shape[1]
    item = product_kernel(instruction, left, right, (apart * which[0], apart * which[1]), rounded)
    return launch(device, item, [dealt(instruction, c).astype(instruction.c.dtype.numpy), left, right])[0]


@pytest.mark.parametrize(
    ("instruction", "panels"), LAID, ids=[f"{i.name}{'-panels' if panels else ''}" for i, panels in LAID]
)
def test_team_product_of_whole_numbers(tile_device: Device, instruction: MatrixInstruction, panels: bool) -> None:
    """Exact in any order; nothing beside the factors is read."""
    rng = np.random.default_rng(1)
    m, n, k = sizes(instruction)
    c, a, b = (rng.integers(-8, 9, shape).astype(np.float32) for shape in ((m, n), (m, k), (k, n)))
    a, b = (abs(x) if o.dtype is DType.UINT8 else x for x, o in ((a, instruction.a), (b, instruction.b)))
    want = dealt(instruction, c + a @ b).astype(instruction.c.dtype.numpy)
    assert_same(product(tile_device, instruction, c, a, b, panels=panels), want)


@pytest.mark.parametrize("instruction", [i for i in NARROW if i.is_exact and i.sides["n"] == 32], ids=lambda i: i.name)
def test_team_product_of_extreme_integers(tile_device: Device, instruction: MatrixInstruction) -> None:
    """Sums wrap; factors have all of their range."""
    rng = np.random.default_rng(5)
    m, n, k = sizes(instruction)
    a, b = (
        rng.choice([o.dtype.min_value, o.dtype.max_value], shape).astype(np.int64)
        for o, shape in ((instruction.a, (m, k)), (instruction.b, (k, n)))
    )
    c = np.full((m, n), (1 << 31) - 1, np.int64)
    want = dealt(instruction, (c + a @ b).astype(np.int32))
    assert_same(product(tile_device, instruction, c, a, b, panels=False), want)


def of_eight_bits(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    """Numbers of many sizes, exact in every dtype of factors."""
    return (rng.integers(-255, 256, shape) * 2.0 ** rng.integers(-10, 0, shape)).astype(np.float32)


@INSTRUCTIONS
def test_team_product(tile_device: Device, instruction: MatrixInstruction) -> None:
    rng = np.random.default_rng(2)
    m, n, k = sizes(instruction)
    c = rng.normal(0, 1, (m, n)).astype(np.float32)
    a, b = (of_eight_bits(rng, shape) for shape in ((m, k), (k, n)))
    got = product(tile_device, instruction, c, a, b, panels=False)
    bound = TOLERANCE * (np.abs(c) + np.abs(a) @ np.abs(b))
    exact = c + a.astype(np.float64) @ b
    assert_close(got, dealt(instruction, exact), dealt(instruction, bound), instruction.name)


@INSTRUCTIONS
def test_team_product_of_what_is_not_finite(tile_device: Device, instruction: MatrixInstruction) -> None:
    """Infinities and NaN reach the cells of their row or column, and no others; infinity times zero is NaN."""
    rng = np.random.default_rng(3)
    m, n, k = sizes(instruction)
    c, a, b = (rng.integers(-8, 9, shape).astype(np.float32) for shape in ((m, n), (m, k), (k, n)))
    a[1, 0], a[2, 1], b[3, 2], c[5, 4] = np.inf, np.nan, -np.inf, np.inf
    with np.errstate(invalid="ignore"):
        want = c + (a[:, :, None] * b[None]).sum(1)
    got = product(tile_device, instruction, c, a, b, panels=False)
    np.testing.assert_array_equal(got, dealt(instruction, want))


@pytest.mark.parametrize("panels", [False, True])
@pytest.mark.parametrize("instruction", [i for i in NARROW if i.a.dtype is DType.FLOAT32], ids=lambda i: i.name)
def test_items_round_their_elements_of_the_first_factor(
    tile_device: Device, instruction: MatrixInstruction, panels: bool
) -> None:
    """To the nearest number of 11 bits, ties away from zero, whichever way its rows run; exact behind that."""
    rng = np.random.default_rng(4)
    m, n, k = sizes(instruction)
    c, a, b = (
        rng.integers(-high, high, shape).astype(np.float32)
        for high, shape in ((8, (m, n)), (1 << 13, (m, k)), (8, (k, n)))
    )
    unit = np.exp2(np.maximum(np.frexp(a)[1] - 11, 0))
    near = np.trunc(a / unit + np.copysign(0.5, a)) * unit
    assert (near != a).any()
    got = product(tile_device, instruction, c, a, b, panels=(panels, False), rounded=True)
    assert_same(got, dealt(instruction, (c + near @ b).astype(np.float32)))
