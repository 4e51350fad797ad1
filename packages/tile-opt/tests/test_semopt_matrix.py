"""Rounding and matrix products as core semtree: the same bits as the nodes they replace."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tile_ir.dtype import DType
from tile_ir.matrix import MATRIX_INSTRUCTIONS, MMA, MatrixInstruction, Operand, elements
from tile_ir.semtree.interpret import launch
from tile_ir.semtree.nodes import Function
from tile_ir.semtree.parser import parse_function
from tile_ir.semtree.verify import OPTIONAL_NODES, verify
from tile_opt.semtree import LegaliseError, legalise, simplify
from tile_opt.semtree.legalise import VECTOR_NODES, used_nodes

Array = np.ndarray[Any, Any]


def floats(count: int, seed: int) -> Array:
    """Every exponent, ties and their neighbours, and what is no ordinary number."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 1 << 32, count, dtype=np.uint32)
    bits[::3] = bits[::3] & np.uint32(0xFFFFE000) | rng.choice(
        np.array([0xFFF, 0x1000, 0x1001], np.uint32), len(bits[::3])
    )
    bits[1::7] &= np.uint32(0x81FFFFFF)
    edges = [0.0, -0.0, np.inf, -np.inf, np.nan, 3.4028235e38, -3.4028235e38, 1e-45, -1e-45, 2.0**64, 2.0**-126]
    return np.concatenate([np.array(edges, np.float32), bits.view(np.float32)])


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("bits", [1, 10, 22])
def test_rounding_by_arithmetic_is_exact(bits: int, lanes: int) -> None:
    data = floats(1600 - 11, bits)
    text = f"""
function f(write global float32* out [elements={len(data)}], read global float32* in [elements={len(data)}]) group(1, 1, 1) {{
    for (i = 0; i < {len(data)}; i += {lanes}) {{ out[i] = round_bits(in[i]:float32x{lanes}, {bits}); }}
}}
"""
    function = parse_function(text.replace("x1,", ","))
    core = simplify(legalise(function, VECTOR_NODES))
    assert used_nodes(function) - used_nodes(core) == {"Round"}
    verify(core, VECTOR_NODES)
    results = [np.zeros_like(data) for _ in range(3)]
    for each, out in zip((function, core, simplify(legalise(function, frozenset()))), results, strict=True):
        launch(each, (1, 1, 1), [out, data])
    for out in results[1:]:
        assert np.array_equal(out.view(np.uint32), results[0].view(np.uint32))


# --- products ----------------------------------------------------------------------------------------


def product_kernel(instruction: MatrixInstruction) -> Function:
    """Two products in a row of two sub-groups; the second one's operands are halves of vectors, in a loop."""
    dtype, ra, rb = instruction.a.dtype.value, instruction.a.registers, instruction.b.registers
    m, n, k = instruction.shape
    half, sums, rc = rb // 2, instruction.c.dtype.value, instruction.c.registers
    fragment = f"{dtype}x{half}" if half > 1 else dtype
    rounded = ("round_bits(", ", 10)") if instruction.a.dtype is DType.FLOAT32 else ("", "")
    a, b0, b1 = (
        f"{rounded[0]}{what}{rounded[1]}"
        for what in (f"a[t * {ra}]:{dtype}x{ra}", f"b[t * {rb}]:{fragment}", f"b[t * {rb} + {half}]:{fragment}")
    )
    return parse_function(f"""
function f(readwrite global {sums}* c, read global {dtype}* a, read global {dtype}* b) group(32, 2, 1) subgroup(32) {{
    let t = local_id(1) * 32 + local_id(0);
    let lane = {a};
    var acc = mma({m}, {n}, {k}, [lane], [{b0}, {b1}], [c[t * {rc}]:{sums}x{rc}]);
    for (k = 0; k < 1; k += 1) {{
        acc = mma({m}, {n}, {k}, [lane], [{b1}, {b0}], [acc]) + 0f{instruction.c.dtype.bits}x{rc};
    }}
    c[t * {rc}] = acc;
}}
""")


def dealt(operand: Operand, matrix: Array) -> Array:
    """The matrix as the lanes hold it, lane after lane."""
    places = elements(operand)
    return np.array([matrix[places[lane, r]] for lane in range(32) for r in range(operand.registers)], matrix.dtype)


def operands(instruction: MatrixInstruction, seed: int) -> list[Array]:
    """c, a and b, not yet dealt; a and b with no more bits than the instruction reads."""
    rng = np.random.default_rng(seed)
    m, n, k = instruction.shape
    c, a, b = (rng.normal(0, 1, shape).astype(np.float32) for shape in ((m, n), (m, k), (k, n)))
    return [c, *((x.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32) for x in (a, b))]


