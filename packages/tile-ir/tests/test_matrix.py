"""Where the lanes of a sub-group hold the operands of a matrix instruction, against the tables of the PTX ISA."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
from tile_ir.dtype import DType
from tile_ir.matrix import (
    DPAS,
    LANES,
    MATRIX_INSTRUCTIONS,
    MMA,
    MatrixInstruction,
    Operand,
    elements,
    instruction_of,
    side_by_side,
)

TF32, BF16, F16 = (MATRIX_INSTRUCTIONS[f"mma_m16n8{n}"] for n in ("k8_tf32", "k16_bf16", "k16_f16"))
F64, SHORT = (MATRIX_INSTRUCTIONS[f"mma_{n}_f64"] for n in ("m16n8k8", "m8n8k4"))
OPERANDS = {f"{i.name}-{name}": getattr(i, name) for i in MMA for name in "abc"}

Table = Callable[[int, int, int], tuple[int, int]]
"""(row, column) of a register by ``lane // 4``, ``lane % 4`` (PTX: groupID, threadID_in_group) and its number."""


def c_table(group: int, thread: int, i: int) -> tuple[int, int]:
    return (group if i < 2 else group + 8), thread * 2 + i % 2


def tf32_a(group: int, thread: int, i: int) -> tuple[int, int]:
    return (group if i in (0, 2) else group + 8), (thread if i in (0, 1) else thread + 4)


def tf32_b(group: int, thread: int, i: int) -> tuple[int, int]:
    return (thread if i == 0 else thread + 4), group


def half_a(group: int, thread: int, i: int) -> tuple[int, int]:
    return (group if i in (0, 1, 4, 5) else group + 8), thread * 2 + i % 2 + (0 if i < 4 else 8)


def half_b(group: int, thread: int, i: int) -> tuple[int, int]:
    return thread * 2 + i % 2 + (0 if i < 2 else 8), group


def double_a(group: int, thread: int, i: int) -> tuple[int, int]:
    return group + i % 2 * 8, thread + i // 2 * 4


def double_b(group: int, thread: int, i: int) -> tuple[int, int]:
    return thread + i * 4, group


TABLES: list[tuple[Operand, int, Table]] = [
    (TF32.a, 4, tf32_a), (TF32.b, 2, tf32_b), (TF32.c, 4, c_table),
    (BF16.a, 8, half_a), (BF16.b, 4, half_b), (BF16.c, 4, c_table),
    (F16.a, 8, half_a), (F16.b, 4, half_b), (F16.c, 4, c_table),
    (F64.a, 4, double_a), (F64.b, 2, double_b), (F64.c, 4, c_table),
    (SHORT.a, 1, double_a), (SHORT.b, 1, double_b), (SHORT.c, 2, c_table),
]  # fmt: skip


@pytest.mark.parametrize(("operand", "registers", "table"), TABLES, ids=OPERANDS)
def test_registers_hold_what_the_isa_says(operand: Operand, registers: int, table: Table) -> None:
    assert operand.registers == registers
    held = {(lane, i): table(lane // 4, lane % 4, i) for lane in range(LANES) for i in range(registers)}
    assert elements(operand) == held


@pytest.mark.parametrize("instruction", DPAS, ids=lambda i: i.name)
def test_subgroups_of_sixteen_hold_what_the_extension_says(instruction: MatrixInstruction) -> None:
    """Element i of lane l: rows of the first factor are cut into as many elements as there are lanes, all else is a column a lane."""
    (m, n, k), deep = instruction.shape, instruction.shape[2]
    assert (m, n, instruction.lanes) == (8, 16, 16)
    for operand, rows in ((instruction.b, k), (instruction.c, m)):
        assert elements(operand) == {(lane, i): (i, lane) for lane in range(16) for i in range(rows)}
    flat = {(lane, i): 16 * i + lane for lane in range(16) for i in range(m * k // 16)}
    assert elements(instruction.a) == {at: divmod(number, deep) for at, number in flat.items()}


@pytest.mark.parametrize(
    ("operand", "lane", "register", "row", "column"),
    [
        (TF32.a, 5, 2, 1, 5),
        (TF32.a, 31, 3, 15, 7),
        (TF32.b, 6, 1, 6, 1),
        (TF32.c, 5, 1, 1, 3),
        (TF32.c, 30, 2, 15, 4),
        (BF16.a, 5, 3, 9, 3),
        (BF16.a, 5, 4, 1, 10),
        (BF16.a, 31, 7, 15, 15),
        (BF16.b, 6, 2, 12, 1),
        (BF16.b, 31, 3, 15, 7),
    ],
)
def test_single_elements(operand: Operand, lane: int, register: int, row: int, column: int) -> None:
    assert operand.place(row, column) == (lane, register)
    assert elements(operand)[lane, register] == (row, column)


@pytest.mark.parametrize("operand", OPERANDS.values(), ids=OPERANDS)
def test_every_element_has_a_place_of_its_own(operand: Operand) -> None:
    rows, columns = operand.sizes
    places = [operand.place(row, column) for row, column in product(range(rows), range(columns))]
    assert sorted(places) == list(product(range(LANES), range(operand.registers)))
    assert rows * columns == LANES * operand.registers


@pytest.mark.parametrize("operand", OPERANDS.values(), ids=OPERANDS)
def test_elements_is_the_inverse_of_place(operand: Operand) -> None:
    for place, (row, column) in elements(operand).items():
        assert operand.place(row, column) == place


@pytest.mark.parametrize("operand", OPERANDS.values(), ids=OPERANDS)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_matrices_side_by_side_keep_their_lanes(operand: Operand, count: int) -> None:
    wide = side_by_side(operand, count)
    (rows, columns), registers = operand.sizes, operand.registers
    assert (wide.sizes, wide.registers) == ((rows, count * columns), count * registers)
    for row, column, part in product(range(rows), range(columns), range(count)):
        lane, register = operand.place(row, column)
        assert wide.place(row, column + part * columns) == (lane, register + part * registers)
    assert len(elements(wide)) == LANES * wide.registers


@pytest.mark.parametrize(
    ("instruction", "shape"),
    [(TF32, (16, 8, 8)), (BF16, (16, 8, 16)), (F16, (16, 8, 16)), (F64, (16, 8, 8)), (SHORT, (8, 8, 4))],
    ids=["tf32", "bf16", "f16", "f64", "f64 short"],
)
def test_an_instruction_is_found_by_shape_and_dtype(
    instruction: MatrixInstruction, shape: tuple[int, int, int]
) -> None:
    assert instruction.shape == shape
    assert instruction_of(shape, instruction.a.dtype) is instruction
    m, n, k = shape
    assert (instruction.a.sizes, instruction.b.sizes, instruction.c.sizes) == ((m, k), (k, n), (m, n))


def test_no_instruction_of_another_shape_or_dtype() -> None:
    assert instruction_of((16, 8, 4), DType.FLOAT32) is None
    assert instruction_of((16, 8, 8), DType.BFLOAT16) is None
