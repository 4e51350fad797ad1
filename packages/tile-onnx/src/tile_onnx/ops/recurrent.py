"""LSTM, GRU and RNN: one function for a step, in a loop over the moments of the sequence.

The inputs' part of all gates is one product before the first step; a step gets its row of it. Two directions are
computed side by side: the second one on the sequence reversed.

Shapes: inputs [T, B, I], the inputs' part [T, D, B, gates * H], states [1, D, B, H].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_runtime.loops import scan
from tile_runtime.ops.elementwise import converted
from tile_runtime.ops.gather import reversed_sequences
from tile_runtime.ops.moving import flipped, permuted, reshaped
from tile_runtime.ops.text import affine, contraction, function, literal
from tile_runtime.ops.values import Value, apply

from tile_onnx.node import Node
from tile_onnx.ops.moving import demand
from tile_onnx.registry import operator

_ACTIVATIONS: dict[str, str] = {
    "relu": "max({x}, 0)",
    "tanh": "tanh({x})",
    "sigmoid": "sigmoid({x})",
    "affine": "({x} * {alpha} + {beta})",
    "leakyrelu": "({x} < 0 ? {x} * {alpha} : {x})",
    "thresholdedrelu": "({x} >= {alpha} ? {x} : 0 * {x})",
    "scaledtanh": "({alpha} * tanh({x} * {beta}))",
    "hardsigmoid": "min(max({x} * {alpha} + {beta}, 0), 1)",
    "elu": "({x} < 0 ? (exp({x}) - 1) * {alpha} : {x})",
    "softsign": "({x} / (1 + abs({x})))",
    "softplus": "(max({x}, 0) + log(1 + exp(-abs({x}))))",
}
_ALPHAS = {"affine": 1.0, "leakyrelu": 0.01, "thresholdedrelu": 1.0, "scaledtanh": 1.0, "hardsigmoid": 0.2, "elu": 1.0}
_BETAS = {"affine": 0.0, "scaledtanh": 1.0, "hardsigmoid": 0.5}
"""What the functions that have parameters take where the node gives none."""
LENGTHS = 4
"""Which input says how many moments each of the batch has."""


@frozen
class Cell:
    """What an operator makes of a step: gates in the order of the weights, their activations."""

    gates: str
    activations: tuple[str, ...]
    step: Callable[[Layer], list[str]]


@frozen
class Layer:
    """The sizes and settings of one node."""

    node: Node
    moments: int
    batch: int
    directions: int
    hidden: int
    activations: tuple[tuple[str, ...], ...]
    """For each direction, the functions f, g, h as text with a hole ``{x}``."""

    @property
    def state(self) -> tuple[int, ...]:
        return (1, self.directions, self.batch, self.hidden)

    def activated(self, target: str, k: int, value: str) -> list[str]:
        """Statements ``target = activation k(value)``, of values that were clipped where the node says so."""
        clip = self.node.attribute("clip")
        before = f"{target}In = {value};" if clip is None else f"{target}In = min(max({value}, -{clip}), {clip});"
        texts = [functions[k].format(x=f"{target}In") for functions in self.activations]
        if len(set(texts)) == 1:
            return [before, f"{target} = {texts[0]};"]
        return [before, f"{target} = index({target}In, 1) == 0 ? {texts[0]} : {texts[1]};"]

    def gates(self, names: str, first: int = 0, states: str = "H") -> list[str]:
        """Statements that give each gate's inputs' part ``Xname`` and states' part ``Hname``, from number `first` on.

        The states' parts of all of them are one product.
        """
        own = f"S{first}"
        sizes, index = (len(names), *self.state[1:]), ("q", "d", "b", "j")
        row = affine("q", self.hidden, first * self.hidden)
        narrow = self._narrowed(states) if self.node.attribute("narrow_states", 0) else []
        read = f"{states}Narrow" if narrow else states
        statements = [*narrow, contraction(own, sizes, index, "+", f"{read}[0, d, b, k] * R[d, {row} + j, k]")]
        for k, name in enumerate(names):
            place = affine("j", 1, (first + k) * self.hidden)
            statements += [
                contraction(f"X{name}", self.state, ("0", *index[1:]), "=", f"P[d, b, {place}]"),
                contraction(f"H{name}", self.state, ("0", *index[1:]), "=", f"{own}[{k}, d, b, j]"),
            ]
        return statements

    def _narrowed(self, states: str) -> list[str]:
        """Statements: the states rounded to 8 bits over the range of each direction's numbers and 0."""
        low, high = (
            contraction(
                f"{states}{name}", (1, self.directions, 1, 1), ("0", "d", "0", "0"), kind, f"{states}[0, d, b, j]"
            )
            for name, kind in (("Low", "<"), ("High", ">"))
        )
        return [
            low, high, f"{states}Least = min({states}Low, 0);", f"{states}Range = max({states}High, 0) - {states}Least;",
            f"{states}Unit = {states}Range == 0 ? 1 : {states}Range / 255;",
            f"{states}Zero = round_even(clamp(-{states}Least / {states}Unit, 0, 255));",
            f"{states}Q = clamp(round_even({states} / {states}Unit) + {states}Zero, 0, 255);",
            f"{states}Narrow = ({states}Q - {states}Zero) * {states}Unit;",
        ]  # fmt: skip


