"""The table of operators in docs/onnx.md: `python support_table.py` rewrites it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import backend_cases
import onnx
from onnx import defs
from tile_onnx import functions, registry, support
from tile_onnx.dtypes import dtype_name
from tile_onnx.node import Node

PAGE = Path(__file__).parents[3] / "docs" / "onnx.md"
HEAD = """# Operators of ONNX

What `tile_onnx` makes of the operators of ai.onnx {newest} (onnx {version}), and the cases of ONNX's backend suite that pass
on `llvm`: {passing} of {total}. This page is written by `packages/tile-onnx/tests/support_table.py`; a test compares it.

**How**: *Tile*: a converter writes Tile for it; *definition*: ONNX defines it by other operators, which are converted;
*host*: shapes depend on data, so that the host computes it between device programs. **Since** are the opsets from which on
versions differ; models of opset 7 to {newest} are read. **Types** are those of the inputs of the cases that pass; element
types that Tile lacks (8-bit and smaller floats, integers of 4 and 2 bits) are computed on the host.

| Operator | How | Since | Cases | Types |
|---|---|---|---|---|
"""


@dataclass
class Row:
    """What the suite says of an operator."""

    passing: int = 0
    total: int = 0
    dtypes: set[str] = field(default_factory=set[str])


def rows() -> dict[str, Row]:
    """Cases by operator: those of one node, without the expanded ones."""
    failing = backend_cases.listed("llvm")
    found: dict[str, Row] = defaultdict(Row)
    for name, case in backend_cases.cases().items():
        if case.kind != "node" or "_expanded" in name or case.model is None:
            continue
        nodes = [n for n in case.model.graph.node if n.op_type != "Constant"] or list(case.model.graph.node)
        if len(nodes) != 1 or nodes[0].domain not in ("", "ai.onnx"):
            continue
        row = found[nodes[0].op_type]
        row.total += 1
        if name not in failing:
            row.passing += 1
            row.dtypes |= {dtype_name(i.type.tensor_type.elem_type) for i in case.model.graph.input} - {"undefined"}
    return found


def operators() -> list[str]:
    """Names of the operators of ai.onnx that the newest opset has."""
    names = {s.name for s in defs.get_all_schemas() if s.domain == "" and not s.deprecated}
    return sorted(names)


def how(op: str) -> tuple[str, str]:
    """The way an operator is converted, and the opsets from which on it is."""
    if op in support.REFUSED:
        return f"refused: {support.REFUSED[op][0]}", ""
    entries = [e for domain, name, e in registry.entries() if (domain, name) == ("", op)]
    since = ", ".join(str(e.since) for e in entries)
    if entries:
        return ("host" if entries[-1].on_host else "Tile"), since
    node = Node(onnx.helper.make_node(op, [], []), defs.onnx_opset_version(), (), None, op)
    return ("definition", "") if functions.is_defined(node) else ("not supported", "")


def lines() -> Iterator[str]:
    cases = rows()
    for op in operators():
        row = cases.get(op, Row())
        way, since = how(op)
        tested = f"{row.passing}/{row.total}" if row.total else ""
        yield f"| {op} | {way} | {since} | {tested} | {', '.join(sorted(row.dtypes))} |\n"


DOMAINS = {
    "com.microsoft": "what ONNX Runtime's optimiser and exporters for it leave in models; tested beside ONNX Runtime",
    "ai.onnx.ml": "classical machine learning; labels, trees and support vectors by ONNX's reference on the host",
    "ai.onnx.preview.training": "optimisers",
}


def others() -> Iterator[str]:
    """The operators of other domains."""
    yield "\n## Other domains\n"
    for domain, what in DOMAINS.items():
        names = sorted({name for other, name, _ in registry.entries() if other == domain})
        yield f"\n**{domain}** ({what}): {', '.join(names)}.\n"


def text() -> str:
    """The page."""
    total = len(backend_cases.cases())
    passing = total - len(backend_cases.listed("llvm"))
    head = HEAD.format(newest=defs.onnx_opset_version(), version=onnx.__version__, passing=passing, total=total)
    return head + "".join(lines()) + "".join(others())


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