def swapped(instruction: MatrixInstruction, b: Array) -> Array:
    """The matrix that a lane's registers mean when their halves change places."""
    places, half = elements(instruction.b), instruction.b.registers // 2
    result = np.empty_like(b)
    for (lane, register), place in places.items():
        result[place] = b[places[lane, (register + half) % (2 * half)]]
    return result


@pytest.mark.parametrize("instruction", [i for i in MMA if i.b.registers > 1], ids=lambda i: i.name)
def test_products_through_local_memory(instruction: MatrixInstruction) -> None:
    pairs = [operands(instruction, seed) for seed in (1, 2)]
    layout = (instruction.c, instruction.a, instruction.b)
    dtypes = [o.dtype.numpy for o in layout]
    given = [
        np.concatenate([dealt(o, p[i]) for p in pairs]).astype(d)
        for i, (o, d) in enumerate(zip(layout, dtypes, strict=True))
    ]
    function = product_kernel(instruction)
    verify(function)
    results: list[Array] = []
    for nodes in (OPTIONAL_NODES, OPTIONAL_NODES - {"Mma"}, frozenset({"Barrier", "Fma"})):
        legal = simplify(legalise(function, nodes))
        verify(legal, nodes)
        assert legal.subgroup == (32 if "Mma" in nodes else 0)
        buffers = [given[0].copy(), *given[1:]]
        launch(legal, (1, 1, 1), buffers)
        results.append(buffers[0])
    for other in results[1:]:
        assert np.array_equal(results[0].view(np.uint8), other.view(np.uint8))
    want = [c + a.astype(np.float64) @ b + a.astype(np.float64) @ swapped(instruction, b) for c, a, b in pairs]
    np.testing.assert_allclose(results[0], np.concatenate([dealt(instruction.c, w) for w in want]), rtol=0, atol=1e-4)


def test_without_fma_a_product_is_a_multiplication_and_an_addition() -> None:
    """Products of bfloat16 are exact, so that nothing changes."""
    instruction = MATRIX_INSTRUCTIONS["mma_m16n8k16_bf16"]
    function = product_kernel(instruction)
    nodes = frozenset({"Barrier"}) | VECTOR_NODES
    legal = legalise(function, nodes)
    assert used_nodes(legal) & OPTIONAL_NODES <= nodes
    rng = np.random.default_rng(4)
    given = [
        rng.normal(0, 1, 64 * o.registers).astype(np.float32) for o in (instruction.c, instruction.a, instruction.b)
    ]
    given[1:] = [x.astype(instruction.a.dtype.numpy) for x in given[1:]]
    results = [[given[0].copy(), *given[1:]] for _ in range(2)]
    for each, buffers in zip((function, legal), results, strict=True):
        launch(each, (1, 1, 1), buffers)
    assert np.array_equal(results[0][0].view(np.uint32), results[1][0].view(np.uint32))


def test_lanes_that_still_meet_keep_their_subgroup() -> None:
    function = parse_function("""
function f(write global float32* out) group(32, 1, 1) subgroup(32) {
    let v = mma(16, 8, 8, [1f32x4], [1f32x2], [0f32x4]);
    out[local_id(0)] = subgroup("reduce_add", extract(v, 0));
}
""")
    legal = legalise(function, OPTIONAL_NODES - {"Mma"})
    assert legal.subgroup == 32
    out = np.zeros(32, np.float32)
    launch(legal, (1, 1, 1), [out])
    assert out.tolist() == [256.0] * 32


@pytest.mark.parametrize(
    ("body", "nodes", "message"),
    [
        ("let v = mma(16, 8, 8, [1f32x4], [1f32x2], [0f32x4]);", OPTIONAL_NODES - {"Mma", "Barrier"}, "Mma"),
        ("while (extract(mma(16, 8, 8, [1f32x4], [1f32x2], [0f32x4]), 0) < 1.0) { }", OPTIONAL_NODES - {"Mma"}, "Mma"),
        (
            "alloc local float16[64] t; let v = matrix_load(t, 0):float16x2;",
            OPTIONAL_NODES - {"MatrixLoad"},
            "MatrixLoad",
        ),
    ],
)
def test_what_stays_is_an_error(body: str, nodes: frozenset[str], message: str) -> None:
    function = parse_function(f"function f() group(32, 1, 1) subgroup(32) {{ {body} }}")
    with pytest.raises(LegaliseError, match=message):
        legalise(function, nodes)
