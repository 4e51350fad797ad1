"""Results that are written part by part: concatenations without copies, the same values whatever reads and writes them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import tile_lang
from explain_support import CPU
from hypothesis import given, settings
from hypothesis import strategies as st
from test_widen import agree, small
from tile_ir.diagnostics import Source
from tile_ir.dtype import DType
from tile_ir.program.nodes import TensorType
from tile_ir.stripe.nodes import Block, Direction, Program
from tile_ir.target import PassConfig
from tile_opt.blocks.buffers import temporaries
from tile_opt.blocks.tree import kernels_of, main_of
from tile_opt.translate import to_stripe

ALONE = tuple(map(PassConfig, ("in_place",)))
WHOLE = tuple(
    map(PassConfig, ("inline", "in_place", "fuse", "tile_pipelines", "merge", "accumulate", "schedule_kernels"))
)
TARGET = small(replace(CPU, passes=WHOLE))
JOINED = "Y0[i, j : 4, 9] = =(A[i, j]); Y1[i, j + 3 : 4, 9] = =(B[i, j]) default Y0; Y[i, j + 6 : 4, 9] = =(C[i, j]) default Y1;"
STACKED = "Y0[i, j : 12, 3] = =(P[i, j]); Y1[i + 4, j : 12, 3] = =(B[i, j]) default Y0; Y[i + 8, j : 12, 3] = =(Q[i, j]) default Y1;"


def stripe(body: str, outputs: str = "R") -> Program:
    source = f"function (A[M, N], B[M, N], C[M, N]) -> ({outputs}) {{ {body} }}"
    types = {name: TensorType(DType.FLOAT32, (4, 3)) for name in "ABC"}
    return to_stripe(tile_lang.bind(tile_lang.parse(Source(source, "sample.tile")), types))


def in_place(program: Program, row: int = 1) -> Program:
    """The pass alone, with an equal result."""
    return agree(program, replace(TARGET, passes=(PassConfig("in_place", options={"row": row}),)))


def copies(program: Program) -> int:
    """Stages that do nothing but load and store."""
    kernels = [k for k in kernels_of(program) if isinstance(k, Block)]
    return sum(len(s.body) == 2 for k in kernels for s in k.body if isinstance(s, Block))


def test_a_concatenation_is_a_copy_of_each_part() -> None:
    program = in_place(stripe(JOINED.replace("Y[", "R["), "R"))
    kernels = [k for k in kernels_of(program) if isinstance(k, Block)]
    assert len(kernels) == copies(program) == 3
    assert not any(r.dir is Direction.ALLOC for r in main_of(program).refs)


def test_temporaries_are_views_of_what_they_are_parts_of() -> None:
    program = in_place(stripe(f"P = A + B; Q = A * C; {STACKED} R = Y * Y;"))
    views = {r.into: (r.source, r.access[0].const) for r in main_of(program).refs if r.into != r.source and r.source}
    assert views == {"P": ("Y", 0), "Q": ("Y", 8)}
    assert copies(program) == 1  # B is an input


def test_temporaries_are_looked_up_as_often_in_long_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work does not grow with the square of the buffers: a quantised network has a thousand."""
    asked: list[int] = []

    def counted(program: Program) -> frozenset[str]:
        asked.append(1)
        return temporaries(program)

    monkeypatch.setattr("tile_opt.passes.kernels.in_place.temporaries", counted)
    counts: list[int] = []
    for steps in (1, 9):
        chain = " ".join(f"T{n + 1} = exp(T{n});" for n in range(steps))
        in_place(stripe(f"P = A + B; Q = A * C; {STACKED} T0 = Y * Y; {chain} R = T{steps};"))
        counts.append(len(asked))
        asked.clear()
    assert counts[0] == counts[1] > 0


def test_short_rows_are_copied() -> None:
    body = f"P = A + B; {JOINED.replace('=(B[', '=(P[')} R = Y * Y;"
    assert copies(in_place(stripe(body), row=4)) == 2
    assert copies(in_place(stripe(body), row=1024)) == 3


GROWING = """P = A + B; Y0[i, j : 8, 3] = =(P[i, j]); Y1[i + 4, j : 8, 3] = =(C[i, j]) default Y0;
    U = Y1 * 2; V[i, j : 4, 3] = =(U[i + 2, j]), i < 4; Y2[i, j : 12, 3] = =(Y1[i, j]); R[i + 8, j : 12, 3] = =(V[i, j]) default Y2;"""


@pytest.mark.parametrize("part", ["P[j, i]", "P[i, j]"])
def test_a_square_that_is_turned_is_no_copy(part: str) -> None:
    """As large as the part that it becomes, but in another order."""
    square = "P[i, k : 4, 4] = +(A[i, j] * B[k, j]);"
    agree(stripe(f"{square} Y0[i, j : 5, 4] = =(A[i, j]); R[i + 1, j : 5, 4] = =({part}) default Y0;"), TARGET)
    agree(stripe(f"{square} Q[i, j : 4, 4] = =({part}); R[i + 1, j : 4, 4] = =(C[i, j]) default Q;"), TARGET)