def _lstm(layer: Layer) -> list[str]:
    """H and C become NewH and NewC; V holds the peepholes of i, o and f."""
    peeps = layer.node.has(7)
    size = layer.hidden
    statements = layer.gates("iofc")
    if peeps:
        shape, index = (1, layer.directions, 1, size), ("0", "d", "0", "j")
        statements += [contraction(f"V{n}", shape, index, "=", f"V[d, {k * size} + j]") for k, n in enumerate("iof")]
    peep = {n: f" + V{n} * {c}" if peeps else "" for n, c in (("i", "C"), ("o", "NewC"), ("f", "C"))}
    forget = (
        ["F = 1 - I;"] if layer.node.attribute("input_forget", 0) else layer.activated("F", 0, f"Xf + Hf{peep['f']}")
    )
    return [
        *statements,
        *layer.activated("I", 0, f"Xi + Hi{peep['i']}"),
        *forget,
        *layer.activated("G", 1, "Xc + Hc"),
        "NewC = F * C + I * G;",
        *layer.activated("O", 0, f"Xo + Ho{peep['o']}"),
        f"NewH = O * {_joined_activation(layer, 2, 'NewC')};",
    ]


def _joined_activation(layer: Layer, k: int, value: str) -> str:
    texts = [functions[k].format(x=value) for functions in layer.activations]
    return texts[0] if len(set(texts)) == 1 else f"(index({value}, 1) == 0 ? {texts[0]} : {texts[1]})"


def _gru(layer: Layer) -> list[str]:
    """H becomes NewH; V holds the bias of the states' part of the last gate."""
    reset = [*layer.activated("Z", 0, "Xz + Hz"), *layer.activated("F", 0, "Xr + Hr")]
    if layer.node.attribute("linear_before_reset", 0):
        inner = [*layer.gates("zrh"), *reset, *layer.activated("N", 1, "Xh + F * (Hh + V)")]
    else:
        last = ["G = F * H;", *layer.gates("h", 2, "G"), *layer.activated("N", 1, "Xh + (Hh + V)")]
        inner = [*layer.gates("zr"), *reset, *last]
    return [*inner, "NewH = (1 - Z) * N + Z * H;"]


def _rnn(layer: Layer) -> list[str]:
    return [*layer.gates("i"), *layer.activated("NewH", 0, "Xi + Hi")]


_CELLS = {
    "LSTM": Cell("iofc", ("Sigmoid", "Tanh", "Tanh"), _lstm),
    "GRU": Cell("zrh", ("Sigmoid", "Tanh"), _gru),
    "RNN": Cell("i", ("Tanh",), _rnn),
}


