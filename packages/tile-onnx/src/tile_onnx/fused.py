"""Fused operators of ONNX Runtime as functions of ONNX's own, for running them without a program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tile_runtime.ops.text import listed

from tile_onnx.host import NotEvaluated
from tile_onnx.node import Node
from tile_onnx.registry import find

DOMAIN = "com.microsoft"
CONVERTED = frozenset({"Attention", "EmbedLayerNormalization", "GroupQueryAttention", "MultiHeadAttention", "RotaryEmbedding"})  # fmt: skip
"""Those whose converters are such functions already."""


class Texts:
    """The part of a walk that a converter sees when all that it does is to define a node by others."""

    def __init__(self, run: Callable[[Node, str], Sequence[Any]]) -> None:
        self._run = run

    def defined(self, node: Node, text: str) -> tuple[Any, ...]:
        return tuple(self._run(node, text))

    def __getattr__(self, name: str) -> Any:
        raise NotEvaluated(f"a converter needs {name}")


def has(domain: str, op: str) -> bool:
    """Whether an operator is such a function."""
    return (domain == DOMAIN and op in CONVERTED | _TEXTS.keys()) or op == "SimplifiedLayerNormalization"


def outputs(node: Node, run: Callable[[Node, str], Sequence[Any]]) -> Sequence[Any]:
    """Its outputs, where `run` gives those of a function in ONNX's text form."""
    written = _TEXTS.get(node.op)
    if written is not None:
        return run(node, written(node))
    entry = find(node.domain, node.op, node.opset)
    if entry is None:
        raise NotEvaluated(f"{node.op} has no converter")
    texts: Any = Texts(run)
    made = entry.function(Node(node.proto, node.opset, node.values, texts, node.name))
    return made if isinstance(made, tuple) else (made,)  # pyright: ignore[reportUnknownVariableType]


def _activation(kind: str) -> Callable[[Node], str]:
    def text(node: Node) -> str:
        return f"(X, B) => (Y) {{ T = {'Add(X, B)' if node.has(1) else 'Identity(X)'} {kind} }}"

    return text


def _quick(node: Node) -> str:
    alpha = float(node.attribute("alpha", 1.702))
    return f"(X) => (Y) {{ A = Constant<value_float = {alpha!r}>() S = Mul(X, A) G = Sigmoid(S) Y = Mul(X, G) }}"


def _root_mean_square(node: Node) -> str:
    return "(X, S) => (Y) { Y = RMSNormalization<axis: int = @axis, epsilon: float = @epsilon>(X, S) }"


def _skipping(inputs: str, bias: int, normalise: str) -> Callable[[Node], str]:
    def text(node: Node) -> str:
        if node.wants(1) or node.wants(2):
            raise NotEvaluated("mean and deviation are wanted")
        total = "U = Add(X, K) T = Add(U, C)" if node.has(bias) else "T = Add(X, K)"
        return f"({inputs}) => (Y, none, nothing, T) {{ {total} Y = {normalise} none = Identity(T) nothing = Identity(T) }}"

    return text


def _fused_matmul(node: Node) -> str:
    if node.attribute("transBatchA", 0) or node.attribute("transBatchB", 0):
        raise NotEvaluated("its matrices do not stand last")
    flips = [_flip(n, node.rank(k), node.attribute(f"trans{n}", 0)) for k, n in enumerate("AB")]
    alpha = float(node.attribute("alpha", 1.0))
    product = f"P = MatMul(a, b) K = Constant<value_float = {alpha!r}>() C = CastLike(K, P) Y = Mul(P, C)"
    return f"(A, B) => (Y) {{ {' '.join(flips)} {product} }}"


def _flip(name: str, rank: int, turned: int) -> str:
    if not turned or rank < 2:
        return f"{name.lower()} = Identity({name})"
    order = listed([*map(str, range(rank - 2)), str(rank - 1), str(rank - 2)])
    return f"{name.lower()} = Transpose<perm = [{order}]>({name})"


_EXACT, _TANH = "Y = Gelu(T)", 'Y = Gelu<approximate = "tanh">(T)'
_TEXTS: dict[str, Callable[[Node], str]] = {
    "Gelu": _activation(_EXACT),
    "BiasGelu": _activation(_EXACT),
    "FastGelu": _activation(_TANH),
    "QuickGelu": _quick,
    "SimplifiedLayerNormalization": _root_mean_square,
    "SkipSimplifiedLayerNormalization": _skipping("X, K, G, C", 3, "RMSNormalization<epsilon: float = @epsilon>(T, G)"),
    "SkipLayerNormalization": _skipping("X, K, G, B, C", 4, "LayerNormalization<epsilon: float = @epsilon>(T, G, B)"),
    "FusedMatMul": _fused_matmul,
}
