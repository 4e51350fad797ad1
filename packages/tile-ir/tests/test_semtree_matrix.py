"""Matrix instructions in semtree: rounding, loads of matrices, products across the lanes of a sub-group."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from tile_ir import numerics
from tile_ir.dtype import DType
from tile_ir.matrix import DPAS, MATRIX_INSTRUCTIONS, MMA, elements
from tile_ir.semtree import errors as err
from tile_ir.semtree import parse_function
from tile_ir.semtree.interpret import launch
from tile_ir.semtree.verify import verify


def function(params, body, group="32, 1, 1", subgroup=32):
    head = f"function f({params}) group({group})" + (f" subgroup({subgroup})" if subgroup else "")
    return parse_function(f"{head} {{\nlet l = local_id(0);\n{body}\n}}")


# --- rounding ----------------------------------------------------------------------------------------


def rounded(value, bits):
    """The definition, in whole numbers: the nearest multiple of the last kept bit, away from zero in a tie."""
    exponent = max(np.frexp(np.abs(value))[1] - 1, -126)
    unit = Fraction(2) ** int(exponent - bits)
    steps = abs(Fraction(float(value))) / unit + Fraction(1, 2)
    result = float(steps.numerator // steps.denominator * unit)
    with np.errstate(over="ignore"):
        return np.float32(np.copysign(result, value))


def floats(count, seed):
    """Random bits, the subnormal ones among them, and values next to ties."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 1 << 32, count, dtype=np.uint32)
    bits[::5] &= np.uint32(0x80FFFFFF)
    bits[1::5] = bits[1::5] & np.uint32(0xFFFFE000) | rng.choice(
        np.array([0xFFF, 0x1000, 0x1001], np.uint32), len(bits[1::5])
    )
    edges = [0.0, -0.0, np.inf, -np.inf, np.nan, 3.4028235e38, -3.4028235e38, 1e-45]
    return np.concatenate([np.array(edges, np.float32), bits.view(np.float32)])


@pytest.mark.parametrize("bits", [1, 7, 10, 22])
def test_round_is_to_the_nearest_and_away_from_zero_in_a_tie(bits):
    given = floats(400, bits)
    out = np.zeros_like(given)
    params = "write global float32* out, read global float32* in"
    launch(function(params, f"out[l] = round_bits(in[l], {bits});", f"{len(given)}, 1, 1", 0), (1, 1, 1), [out, given])
    finite = np.isfinite(given)
    want = np.array([rounded(v, bits) if f else v for v, f in zip(given, finite, strict=True)], np.float32)
    assert np.array_equal(out.view(np.uint32)[~np.isnan(given)], want.view(np.uint32)[~np.isnan(given)])
    assert np.isnan(out[np.isnan(given)]).all()


def test_round_of_vectors():
    out = np.zeros(4, np.float32)
    launch(function("write global float32* out", "out[0] = round_bits(0.1f32x4, 10);", "1, 1, 1", 0), (1, 1, 1), [out])
    assert out.tolist() == [float(rounded(np.float32(0.1), 10))] * 4


# --- loads -------------------------------------------------------------------------------------------


def load_kernel(lanes, transpose, index="l * 8"):
    name = "matrix_load_transposed" if transpose else "matrix_load"
    body = f"""
alloc local float16[{32 * lanes}] tile;
for (i = l; i < {32 * lanes}; i += 32) {{ tile[i] = in[i]; }}
barrier("group", "local");
out[l * {lanes}] = {name}(tile, {index}):float16x{lanes};"""
    return function("write global float16* out, read global float16* in", body)


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("matrices", [1, 2, 4])
def test_matrices_reach_the_lanes(matrices, transpose):
    """Rows are taken in reverse order, so that the lanes' addresses matter."""
    rows = 8 * matrices
    data = np.arange(8 * rows).astype(np.float16)
    out = np.zeros(64 * matrices, np.float16)
    launch(load_kernel(2 * matrices, transpose, f"({rows - 1} - l % {rows}) * 8"), (1, 1, 1), [out, data])
    parts = data.reshape(rows, 8)[::-1].reshape(matrices, 8, 8)
    if transpose:
        parts = parts.transpose(0, 2, 1)
    want = parts.reshape(matrices, 32, 2).transpose(1, 0, 2)
    assert np.array_equal(out.reshape(32, matrices, 2), want)


def test_lanes_that_give_no_row_may_hold_anything():
    out = np.zeros(64, np.float16)
    launch(load_kernel(2, False, "select(l < 8, l * 8, -7)"), (1, 1, 1), [out, np.arange(64).astype(np.float16)])
    assert out.tolist() == list(range(64))


@pytest.mark.parametrize(
    ("index", "message"),
    [("l * 4", "16 bytes"), ("l * 8 + 8", r"read out of bounds .* at tile\[64\] by work item \(28, 0, 0\)")],
)
def test_wrong_addresses_of_rows(index, message):
    with pytest.raises(err.SemtreeRuntimeError, match=message):
        launch(load_kernel(2, False, index), (1, 1, 1), [np.zeros(64, np.float16)] * 2)