@operator("LSTM", "GRU", "RNN", since=7)
def recurrent(node: Node) -> tuple[Value, ...]:
    """In float32 where the dtype is narrower: states would be rounded at every step."""
    dtype = node.dtype(0)
    if dtype not in (DType.FLOAT16, DType.BFLOAT16):
        return _recurrent(node)
    values = [v if v is None or k == LENGTHS else converted(v, DType.FLOAT32) for k, v in enumerate(node.values)]
    found = _recurrent(node.on(values))
    return tuple(None if v is None else converted(v, dtype) for v in found)


def _recurrent(node: Node) -> tuple[Value, ...]:
    cell = _CELLS[node.op]
    layer = _layer(node, cell)
    lengths = node.value(LENGTHS)
    parts = _inputs_part(layer, cell, lengths)
    outputs, states = _steps(layer, cell, parts, lengths)
    swap = bool(node.attribute("layout", 0))
    found: list[Value] = [None]
    if node.wants(0):
        found[0] = _in_order(layer, outputs, lengths)
        found[0] = permuted(found[0], (2, 0, 1, 3)) if swap else found[0]
    for state in states:
        last = reshaped(state, layer.state[1:])
        found.append(permuted(last, (1, 0, 2)) if swap else last)
    return tuple(found[: node.count])


