"""What is expected of contractions (names, ranges, strides, constraints), and the errors of the analysis."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction as F

import pytest
from contraction_samples import Access, contraction, p
from tile_ir.diagnostics import Source, Span, TileLimitError, TileTypeError
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import Contraction
from tile_ir.stripe.affine import Affine
from tile_opt.analysis import FlatDomain, Sets, analyze, check_assigned_once, uncovered
from tile_opt.analysis.answering import COUNTED, Answerer
from tile_opt.analysis.domain import find_bounds, leftover
from tile_opt.analysis.integer_sets import Error, Isl
from tile_opt.analysis.sets import Bounds

i, j, k, n, x, y, ci, co = (p(**{name: 1}) for name in ("i", "j", "k", "n", "x", "y", "ci", "co"))


def flat(c: Contraction) -> FlatDomain:
    return analyze(c, Sets())


def strides(domain: FlatDomain, *shapes: Sequence[int]) -> list[tuple[tuple[int, ...], int]]:
    return [
        domain.strides(access, shape) for access, shape in zip((domain.output, *domain.accesses), shapes, strict=True)
    ]


def rows(domain: FlatDomain, implied: bool = False) -> set[tuple[tuple[int, ...], int]]:
    """Constraints as (coefficients, right side) of ``coefficients . index <= right side``."""
    forms = domain.implied if implied else domain.constraints
    return {(tuple(-f.coefficient(name) for name in domain.names), f.const) for f in forms}


def two_sided(*ranges: tuple[Affine, int]) -> list[Affine]:
    return [side for form, size in ranges for side in (form, form * -1 + (size - 1))]


def bounded(names: Sequence[str], *ranges: tuple[Affine, int]) -> tuple[Bounds, list[Affine]]:
    sides = two_sided(*ranges)
    bounds = find_bounds(names, sides, Sets())
    assert bounds is not None
    return bounds, leftover(sides, bounds)


def test_bounds_without_leftover() -> None:
    vx, vi = Affine.var("x"), Affine.var("i")
    bounds, rest = bounded(("i", "x"), (vx, 5), (vx + vi, 7), (vi, 3))
    assert bounds == {"x": (0, 4), "i": (0, 2)} and rest == []


def test_bounds_with_leftover() -> None:
    vx, vi = Affine.var("x"), Affine.var("i")
    bounds, rest = bounded(("i", "x"), (vx, 7), (vx + vi, 7), (vi + 1, 3))
    assert bounds == {"i": (-1, 1), "x": (0, 6)}
    assert rest == [vx + vi, (vx + vi) * -1 + 6]


def test_product_of_everything() -> None:
    domain = flat(contraction(([], []), ([x, y], [100, 100])))
    assert domain.names == ("x", "y") and domain.ranges == (100, 100)
    assert strides(domain, (), (100, 128)) == [((0, 0), 0), ((128, 1), 0)]


def test_matmul() -> None:
    domain = flat(contraction(([i, j], [100, 100]), ([i, k], [100, 100]), ([k, j], [100, 100])))
    assert domain.names == ("i", "j", "k") and domain.constraints == ()
    pitch = (100, 128)
    assert [s for s, _ in strides(domain, pitch, pitch, pitch)] == [(128, 1, 0), (128, 0, 1), (0, 1, 128)]


def test_reduction_with_four_digits() -> None:
    domain = flat(contraction(([p(x=2, i=1)], [100]), ([x], [50]), user=[(i, 4)]))
    assert domain.names == ("v0_0", "v0_1", "v1_0") and domain.ranges == (2, 50, 2)
    assert strides(domain, (100,), (50,)) == [((1, 2, 0), 0), ((0, 1, -1), 0)]
    assert rows(domain) == {((0, -1, 1), 0)}


def test_reduction_without_constraint() -> None:
    domain = flat(contraction(([p(x=2, i=1)], [100]), ([x], [50]), user=[(i, 2)]))
    assert domain.names == ("v0_0", "v0_1") and domain.ranges == (2, 50) and not domain.constraints
    assert strides(domain, (100,), (50,)) == [((1, 2), 0), ((0, 1), 0)]


def test_no_defract_keeps_the_indexes() -> None:
    c = contraction(([p(x=2, i=1)], [100]), ([x], [50]), user=[(i, 2)], no_defract=True)
    assert flat(c).names == ("i", "x")


def test_gradient_of_a_strided_convolution() -> None:
    domain = flat(
        contraction(
            ([n, p(i=1, x=1), p(j=1, y=2), ci], [1, 3, 6, 1]),
            ([n, x, y, co], [1, 2, 3, 1]),
            ([i, j, ci, co], [2, 2, 1, 1]),
        )
    )
    assert domain.names == ("v1_0", "v2_0", "v2_1", "v5_0") and domain.ranges == (3, 2, 3, 2)
    assert rows(domain) == {((-1, 0, 0, 1), 0), ((1, 0, 0, -1), 1)}
    got = [s for s, _ in strides(domain, (1, 3, 6, 1), (1, 2, 3, 1), (2, 2, 1, 1))]
    assert got == [(6, 1, 2, 0), (0, 0, 1, 3), (2, 1, 0, -2)]


def test_steps_over_an_image_as_large_as_the_filter_leave_a_part_for_each_place_within_a_step() -> None:
    """``O[2*y + k - 1] += I[y] * K[k]`` with 4 cells and 4 weights: each cell of the output has two of them, not four."""
    domain = flat(contraction(([p(-1, k=1, y=2)], [8]), ([y], [4]), ([k], [4])))
    assert domain.ranges == (2, 5, 2)


@pytest.mark.parametrize("size", [10, 33])
def test_upsampling_with_a_kernel(size: int) -> None:
    half = p(i=F(1, 2), k=F(1, 2))
    domain = flat(contraction(([i], [2 * size]), ([half], [size]), ([k], [5])))
    assert domain.ranges == (2, size, 3)


@pytest.mark.parametrize(("a", "b", "size"), [(3, 7, 50), (2, 2, 9), (5, 1, 11)])
def test_strided_copy(a: int, b: int, size: int) -> None:
    domain = flat(contraction(([p(i=a)], [size]), ([p(i=b)], [size])))
    assert domain.ranges == (min(-(-size // a), -(-size // b)),) and not domain.constraints
    assert strides(domain, (size,), (size,)) == [((a,), 0), ((b,), 0)]


def test_offset_shortens_the_range() -> None:
    domain = flat(contraction(([i], [10]), ([p(-5, i=1)], [10])))
    assert domain.ranges == (5,) and strides(domain, (10,), (10,)) == [((1,), 5), ((1,), 0)]


def test_coupled_fractions() -> None:
    """The facts' four constraints, of which the other three imply one: v0_1 <= v1_0 and v0_0 + 12 v1_0 <= 149."""
    first = contraction(
        ([p(i=F(1, 5), j=1)], [150]), ([p(i=F(1, 3), j=1), p(i=F(1, 2))], [150, 150]), ([p(i=F(1, 18))], [150])
    )
    domain = flat(first)
    assert domain.ranges == (12, 13, 13) and domain.names == ("v0_0", "v0_1", "v1_0")
    assert rows(domain) == {((1, 0, 12), 149), ((0, 1, -1), 0), ((0, -1, 1), 3)}
    assert rows(domain, implied=True) == {((1, 12, 0), 149)}
    spatial: Access = ([p(i=F(1, 3), j=1), p(i=F(1, 2), k=1), p(i=F(1, 18), k=-1)], [150, 150, 150])
    domain = flat(contraction(([p(i=F(1, 5), j=1)], [150]), spatial))
    assert domain.ranges == (12, 13, 13, 150) and domain.names == ("v0_0", "v0_1", "v1_0", "v2_0")
    assert rows(domain) == {((1, 0, 12, 0), 149), ((0, 50, -50, 1), 0), ((0, -50, 50, -1), 149)}
    assert rows(domain, implied=True) == {((1, 12, 0, 0), 149)}


