"""Kernels over rows that are walked piece by piece: which those are, and that pieces give what whole rows give."""

from __future__ import annotations

from collections.abc import Mapping
from cProfile import Profile
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tile_opt
from explain_support import GPU
from lowering_support import execute
from tensor_support import TENSOR, instructions
from tile_ir.diagnostics import TilePlanError
from tile_ir.dtype import DType
from tile_ir.program.nodes import Program, TensorType
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.interpret import run
from tile_ir.stripe.nodes import Program as StripeProgram
from tile_ir.stripe.printer import print_program
from tile_ir.target import PassConfig, Target
from tile_lang import bind, parse
from tile_lang.evaluate import evaluate
from tile_opt.blocks.tree import kernels_of
from tile_opt.kernel.masks import seen
from tile_opt.kernel.rows_in_steps import rows_in_steps
from tile_opt.lower_kernels import lower_kernels
from tile_opt.passes.choosing import Chosen
from tile_opt.pipeline import Scheduled, schedule
from tile_opt.plan.space.gpu import rows_in_steps as space
from tile_opt.plan.space.tensor import rows_in_steps as tensor_space
from tile_opt.plan.text import parse_plans, print_plans
from tile_opt.program import DropDead, NormaliseLast, OnePlace, ShareCommon, rewrite
from tile_opt.proof import Verdict, prove
from tile_opt.translate import to_stripe

Array = npt.NDArray[Any]
SCORES = "P[h, s, t : H, S, T] = +(Q[h, s, d] * K[h, t, d]);"
SOFTMAX = """M[h, s, z : H, S, 1] = >({x}[h, s, t]), z < 1; E = exp({x} - M);
    Z[h, s, z : H, S, 1] = +(E[h, s, t]), z < 1;"""
VALUES = "O[h, s, d : H, S, D] = +({y}[h, s, t] * V[h, t, d]);"
PLAIN = f"{SCORES} X = P * 0.3; {SOFTMAX.format(x='X')} Y = E / Z; {VALUES.format(y='Y')}"
EMPTY = SOFTMAX.format(x="X").replace("X - M", "X - (M == -inf ? 0 : M)") + " Y = E / (Z == 0 ? 1 : Z);"
CAUSAL = "X = index(P, 2) <= index(P, 1) ? P : -1e30;"
COPIED = f"""{SCORES} M[h, s : H, S] = >(P[h, s, t]); M1 = max(-inf, M); M2[h, s, z : H, S, 1] = =(M1[h, s]), z < 1;
    MB[h, s, t : H, S, T] = =(M2[h, s, 0]); E = exp(P - MB); Z[h, s : H, S] = +(E[h, s, t]);
    ZB[h, s, t : H, S, T] = =(Z[h, s]); Y = E / ZB; {VALUES.format(y="Y")}"""
"""As a front end writes it that has no broadcasting."""
SEEN = ", s - t < T"
"""No place sees one behind it."""
CONSTRAINED = f"""{SCORES} M[h, s, z : H, S, 1] = >(P[h, s, t]), z < 1{SEEN}; E = exp(P - M);
    Z[h, s, z : H, S, 1] = +(E[h, s, t]), z < 1{SEEN}; Y = E / Z; O[h, s, d : H, S, D] = +(Y[h, s, t] * V[h, t, d]){SEEN};"""