def test_a_lane_reads_what_it_receives():
    """Without the barrier lane 0 reads what other lanes of its sub-group write: a race."""
    body = """
alloc local float16[64] tile;
tile[l * 2] = splat(1f16, 2);
let got = matrix_load(tile, l % 8 * 8):float16x2;
tile[(l + 1) % 32 * 2] = got;"""
    with pytest.raises(err.SemtreeRuntimeError, match="data race: write after read"):
        launch(function("write global float16* out", body), (1, 1, 1), [np.zeros(1, np.float16)])


# --- products ----------------------------------------------------------------------------------------


def product_kernel(instruction, subgroups=1):
    """Every lane loads its registers, made ready by the caller, and stores its part of the result."""
    dtype, ra, rb = instruction.a.dtype.value, instruction.a.registers, instruction.b.registers
    sums = instruction.c.dtype.value
    params = f"readwrite global {sums}* c, read global {dtype}* a, read global {dtype}* b"
    m, n, k = instruction.shape
    half, rc, lanes = rb // 2, instruction.c.registers, instruction.lanes
    second = f"first, b[t * {rb} + {half}]:{dtype}x{half}" if half else f"b[t * {rb}]"
    body = f"""
let t = local_id(1) * {lanes} + l;
let first = b[t * {rb}]:{dtype}x{max(half, 1)};
c[t * {rc}] = mma({m}, {n}, {k}, [a[t * {ra}]:{dtype}x{ra}], [{second}], [c[t * {rc}]:{sums}x{rc}]);"""
    return function(params, body, f"{lanes}, {subgroups}, 1", lanes)


def dealt(operand, matrix):
    """The matrix as the lanes hold it, lane after lane."""
    places = elements(operand)
    return np.array([matrix[places[at]] for at in sorted(places)], matrix.dtype)


def matrices(instruction, seed, make):
    rng = np.random.default_rng(seed)
    m, n, k = instruction.shape
    return [make(rng, shape) for shape in ((m, n), (m, k), (k, n))]


@pytest.mark.parametrize("instruction", (*MMA, *DPAS), ids=lambda i: i.name)
def test_product_across_lanes(instruction):
    """Two sub-groups, each with matrices of its own, of small whole numbers."""
    pairs = [
        matrices(instruction, seed, lambda rng, shape: rng.integers(-8, 8, shape).astype(np.float32)) for seed in (1, 2)
    ]
    operands = (instruction.c, instruction.a, instruction.b)
    dtypes = [o.dtype.numpy for o in operands]
    buffers = [
        np.concatenate([dealt(o, p[i]) for p in pairs]).astype(d)
        for i, (o, d) in enumerate(zip(operands, dtypes, strict=True))
    ]
    kernel = product_kernel(instruction, 2)
    verify(kernel)
    launch(kernel, (1, 1, 1), buffers)
    want = np.concatenate([dealt(instruction.c, c + a @ b) for c, a, b in pairs])
    assert np.array_equal(buffers[0], want)


def test_float32_operands_are_cut_to_tf32():
    instruction = MATRIX_INSTRUCTIONS["mma_m16n8k8_tf32"]
    c, a, b = matrices(instruction, 5, lambda rng, shape: rng.normal(0, 1, shape).astype(np.float32))
    buffers = [dealt(o, x) for o, x in zip((instruction.c, instruction.a, instruction.b), (c, a, b), strict=True)]
    launch(product_kernel(instruction), (1, 1, 1), buffers)
    cut = [(x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64) for x in (a, b)]
    want = c + cut[0] @ cut[1]
    np.testing.assert_allclose(buffers[0], dealt(instruction.c, want), rtol=0, atol=1e-5)
    assert np.abs(want - (c + a.astype(np.float64) @ b)).max() > 1e-4


@pytest.mark.parametrize(
    "exponents", [(0, 0), (-100, -40), (70, 60), (-60, -66)], ids=["normal", "lost", "large", "smallest"]
)
def test_each_product_is_added_with_one_rounding_whatever_its_size(exponents):
    """Products that float32 holds are added as they are; those too small or too large for it are rounded with the sum alone."""
    instruction = MATRIX_INSTRUCTIONS["mma_m16n8k16_bf16"]
    c, a, b = matrices(instruction, 8, lambda rng, shape: rng.normal(0, 1, shape).astype(np.float32))
    a, b = (np.ldexp(x, e).astype(instruction.a.dtype.numpy) for x, e in zip((a, b), exponents, strict=True))
    c = np.ldexp(c, min(sum(exponents), 127)).astype(np.float32)
    buffers = [dealt(o, x) for o, x in zip((instruction.c, instruction.a, instruction.b), (c, a, b), strict=True)]
    launch(product_kernel(instruction), (1, 1, 1), buffers)
    want = c
    for i in range(a.shape[1]):
        left, right = np.broadcast_arrays(a[:, i, None].astype(np.float32), b[None, i].astype(np.float32))
        want = numerics.fma32(left, right, want)
    assert np.array_equal(buffers[0], dealt(instruction.c, want))


