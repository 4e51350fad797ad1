"""Types, folding and clean-up: what the binder makes of a function."""

from __future__ import annotations

import numpy as np
import pytest
import tile_lang
from bind_support import program, result_type, run, types_of
from tile_ir.diagnostics import TileError, TileLimitError
from tile_ir.program.nodes import Constraint, Contraction, Elementwise, Literal, Poly
from tile_lang import Limits


@pytest.mark.parametrize(
    ("body", "types", "expected"),
    [
        ("O = A + 1;", "A=uint8[3]", "uint8[3]"),
        ("O = A + 1;", "A=bool[3]", "int32[3]"),
        ("O = A + 1.5;", "A=bool[3]", "float32[3]"),
        ("O = A + 1.5;", "A=int64[3]", "float32[3]"),
        ("O = A * 2.0;", "A=float16[3]", "float16[3]"),
        ("O = A * 2.0;", "A=float64[3]", "float64[3]"),
        ("O = 1 / A;", "A=int8[3]", "int8[3]"),
        ("O = A + B;", "A=int32[3] B=uint32[3]", "int64[3]"),
        ("O = A + B;", "A=int64[3] B=float16[3]", "float16[3]"),
        ("O = A + B;", "A=float32[4,1] B=float32[3]", "float32[4, 3]"),
        ("O = A + B;", "A=float32[] B=float32[0,3]", "float32[0, 3]"),
        ("O = A < 300;", "A=uint8[3]", "bool[3]"),
        ("O = exp(A);", "A=int32[3]", "float32[3]"),
        ("O = sqrt(A);", "A=bool[3]", "float32[3]"),
        ("O = pow(A, 2);", "A=float16[3]", "float16[3]"),
        ("O = sigmoid(A);", "A=int8[3]", "float32[3]"),
        ("O = relu(A);", "A=int8[3]", "int8[3]"),
        ("O = A << B;", "A=int8[3] B=int64[3]", "int8[3]"),
        ("O = 1 << A;", "A=uint16[3]", "uint16[3]"),
        ("O = A > 0 ? A : 0;", "A=float16[3]", "float16[3]"),
        ("O = A > 0 ? 1 : 0;", "A=float16[3]", "int32[3]"),
        ("O = A > 0 ? 1 : 0.5;", "A=float16[3]", "float32[3]"),
        ("O = ~A;", "A=bool[3]", "bool[3]"),
        ("O = A & 1;", "A=bool[3]", "int32[3]"),
        ("O = as_float(A, 64);", "A=int8[3]", "float64[3]"),
        ("O = as_uint(7, 16);", "", "uint16[]"),
        ("O = as_bool(A);", "A=float32[2]", "bool[2]"),
        ("O = as_bool(A, 1);", "A=float32[2]", "bool[2]"),
        ("O = index(A, 1);", "A=float32[2,3]", "int32[2, 3]"),
        ("O = shape(A);", "A=float32[2,3]", "int32[2]"),
        ("O = shape(A);", "A=float32[]", "int32[0]"),
        ("O = reshape(A, 3, 2);", "A=float32[2,3]", "float32[3, 2]"),
        ("O = gather(A, B);", "A=float32[9,5] B=int32[2,3]", "float32[2, 3, 5]"),
        ("O = scatter(A, B, C);", "A=float32[2,3,5] B=int32[2,3] C=float32[9,5]", "float32[9, 5]"),
        ("O = 3;", "", "int32[]"),
        ("O = 3.5;", "", "float32[]"),
        ("O = 3 > 2;", "", "bool[]"),
        ("O[] = +(A[i]);", "A=float16[3]", "float16[]"),
        ("O[] = +(A[i] * B[i]);", "A=int8[3] B=float32[3]", "float32[]"),
        ("O[] = +(A[i] == B[i]);", "A=int8[3] B=float32[3]", "bool[]"),
        ("O[] = +(A[i] == B[i] ? C[i]);", "A=int8[3] B=float32[3] C=int16[3]", "int16[]"),
        ("O = simple_reduce(A, 3, 1);", "A=float32[2,3,4]", "float32[3, 1]"),
        ("O = builtin_softmax(A, 3, 4);", "A=float32[3,4]", "float32[3, 4]"),
    ],
)
def test_result_type(body: str, types: str, expected: str) -> None:
    assert result_type(body, types) == expected


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("N / 2", 3),
        ("(N + 1) / 2", 4),
        ("(0 - N) / 2", -3),
        ("mod(N, 4)", 3),
        ("mod(-N, 4)", 1),
        ("mod(N, -4)", -1),
        ("fmod(-N, 4)", -3),
        ("trunc(N / -2.0)", -3),
        ("round_even(N / 2.0)", 4),
        ("round_even((N - 2) / 2.0)", 2),
        ("sign(-N)", -1),
        ("max(N, 9) - min(N, 2)", 7),
        ("ceil(N / 2.0)", 4),
        ("floor(N / 2.0)", 3),
        ("round(N / 2.0)", 4),
        ("broadcast(1, N)", 7),
        ("match(N, 7)", 7),
        ("N > 3 ? 10 : 20", 10),
        ("N < 3 ? Missing : 20", 20),
        ("cond(N == 7, 1, 2)", 1),
        ("9007199254740993 - 9007199254740992", 1),
        ("1000000000000 * 1000000000000 / 1000000000000 / 500000000000", 2),
        ("1 << 4 | 3 ^ 1", 18),
        ("pow(2, 5)", 32),
        ("abs(2 - N)", 5),
        ("element(tuple(4, 5), 1)", 5),
        ("8 / 2 * floor(2.0)", 8),
        ("assert_positive(N)", 7),
    ],
)
def test_dimension_arithmetic(expression: str, value: int) -> None:
    if value < 0:
        expression, value = f"0 - ({expression})", -value
    bound = program(f"function (A[N]) -> (O) {{ O[i : {expression}] = +(A[i]); }}", "A=float32[7]")
    assert bound.types()["O"].shape == (value,)