BODIES = {
    "scaled": (PLAIN, "O"),
    "normalised last": (f"{SCORES} {SOFTMAX.format(x='P')} {VALUES.format(y='E').replace('O[', 'W[')} O = W / Z;", "O"),
    "biased": (f"{SCORES} X = P + B; {SOFTMAX.format(x='X')} Y = E / Z; {VALUES.format(y='Y')}", "O"),
    "capped": (f"{SCORES} X = tanh(P) * 3.0; {SOFTMAX.format(x='X')} Y = E / Z * 0.5; {VALUES.format(y='Y')}", "O"),
    "causal": (f"{SCORES} {CAUSAL} {SOFTMAX.format(x='X')} Y = E / Z; {VALUES.format(y='Y')}", "O"),
    "with copies between": (COPIED, "O"),
    "rows of which nothing may be left": (f"{SCORES} X = B > 0.9 ? P : -inf; {EMPTY} {VALUES.format(y='Y')}", "O"),
    "with its statistics": (PLAIN, "O, M, Z"),
    "with the logarithm of its sums": (PLAIN + " L = M + log(Z);", "O, L"),
    "with a sum of its results": (PLAIN + " F = O * Q; R[h, s, z : H, S, 1] = +(F[h, s, d]), z < 1;", "R, Z"),
}
FRONT = ("inline", "join_rows", "step_rows", "fuse", "merge", "accumulate", "group_tile", "gpu_tile")
ON: Target = replace(GPU, passes=tuple(PassConfig(name) for name in FRONT))
MATRIX = replace(TENSOR, passes=ON.passes)
DTYPES = (DType.FLOAT32, DType.BFLOAT16, DType.FLOAT16)


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows and items, so that small shapes have several pieces; they are joined whatever that is expected to take."""
    for name, value in {"HIGH": 2, "WIDE": (2,), "SCORES": (4,), "SUBGROUP": 4, "ACROSS": 2, "DEPTH": 3}.items():
        monkeypatch.setattr(space, name, value)
    for name, value in {"WARPS": (2,), "TALL": (1,), "PIECES": (16,)}.items():
        monkeypatch.setattr(tensor_space, name, value)
    monkeypatch.setattr("tile_opt.passes.kernels.join_rows.NEAR", 1e9)


def program(body: str, out: str, arrays: Mapping[str, Array], keys: str = "K[H, T, D]") -> Program:
    text = f"function (Q[H, S, D], {keys}, V[H, T, D], B[S, T]) -> ({out}) {{ {body} }}"
    dtypes = {n: next(d for d in DTYPES if d.numpy == a.dtype) for n, a in arrays.items()}
    return bind(parse(text), {n: TensorType(dtypes[n], a.shape) for n, a in arrays.items()})


def arrays(h: int, s: int, t: int, d: int, dtype: DType = DType.FLOAT32) -> dict[str, Array]:
    random = np.random.default_rng(s + t)
    shapes = {"Q": (h, s, d), "K": (h, t, d), "V": (h, t, d), "B": (s, t)}
    return {n: random.normal(0, 1, shape).astype(dtype.numpy) for n, shape in shapes.items()}


def scheduled(given: Program, target: Target = ON) -> Scheduled:
    small = rewrite(given, (ShareCommon(), DropDead(), NormaliseLast(kept=4), DropDead()))
    return schedule(to_stripe(small, target), target, verify=True)


def kernels(of: StripeProgram) -> int:
    return len(tuple(kernels_of(of)))


SHAPES = dict.fromkeys(BODIES, (1, 17, 19, 5)) | {"scaled": (2, 16, 16, 8)}
"""Most with rows, scores, depths and results left over; and one that comes out even."""


@pytest.mark.parametrize("name", BODIES)
def test_pieces_give_what_whole_rows_give(name: str) -> None:
    body, out = BODIES[name]
    inputs = arrays(*SHAPES[name])
    given = program(body, out, inputs)
    made = scheduled(given)
    assert kernels(made.program) == 1, "one kernel"
    want, got = evaluate(given, dict(inputs)), run(made.program, dict(inputs))
    for n in out.split(", "):
        np.testing.assert_allclose(got[n], want[n], 2e-5, 2e-5)


def test_rows_may_be_left_out_by_constraints_that_name_the_piece() -> None:
    inputs = arrays(1, 19, 19, 8)
    given = program(CONSTRAINED, "O", inputs)
    made = tile_opt.compile(given, ON, verify=True).stripe
    np.testing.assert_allclose(run(made, dict(inputs))["O"], evaluate(given, dict(inputs))["O"], 2e-5, 2e-5)


@pytest.mark.parametrize("pivot", ["M", "(M == -inf ? 0 : M)", "(M == -inf ? -3e38 : M)"])
def test_rows_of_which_nothing_is_left_and_infinities_give_what_whole_rows_give(pivot: str) -> None:
    inputs = arrays(1, 16, 20, 3)
    inputs["B"][0], inputs["B"][1, 3], inputs["B"][2, :10], inputs["B"][3, 10:] = -np.inf, np.inf, -np.inf, -np.inf
    body, out = BODIES["biased"]
    given = program(body.replace("X - M", f"X - {pivot}"), out, inputs)
    with np.errstate(all="ignore"):
        made = scheduled(given).program
        got, want = run(made, dict(inputs))["O"], evaluate(given, dict(inputs))["O"]
    assert kernels(made) == 1, "one kernel"
    np.testing.assert_allclose(got, want, 2e-5, 2e-5, equal_nan=True)


def unrounded(body: str, out: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """What the program computes of these values in float32."""
    wide = {n: a.astype(np.float32) for n, a in inputs.items()}
    return dict(evaluate(program(body, out, wide), wide))


IN_FLOAT32 = (
    f"{SCORES} X = as_float(P, 32) * 0.3; {SOFTMAX.format(x='X')} Y = as_float(E / Z, 16); {VALUES.format(y='Y')}"
)
ON_MATRICES = {
    "softmax in float32": ((1, 17, 20, 8), DType.FLOAT16),
    "scaled": ((2, 32, 32, 16), DType.FLOAT16),
    "normalised last": ((1, 17, 21, 24), DType.BFLOAT16),
    "biased": ((1, 20, 21, 24), DType.FLOAT16),
    "capped": ((1, 17, 16, 8), DType.FLOAT16),
    "causal": ((1, 20, 33, 16), DType.BFLOAT16),
    "with the logarithm of its sums": ((1, 18, 17, 16), DType.BFLOAT16),
}
"""Most with rows, scores, depths and results left over."""


@pytest.mark.parametrize("name", ON_MATRICES)
def test_products_of_short_floats_are_matrix_instructions_whose_weights_never_leave_registers(name: str) -> None:
    shape, dtype = ON_MATRICES[name]
    body, out = BODIES.get(name, (IN_FLOAT32, "O"))
    inputs = arrays(*shape, dtype)
    given = program(body, out, inputs)
    made = scheduled(given, MATRIX)
    assert kernels(made.program) == 1
    assert {name[:3] for name in instructions(made.program)} == {"mma", "mat"}, "products, and loads of their factors"
    want, got = unrounded(body, out, inputs), execute(lower_kernels(made.program, MATRIX), inputs)
    for n in out.split(", "):
        step = {DType.BFLOAT16: 2.0**-7, DType.FLOAT16: 2.0**-10}[dtype]
        np.testing.assert_allclose(got[n].astype(float), want[n].astype(float), 2 * step, 2 * step)


def test_factors_may_lie_in_one_buffer() -> None:
    body = f"""P[h, s, t : H, S, S] = +(A[s, 0, h, d] * A[t, 1, h, d]); {SOFTMAX.format(x="P")} Y = E / Z;
        O[s, h, d : S, H, D] = +(Y[h, s, t] * A[t, 2, h, d]);"""
    function, dtype = parse(f"function (A[S, U, H, D]) -> (O) {{ {body} }}"), DType.FLOAT16
    inputs = {"A": np.random.default_rng(0).normal(0, 0.5, (17, 3, 2, 16)).astype(dtype.numpy)}
    given, wide = (bind(function, {"A": TensorType(d, inputs["A"].shape)}) for d in (dtype, DType.FLOAT32))
    made = scheduled(given, MATRIX).program
    assert kernels(made) == 1 and {name[:3] for name in instructions(made)} == {"mma", "mat"}
    want, got = evaluate(wide, {"A": inputs["A"].astype(np.float32)}), execute(lower_kernels(made, MATRIX), inputs)
    np.testing.assert_allclose(got["O"].astype(float), want["O"].astype(float), 2e-3, 2e-3)


TEAMS = replace(
    MATRIX,
    matrix=("wgmma_m64n64k16_f16",),
    settings=replace(MATRIX.settings, static_local_bytes=1 << 17),
)
IN_GROUPS = {"lanes": (MATRIX, (1, 32, 32, 16), "mma"), "teams": (TEAMS, (1, 64, 133, 64), "wgm")}
"""Where several lanes have parts of a row, and where sub-groups take weights of others; the target, sizes, and products."""


@pytest.mark.parametrize("versions", [1, 2], ids=["piece by piece", "ahead"])
@pytest.mark.parametrize("name", IN_GROUPS)
def test_nobody_races_for_what_is_exchanged(name: str, versions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    target, sizes, products = IN_GROUPS[name]
    monkeypatch.setattr(tensor_space, "AHEAD", (versions,))
    monkeypatch.setattr(tensor_space, "PIECES", (64, 16))
    monkeypatch.setattr(tensor_space, "WARPS", (4, 2))
    given = program(*BODIES["scaled"], arrays(*sizes, DType.FLOAT16))
    before = to_stripe(rewrite(given, (ShareCommon(), DropDead(), NormaliseLast(kept=4))), target)
    made = schedule(before, target).program
    assert products in {name[:3] for name in instructions(made)}
    assert not prove(before, made).of(Verdict.REFUTED)


ALONE = """function (Q[H, S, D], K[H, T, D], V[H, T, D], G[H, S, D], M[H, S, U], B[T]) -> (O) {
    P[h, s, t : H, S, T] = +(Q[h, s, d] * K[h, t, d]); R[h, s, t : H, S, T] = +(G[h, s, d] * V[h, t, d]);
    E = exp(P - M) * R * B; O[h, s, d : H, S, D] = +(E[h, s, t] * K[h, t, d]); }"""
"""Something belongs to rows alone."""


def test_teams_load_what_belongs_to_rows_once_and_wait_for_products_of_scores_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing of a piece asks whether a row is there, and what belongs to its scores is under way before it has arrived."""
    monkeypatch.setattr(tensor_space, "PIECES", (64,))
    monkeypatch.setattr(tensor_space, "WARPS", (4,))
    random, half = np.random.default_rng(0), DType.FLOAT16
    sizes = {"Q": (1, 66, 64), "K": (1, 70, 64), "V": (1, 70, 64), "G": (1, 66, 64), "M": (1, 66, 1), "B": (70,)}
    inputs = {n: random.normal(0, 0.3, shape).astype(half.numpy) for n, shape in sizes.items()}
    given = bind(parse(ALONE), {n: TensorType(half, shape) for n, shape in sizes.items()})
    made = scheduled(given, TEAMS).program
    text = print_program(made)
    pieces = text[text.index("_pieces") :]
    assert " M = M_near" in pieces and " = M[" in text and " = M[" not in pieces
    assert pieces.count("wait(group=1") == 2
    assert pieces.count(" = B[") == 2 and pieces.rindex(" = B[") < pieces.index("wait"), (
        "of a whole piece, and of the rest"
    )
    want, got = evaluate(given, dict(inputs))["O"], execute(lower_kernels(made, TEAMS), inputs)["O"]
    np.testing.assert_allclose(got.astype(float), want.astype(float), 2e-2, 2e-2)


