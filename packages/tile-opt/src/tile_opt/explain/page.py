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
from tile_opt.explain.text import MOST_LABELS, roofline_lines

STYLE = """
:root { color-scheme: light dark;
  --bg:#f7f7f5; --card:#ffffff; --ink:#1f2328; --soft:#667079; --line:#dcdfe3; --accent:#2458c5; --hot:#fff1c2; --reach:#2458c514;
  --grid:#d9e6ff; --gridl:#3b6fd4; --group:#d8f0e0; --groupl:#2f8f57; --none:#eceef1; --nonel:#8a94a0;
  --unroll:#ecdffb; --unrolll:#8250c4; --vector:#ffe6cc; --vectorl:#cc7a1f; --sub:#d3f0f2; --subl:#1f8d97; --core:#fbdcdc; --corel:#c04747; }
@media (prefers-color-scheme: dark) { :root {
  --bg:#14171b; --card:#1c2026; --ink:#e4e7eb; --soft:#98a2ad; --line:#343b44; --accent:#85a9ff; --hot:#4a3f16; --reach:#85a9ff1c;
  --grid:#1c2b4a; --gridl:#6b93ea; --group:#17352a; --groupl:#4fb37b; --none:#272c33; --nonel:#76808c;
  --unroll:#32244a; --unrolll:#ab83e6; --vector:#43301a; --vectorl:#e39a45; --sub:#143639; --subl:#45b3bd; --core:#452222; --corel:#e07a7a; } }
* { box-sizing:border-box; }
body { margin:0; background:var(--bg); color:var(--ink); font:14px/1.5 system-ui,sans-serif; }
main { max-width:1180px; margin:0 auto; padding:24px 20px 80px; }
h1 { font-size:22px; margin:0; } h2 { font-size:17px; margin:0 0 10px; } h3 { font-size:12px; margin:18px 0 6px; color:var(--soft); text-transform:uppercase; letter-spacing:.05em; }
.sub { color:var(--soft); margin:2px 0 18px; }
.card { background:var(--card); border:1px solid var(--line); border-radius:10px; padding:16px 18px; margin:0 0 16px; min-width:0; }
.two { display:grid; grid-template-columns:minmax(0,1fr) minmax(0,1fr); gap:16px; }
@media (max-width:860px) { .two { grid-template-columns:minmax(0,1fr); } }
.facts { display:flex; flex-wrap:wrap; gap:10px 28px; margin:0 0 16px; } .facts div { display:flex; flex-direction:column; }
.facts b { font-size:18px; font-weight:600; } .facts span, em, small { color:var(--soft); font-style:normal; font-size:12px; }
.scroll { overflow-x:auto; }
table { border-collapse:collapse; font-variant-numeric:tabular-nums; } th, td { padding:3px 12px 3px 0; text-align:right; white-space:nowrap; }
th { color:var(--soft); font-weight:500; border-bottom:1px solid var(--line); } td.t, th.t { text-align:left; } table.wide { width:100%; }
a { color:var(--accent); text-decoration:none; } a:hover { text-decoration:underline; }
code, pre, .src, .stmt, .blk-name, .box .head, .chip, .mono { font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace; font-size:12.5px; }
pre { margin:6px 0 0; padding:10px 12px; overflow:auto; max-height:460px; background:var(--bg); border-radius:6px; line-height:1.4; }
.src { overflow-x:auto; } .src a, .src span.ln { display:flex; white-space:pre; color:inherit; padding:1px 6px; border-radius:4px; }
.src a:hover { text-decoration:none; } .src i { flex:none; width:2.4em; color:var(--soft); font-style:normal; user-select:none; } .src a i { color:var(--accent); }
.src u { text-decoration:none; margin-left:auto; padding-left:24px; color:var(--soft); font-family:system-ui,sans-serif; font-size:11px; }
.hot { background:var(--hot) !important; } .mark.hot .dot { r:8; } section.card.hot { background:var(--card) !important; outline:2px solid var(--vectorl); }
.plot { width:100%; height:auto; } .plot text { fill:var(--soft); font-size:11px; } .plot .name { fill:var(--ink); font-size:12px; }
.tick { stroke:var(--line); } .roof { fill:none; stroke:var(--accent); stroke-width:2; } .reach { fill:var(--reach); } .knee { stroke:var(--accent); stroke-dasharray:3 4; }
.dot { fill:var(--accent); } .ring { fill:var(--card); stroke:var(--accent); stroke-width:2; } .gap { stroke:var(--accent); stroke-dasharray:2 3; }
.bars { display:grid; grid-template-columns:max-content 1fr max-content; gap:4px 10px; align-items:center; } .bars i { display:block; height:9px; border-radius:3px; background:var(--accent); min-width:2px; }
.legend { display:flex; flex-wrap:wrap; gap:4px 16px; color:var(--soft); font-size:12px; margin-bottom:8px; } .key i { display:inline-block; width:12px; height:12px; border-radius:3px; border:1px solid; margin-right:5px; vertical-align:-2px; }
.nest { overflow-x:auto; } .row { display:flex; flex-wrap:wrap; gap:8px; align-items:flex-start; }
.row > .blk { flex:1 1 auto; }
.blk { margin:4px 0; min-width:0; } .blk-name { color:var(--soft); margin-bottom:3px; } .box { border:1px solid; border-left-width:4px; border-radius:6px; padding:5px 8px 7px; margin:3px 0; }
.box .head { color:var(--ink); margin-bottom:2px; } .box .head em { margin-left:10px; font-family:system-ui,sans-serif; }
.stmt { white-space:pre-wrap; overflow-wrap:anywhere; padding:0 4px; } .stmt.sync { color:var(--corel); }
.chip { display:inline-block; border:1px solid var(--line); border-radius:9px; padding:0 7px; margin:0 0 2px 6px; font-size:11px; background:var(--card); color:var(--ink); } .chip.mem-group { border-color:var(--groupl); } .chip.when { color:var(--soft); border-style:dashed; }
.bind-grid { background:var(--grid); border-color:var(--gridl); } .bind-group { background:var(--group); border-color:var(--groupl); } .bind-none { background:var(--none); border-color:var(--nonel); }
.bind-unroll { background:var(--unroll); border-color:var(--unrolll); } .bind-vector { background:var(--vector); border-color:var(--vectorl); } .bind-subgroup, .bind-lane { background:var(--sub); border-color:var(--subl); } .bind-core { background:var(--core); border-color:var(--corel); }
details { margin-top:8px; } summary { cursor:pointer; color:var(--accent); } ul { margin:4px 0; padding-left:18px; } li.mono { margin:1px 0; }
.tables { display:flex; flex-wrap:wrap; gap:14px 36px; } .best td { font-weight:600; color:var(--accent); } .no td { color:var(--soft); }
"""

SCRIPT = """
document.querySelectorAll("[data-k]").forEach(function (element) {
  function mark(on) {
    element.dataset.k.split(" ").forEach(function (number) {
      document.querySelectorAll("[data-k]").forEach(function (other) {
        if (other.dataset.k.split(" ").indexOf(number) !== -1) other.classList.toggle("hot", on);
      });
    });
  }
  element.addEventListener("mouseenter", function () { mark(true); });
  element.addEventListener("mouseleave", function () { mark(false); });
});
"""


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
