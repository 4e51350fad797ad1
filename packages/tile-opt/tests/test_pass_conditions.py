"""What passes over kernels must leave alone, or may only rewrite with care: Stripe that no translation makes, but a pass could meet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lowering_support import random_inputs, wrap
from tile_ir.stripe import interpret
from tile_ir.stripe.nodes import Block
from tile_ir.stripe.parser import parse_program
from tile_ir.stripe.printer import print_program
from tile_ir.target import HardwareSettings, Target
from tile_opt.blocks.tree import kernels_of
from tile_opt.kernel.view import open_kernel
from tile_opt.passes.base import Pass
from tile_opt.passes.kernels.accumulate import Accumulate
from tile_opt.passes.kernels.inline import Inline
from tile_opt.passes.kernels.merge import Merge
from tile_opt.passes.through import made_for_one, without_unread
from tile_opt.pipeline import optimize

TARGET = Target("plain", HardwareSettings())


@dataclass(frozen=True, slots=True)
class Case:
    """Kernels over buffers, by direction and name; the pass may rewrite some of them."""

    rewrite: Pass
    buffers: Mapping[str, str]
    kernels: tuple[str, ...]
    temps: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def text(self) -> str:
        of = {d: ", ".join(n.split()[1] for n in self.buffers if n.startswith(d)) for d in ("in", "out")}
        return wrap(f"inputs {of['in']}\noutputs {of['out']}", self.buffers, "\n".join(self.kernels), self.temps)


def kernel(refs: str, *stages: str, loops: str = "") -> str:
    return f"#kernel block [{loops}] (\n{refs}\n) {{\n{''.join(stages)}}}"


def stage(loops: str, uses: str, body: str) -> str:
    return f"#stage block [{loops}] (\n{uses}\n) {{\n{body}\n}}\n"


A, C = "in A[0] float32(6:1)", "out C[0] float32(6:1)"
T_OUT, T_IN = "out T[0] float32(6:1)", "in T[0] float32(6:1)"
DOUBLED = kernel(
    f"{A}\n{T_OUT}",
    stage(
        "i:6", "in A[i] float32(1:1)\nout T[i] float32(1:1)", "$a = load(A)\n$t = add($a, $a):float32\nT = store($t)"
    ),
)
"""T = A + A, which is cheap enough to go into whatever reads T."""
EIGHTFOLD = kernel(
    f"{A}\n{T_OUT}",
    stage(
        "i:6",
        "in A[i] float32(1:1)\nout T[i] float32(1:1)",
        "$a = load(A)\n$b = add($a, $a):float32\n$c = add($b, $b):float32\n$t = add($c, $c):float32\nT = store($t)",
    ),
)
"""A longer body than that of its reader, which is renamed then."""
COPIED = kernel(
    f"{T_IN}\n{C}",
    stage("i:6", "in T[i] float32(1:1)\nout C[i] float32(1:1)", "$t = load(T)\nC = store($t)"),
)
VECTORS = {"in A": "float32(6:1)", "out C": "float32(6:1)"}
TEMP = {"T": "float32(6:1)"}
ROWS_OF_3, CELL = "float32(4:3, 3:1)", "float32(1:3, 1:1)"
FILLED = kernel(C, stage("i:6", "out C[i] float32(1:1)", "$c = (float32)0.5\nC = store($c)"))
"""C = 0.5, for a kernel after it that aggregates into C."""


def reduced(agg: str, turns: int = 6) -> str:
    """C[i] takes in A[i, k] for every k; turns of the outer loop beyond the 6 rows do nothing."""
    refs = "in A[0, 0] float32(6:4, 4:1)\ninout C[0] float32(6:1)"
    uses = f"5 - i >= 0\nin A[i, k] float32(1:4, 1:1)\ninout C[i]:{agg} float32(1:1)"
    return kernel(refs, stage("i = i, k:4", uses, "$a = load(A)\nC = store($a)"), loops=f"i:{turns}")


CASES = {
    "a table that another kernel reads by subscripts from data": Case(
        Inline(),
        {"in A": "float32(6:1)", "in I": "int32(4:1)", "out C": "float32(4:1)"},
        (
            DOUBLED,
            kernel(
                f"in I[0] int32(4:1)\n{T_IN}\nout C[0] float32(4:1)",
                stage(
                    "i:4",
                    "in I[i] int32(1:1)\nin T[0] float32(6:1)\nout C[i] float32(1:1)",
                    "$i = load(I)\n$t = load(T[$i], clamp=true)\nC = store($t)",
                ),
            ),
        ),
        TEMP,
    ),
    "a temporary to half of which a later kernel adds": Case(
        Inline(),
        VECTORS,
        (
            DOUBLED,
            kernel(
                f"{A}\ninout T[0] float32(6:1)",
                stage("i:3", "in A[i] float32(1:1)\ninout T[i]:add float32(1:1)", "$a = load(A)\nT = store($a)"),
            ),
            COPIED,
        ),
        TEMP,
    ),
    "a reader that loads another cell of what the producer loads": Case(
        Inline(),
        VECTORS,
        (
            EIGHTFOLD,
            kernel(
                f"{A}\n{T_IN}\n{C}",
                stage(
                    "i:6",
                    "in A[5 - i] float32(1:1)\nin T[i] float32(1:1)\nout C[i] float32(1:1)",
                    "$b = load(A)\n$t = load(T)\n$c = sub($t, $b):float32\nC = store($c)",
                ),
            ),
        ),
        TEMP,
    ),
    "loops of which one is bounded by a multiple": Case(
        Merge(),
        {"in A": ROWS_OF_3, "out C": ROWS_OF_3},
        (
            kernel(f"out C[0, 0] {ROWS_OF_3}", stage("i:4, j:3", f"out C[i, j] {CELL}", "$c = (float32)0.5\nC = store($c)")),
            kernel(
                f"in A[0, 0] {ROWS_OF_3}\nout C[0, 0] {ROWS_OF_3}",
                stage("i:4, j:3", f"2*i - 3 >= 0\nin A[i, j] {CELL}\nout C[i, j] {CELL}", "$a = load(A)\nC = store($a)"),
            ),
        ),
    ),
    **{
        f"an accumulator that merges by {agg} into what the cell holds": Case(
            Accumulate(), {"in A": "float32(6:4, 4:1)", "out C": "float32(6:1)"}, (FILLED, reduced(agg))
        )
        for agg in ("add", "mul", "max", "min")
    },
    "an accumulator in turns of a loop that meet no cell": Case(
        Accumulate(), {"in A": "float32(6:4, 4:1)", "out C": "float32(6:1)"}, (FILLED, reduced("add", turns=8))
    ),
}  # fmt: skip


def keeps_the_meaning(case: Case) -> None:
    program = parse_program(case.text)
    made = optimize(program, TARGET, passes=[case.rewrite], verify=True)
    for seed in range(2):
        inputs = random_inputs(program, seed)
        expected, found = interpret.run(program, inputs), interpret.run(made, inputs)
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-6, err_msg=f"{name}\n{print_program(made)}")


@pytest.mark.parametrize("name", CASES)
def test_the_meaning_stays(name: str) -> None:
    keeps_the_meaning(CASES[name])


def test_only_what_nobody_reads_any_more_is_left_out() -> None:
    """A kernel may be computed where its reader copies, and need not be."""
    program = parse_program(Case(Inline(), VECTORS, (DOUBLED, COPIED), TEMP).text)
    made = made_for_one(program)
    assert [*made] == ["T"] and without_unread(program, made) == program
    read_by_none = parse_program(Case(Inline(), VECTORS, (DOUBLED, FILLED), TEMP).text)
    assert len(kernels_of(without_unread(read_by_none, made))) == 1


# --- merged loops ------------------------------------------------------------------------------------

ROWS, COLUMNS = 4, 3
LAYOUTS = {"packed": (COLUMNS, COLUMNS), "padded": (COLUMNS, COLUMNS + 2), "wide": (2 * COLUMNS, 2 * COLUMNS)}
"""Columns, and the stride of rows."""
FORMS = ("i", f"{ROWS}*g + i", "i + 2", f"{ROWS - 1} - i")
CONSTRAINTS = ("2 - i", "i - 2", "2*i - 3", "1 - j", "2 - i - j", "3 - g - i")


@st.composite
def copies(draw: st.DrawFn) -> Case:
    """C = A + A over g, i and j, of which the pass merges i and j where the buffers and the constraints let it."""
    (ca, ra), (cc, rc) = (LAYOUTS[draw(st.sampled_from([*["packed"] * 5, *LAYOUTS]))] for _ in "AC")
    into_a, into_c = (draw(st.sampled_from(["i", FORMS[1], *FORMS])) for _ in "AC")
    conditions = "".join(f"{c} >= 0\n" for c in draw(st.lists(st.sampled_from(CONSTRAINTS), max_size=2, unique=True)))
    uses = f"{conditions}in A[{into_a}, j] float32(1:{ra}, 1:1)\nout C[{into_c}, j] float32(1:{rc}, 1:1)"
    body = "$a = load(A)\n$c = add($a, $a):float32\nC = store($c)"
    a, c = f"float32({2 * ROWS}:{ra}, {ca}:1)", f"float32({2 * ROWS}:{rc}, {cc}:1)"
    loops = f"g:2 #ordered, i:{ROWS}, j:{COLUMNS}"
    shared = draw(st.booleans())
    inner = stage("g = g, i = i, j = j" if shared else loops, uses, body)
    zero = stage(f"i:{2 * ROWS}, j:{cc}", f"out C[i, j] float32(1:{rc}, 1:1)", "$c = (float32)0.0\nC = store($c)")
    fill = kernel(f"out C[0, 0] {c}", zero)
    copy = kernel(f"in A[0, 0] {a}\nout C[0, 0] {c}", inner, loops=loops if shared else "")
    return Case(Merge(), {"in A": a, "out C": c}, (fill, copy))


@settings(max_examples=120)
@given(copies())
def test_loops_merge_only_where_they_walk_memory_as_one(case: Case) -> None:
    keeps_the_meaning(case)


def reshaped(form: str, into: str = "i, j", target: str = "float32(4:3, 3:1)") -> Case:
    """C = A + A, where A is seen in one dimension."""
    cell = "float32(1:3, 1:1)" if "," in into else "float32(1:1)"
    body = "$a = load(A)\n$c = add($a, $a):float32\nC = store($c)"
    copy = stage("i:4, j:3", f"in A[{form}] float32(1:1)\nout C[{into}] {cell}", body)
    whole = "0, 0" if "," in into else "0"
    refs = f"in A[0] float32(32:1)\nout C[{whole}] {target}"
    return Case(Merge(), {"in A": "float32(32:1)", "out C": target}, (kernel(refs, copy),))


@pytest.mark.parametrize(
    ("case", "loops"),
    [
        (reshaped("3*i + j"), 1),
        (reshaped("3*i + j + 5"), 1),
        (reshaped("6*i + 2*j"), 1),
        (reshaped("11 - 3*i - j"), 1),
        (reshaped("3*i + j", "3*i + j", "float32(12:1)"), 1),
        (reshaped("i + 3*j"), 2),
        (reshaped("2*i + j"), 2),
        (reshaped("j"), 2),
        (reshaped("3*i + j", "i + 4*j", "float32(12:1)"), 2),
    ],
    ids=lambda value: value.kernels[0].splitlines()[5] if isinstance(value, Case) else "",
)  # fmt: skip
def test_loops_merge_where_a_buffer_has_their_dimensions_as_one(case: Case, loops: int) -> None:
    """A reshape has the rows of one buffer as runs of another."""
    keeps_the_meaning(case)
    (made,) = kernels_of(optimize(parse_program(case.text), TARGET, passes=[case.rewrite], verify=True))
    view = open_kernel(made) if isinstance(made, Block) else None
    assert view is not None and len(view.stages[0].loops) == loops
