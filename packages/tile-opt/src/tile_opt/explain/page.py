"""The report as one self-contained HTML page (well-formed as XML, too)."""

from __future__ import annotations

from html import escape

from tile_ir.kernels import Kernel, listed
from tile_ir.semtree.printer import print_function
from tile_ir.stripe.printer import print_block

from tile_opt.compiled import Compiled
from tile_opt.explain.data import KernelReport, ProgramReport
from tile_opt.explain.nest import legend, nest
from tile_opt.explain.roofline import roofline_svg
from tile_opt.explain.sections import (
    choices,
    facts,
    flatten_html,
    fold,
    memory_bars,
    overview,
    plan_html,
    printable,
    rounding,
    sources,
    time_bars,
)
from tile_opt.explain.style import SCRIPT, STYLE
from tile_opt.explain.text import MOST_LABELS, roofline_lines

MOST_TEXT = 300_000
"""Characters of one kernel's Stripe or semtree; what is longer is cut, with a hint."""


def page(compiled: Compiled, report: ProgramReport) -> str:
    """The whole document."""
    title = escape(f"{report.name or 'Tile program'} on {report.target}")
    kernels = "".join(
        _kernel(place, kernel, mine)
        for place, (kernel, mine) in enumerate(zip(compiled.kernels.kernels, report.kernels, strict=True))
    )
    body = (
        f'<h1>{title}</h1><p class="sub">What the compiler made of it, and why.</p>{facts(report)}'
        f'<div class="card"><h2>Kernels</h2>{overview(report)}</div>'
        f'<div class="card"><h2>Source</h2>{sources(report)}</div>{rounding(report)}{choices(report)}'
        f'<div class="two"><div class="card"><h2>Roofline</h2>{roofline_svg(report.kernels)}'
        "<p><em>Dots: the most that memory and arithmetic allow. Rings: what the cost model expects.</em></p>"
        f"<h2>Device buffers</h2>{memory_bars(report)}</div>"
        f'<div class="card"><h2>Compile time</h2>{time_bars(report)}</div></div>{kernels}'
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        '<link rel="icon" href="data:,"/>'  # none: browsers would ask the server for one
        f"<title>{title}</title><style>{STYLE}</style></head><body><main>{body}</main>"
        f"<script>{SCRIPT}</script></body></html>\n"
    )


def _kernel(place: int, kernel: Kernel, report: KernelReport) -> str:
    statements = printable("\n".join(report.statements))
    tables = "".join(flatten_html(t) for t in report.tables)
    parts = [f"<h2>{escape(report.name)}</h2>"]
    if statements:
        parts.append(f"<pre>{statements}</pre>")
    parts += [f"<p>Instruction: {printable(line)}</p>" for line in report.instructions]
    if report.labels:
        parts.append(f"<p>Part of: {printable(listed(report.labels, MOST_LABELS))}</p>")
    parts += [f"<p><em>{escape(line)}</em></p>" for line in roofline_lines(report)]
    parts += ["<h3>Plan</h3>", plan_html(report), "<h3>Loop nest</h3>", legend(kernel.stripe), nest(kernel.stripe)]
    if tables:
        parts.append(f'<h3>Flatten tables</h3><div class="tables scroll">{tables}</div>')
    parts.append(fold("Stripe", _cut(print_block(kernel.stripe))))
    if kernel.function is not None:
        parts.append(fold("Semtree", _cut(print_function(kernel.function))))
    return f'<section class="card" id="k{place}" data-k="{place}">{"".join(parts)}</section>'


def _cut(text: str) -> str:
    if len(text) <= MOST_TEXT:
        return text
    return f"{text[:MOST_TEXT]}\n… {len(text) - MOST_TEXT} more characters; `tile ir` prints them all"