def test_implied_constraints_exclude_no_point_of_the_others() -> None:
    """Every point of the three is one of the four, and without the last two the fourth would exclude some."""
    domain = flat(
        contraction(
            ([p(i=F(1, 5), j=1)], [150]), ([p(i=F(1, 3), j=1), p(i=F(1, 2))], [150, 150]), ([p(i=F(1, 18))], [150])
        )
    )
    from test_analysis_properties import points

    (fourth,) = domain.implied
    four = points(domain.names, domain.ranges, (*domain.constraints, fourth))
    assert four == points(domain.names, domain.ranges, domain.constraints)
    alone = [f for f in domain.constraints if "v0_0" not in f.names]
    assert points(domain.names, domain.ranges, alone) != points(domain.names, domain.ranges, (*alone, fourth))


def test_offset_and_user_constraints() -> None:
    c = contraction(
        ([i, j], [100, 100]), ([p(2, i=1), k], [100, 100]), ([k, j], [100, 100]), user=[(k, 50), (p(i=1, j=1), 75)]
    )
    domain = flat(c)
    assert domain.ranges == (75, 75, 50) and rows(domain) == {((1, 1, 0), 74)}
    assert strides(domain, (100, 128), (100, 128), (100, 128))[1][1] == 256


def test_indexes_of_one_value_vanish() -> None:
    n0, n1, n2 = p(n0=1), p(n1=1), p(n2=1)
    assert flat(contraction(([n0, n2], [4, 5]), ([n0, n1, n2], [4, 1, 5]))).names == ("n0", "n2")