def _layer(node: Node, cell: Cell) -> Layer:
    moments, batch = node.shape(0)[:2]
    if node.attribute("layout", 0):
        moments, batch = batch, moments
    directions, rows = node.shape(1)[:2]
    size = rows // len(cell.gates)
    wanted = {
        1: (directions, rows, node.shape(0)[-1]), 2: (directions, len(cell.gates) * size, size), 3: (directions, 2 * rows),
        4: (batch,), 7: (directions, 3 * size),
    } | dict.fromkeys((5, 6), (batch, directions, size) if node.attribute("layout", 0) else (directions, batch, size))  # fmt: skip
    for k, shape in wanted.items():
        if node.has(k):
            demand(
                node, node.shape(k) == shape, f"input {k} is of shape {list(node.shape(k))} instead of {list(shape)}"
            )
    return Layer(node, moments, batch, directions, rows // len(cell.gates), _activations(node, cell, directions))


def _activations(node: Node, cell: Cell, directions: int) -> tuple[tuple[str, ...], ...]:
    """The activation functions of each direction; parameters are consumed by those that have them."""
    count = len(cell.activations)
    given = node.attribute("activations") or cell.activations * directions
    alphas, betas = iter(node.attribute("activation_alpha", ())), iter(node.attribute("activation_beta", ()))
    texts: list[str] = []
    for name in map(str.lower, given):
        if name not in _ACTIVATIONS:
            raise node.unsupported(f"there is no activation function {name!r}")
        alpha = next(alphas, _ALPHAS[name]) if name in _ALPHAS else 0.0
        beta = next(betas, _BETAS[name]) if name in _BETAS else 0.0
        texts.append(_ACTIVATIONS[name].replace("{alpha}", literal(alpha)).replace("{beta}", literal(beta)))
    return tuple(tuple(texts[d * count : (d + 1) * count]) for d in range(directions))


def _is_reversed(layer: Layer) -> bool:
    return layer.node.attribute("direction", "forward") == "reverse"


def _inputs_part(layer: Layer, cell: Cell, lengths: Value) -> Value:
    """The part of all gates that the inputs and biases make, [T, D, B, gates * H], in the order of the steps."""
    node = layer.node
    value = permuted(node.value(0), (1, 0, 2)) if node.attribute("layout", 0) else node.value(0)
    moments, batch, features = (layer.moments, layer.batch, node.shape(0)[2])
    rows, directions = len(cell.gates) * layer.hidden, layer.directions
    turned = _turned(value, lengths, 1) if _is_reversed(layer) or directions == 2 else value
    first = turned if _is_reversed(layer) else value
    sizes = (moments, directions, batch, features)
    stack = [contraction("S" if directions == 1 else "A", sizes, ("t", "0", "b", "i"), "=", "X[t, b, i]")]
    if directions == 2:
        stack.append(contraction("S", sizes, ("t", "1", "b", "i"), "=", "Z[t, b, i]", "default A"))
    product = contraction("Q", (*sizes[:3], rows), ("t", "d", "b", "j"), "+", "S[t, d, b, i] * W[d, j, i]")
    if not node.has(3):
        return apply(function("XZW", "Q", *stack, product), first, turned, node.value(1))
    bias = [
        contraction("U", (directions, 1, rows), ("d", "0", "j"), "=", "B[d, j]"),
        contraction(
            "V", (directions, 1, rows), ("d", "0", "j"), "=", f"B[d, {rows} + j]", f"j < {_joint_rows(layer, rows)}"
        ),
    ]
    return apply(
        function("XZWB", "P", *stack, product, *bias, "P = Q + (U + V);"), first, turned, node.value(1), node.value(3)
    )


def _joint_rows(layer: Layer, rows: int) -> int:
    """How many rows of the states' bias are added to the inputs' part: a GRU's last gate has its own place."""
    return rows - layer.hidden if layer.node.op == "GRU" else rows


def _steps(layer: Layer, cell: Cell, parts: Value, lengths: Value) -> tuple[Value, list[Value]]:
    """The outputs of all steps, [T, D, B, H], and the states after the last one."""
    node = layer.node
    states = [_state(layer, 5), *([_state(layer, 6)] if node.op == "LSTM" else [])]
    names = ["H", "C"][: len(states)]
    extra = {"R": node.value(2), **_extra(layer)}
    statements = cell.step(layer)
    results, rows = [f"New{n}" for n in names], {"P": parts}
    if lengths is not None:
        extra["L"] = reshaped(lengths, (1, 1, layer.batch, 1))
        rows["T"] = np.arange(layer.moments, dtype=np.int32)
        results = [*(f"Kept{n}" for n in names), "Out"]
        statements += [f"Kept{n} = T < L ? New{n} : {n};" for n in names] + ["Out = T < L ? NewH : 0 * NewH;"]
    text = function([*names, *rows, *extra], results, *statements)

    def step(carry: tuple[Value, ...], row: tuple[Value, ...]) -> tuple[tuple[Value, ...], Value]:
        found = apply(text, *carry, *row, *extra.values())
        made = cast("tuple[Value, ...]", found if isinstance(found, tuple) else (found,))
        return made[: len(states)], made[0] if lengths is None else made[-1]

    last, outputs = scan(step, tuple(states), tuple(rows.values()))
    return reshaped(outputs, (layer.moments, *layer.state[1:])), list(last)


def _state(layer: Layer, k: int) -> Value:
    """The state before the first step: input `k`, or zeros."""
    node = layer.node
    if not node.has(k):
        return np.zeros(layer.state, node.dtype(0).numpy)
    given = permuted(node.value(k), (1, 0, 2)) if node.attribute("layout", 0) else node.value(k)
    return reshaped(given, layer.state)


def _extra(layer: Layer) -> dict[str, Value]:
    """What a step takes beside the weights: peepholes, or the bias of a GRU's last gate."""
    node, size = layer.node, layer.hidden
    if node.op == "LSTM":
        return {"V": node.value(7)} if node.has(7) else {}
    if node.op != "GRU":
        return {}
    if not node.has(3):
        return {"V": np.zeros((1, 1, 1, 1), node.dtype(0).numpy)}
    shape = (1, layer.directions, 1, size)
    return {
        "V": apply(
            function("B", "V", contraction("V", shape, ("0", "d", "0", "j"), "=", f"B[d, {5 * size} + j]")),
            node.value(3),
        )
    }


def _in_order(layer: Layer, value: Value, lengths: Value) -> Value:
    """The outputs [T, D, B, H] of all steps in the order of the sequence."""
    if layer.directions == 1 and not _is_reversed(layer):
        return value
    turned = _turned(value, lengths, 2)
    if layer.directions == 1:
        return turned
    return apply("function (S, F) -> (Y) { Y = index(S, 1) == 0 ? S : F; }", value, turned)


def _turned(value: Value, lengths: Value, batch: int) -> Value:
    """`value` read backwards in time, its first axis: of each of the batch as many steps as it has, or all."""
    return flipped(value, (0,)) if lengths is None else reversed_sequences(value, lengths, 0, batch)