@pytest.mark.parametrize("pivot", ["M", "(M == -inf ? 0 : M)"])
def test_infinities_and_rows_of_which_nothing_is_left_on_matrix_instructions(pivot: str) -> None:
    inputs = arrays(1, 32, 40, 16, DType.BFLOAT16)
    inputs["B"][0], inputs["B"][1, 3], inputs["B"][2, :20], inputs["B"][3, 20:] = -np.inf, np.inf, -np.inf, -np.inf
    inputs["K"][0, 39], inputs["B"][4:8, 39] = np.nan, -np.inf
    body, out = BODIES["biased"]
    given = program(body.replace("X - M", f"X - {pivot}"), out, inputs)
    with np.errstate(all="ignore"):
        got, want = run(scheduled(given, MATRIX).program, dict(inputs))["O"], evaluate(given, dict(inputs))["O"]
    np.testing.assert_allclose(got.astype(float), want.astype(float), 0.02, 0.02, equal_nan=True)


MASKS = {
    "causal": "index(P, 2) <= index(P, 1)",
    "causal, behind others": "index(P, 2) - 10 <= index(P, 1)",
    "windows": "(index(P, 2) <= index(P, 1) + 3) & (index(P, 1) - index(P, 2) < 6)",
    "what lies ahead": "index(P, 1) + 17 < index(P, 2)",
}
"""Some with rows of which nothing is left."""