def test_contradiction_is_an_empty_domain() -> None:
    domain = flat(contraction(([p(i=2)], [50]), ([p(i=4)], [50]), user=[(p(-100, i=1), 50)]))
    assert domain.empty
    (region,) = uncovered(domain, (50,), Sets()) or ()
    assert region.ranges == (50,)


def test_a_large_convolution() -> None:
    image, window = [32, 224, 224, 64], [3, 3, 64, 64]
    domain = flat(
        contraction(
            ([n, x, y, co], image),
            ([n, p(-1, x=1, i=1), p(-1, y=1, j=1), ci], image),
            ([i, j, co, ci], window),
        )
    )
    assert domain.names == ("ci", "co", "i", "j", "n", "x", "y") and domain.ranges == (64, 64, 3, 3, 32, 224, 224)
    assert strides(domain, image, image, window)[1][1] == -14400
    assert rows(domain) == {
        ((0, 0, -1, 0, 0, -1, 0), -1),
        ((0, 0, 1, 0, 0, 1, 0), 224),
        ((0, 0, 0, -1, 0, 0, -1), -1),
        ((0, 0, 0, 1, 0, 0, 1), 224),
    }
    assert uncovered(domain, image, Sets()) == ()


def test_diagonal_needs_one_loop() -> None:
    domain = flat(contraction(([i], [6]), ([i, j], [6, 6]), user=[(p(i=1, j=-1), 1)]))
    assert domain.names == ("i",) and not domain.constraints
    assert strides(domain, (6,), (6, 6)) == [((1,), 0), ((7,), 0)]


def test_three_coupled_lattice_coordinates() -> None:
    """Digits alone would lose tuples here: x_1 moves with x_0, and x_2 with x_1."""
    c = contraction(
        ([p(a=1)], [9]), ([p(a=F(1, 2), b=F(1, 2))], [9]), ([p(b=F(1, 2), c=F(1, 2))], [9]), user=[(p(c=1), 9)]
    )
    domain = flat(c)
    every = [(a, b, q) for a in range(9) for b in range(-9, 18) for q in range(9)]
    count = sum((a + b) % 2 == 0 and (b + q) % 2 == 0 and 0 <= a + b < 17 and 0 <= b + q < 17 for a, b, q in every)
    from test_analysis_properties import points

    assert len(points(domain.names, domain.ranges, domain.constraints)) == count


def test_constraint_only_index_stays() -> None:
    assert flat(contraction(([i], [4]), ([i], [4]), user=[(j, 3)])).names == ("i", "j")


def test_huge_tensors() -> None:
    size = 1 << 31
    domain = flat(contraction(([i], [2 * size - 2]), ([p(i=F(1, 2), k=F(1, 2))], [size]), ([k], [3])))
    assert domain.ranges[-1] <= size and size - 1 in domain.ranges


def located(c: Contraction) -> Contraction:
    return replace(c, origin=Span(Source("O[x] = +(A[y]);"), 0, 15))


def test_unbounded_index_names_the_index_and_place() -> None:
    with pytest.raises(TileTypeError) as caught:
        flat(located(contraction(([x], [6]), ([y], [3]), user=[(p(q=1, r=1), 5)])))
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "TILE-E131" and "'r'" in diagnostic.message
    assert diagnostic.span is not None and diagnostic.span.column == 1


def test_unbounded_index_is_an_error_beside_an_empty_tensor_too() -> None:
    with pytest.raises(TileTypeError):
        flat(contraction(([x], [0]), ([x], [0]), user=[(p(q=1, r=1), 5)]))


def test_assignment_of_an_outer_product_but_not_an_inner_one() -> None:
    def product(outer: int, inner: int) -> Contraction:
        return contraction(
            ([i, j], [outer, outer]), ([i, k], [outer, inner]), ([k, j], [inner, outer]), agg=Aggregation.ASSIGN
        )

    fine = product(5, 1)
    check_assigned_once(fine, flat(fine), Sets())
    broken = located(product(1, 5))
    with pytest.raises(TileTypeError, match="Multiple assignment") as caught:
        check_assigned_once(broken, flat(broken), Sets())
    assert caught.value.diagnostics[0].span is not None


def test_reshape_by_contraction_is_dense_and_injective() -> None:
    c = contraction(([p(j=3, k=1)], [12]), ([j, k], [4, 3]), agg=Aggregation.ASSIGN)
    domain = flat(c)
    check_assigned_once(c, domain, Sets())
    assert not domain.constraints and uncovered(domain, (12,), Sets()) == ()


