"""The numbers of a large convolution, digit for digit, from the compiler's own kernels."""

from __future__ import annotations

from dataclasses import replace

import pytest
import tile_opt
from tile_ir.target import HardwareSettings
from tile_opt.explain.contraction.cost import tile_cost
from tile_opt.explain.contraction.flat import Access, FlatKernel
from tile_opt.explain.contraction.report import SMALL_GPU, ContractionReport

CONV = """function (D[N, X, Y, CI], K[I, J, CO, CI]) -> (R) {
    O[n, x, y, co : N, X, Y, CO] = +(D[n, x+i-1, y+j-1, ci] * K[i, j, co, ci]);
    R = (O > 0 ? O : 0);
}"""
LOG = {
    (8, 32, 1, 3, 16, 8, 2): """Computing cost for tile size: [8, 32, 1, 3, 16, 8, 2]
Compute score: to=236760072192 wg=12544 il=24 sm=20656 or=32768 mr=19456 mw=32768 op=256 rp=0 tu=256
over memory""",
    (8, 32, 1, 3, 16, 4, 4): """Computing cost for tile size: [8, 32, 1, 3, 16, 4, 4]
Compute score: to=236760072192 wg=12544 il=24 sm=16272 or=32768 mr=15360 mw=32768 op=256 rp=0 tu=256
over regs""",
    (16, 32, 1, 1, 16, 2, 2): """Computing cost for tile size: [16, 32, 1, 1, 16, 2, 2]
Compute score: to=236760072192 wg=50176 il=36 sm=6488 or=8192 mr=6144 mw=8192 op=256 rp=0 tu=256
flops_per_byte=20.5714 occupancy=20
roof_ratio=1 occ_ratio=1 thread_ratio=1 score=1""",
    (8, 32, 2, 1, 16, 2, 2): """Computing cost for tile size: [8, 32, 2, 1, 16, 2, 2]
Compute score: to=236760072192 wg=50176 il=48 sm=5264 or=8192 mr=5120 mw=8192 op=256 rp=0 tu=256
flops_per_byte=18.5806 occupancy=20
roof_ratio=0.929032 occ_ratio=1 thread_ratio=1 score=0.929032""",
}


@pytest.fixture(scope="module")
def report() -> ContractionReport:
    return tile_opt.contraction_report(CONV, {"D": (32, 224, 224, 64), "K": (3, 3, 64, 64)})


def test_the_flatten_table(report: ContractionReport) -> None:
    flat = report.flat
    assert dict(zip(flat.names, flat.ranges, strict=True)) == {
        "ci": 64,
        "co": 64,
        "i": 3,
        "j": 3,
        "n": 32,
        "x": 224,
        "y": 224,
    }
    strides = {a.name: a.strides for a in flat.accesses}
    assert strides == {
        "O": (0, 1, 0, 0, 3211264, 14336, 64),
        "D": (1, 0, 14336, 64, 3211264, 14336, 64),
        "K": (1, 64, 12288, 4096, 0, 0, 0),
    }
    assert [a.offset for a in flat.accesses] == [0, -14400, 0]
    assert [str(c) for c in flat.constraints] == [
        "(0,0,-1,0,0,-1,0) <= -1",
        "(0,0,1,0,0,1,0) <= 224",
        "(0,0,0,-1,0,0,-1) <= -1",
        "(0,0,0,1,0,0,1) <= 224",
    ]
    assert len(flat.post_ops) == 2


def test_the_four_printed_lines_of_the_search(report: ContractionReport) -> None:
    evaluated = [c.tile for c in report.search.evaluated]
    assert [evaluated.index(t) for t in LOG] == [486, 487, 488, 489]
    assert {t: report.cost(t).text() for t in LOG} == LOG
    assert len(evaluated) == 552


def test_the_winner(report: ContractionReport) -> None:
    assert report.tile == {"ci": 8, "co": 32, "i": 2, "j": 3, "n": 16, "x": 2, "y": 2}
    assert report.search.winner.score == 1


