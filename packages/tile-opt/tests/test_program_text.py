"""A program that is printed and parsed back is the program: every kind of operation, literals of every dtype."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from program_samples import programs
from tile_ir.dtype import DType
from tile_ir.program.nodes import CustomGradient, Elementwise, Literal, Param, Program, TensorType
from tile_ir.program.parser import parse_program
from tile_ir.program.printer import print_program

SPECIAL = (0.0, -0.0, float("nan"), float("inf"), -float("inf"), 5e-324, 1.7976931348623157e308)


def values(dtype: DType) -> st.SearchStrategy[float | int | bool]:
    if dtype is DType.BOOL:
        return st.booleans()
    if dtype.is_float:
        return st.floats() | st.sampled_from(SPECIAL)
    return st.integers(int(dtype.min_value), int(dtype.max_value))


LITERALS = st.sampled_from(list(DType)).flatmap(lambda d: values(d).map(lambda v: Literal(v, d)))


def one_operation(literal: Literal) -> Program:
    type_ = TensorType(literal.dtype, (3, 0))
    op = Elementwise("B", type_, "max", ("A", literal))
    return Program("main", (Param("A", type_, bound=True),), (op,), (("B", "B"), ("C", "A")))


@settings(max_examples=150, deadline=None)
@given(programs(8))
def test_operations_come_back(made: Program) -> None:
    assert parse_program(print_program(made)) == made


@settings(max_examples=200)
@given(LITERALS)
def test_literals_come_back(literal: Literal) -> None:
    made = one_operation(literal)
    assert parse_program(print_program(made)) == made


@given(LITERALS)
def test_derivatives_by_hand_come_back(literal: Literal) -> None:
    outer = one_operation(literal)
    type_ = outer.inputs[0].type
    op = Elementwise("G", type_, "mul", ("D", literal))
    backward = Program("back", tuple(Param(n, type_) for n in "XYD"), (op,), (("dX", "G"),))
    made = replace(outer, gradients=(CustomGradient(("A",), ("B",), backward),))
    assert parse_program(print_program(made)) == made