def masked(name: str, dtype: DType = DType.FLOAT16) -> tuple[Program, dict[str, Array]]:
    body = f"{SCORES} X = {MASKS[name]} ? P : -inf; {SOFTMAX.format(x='X')} Y = E / Z; {VALUES.format(y='Y')}"
    inputs = arrays(1, 36, 52, 8, dtype)
    return program(body, "O", inputs), inputs


@pytest.mark.parametrize("name", MASKS)
def test_rows_of_which_pieces_are_left_out_give_what_whole_rows_give(name: str) -> None:
    given, inputs = masked(name)
    made = scheduled(given, MATRIX).program
    with np.errstate(all="ignore"):
        want = evaluate(given, dict(inputs))["O"].astype(float)
        windows = name == "windows"
        got = execute(lower_kernels(made, MATRIX), inputs) if windows else run(made, dict(inputs))
    np.testing.assert_allclose(got["O"].astype(float), want, 2e-3, 2e-3, equal_nan=True)


def test_pieces_of_which_no_row_sees_a_score_are_not_computed() -> None:
    given, inputs = masked("causal")
    inputs["V"][0, 40] = np.nan
    with np.errstate(all="ignore"):
        got = run(scheduled(given, MATRIX).program, dict(inputs))["O"]
    assert np.isfinite(got[0, :32]).all(), "the first group's rows end before the piece"


