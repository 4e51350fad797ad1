"""Random contractions: the flat domain has exactly the valid tuples, coverage and injectivity are exact."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import product
from math import prod

import pytest
from contraction_samples import contractions, valid_tuples
from hypothesis import HealthCheck, assume, given, settings
from tile_ir.diagnostics import TileTypeError
from tile_ir.program.nodes import Contraction
from tile_ir.stripe.affine import Affine
from tile_opt.analysis import Sets, analyze, check_assigned_once, uncovered
from tile_opt.analysis.domain import FlatDomain

Cells = tuple[tuple[int, ...], ...]
_SETTINGS = settings(
    deadline=None, max_examples=200, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow]
)


def points(names: Sequence[str], ranges: Sequence[int], constraints: Sequence[Affine]) -> list[dict[str, int]]:
    every = (dict(zip(names, point, strict=True)) for point in product(*map(range, ranges)))
    return [point for point in every if all(form.evaluate(point) >= 0 for form in constraints)]


def cells(domain: FlatDomain) -> Counter[Cells]:
    if domain.empty:
        return Counter()
    return Counter(
        tuple(tuple(form.evaluate(point) for form in access) for access in (domain.output, *domain.accesses))
        for point in points(domain.names, domain.ranges, domain.constraints)
    )


def expected_cells(c: Contraction) -> Counter[Cells]:
    tuples = valid_tuples(c)
    assume(tuples is not None)
    assert tuples is not None
    formulas = (c.output, *(load.formulas for load in c.loads))
    return Counter(tuple(tuple(int(f.evaluate(t)) for f in access) for access in formulas) for t in tuples)


def bounded(c: Contraction) -> FlatDomain:
    try:
        domain = analyze(c, Sets())
    except TileTypeError as error:
        assert error.diagnostics[0].code == "TILE-E131"
        assume(False)
        raise
    assume(prod(domain.ranges) <= 20_000)
    return domain


@given(contractions())
@_SETTINGS
def test_points_of_the_domain_are_the_valid_tuples(c: Contraction) -> None:
    assert cells(bounded(c)) == expected_cells(c)


@given(contractions())
@_SETTINGS
def test_every_range_is_tight_and_every_constraint_needed(c: Contraction) -> None:
    domain = bounded(c)
    inside = points(domain.names, domain.ranges, domain.constraints)
    for name, size in zip(domain.names, domain.ranges, strict=True):
        assert size > 1 and {0, size - 1} <= {point[name] for point in inside}
    for k in range(len(domain.constraints)):
        others = domain.constraints[:k] + domain.constraints[k + 1 :]
        assert len(points(domain.names, domain.ranges, others)) > len(inside)


@given(contractions())
@_SETTINGS
def test_uncovered_regions_are_the_cells_no_tuple_writes(c: Contraction) -> None:
    domain = bounded(c)
    regions = uncovered(domain, c.type.shape, Sets())
    assume(regions is not None)
    assert regions is not None
    missing = {
        tuple(form.evaluate(point) for form in region.cell)
        for region in regions
        for point in points(region.names, region.ranges, region.constraints)
    }
    written = {cell[0] for cell in expected_cells(c)}
    assert missing == set(product(*map(range, c.type.shape))) - written


@given(contractions())
@_SETTINGS
def test_assigning_twice_is_found_exactly(c: Contraction) -> None:
    domain = bounded(c)
    counts = Counter(cell[0] for cell in expected_cells(c).elements())
    if any(count > 1 for count in counts.values()):
        with pytest.raises(TileTypeError, match="Multiple assignment"):
            check_assigned_once(c, domain, Sets())
    else:
        check_assigned_once(c, domain, Sets())