def test_the_read_plans(report: ContractionReport) -> None:
    data, weights = report.reads
    assert (data.size, weights.size) == (1572, 1590)
    assert {g.name: (g.range, g.stride, g.local) for g in data.groups} == {
        "i_x": (3, 14336, 1), "j_y": (4, 64, 393), "ci": (8, 1, 49), "n": (16, 3211264, 3),
    }  # fmt: skip
    assert {g.name: (g.range, g.stride, g.local) for g in weights.groups} == {
        "j_i": (6, 4096, 265), "ci": (8, 1, 33), "co": (32, 64, 1),
    }  # fmt: skip


def test_the_thread_plans(report: ContractionReport) -> None:
    data, weights = ({s.name: (s.threads, s.loops) for s in splits} for splits in report.loads)
    assert data == {"ci": (8, 1), "n": (16, 1), "j_y": (2, 2), "i_x": (1, 3)}
    assert weights == {"ci": (8, 1), "co": (32, 1), "j_i": (1, 6)}
    compute = {s.name: (s.threads, s.loops) for s in report.compute}
    assert compute == {
        "co": (8, 4), "y": (2, 1), "x": (2, 1), "n": (8, 2), "ci": (1, 8), "i": (1, 2), "j": (1, 3),
    }  # fmt: skip


def test_the_grid(report: ContractionReport) -> None:
    assert report.grid.groups == (112, 112, 4)
    assert dict(report.grid.bases) == {"y": "g0 * 2", "x": "g1 * 2", "n": "(g2 % 2) * 16", "co": "(g2 / 2) * 32"}


def test_the_text_has_the_tables(report: ContractionReport) -> None:
    text = report.text()
    for part in ("The chosen tile size is: [ci: 8, co: 32, i: 2, j: 3, n: 16, x: 2, y: 2]", "1572", "112x112x4"):
        assert part in text
    assert "over regs" in report.text(every_tile=True)


def small_matmul() -> FlatKernel:
    """3×3 matmul, beside the numbers that a public log of PlaidML shows."""
    return FlatKernel(
        ("i", "j", "k"),
        (3, 3, 3),
        (Access("C", 4, 0, (3, 1, 0), 9), Access("A", 4, 0, (3, 0, 1), 9), Access("B", 4, 0, (0, 1, 3), 9)),
        (),
    )


@pytest.mark.parametrize(
    ("tile", "line", "score"),
    [
        ((2, 1, 3), "to=54 wg=6 il=1 sm=164 or=128 mr=128 mw=128 op=6 rp=2 tu=6", 4.94385e-05),
        ((3, 1, 3), "to=54 wg=3 il=1 sm=176 or=128 mr=128 mw=192 op=9 rp=2 tu=9", 5.93262e-05),
        ((2, 2, 3), "to=54 wg=4 il=1 sm=176 or=128 mr=192 mw=128 op=12 rp=2 tu=12", 7.91016e-05),
    ],
)
def test_public_log_points(tile: tuple[int, ...], line: str, score: float) -> None:
    settings = HardwareSettings(
        threads=32,
        use_global=False,
        mem_width=64,
        max_mem=32768,
        max_regs=16384,
        goal_groups=16,
        goal_flops_per_byte=50,
    )
    cost = tile_cost(small_matmul(), tile, settings)
    assert line in cost.text()
    assert cost.score == pytest.approx(score, rel=1e-5)


def test_full_search_covers_everything_reachable() -> None:
    tiny = tile_opt.contraction_report(CONV, {"D": (1, 4, 4, 2), "K": (3, 3, 2, 2)}, SMALL_GPU, fast=False)
    fast = tile_opt.contraction_report(CONV, {"D": (1, 4, 4, 2), "K": (3, 3, 2, 2)}, SMALL_GPU)
    assert len(tiny.search.evaluated) >= len(fast.search.evaluated)
    assert tiny.search.winner.score >= fast.search.winner.score


def test_shared_memory_is_not_counted_when_inputs_are_read_in_place() -> None:
    flat = small_matmul()
    staged = tile_cost(flat, (2, 2, 3), replace(SMALL_GPU, use_global=False))
    in_place = tile_cost(flat, (2, 2, 3), replace(SMALL_GPU, use_global=True))
    assert in_place.sm < staged.sm
