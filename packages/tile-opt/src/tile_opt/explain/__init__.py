"""What the compiler did and why: reports as data, as text, and as one HTML page.

`report` gathers a `ProgramReport` from a compilation; `explain` prints it, `explain_html` draws it.
"""

from __future__ import annotations

from collections.abc import Mapping

from tile_opt.compiled import Compiled
from tile_opt.explain.data import ErrorReport as ErrorReport
from tile_opt.explain.data import FlattenTable as FlattenTable
from tile_opt.explain.data import KernelReport as KernelReport
from tile_opt.explain.data import MemoryReport as MemoryReport
from tile_opt.explain.data import PlanCandidate as PlanCandidate
from tile_opt.explain.data import PlanReport as PlanReport
from tile_opt.explain.data import Prediction as Prediction
from tile_opt.explain.data import ProgramReport as ProgramReport
from tile_opt.explain.data import Roofline as Roofline
from tile_opt.explain.data import ScheduleReport as ScheduleReport
from tile_opt.explain.gather import errors as errors
from tile_opt.explain.gather import report as report
from tile_opt.explain.text import text as text

__all__ = [
    "ErrorReport", "FlattenTable", "KernelReport", "MemoryReport", "PlanCandidate", "PlanReport", "Prediction", "ProgramReport", "Roofline",
    "ScheduleReport", "errors", "explain", "explain_html", "report", "text",
]  # fmt: skip


def explain(compiled: Compiled, *, candidates: bool = False, measured: Mapping[str, float] | None = None) -> str:
    """One section per kernel: its Tile statements, flatten tables, plan, grid, operations, bytes and roofline.

    `candidates` and `measured` as in `report`.
    """
    return text(report(compiled, candidates=candidates, measured=measured))


def explain_html(compiled: Compiled, *, candidates: bool = True, measured: Mapping[str, float] | None = None) -> str:
    """The report as one self-contained HTML page, with the kernels' Stripe and semtree."""
    from tile_opt.explain.page import page

    return page(compiled, report(compiled, candidates=candidates, measured=measured))