def test_comparison_with_a_literal_is_exact() -> None:
    x = np.array([0, 1, 254, 255], np.uint8)
    for test, expected in {
        "A < 300": x >= 0,
        "A > 300": x < 0,
        "A == 300": x < 0,
        "A != 300": x >= 0,
        "-1 < A": x >= 0,
        "A <= 254.5": x < 255,
        "A == 1.0": x == 1,
        "A != 0.5": x >= 0,
        "A >= 1e30": x < 0,
    }.items():
        np.testing.assert_array_equal(run(f"O = {test};", A=x), expected, test)
    big = np.array([16777216, 16777218, np.nan, np.inf], np.float32)
    np.testing.assert_array_equal(run("O = A == 16777217;", A=big), [False] * 4)
    np.testing.assert_array_equal(run("O = A != 16777217;", A=big), [True] * 4)
    np.testing.assert_array_equal(run("O = A < 16777217;", A=big), [True, False, False, False])
    np.testing.assert_array_equal(run("O = A > 16777217;", A=big), [False, True, False, True])
    small = np.array([65504, np.inf, np.nan], np.float16)
    np.testing.assert_array_equal(run("O = A < 100000;", A=small), [True, False, False])
    np.testing.assert_array_equal(run("O = A >= 100000.0;", A=small), [False, True, False])
    np.testing.assert_array_equal(run("O = A == 0.1;", A=np.array([0.1], np.float32)), [True])
    np.testing.assert_array_equal(run("O = A < 2;", A=np.array([False, True])), [True, True])


def test_literals_carry_the_dtype_that_they_took() -> None:
    bound = program("O = A * 0.1;", "A=float16[3]")
    assert bound.ops == (
        Elementwise(
            "O",
            bound.types()["O"],
            "mul",
            ("A", Literal(float(np.float16(0.1)), bound.inputs[0].type.dtype)),
            (),
            bound.ops[0].origin,
        ),
    )


def test_domain_lists_every_subscript_then_the_constraints() -> None:
    (op,) = program("function (A[N]) -> (O) { O[i: N / 2] = >(A[2 * i + j]), j < 2, j / 2 < N; }", "A=float32[9]").ops
    assert isinstance(op, Contraction)
    plain = [Constraint(c.formula, c.size) for c in op.constraints]
    i, j = Poly.of({"i": 1}), Poly.of({"j": 1})
    assert plain == [Constraint(i, 4), Constraint(i.scaled(2) + j, 9), Constraint(j, 2), Constraint(j, 18)]
    assert op.indexes == ("i", "j")
    assert op.constraints[2].origin is not None and op.constraints[2].origin.text == "j < 2"


def test_half_precision_products_are_formed_in_the_accumulator() -> None:
    (op,) = program("O[] = +(A[i] * B[i]);", "A=float16[3] B=float16[3]").ops
    assert isinstance(op, Contraction)
    assert (str(op.acc), [(s.fn, str(s.dtype)) for s in op.body]) == (
        "float32",
        [("cast", "float32"), ("cast", "float32"), ("mul", "float32")],
    )
    (op,) = program("O[] = >(A[i] * B[i]);", "A=float16[3] B=float16[3]").ops
    assert isinstance(op, Contraction)
    assert (str(op.acc), [(s.fn, str(s.dtype)) for s in op.body]) == ("float16", [("mul", "float16")])


