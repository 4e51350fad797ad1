"""Nodes that Tile cannot run, all of them in one error or warning."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from tile_ir.diagnostics import Diagnostic, TileTypeError
from torch.fx import Node

_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)\n(?:\s+(.*))?')
_TORCH = os.path.dirname(torch.__file__)
_ROOT = re.compile(r"^L\[[^]]*\]\.?")
_LINE = 60
LABEL = "tile_label"
"""Where nodes of a graph that was kept have their label: PyTorch's notes of their origin are not kept."""
FALLBACK = 'options={"fallback": "eager"} of torch.compile leaves it to PyTorch, between programs'
"""What helps where nothing else does."""
_LISTED = 3
"""Nodes that are named for each operator and reason."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One node: its operator, name and the user's line that made it; why it cannot run, and what would help."""

    operator: str
    node: str
    place: str
    why: str
    hint: str | None = None


def problem(node: Node, why: str, hint: str | None = None) -> Problem:
    """What is wrong with a node."""
    return Problem(str(node.target), node.name, place(node), why, hint)


def source_line(node: Node) -> str:
    """``model.py:34`` of the user's line that a node comes from, with its text; "" where PyTorch does not tell."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or node.stack_trace or "")
    if not frames:
        return ""
    own = [f for f in frames if not f[0].startswith(_TORCH)]
    path, line, _, text = (own or frames)[-1]
    return f"{os.path.basename(path)}:{line}" + (f" `{shortened(text.strip())}`" if text else "")


def module_path(node: Node) -> str:
    """``layers.0.norm``: the module that a node comes from, as its model names it; "" where it comes from none."""
    stack: dict[str, tuple[str, Any]] = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}
    return _ROOT.sub("", list(stack.values())[-1][0]) if stack else ""


def place(node: Node) -> str:
    """Where a node comes from: the user's line, and the module."""
    return " in ".join(filter(None, (source_line(node), module_path(node))))


def shortened(text: str) -> str:
    """A line of code, without its end where it is long."""
    return text if len(text) <= _LINE else text[: _LINE - 1] + "…"


def label(node: Node) -> str:
    """What errors, profiles and `explain` call a node: its name, module and the user's line."""
    if LABEL in node.meta:
        return node.meta[LABEL]
    parts = (module_path(node), source_line(node).partition(" ")[0])
    where = ", ".join(filter(None, parts))
    return f"{node.name} ({where})" if where else node.name


def diagnostics(problems: Iterable[Problem]) -> list[Diagnostic]:
    """One for each operator and reason: how often it occurs, and where."""
    grouped: dict[tuple[str, str, str | None], list[Problem]] = {}
    for found in problems:
        grouped.setdefault((found.operator, found.why, found.hint), []).append(found)
    return [
        Diagnostic("TILE-E920", f"{operator}, {_where(every)}: {why}", hint=hint)
        for (operator, why, hint), every in grouped.items()
    ]


def _where(problems: Sequence[Problem]) -> str:
    first = [f"{p.node} at {p.place}" if p.place else p.node for p in problems[:_LISTED]]
    more = f" and {len(problems) - _LISTED} more" if len(problems) > _LISTED else ""
    return f"{len(problems)} node{'s' * (len(problems) > 1)} ({', '.join(first)}{more})"


def unsupported(problems: Sequence[Problem]) -> TileTypeError:
    """One error with every problem, and what helps."""
    return TileTypeError([replace(d, hint=d.hint or FALLBACK) for d in diagnostics(problems)])