def test_a_nan_stays_one_whatever_its_payload():
    instruction = MATRIX_INSTRUCTIONS["mma_m16n8k8_tf32"]
    c, a, b = matrices(instruction, 6, lambda rng, shape: np.ones(shape, np.float32))
    a[3, 2] = np.array(0x7F800001, np.uint32).view(np.float32)
    buffers = [dealt(o, x) for o, x in zip((instruction.c, instruction.a, instruction.b), (c, a, b), strict=True)]
    launch(product_kernel(instruction), (1, 1, 1), buffers)
    want = np.full((16, 8), 9, np.float32)
    want[3] = np.nan
    assert np.array_equal(buffers[0], dealt(instruction.c, want), equal_nan=True)


# --- rules -------------------------------------------------------------------------------------------

FRAGMENTS = "let a = splat(1.0, 4); let b = splat(1.0, 2); let h = splat(1bf16, 8); alloc local bfloat16[64] t;"
RULES = [
    ("let z = mma(16, 8, 8, [a], [b], [a]);", 32, None),
    ("let z = mma(16, 8, 8, [b, b], [b], [b, b]):float32x4;", 32, None),
    ("let z = matrix_load(t, l):bfloat16x4;", 32, None),
    ("let z = mma(16, 8, 8, [a], [b], [a]);", 16, err.LaneError),
    ("let z = mma(16, 8, 4, [a], [b], [a]);", 32, err.UnknownOperation),
    ("let z = mma(16, 8, 8, [h], [b], [a]);", 32, err.UnknownOperation),
    ("let z = mma(16, 8, 16, [h], [b, b], [a]);", 32, err.TypeMismatch),
    ("let z = mma(16, 8, 8, [a], [a], [a]);", 32, err.TypeMismatch),
    ("let z = mma(16, 8, 8, [b], [b], [a]);", 32, err.TypeMismatch),
    ("let z = mma(16, 8, 8, [a], [b], [b]);", 32, err.TypeMismatch),
    ("let z = matrix_load(t, l):bfloat16x4;", 0, err.LaneError),
    ("let z = matrix_load(t, l):bfloat16x3;", 32, err.LaneError),
    ("let z = matrix_load(t, l):float16x2;", 32, err.TypeMismatch),
    ("let z = matrix_load(t, 1.0):bfloat16x2;", 32, err.IndexTypeError),
    ("let z = matrix_load(half, l):bfloat16x2;", 32, err.IllegalDtype),
    ('if (extract(mma(16, 8, 8, [a], [b], [a]), 0) > 1.0) { barrier("group", "local"); }', 32, err.DivergentBarrier),
]


@pytest.mark.parametrize(("body", "subgroup", "error"), RULES)
def test_rules(body, subgroup, error):
    tested = function("read global bfloat16* half", FRAGMENTS + body, subgroup=subgroup)
    if error is None:
        verify(tested)
        return
    with pytest.raises(err.SemtreeError) as caught:
        verify(tested)
    assert type(caught.value) is error


def test_a_part_of_a_subgroup_multiplies_nothing():
    kernel = function(
        "write global float32* out", f"{FRAGMENTS} out[l * 4] = mma(16, 8, 8, [a], [b], [a]);", "48, 1, 1"
    )
    with pytest.raises(err.SemtreeRuntimeError, match="meets 16 lanes"):
        launch(kernel, (1, 1, 1), [np.zeros(192, np.float32)])


def test_what_instructions_add_up():
    """Floats of 32 bits and fewer in float32, bytes in int32; float64, which loses nothing, in float64."""
    sums = {DType.FLOAT32: set(), DType.INT32: set(), DType.FLOAT64: set()}
    for instruction in MATRIX_INSTRUCTIONS.values():
        sums[instruction.c.dtype].add((instruction.a.dtype, instruction.b.dtype))
        assert instruction.is_exact is (instruction.c.dtype is not DType.FLOAT32)
    assert sums[DType.FLOAT32] == {(d, d) for d in (DType.FLOAT32, DType.BFLOAT16, DType.FLOAT16)}
    assert sums[DType.INT32] == {*product((DType.INT8, DType.UINT8), repeat=2)}
    assert sums[DType.FLOAT64] == {(DType.FLOAT64, DType.FLOAT64)}


def test_products_of_float64_are_multiply_adds_of_it():
    """To the last bit, in ascending order along the depth."""
    instruction = MATRIX_INSTRUCTIONS["mma_m16n8k8_f64"]
    c, a, b = matrices(instruction, 9, lambda rng, shape: rng.normal(0, 1, shape))
    buffers = [dealt(o, x) for o, x in zip((instruction.c, instruction.a, instruction.b), (c, a, b), strict=True)]
    launch(product_kernel(instruction), (1, 1, 1), buffers)
    want = np.array([[fold(a[i], b[:, j], c[i, j]) for j in range(c.shape[1])] for i in range(c.shape[0])])
    assert np.array_equal(buffers[0], dealt(instruction.c, want))


def fold(left, right, total):
    """Multiply-adds of exact products, each rounded once."""
    for x, y in zip(left, right, strict=True):
        total = float(Fraction(x) * Fraction(y) + Fraction(total))
    return total
