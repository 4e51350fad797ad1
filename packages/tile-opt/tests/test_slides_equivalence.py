"""The slides' passes keep the meaning of random programs, in the order of a target and in any other."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from program_samples import programs, random_inputs
from slides_support import PIPELINE, STEPS, TARGET, bound, run_passes, same_results, untagged
from tile_ir.diagnostics import TileError
from tile_ir.program.nodes import Program
from tile_ir.stripe.nodes import Program as Stripe
from tile_ir.target import PassConfig
from tile_opt.pipeline import optimize
from tile_opt.translate import to_stripe

PROGRAMS = {
    "conv_relu": bound(
        "function (I[X, Y, C], K[A, B, C, D]) -> (R) { O[x, y, d : X, Y, D] = +(I[x+a-1, y+b-1, c] * K[a, b, c, d]); R = (O > 0 ? O : 0); }",
        I=(7, 6, 3), K=(3, 3, 3, 5),
    ),
    "two_convs": bound(
        "function (I[X, C], K[C, D], L[D, E]) -> (P) { O[x, d : X, D] = +(I[x, c] * K[c, d]); P[x, e : X, E] = +(O[x, d] * L[d, e]); }",
        I=(9, 4), K=(4, 6), L=(6, 5),
    ),
    "softmax": bound(
        "function (X[I, J]) -> (R) { M[i, 0 : I, 1] = >(X[i, j]); E = exp(X - M); S[i, 0 : I, 1] = +(E[i, j]); R = E / S; }",
        X=(6, 11),
    ),
    "pool": bound("function (X[I, J]) -> (R) { R[i, j : I / 2, J] = >(X[2*i + k, j]), k < 2; }", X=(10, 5)),
    "strided": bound("function (X[I]) -> (R) { R[2*i : 2 * I] = +(X[i]); }", X=(9,)),
    "chain": bound("function (X[I, J], Y[J]) -> (R) { A = X + Y; B = A * A; C = B - X; R = (C > 1 ? B : -C); }", X=(5, 9), Y=(9,)),
    "cumsum": bound("function (X[I]) -> (R) { R[i : I] = +(X[i - k]), k < I; }", X=(12,)),
}  # fmt: skip


def check(program: Program, labels: tuple[str, ...], inputs: dict[str, Any] | None = None) -> Stripe:
    before = to_stripe(program)
    after = run_passes(before, labels)
    data = random_inputs(program) if inputs is None else inputs
    same_results(before, after, data)
    return after


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_pipeline_keeps_the_meaning(name: str) -> None:
    after = check(PROGRAMS[name], PIPELINE)
    same_results(to_stripe(PROGRAMS[name]), untagged(after), random_inputs(PROGRAMS[name]))


UNTAGGED = ("prune", "place", "deps", "scalarize", "localize", "fuse_any", "schedule_main", "schedule_banks")


@pytest.mark.parametrize("step", UNTAGGED)
@pytest.mark.parametrize("name", ["conv_relu", "two_convs", "softmax", "chain"])
def test_a_pass_on_every_block_needs_no_tags(step: str, name: str) -> None:
    """Tags only select: without any of them a pass that is asked for all blocks keeps the meaning too."""
    config = STEPS[step]
    everywhere = {**config.options, **({"reqs": ("all",)} if "reqs" in config.options or step == "prune" else {})}
    before = untagged(run_passes(to_stripe(PROGRAMS[name]), ("unstage", "locate", "autotile", "autotile_rest")))
    after = optimize(before, TARGET, passes=[PassConfig(config.name, step, everywhere)], verify=True)
    same_results(to_stripe(PROGRAMS[name]), after, random_inputs(PROGRAMS[name]))


@pytest.mark.diagonal(4)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("name", ["conv_relu", "two_convs", "softmax", "chain"])
def test_each_pass_keeps_the_meaning(step: str, name: str) -> None:
    check(PROGRAMS[name], ("unstage", "locate", step))
    check(PROGRAMS[name], ("unstage", "locate", "autotile", "autotile_rest", "prune", step))


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(sorted(PROGRAMS)), st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=9))
def test_passes_in_any_order_keep_the_meaning(name: str, labels: list[str]) -> None:
    check(PROGRAMS[name], ("unstage", *labels))


def stripe_of(program: Program) -> Stripe:
    try:
        return to_stripe(program)
    except TileError:
        assume(False)
        raise


@settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(
    programs(),
    st.one_of(st.just(PIPELINE), st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=8).map(tuple)),
)
def test_random_programs_keep_their_meaning(program: Program, labels: tuple[str, ...]) -> None:
    before = stripe_of(program)
    same_results(before, run_passes(before, labels), random_inputs(program))


@pytest.mark.slow
@settings(max_examples=10_000, suppress_health_check=[HealthCheck.too_slow])
@given(programs(), st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=12).map(tuple))
def test_many_random_programs_keep_their_meaning(program: Program, labels: tuple[str, ...]) -> None:
    before = stripe_of(program)
    same_results(before, run_passes(before, labels), random_inputs(program))