@pytest.mark.parametrize("lanes", [2, 4])
def test_vectors_do_not_reach_back_to_what_was_read_before_it_was_written(lanes: int) -> None:
    """Rows of five cells: the last row of P goes to U, and is another from then on."""
    body = """P[i, j + k : 4, 5] = +(A[i, j] * C[i, k]); L[i, j : 1, 5] = =(P[i + 3, j]); O[i, j : 1, 5] = =(A[0, 0]);
        Z[i, j : 4, 5] = =(B[0, 0]); U[i + 1, j : 4, 5] = =(L[i, j]) default Z; R[i + 3, j : 4, 5] = =(O[i, j]) default P;"""
    target = replace(TARGET, settings=replace(TARGET.settings, vector_bytes=4 * lanes, threads=1))
    agree(stripe(body, "U, R"), target)


def test_parts_are_made_behind_the_results_that_they_read() -> None:
    """A layer normalisation that keeps its deviations, with the halves of its rows exchanged."""
    body = """T[i, 0 : 4, 1] = +(A[i, j]); D = tanh(A - T); V[i, 0 : 4, 1] = +(D[i, j] * D[i, j]); S = 1 / V; Y = D * S;
        Y1[i, j : 4, 6] = =(Y[i, j]); R[i, j + 3 : 4, 6] = =(D[i, j] * S[i, 0]) default Y1;"""
    for target in (TARGET, replace(TARGET, passes=(PassConfig("inline"), PassConfig("in_place")))):
        agree(stripe(body, "R, S"), target)


def test_a_result_that_is_a_part_of_the_next_lies_in_it() -> None:
    program = in_place(stripe(GROWING.replace("R[", "Y[") + "R = Y + Y;"))
    assert {r.source for r in main_of(program).refs if r.into in ("P", "Y1", "V")} == {"Y"}


@pytest.mark.parametrize("passes", [ALONE, WHOLE], ids=["alone", "among others"])
def test_zeros_that_a_kernel_of_its_own_makes_do_not_come_after_parts(passes: tuple[PassConfig, ...]) -> None:
    """One of which is made as early as what it reads."""
    body = """D[i, j : 4, 3] = +(B[i, j]); Z[i, j : 4, 3] = +(A[i, j + 9]);
        Y[i, j : 4, 3] = =(A[i, j]), j < 1 default Z; R[i, j + 1 : 4, 3] = =(D[i, j + 1]), j < 2 default Y;"""
    agree(stripe(body), replace(TARGET, passes=passes))


KEPT = {
    "a default that is wanted later": f"{STACKED} R = Y + Y; S = Y1 * 2;",
    "a default that is a result": f"{STACKED.replace('Y1', 'S')} R = Y + Y;",
    "parts that meet": "Y0[i, j : 6, 3] = =(P[i, j]); Y[i + 2, j : 6, 3] = =(B[i, j]) default Y0; R = Y + Y; S = P * 2;",
    "cells that stay zero": "Y0[i, j : 12, 3] = =(P[i, j]); Y[i + 6, j : 12, 3] = =(B[i, j]) default Y0; R = Y + Y; S = P * 2;",
    "a part twice": f"{STACKED.replace('Q[', 'P[')} R = Y + Y; S = P * 2;",
    "a part of two results": f"{STACKED} Z[i + 4, j : 8, 3] = =(P[i, j]) default Z0; R = Y + Y; S = Z + Z;",
    "a result that is summed": f"{STACKED} R[j : 3] = +(Y[i, j]); S = Y;",
}
PARTS = "P = A + B; Q = A * C; Z0[i, j : 8, 3] = =(Q[i, j]);"


@pytest.mark.parametrize("name", KEPT)
@pytest.mark.parametrize("passes", [ALONE, WHOLE], ids=["alone", "among others"])
def test_other_readers_and_writers_see_what_they_saw(name: str, passes: tuple[PassConfig, ...]) -> None:
    agree(stripe(f"{PARTS} {KEPT[name]}", "R, S"), replace(TARGET, passes=passes))


@st.composite
def chains(draw: st.DrawFn) -> str:
    """Concatenations of inputs, temporaries and earlier concatenations along rows, and something that reads each."""
    lines, known = ["P = A + B;", "Q = P * C;"], [("A", 4), ("P", 4), ("Q", 4)]
    results: list[str] = []
    for n in range(draw(st.integers(1, 3))):
        parts = draw(st.lists(st.sampled_from(known), min_size=2, max_size=3))
        total, start = sum(size for _, size in parts), 0
        for k, (name, size) in enumerate(parts):
            last = f"Y{n}" if k == len(parts) - 1 else f"Y{n}_{k}"
            default = f" default Y{n}_{k - 1}" if k else ""
            lines.append(f"{last}[i + {start}, j : {total}, 3] = =({name}[i, j]){default};")
            start += size
        known.append((f"Y{n}", total))
        results.append(f"S{n} = Y{n} * 2.0;")
    return " ".join((*lines, *results, f"R = Y{n} + 1.0;"))


@given(chains(), st.booleans(), st.sampled_from([4, 1024]))
@settings(max_examples=40, deadline=None)
def test_any_chain_gives_the_same(body: str, among: bool, row: int) -> None:
    passes = tuple(replace(p, options={"row": row}) if p.name == "in_place" else p for p in (WHOLE if among else ALONE))
    outputs = ", ".join(["R", *(f"S{n}" for n in range(3) if f"S{n} =" in body)])
    agree(stripe(body, outputs), replace(TARGET, passes=passes))