def test_aliases_vanish_and_unused_operations_are_dropped() -> None:
    bound = program(
        "function (A) -> (P, Q, A) { X = A; Y = ident(X); Unused = exp(A); Z = Y + 1; P = Z; Q = Z; }", "A=float32[3]"
    )
    assert [op.name for op in bound.ops if isinstance(op, Elementwise)] == ["Z"]
    assert bound.outputs == (("P", "Z"), ("Q", "Z"), ("A", "A"))


def test_a_member_of_a_tuple_keeps_its_name_in_the_tuple() -> None:
    bound = program(
        "function (A) -> (P, Q) { T = tuple(2, A + 1); P = element(T, 1); Q = element(T, 1) * 2; }", "A=float32[3]"
    )
    values = tile_lang.evaluate(bound, {"A": np.arange(3, dtype=np.float32)})
    np.testing.assert_array_equal(values["P"], [1, 2, 3])
    np.testing.assert_array_equal(values["Q"], [2, 4, 6])


def test_errors_of_later_uses_stay_silent() -> None:
    with pytest.raises(TileError) as caught:
        program("function (A) -> (O) { X = Missing; Y = X + 1; O = Y * X; }", "A=float32[3]")
    assert [d.code for d in caught.value.diagnostics] == ["TILE-E101"]


def test_long_chains_and_deep_trees_bind() -> None:
    chain = "O = A" + " + A" * 5000 + ";"
    assert len(program(chain, "A=float32[1]").ops) == 5000
    total = "function (A[N]) -> (O) { O[i : " + "1 + " * 3000 + "N] = +(A[i]); }"
    assert program(total, "A=float32[1]").types()["O"].shape == (3001,)


def test_limits_are_checked() -> None:
    source = tile_lang.parse("function (A[N]) -> (O) { O[i, j : N, N] = +(A[i] * A[j]); }")
    with pytest.raises(TileLimitError, match="max_elements"):
        tile_lang.bind(source, types_of("A=float32[100]"), limits=Limits(max_elements=1000))


def test_wrong_inputs_of_the_evaluator_are_named() -> None:
    bound = program("O = A + B;", "A=float32[3] B=float32[3]")
    with pytest.raises(TileError, match=r"(?s)input A must be float32\[3\], not float64\[3\].*input B is missing"):
        tile_lang.evaluate(bound, {"A": np.zeros(3)})


def test_a_constant_default_takes_the_dtype_of_the_output() -> None:
    found = run("Half = 0.5; O[2*i:3] = +(A[i]) default Half;", A=np.array([4, 6], np.float16))
    np.testing.assert_array_equal(found, [4, 0.5, 6])
    with pytest.raises(TileError, match=r"constant 0\.5 does not fit int8"):
        run("Half = 0.5; O[2*i:3] = +(A[i]) default Half;", A=np.array([4, 6], np.int8))


def test_casts_are_made_once() -> None:
    bound = program("function (A) -> (O, P) { X = exp(A); O = X + log(A); P = as_float(A, 32); }", "A=int8[3]")
    casts = [op for op in bound.ops if isinstance(op, Elementwise) and op.fn == "cast"]
    assert len(casts) == 1 and dict(bound.outputs)["P"] == casts[0].name


def test_every_builtin_binds_or_explains() -> None:
    from tile_lang.builtins import BUILTINS

    arguments = [
        "A",
        "1",
        "B",
        "A, 1",
        "A, 32",
        "A, B",
        "3, 3",
        "A, 2, 3",
        "A > 0, A, A",
        "A, A, A",
        "A, I",
        "A, I, A",
        "S",
        "S, 3",
        "A, 1, 1",
        "shape(A), 3",
        "as_int(A, 16)",
    ]
    types = "A=float32[2,3] B=int32[2,3] I=int32[2] S=uint32[3,2048]"
    for name in BUILTINS:
        bound = 0
        for given in arguments:
            try:
                program(f"X = {name}({given}); O = A;", types)
                bound += 1
            except TileError as error:
                assert all(d.span is not None and d.code in tile_lang.CODES for d in error.diagnostics)
        assert bound or name in ("assert_", "element", "prng_value", "prng_state"), name