@pytest.mark.parametrize(
    ("condition", "forms"),
    [
        ("index(P, 2) < index(P, 1)", ["s - t - 1"]),
        ("index(P, 1) - 5 > index(P, 2)", ["s - t - 6"]),
        ("(index(P, 2) >= index(P, 1)) & (index(P, 2) <= 9 + index(P, 1))", ["t - s", "s - t + 9"]),
        ("(index(P, 2) >= 3) | (index(P, 1) <= 4)", []),
        ("B > 0", []),
    ],
)
def test_what_scores_need_to_be_more_than_minus_infinity(condition: str, forms: list[str]) -> None:
    body = f"{SCORES} X = {condition} ? P : -inf; {SOFTMAX.format(x='X')} Y = E / Z; {VALUES.format(y='Y')}"
    made = scheduled(program(body, "O", arrays(1, 20, 20, 4)))
    ((_, decision),) = made.decisions.items()
    kinds = rows_in_steps(decision.view)
    assert kinds is not None and [str_of(f, kinds.row) for f in seen(kinds)] == forms


def str_of(form: Affine, row: str) -> str:
    signs = {1: "+", -1: "-"}
    terms = sorted(form.terms, key=lambda term: -term[1])
    text = " ".join(f"{signs[c]} {'t' if n == row else 's'}" for n, c in terms).removeprefix("+ ")
    return text + (f" {'-' if form.const < 0 else '+'} {abs(form.const)}" if form.const else "")