def test_padding_leaves_one_uncovered_region() -> None:
    domain = flat(contraction(([x], [10]), ([p(-3, x=1)], [7])))
    (region,) = uncovered(domain, (10,), Sets()) or ()
    assert region.ranges == (3,) and region.constraints == () and region.cell == (Affine.var("i0"),)


def test_stride_needs_a_flag() -> None:
    assert uncovered(flat(contraction(([p(i=2)], [50]), ([i], [25]))), (50,), Sets()) is None


def test_huge_coefficients() -> None:
    big = 10**30
    domain = flat(contraction(([x], [6]), ([x], [6]), user=[(p(x=big, i=1), 5 * big), (i, 2)]))
    assert domain.ranges == (2, 5)


def test_negative_bound_is_an_empty_domain() -> None:
    assert flat(contraction(([x], [6]), ([x], [6]), user=[(x, -3)])).empty


def test_operation_limit_is_a_diagnostic() -> None:
    sets = Sets(operations=3, seconds=0)
    c = located(contraction(([x], [6]), ([p(x=1, i=2)], [6]), ([p(x=3, i=5)], [6])))
    with pytest.raises(TileLimitError) as caught:
        analyze(c, sets)
    assert caught.value.diagnostics[0].code == "TILE-E303"


def test_import_is_lazy() -> None:
    code = "import sys, tile_opt; assert 'islpy' not in sys.modules and 'lark' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_coverage_beyond_the_limit_is_unknown() -> None:
    domain = flat(contraction(([x], [60]), ([p(x=3, i=5)], [60]), ([i], [40]), user=[(p(x=1, i=-2), 60)]))
    assert uncovered(domain, (60,), Sets(operations=3, seconds=0)) is None
    assert uncovered(domain, (60,), Sets()) is not None


@pytest.mark.parametrize("question", ["bounds", "uncovered"])
def test_any_number_of_operations_is_an_answer_or_the_one_error(question: str) -> None:
    """Wherever in a question they end; every limit up to what it needs."""
    i, j = Affine.var("i"), Affine.var("j")
    box = [i, i * -1 + 6, j, j * -1 + 4, i + j * -2 + 3]
    more = ((i + j * 2, j), (17, 9)) if question == "uncovered" else ()
    expected = Isl(0).answer(question, (("i", "j"), box, *more))
    limit, found = 1, None
    while found is None:
        with suppress(Error):
            found = Isl(limit).answer(question, (("i", "j"), box, *more))
        limit += 1
    assert found == expected and limit > 200


def powers(count: int) -> Contraction:
    """``O[i0 + 3*i1 + 9*i2 + …] = =(A[i0])``, every index 0 or 1: injective, and hard to show."""
    names = [f"i{n}" for n in range(count)]
    output = p(**{name: 3**k for k, name in enumerate(names)})
    user = [(p(**{name: 1}), 2) for name in names]
    return contraction(([output], [3**count]), ([p(i0=1)], [2]), user=user)


def test_hard_questions_are_answered_by_a_process_of_their_own() -> None:
    easy = powers(3)
    for sets in (Sets(), Sets(operations=3), Sets(operations=3, seconds=100)):
        domain = analyze(easy, sets)
        check_assigned_once(easy, domain, sets)
        assert uncovered(domain, easy.type.shape, Sets()) == uncovered(domain, easy.type.shape, sets)


@pytest.mark.skipif(not COUNTED, reason="processes cannot count what they take of a processor")
def test_time_in_which_the_process_does_not_run_does_not_count() -> None:
    i = Affine.var("i")
    question = ("bounds", (("i",), [i, i * -1 + 6]), 1.0)
    answerer = Answerer()
    found = answerer.ask(*question)
    process = answerer._process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    again = threading.Timer(1.2, process.send_signal, [signal.SIGCONT])
    again.start()
    assert answerer.ask(*question) == found and answerer.spent < 1.0
    again.join()
    answerer.close()


def test_a_question_that_takes_too_long_is_given_up_and_names_the_contraction() -> None:
    hard, sets = located(powers(24)), Sets(seconds=0.3)
    with pytest.raises(TileLimitError) as caught:
        check_assigned_once(hard, analyze(hard, sets), sets)
    (found,) = caught.value.diagnostics
    assert found.code == "TILE-E303" and f" of {hard.name} " in found.message and found.span == hard.origin
    with pytest.raises(TileLimitError):  # nothing is left of its time
        check_assigned_once(hard, analyze(hard, sets), sets)
    easy = powers(3)
    check_assigned_once(easy, analyze(easy, sets), sets)
