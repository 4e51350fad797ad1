"""Nodes that cannot be converted, all of them in one error."""

from __future__ import annotations

from dataclasses import dataclass

from tile_ir.diagnostics import Diagnostic, TileTypeError

from tile_onnx.node import Node
from tile_onnx.values import described


@dataclass(frozen=True, slots=True)
class Problem:
    """One node: `operator (domain, opset)`, its name, input types, why, and what would help."""

    operator: str
    node: str
    inputs: str
    why: str
    hint: str | None = None

    @property
    def diagnostic(self) -> Diagnostic:
        where = f"{self.operator}, node {self.node!r}" + (f" on {self.inputs}" if self.inputs else "")
        return Diagnostic("TILE-E910", f"{where}: {self.why}", hint=self.hint)


def problem(node: Node, why: str, hint: str | None = None) -> Problem:
    """What is wrong with a node."""
    inputs = ", ".join(described(v) for v in node.values)
    return Problem(f"{node.op} ({node.domain or 'ai.onnx'}, opset {node.opset})", node.name, inputs, why, hint)


def unsupported(problems: list[Problem]) -> TileTypeError:
    """One error with every problem, each once."""
    return TileTypeError(p.diagnostic for p in dict.fromkeys(problems))