LEFT = {
    "somebody wants the weights": (PLAIN, "O, Y"),
    "somebody wants the scores": (PLAIN, "O, P"),
    "a maximum of something else": (BODIES["normalised last"][0].replace("exp(P", "exp(P * 0.3"), "O"),
    "no exponential": (PLAIN.replace("exp(X - M)", "X - M"), "O"),
    "squares of weights": (PLAIN.replace("Y = E / Z", "Y = E * E / Z"), "O"),
}


@pytest.mark.parametrize("name", LEFT)
def test_rows_that_are_needed_whole_are_left_to_other_passes(name: str) -> None:
    body, out = LEFT[name]
    inputs = arrays(1, 16, 20, 4)
    given = program(body, out, inputs)
    made = scheduled(given)
    assert kernels(made.program) > 1
    want, got = evaluate(given, dict(inputs)), run(made.program, dict(inputs))
    np.testing.assert_allclose(got["O"], want["O"], 2e-5, 2e-5)


def test_results_at_one_place_among_zeros_are_no_rows() -> None:
    """Nobody would store the zeros: the results stood at every place."""
    body = f"{SCORES} E = exp(P * 0.1); {VALUES.format(y='E').replace('O[h, s, d : H, S, D]', 'O[h, 1, s, d : H, 3, S, D]')}"
    inputs = arrays(1, 32, 32, 16, DType.BFLOAT16)
    given = program(body, "O", inputs)
    got, want = run(scheduled(given, MATRIX).program, dict(inputs))["O"], evaluate(given, dict(inputs))["O"]
    assert not got[:, ::2].any()
    np.testing.assert_allclose(got[:, 1].astype(float), want[:, 1].astype(float), 5e-2, 5e-2)


def test_zeros_around_results_are_no_items_of_their_rows() -> None:
    """An item would fill all of a row beside what others have of it."""
    body = BODIES["scaled"][0].replace("O[h, s, d : H, S, D]", "O[h, s, 1, d : H, S, 3, D]")
    inputs = arrays(1, 17, 19, 16, DType.FLOAT16)
    given = program(body, "O", inputs)
    made = scheduled(rewrite(given, (OnePlace(),)), MATRIX)
    assert kernels(made.program) == 2 and len(made.decisions) >= 1
    want, got = evaluate(given, dict(inputs)), execute(lower_kernels(made.program, MATRIX), inputs)
    np.testing.assert_allclose(got["O"].astype(float), want["O"].astype(float), 2e-2, 2e-2)


def test_few_rows_stay_apart_and_the_choice_says_what_was_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    small = rewrite(
        program(*BODIES["scaled"], arrays(1, 16, 4096, 64)), (ShareCommon(), NormaliseLast(kept=4), DropDead())
    )
    made = schedule(to_stripe(small, replace(ON, machine=replace(ON.machine, cores=132))), ON)
    choice = next(c for c in made.choices if c.producer == "P" and "O" in c.consumer.split(", "))
    assert choice.chosen is Chosen.APART
    assert choice.together is not None and choice.apart is not None and choice.together > choice.apart
    assert kernels(made.program) > 1


def test_given_plans_by_which_teams_would_misread_their_factors_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_space, "PIECES", (64,))
    monkeypatch.setattr(tensor_space, "WARPS", (4,))
    given = program(*BODIES["scaled"], arrays(1, 64, 133, 64, DType.FLOAT16))
    before = to_stripe(rewrite(given, (ShareCommon(), DropDead(), NormaliseLast(kept=4))), TEAMS)
    for name, decision in schedule(before, TEAMS).decisions.items():
        plain = replace(decision.plan, stagings=tuple(replace(s, swizzle=None) for s in decision.plan.stagings))
        with pytest.raises(TilePlanError, match="whole panels"):
            schedule(before, TEAMS, plans={name: plain})


