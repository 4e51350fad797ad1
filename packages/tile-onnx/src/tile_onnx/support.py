"""Nodes that cannot be converted, all of them in one error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from onnx import NodeProto
from tile_ir.diagnostics import Diagnostic, TileTypeError
from tile_ir.frozen import frozen

from tile_onnx import functions
from tile_onnx.node import Node
from tile_onnx.registry import find
from tile_onnx.values import described

_STRINGS = ("Tile has no strings", "do the work on text before the model, and give it numbers")
_RANDOM = ("random streams of ONNX Runtime and Tile differ", "draw the numbers before the call, and make them an input")
_MAPS = (
    "Tile has no dictionaries",
    "let the model give and take arrays: skl2onnx's to_onnx(..., options={'zipmap': False}) leaves ZipMap out",
)
_IMAGES = ("Tile reads no image files", "decode the image before the call, and give the model its pixels")

REFUSED: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(("StringNormalizer", "StringConcat", "StringSplit", "RegexFullMatch", "TfIdfVectorizer"), _STRINGS),
    **dict.fromkeys(
        ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"), _RANDOM
    ),
    "ImageDecoder": _IMAGES,
    **dict.fromkeys(("ZipMap", "CastMap", "DictVectorizer"), _MAPS),
}
"""Operators of ai.onnx and ai.onnx.ml that never run: why, and what helps."""


@frozen
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


def foreseen(nodes: Iterable[NodeProto], opsets: Mapping[str, int], local: Iterable[tuple[str, str]]) -> list[Problem]:
    """Nodes whose operator nobody converts, whatever their inputs are."""
    defined = set(local)
    made = (_foreseen(Node(n, opsets.get(_domain(n), 0), (), None, n.name or n.output[0]), defined) for n in nodes)
    return [p for p in made if p is not None]


def _foreseen(node: Node, defined: set[tuple[str, str]]) -> Problem | None:
    if (node.domain, node.op) in defined:
        return None
    if node.domain in ("", "ai.onnx.ml") and node.op in REFUSED:
        return problem(node, *REFUSED[node.op])
    if find(node.domain, node.op, node.opset) is None and not functions.is_defined(node):
        return problem(node, *functions.absent(node))
    return None


def _domain(node: NodeProto) -> str:
    return "" if node.domain == "ai.onnx" else node.domain
