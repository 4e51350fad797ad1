"""The shape of translated kernels, kind by kind, and the cases that random programs seldom meet."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction as F
from typing import Any

import numpy as np
import pytest
from contraction_samples import contraction, p
from program_samples import random_inputs
from test_to_stripe_programs import check
from tile_ir.contents import Contents
from tile_ir.diagnostics import TileTypeError
from tile_ir.dtype import DType
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import (
    ConstantTensor,
    Contraction,
    Elementwise,
    Gather,
    Lookup,
    Op,
    Param,
    Poly,
    Prng,
    Program,
    Reshape,
    ScalarStatement,
    Scatter,
    TensorType,
    coordinates,
)
from tile_ir.stripe.interpret import run
from tile_ir.stripe.nodes import Block, Direction, Order, Store
from tile_ir.stripe.nodes import Program as Stripe
from tile_ir.stripe.verify import verify
from tile_lang.evaluate import evaluate
from tile_opt.translate import to_stripe

F32, U32, I32 = DType.FLOAT32, DType.UINT32, DType.INT32
i, j, k, x = (p(**{name: 1}) for name in "ijkx")


def program(inputs: dict[str, tuple[int, ...]], *ops: Op, outputs: str = "O", dtype: DType = F32) -> Program:
    params = tuple(Param(name, TensorType(dtype, shape)) for name, shape in inputs.items())
    return Program("test", params, ops, tuple((name, name) for name in outputs.split()))


def kernels(stripe: Stripe) -> list[Block]:
    (main,) = stripe.entry.body
    assert isinstance(main, Block) and main.name == "main"
    return [block for block in main.body if isinstance(block, Block)]


def stages(stripe: Stripe, kernel: int = 0) -> list[Block]:
    return [stage for stage in kernels(stripe)[kernel].body if isinstance(stage, Block)]


def names(stripe: Stripe, kernel: int = 0) -> list[str]:
    return [stage.name for stage in stages(stripe, kernel)]


def matmul() -> Contraction:
    c = contraction(([i, j], [4, 5]), ([i, k], [4, 6]), ([k, j], [6, 5]))
    return replace(c, text="O[i, j : M, N] = +(A[i, k] * B[k, j])")


def test_matmul_is_one_kernel_of_two_stages() -> None:
    stripe = to_stripe(program({"A": (4, 6), "B": (6, 5)}, matmul()))
    (kernel,) = kernels(stripe)
    assert kernel.comment == "O[i, j : M, N] = +(A[i, k] * B[k, j])" and not kernel.indexes
    init, acc = stages(stripe)
    assert [n.name for n in init.indexes] == ["i0", "i1"] and [n.name for n in acc.indexes] == ["i", "j", "k"]
    assert acc.ref("O").agg is Aggregation.SUM and acc.ref("O").dir is Direction.INOUT
    assert all(size == 1 for ref in acc.refs for size in ref.type.sizes)


def test_half_sums_accumulate_in_a_temporary() -> None:
    half = contraction(([i], [4]), ([i, k], [4, 6]), dtype=DType.FLOAT16)
    half = replace(half, body=(ScalarStatement("$w", "cast", ("$0",), F32),), result="$w", acc=F32)
    made = program({"A": (4, 6)}, half, dtype=DType.FLOAT16)
    stripe = to_stripe(made)
    assert names(stripe) == ["init", "acc", "cast"]
    (temporary,) = [ref for ref in kernels(stripe)[0].refs if ref.dir is Direction.ALLOC]
    assert temporary.type.dtype is F32
    check(made)


@pytest.mark.parametrize("agg", [Aggregation.MAX, Aggregation.MIN, Aggregation.PROD])
def test_cells_without_a_tuple_hold_zero_even_beside_extremes(agg: Aggregation) -> None:
    padded = contraction(([x], [10]), ([p(-3, x=1)], [7]), agg=agg)
    stripe = to_stripe(program({"A": (7,)}, padded))
    assert names(stripe) == ["init", "acc", "rest_0"]
    data = np.array([np.inf, -np.inf, np.nan, 0, 1, -1, 2], np.float32)
    np.testing.assert_array_equal(run(stripe, {"A": data})["O"], [0, 0, 0, *data])


def test_strided_maximum_uses_a_flag() -> None:
    made = program({"A": (5,)}, contraction(([p(i=2)], [10]), ([i], [5]), agg=Aggregation.MAX))
    stripe = to_stripe(made)
    assert names(stripe) == ["init", "init_hit", "acc", "select"]
    data = np.full(5, -np.inf, np.float32)
    np.testing.assert_array_equal(run(stripe, {"A": data})["O"][::2], data)
    check(made)


@pytest.mark.parametrize("default", [None, "D"])
@pytest.mark.parametrize("agg", list(Aggregation))
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_defaults_and_zeros(agg: Aggregation, default: str | None, stride: int) -> None:
    made = contraction(([p(1, i=stride)], [11]), ([i], [3]), agg=agg, default=default)
    check(program({"A": (3,), "D": (11,)}, made))


@pytest.mark.parametrize("default", [None, "D"])
def test_empty_domains_give_zeros_or_the_default(default: str | None) -> None:
    made = contraction(([p(i=2)], [50]), ([p(i=4)], [50]), user=[(p(-100, i=1), 50)], default=default)
    check(program({"A": (50,), "D": (50,)}, made))


def test_dense_assignment_needs_no_fill() -> None:
    dense = contraction(([p(j=3, k=1)], [12]), ([j, k], [4, 3]), agg=Aggregation.ASSIGN)
    made = program({"A": (4, 3)}, dense)
    assert names(to_stripe(made)) == ["assign"]
    check(made)
    sparse = program({"A": (4,)}, contraction(([p(j=3)], [12]), ([j], [4]), agg=Aggregation.ASSIGN))
    assert names(to_stripe(sparse)) == ["zero", "assign"]
    check(sparse)


def test_assigning_twice_is_a_type_error() -> None:
    broken = contraction(([], []), ([i], [4]), agg=Aggregation.ASSIGN)
    with pytest.raises(TileTypeError, match="Multiple assignment"):
        to_stripe(program({"A": (4,)}, broken))


def test_fractional_upsampling() -> None:
    half = contraction(([x], [5]), ([p(F(1, 2), x=F(1, 2), k=F(-1, 2))], [3]), ([k], [3]))
    check(program({"A": (3,), "B": (3,)}, half))


def test_broken_maximum_pool_is_the_global_maximum() -> None:
    made = program({"A": (8,)}, contraction(([i], [4]), ([p(i=2, j=1)], [8]), agg=Aggregation.MAX))
    inputs = random_inputs(made)
    found = run(to_stripe(made), inputs)["O"]
    assert found.shape == (4,) and np.all(found == inputs["A"].max())


@pytest.mark.parametrize("shapes", [((2, 3), (3, 2)), ((4, 3, 5), (5, 6, 2)), ((12,), (2, 3, 2)), ((1, 4), (2, 1, 2))])
def test_reshapes(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    check(program({"A": shapes[0]}, Reshape("O", TensorType(F32, shapes[1]), "A")))


def test_reshape_over_common_pieces_has_plain_subscripts() -> None:
    stripe = to_stripe(program({"A": (6, 2)}, Reshape("O", TensorType(F32, (3, 4)), "A")))
    (stage,) = stages(stripe)
    assert [index.range for index in stage.indexes] == [3, 2, 2]


@pytest.mark.parametrize("shape", [(5,), (2048,), (2, 3, 7), (0, 3), (1, 2049, 1), ()])
def test_random_numbers(shape: tuple[int, ...]) -> None:
    draw = Prng("V", "S", TensorType(F32, shape), "seed")
    made = program({"seed": (3, 2048)}, draw, outputs="V S", dtype=U32)
    seed = np.random.default_rng(0).integers(0, 1 << 32, (3, 2048), dtype=np.uint32)
    found, expected = run(to_stripe(made), {"seed": seed}), evaluate(made, {"seed": seed})
    np.testing.assert_array_equal(found["V"], expected["V"])
    np.testing.assert_array_equal(found["S"], expected["S"])


def test_generator_steps_are_ordered_and_streams_free() -> None:
    stripe = to_stripe(
        program({"seed": (3, 2048)}, Prng("V", "S", TensorType(F32, (5000,)), "seed"), outputs="V", dtype=U32)
    )
    draws = [stages(stripe, kernel)[1] for kernel in (0, 1)]
    orders = [{index.name: index.order for index in stage.indexes} for stage in draws]
    assert orders == [{"s": Order.FREE, "k": Order.ORDERED}, {"s": Order.FREE}]
    assert not any(stage.constraints for stage in draws)  # they would keep the streams from vector lanes


def rows(updates: tuple[int, ...], result: tuple[int, ...]) -> Program:
    params = (Param("A", TensorType(F32, updates)), Param("R", TensorType(I32, updates[:1])))
    subscripts = (Lookup("R", coordinates(1)), Poly.of({"i1": 1}))
    return Program("rows", params, (Scatter("O", TensorType(F32, result), "A", subscripts),), (("O", "O"),))


def test_scatter_adds_rows_in_order_and_clamps() -> None:
    made = rows((6, 2), (3, 2))
    (stage,) = stages(to_stripe(made), 1)
    # Columns never meet; rows may, and are added in order.
    assert [index.order for index in stage.indexes] == [Order.FREE, Order.ORDERED]
    assert any(isinstance(s, Store) and s.clamp for s in stage.body)
    check(made)


@pytest.mark.parametrize("agg", [Aggregation.MAX, Aggregation.PROD])
def test_cells_beside_the_columns_that_are_scattered_hold_zero(agg: Aggregation) -> None:
    """Rows of two cells into rows of four: the other two get no value, so that a flag for the row is not enough."""
    made = rows((6, 2), (3, 4))
    (scatter,) = made.ops
    check(replace(made, ops=(replace(scatter, agg=agg),)))


@pytest.mark.parametrize(
    ("agg", "rest", "flags"),
    [
        (Aggregation.MAX, -np.inf, False),
        (Aggregation.MIN, np.inf, False),
        (Aggregation.SUM, 0.0, False),
        (Aggregation.SUM, -0.0, True),
        (Aggregation.MAX, 0.0, True),
        (Aggregation.PROD, 1.0, False),
    ],
)
def test_no_flags_where_cells_without_a_value_hold_the_identity(agg: Aggregation, rest: float, flags: bool) -> None:
    made = rows((6, 2), (9, 2))
    (scatter,) = made.ops
    number = ConstantTensor("N", TensorType(F32, ()), Contents(np.float32(rest).tobytes()))
    spread = Elementwise("D", TensorType(F32, (9, 2)), "ident", ("N",))
    made = replace(made, ops=(number, spread, replace(scatter, agg=agg, default="D")))
    stripe = to_stripe(made)
    written = {name for k in range(len(kernels(stripe))) for name in names(stripe, k)}
    assert ("hit" in written) is flags
    check(made)


def test_gather_from_nothing_is_zero() -> None:
    params = (Param("A", TensorType(F32, (0, 2))), Param("R", TensorType(I32, (3,))))
    subscripts = (Lookup("R", coordinates(1)), Poly.of({"i1": 1}))
    check(Program("nothing", params, (Gather("O", TensorType(F32, (3, 2)), "A", subscripts),), (("O", "O"),)))


def test_gather_takes_the_nearest_row_there_is() -> None:
    params = (Param("A", TensorType(F32, (4, 2))), Param("R", TensorType(I32, (5,))))
    subscripts = (Lookup("R", coordinates(1)), Poly.of({"i1": 1}))
    made = Program("nearest", params, (Gather("O", TensorType(F32, (5, 2)), "A", subscripts),), (("O", "O"),))
    rows = np.arange(8, dtype=np.float32).reshape(4, 2)
    found = run(to_stripe(made), {"A": rows, "R": np.array([-7, -1, 2, 4, 2**31 - 1], np.int32)})["O"]
    assert found.tolist() == rows[[0, 0, 2, 3, 3]].tolist()


def test_outputs_that_need_copies() -> None:
    constant = ConstantTensor("C", TensorType(F32, (2,)), Contents(np.float32([1, 2]).tobytes()))
    neg = Elementwise("N", TensorType(F32, (2,)), "neg", ("A",))
    made = Program(
        "copies",
        (Param("A", TensorType(F32, (2,))),),
        (constant, neg),
        (("P", "A"), ("Q", "C"), ("R", "N"), ("S", "N")),
    )
    stripe = to_stripe(made)
    assert stripe.outputs == ("P", "Q", "R", "S") and [c.name for c in stripe.constants] == ["C"]
    assert len(kernels(stripe)) == 4
    check(made)


def test_an_output_named_like_an_input_or_another_value() -> None:
    neg = Elementwise("B", TensorType(F32, (2,)), "neg", ("A",))
    exp = Elementwise("R", TensorType(F32, (2,)), "exp", ("B",))
    made = Program("names", (Param("A", TensorType(F32, (2,))),), (neg, exp), (("A", "R"), ("R", "B")))
    stripe = to_stripe(made)
    assert stripe.inputs == ("A",) and stripe.outputs == ("A_1", "R")
    data = np.float32([0, 1])
    found = run(stripe, {"A": data})
    np.testing.assert_array_equal(found["R"], -data)
    np.testing.assert_allclose(found["A_1"], np.exp(-data), rtol=1e-6)


def test_empty_outputs_have_no_kernel() -> None:
    neg = Elementwise("O", TensorType(F32, (0, 3)), "neg", ("A",))
    assert kernels(to_stripe(program({"A": (0, 3)}, neg))) == []
    total = contraction(([x], [3]), ([i, x], [0, 3]))
    made = program({"A": (0, 3)}, total)
    assert names(to_stripe(made)) == ["zero"]
    check(made)


def test_tags_are_for_people_only() -> None:
    def bare(block: Block) -> Block:
        body = tuple(bare(s) if isinstance(s, Block) else s for s in block.body)
        refs = tuple(replace(ref, tags=frozenset[str]()) for ref in block.refs)
        return replace(block, tags=frozenset[str](), refs=refs, body=body)

    made = program({"A": (4, 6), "B": (6, 5)}, matmul())
    stripe = to_stripe(made)
    stripped: Any = replace(stripe, entry=bare(stripe.entry))
    verify(stripped)
    inputs = random_inputs(made)
    np.testing.assert_array_equal(run(stripped, inputs)["O"], run(stripe, inputs)["O"])


def test_errors_of_all_contractions_are_collected() -> None:
    first = contraction(([], []), ([i], [4]), agg=Aggregation.ASSIGN)
    second = replace(first, name="P")
    with pytest.raises(TileTypeError) as caught:
        to_stripe(program({"A": (4,)}, first, second, outputs="O P"))
    assert [d.code for d in caught.value.diagnostics] == ["TILE-E132", "TILE-E132"]