def test_pieces_of_teams_are_whole_panels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights of 32 scores would be half of one: no team reads them."""
    monkeypatch.setattr(tensor_space, "PIECES", (32,))
    monkeypatch.setattr(tensor_space, "WARPS", (4,))
    target = replace(TEAMS, matrix=("wgmma_m64n32k16_f16",))
    made = scheduled(program(*BODIES["scaled"], arrays(1, 64, 133, 64, DType.FLOAT16)), target)
    assert not {d.plan.instruction for d in made.decisions.values()} - {None}


@pytest.mark.parametrize(("d", "at_once"), [(160, 64), (192, 192), (96, 64)])
def test_teams_begin_no_product_inside_a_panel(d: int, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three panels are twice 96 columns, but the second half begins where no descriptor can."""
    monkeypatch.setattr(tensor_space, "PIECES", (64,))
    monkeypatch.setattr(tensor_space, "WARPS", (4,))
    given = program(*BODIES["scaled"], arrays(1, 64, 133, d, DType.FLOAT16))
    ((_, decision),) = scheduled(given, TEAMS).decisions.items()
    kinds, plan = rows_in_steps(decision.view), decision.plan
    assert kinds is not None and plan.instruction is not None and plan.instruction.name == "wgmma_m64n64k16_f16"
    (column,) = (kinds.columns[k] for k in kinds.lasts)
    assert [c.size for c in plan.levels[-1].covers if c.loop == column] == [at_once]


TWICE = f"{SCORES} E = exp(P * 0.2 - 1.0); F = E * P; {VALUES.format(y='E')} W[h, s, d : H, S, D] = +(F[h, s, t] * K[h, t, d]);"
"""Two products of weights that are made of the same scores; keys are values of one of them."""


@pytest.mark.parametrize(("body", "out"), [(TWICE, "O, W"), BODIES["with a sum of its results"]])
def test_what_is_made_of_the_same_scores_is_one_kernel(body: str, out: str) -> None:
    inputs = arrays(1, 17, 43, 16, DType.FLOAT16)
    given = program(body, out, inputs)
    made = scheduled(given, MATRIX)
    assert kernels(made.program) == 1, "scores are computed once"
    want, got = evaluate(given, dict(inputs)), execute(lower_kernels(made.program, MATRIX), inputs)
    for n in out.split(", "):
        np.testing.assert_allclose(got[n].astype(float), want[n].astype(float), 2e-2, 2e-2)


@pytest.mark.parametrize(
    ("values", "copies"), [("K[h, t, d]", ["K", "Q", "V"]), ("K[h, d, t]", ["K", "K_1", "Q", "V"])]
)
def test_values_that_are_keys_element_by_element_are_copied_once(values: str, copies: list[str]) -> None:
    body = TWICE.replace("F[h, s, t] * K[h, t, d]", f"F[h, s, t] * {values}")
    inputs = arrays(1, 16, 16, 16, DType.FLOAT16)
    given = program(body, "O, W", inputs)
    made = scheduled(given, MATRIX)
    (plan,) = (d.plan for d in made.decisions.values())
    assert sorted(s.operand for s in plan.stagings) == copies
    want, got = evaluate(given, dict(inputs)), execute(lower_kernels(made.program, MATRIX), inputs)
    for n in ("O", "W"):
        np.testing.assert_allclose(got[n].astype(float), want[n].astype(float), 2e-2, 2e-2)


def test_values_that_are_keys_lie_as_these_do_where_heads_stand_between_places_and_depths() -> None:
    inputs = arrays(2, 16, 20, 16, DType.FLOAT16)
    inputs["K"] = np.ascontiguousarray(inputs["K"].transpose(1, 0, 2))
    given = program(TWICE.replace("K[h, t, d]", "K[t, h, d]"), "O, W", inputs, "K[T, H, D]")
    made = scheduled(given, MATRIX)
    (plan,) = (d.plan for d in made.decisions.values())
    assert sorted(s.operand for s in plan.stagings) == ["K", "Q", "V"]
    want, got = evaluate(given, dict(inputs)), execute(lower_kernels(made.program, MATRIX), inputs)
    for n in ("O", "W"):
        np.testing.assert_allclose(got[n].astype(float), want[n].astype(float), 2e-2, 2e-2)


def test_plans_that_cannot_be_built_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys that are values, too, are used while the next ones arrive: not in one version."""
    monkeypatch.setattr(tensor_space, "TURNS", 1)
    made = scheduled(program(TWICE, "O, W", arrays(1, 16, 16, 16, DType.FLOAT16)), MATRIX)
    assert kernels(made.program) > 1


def test_products_of_the_same_scores_stay_apart_where_that_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Registers for the results of one product, and no more."""
    monkeypatch.setattr(tensor_space, "CELLS", 24)
    made = scheduled(program(TWICE, "O, W", arrays(1, 17, 43, 16, DType.FLOAT16)), MATRIX)
    assert kernels(made.program) == 2


def test_divisors_beside_matrix_instructions_are_reciprocals() -> None:
    given = program(*BODIES["scaled"], arrays(1, 16, 16, 16, DType.FLOAT16))
    exact, rounded = (print_program(scheduled(given, target).program) for target in (ON, MATRIX))
    assert "div(" in exact and "recip(" not in exact
    assert "recip(" in rounded and "div(" not in rounded


def test_the_plan_reads_back_and_a_given_one_is_built() -> None:
    inputs = arrays(1, 16, 20, 4)
    given = program(*BODIES["scaled"], inputs)
    made = scheduled(given)
    plans = {name: decision.plan for name, decision in made.decisions.items()}
    assert dict(parse_plans(print_plans(plans))) == plans
    small = rewrite(given, (ShareCommon(), DropDead(), NormaliseLast(kept=4), DropDead()))
    again = schedule(to_stripe(small, ON), ON, plans=plans)
    assert again.program == made.program


WEIGHED = """function (Q[H, S, D], K[H, T, D], V[H, T, D], G[H, S, D], M[H, S, U]) -> (O) {{
    {scores} X = index(P, 2) <= index(P, 1) ? P : -inf; E = exp(X - M); R[h, s, t : H, S, T] = +(G[h, s, d] * V[h, t, d]);
    Y = {weights}; O[h, s, d : H, S, D] = +(Y[h, s, t] * K[h, t, d]); }}"""


@pytest.mark.parametrize(
    "weights", ["index(P, 2) <= index(P, 1) ? R * E : 0", "(index(P, 2) > index(P, 1) ? 0.0 : R * E) * 0.5"]
)
def test_weights_that_a_comparison_makes_0_are_not_computed(weights: str) -> None:
    """As gradients of masked attention have them, below a largest element that is known."""
    types = {n: TensorType(DType.FLOAT16, (1, 48, 16)) for n in "QKVG"} | {"M": TensorType(DType.FLOAT16, (1, 48, 1))}
    made = scheduled(bind(parse(WEIGHED.format(scores=SCORES, weights=weights)), types), MATRIX)
    found = (rows_in_steps(d.view) for d in made.decisions.values())
    (kinds,) = (k for k in found if k is not None)
    assert [str_of(f, kinds.row) for f in seen(kinds)] == ["s - t"]


def test_whether_a_plan_fits_is_asked_of_those_that_are_taken() -> None:
    """Whoever takes the first does not wait for what the others need of local memory."""
    body, out = BODIES["scaled"]
    inputs = arrays(2, 64, 64, 16, DType.FLOAT16)
    (decision,) = (d for d in scheduled(program(body, out, inputs), MATRIX).decisions.values() if d.plan.instruction)
    profile = Profile()
    first = profile.runcall(lambda: next(space.plans(decision.view, MATRIX)))
    asked = sum(e.callcount for e in profile.getstats() if getattr(e.code, "co_name", "") == "local_bytes")
    assert first == decision.plan and asked == 1 < len(list(space.plans(decision.view, MATRIX)))
