"""Layers of LSTM in inference, which PyTorch keeps whole: a loop over the moments of a sequence."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from tile_ir.dtype import DType
from tile_runtime.loops import scan
from tile_runtime.ops.elementwise import converted
from tile_runtime.ops.moving import reshaped
from tile_runtime.ops.text import affine, contraction, function
from tile_runtime.ops.values import Value, apply, dtype_of

from tile_torch.call import Call
from tile_torch.registry import operator

aten = torch.ops.aten

LSTM = 2
"""Of PyTorch's kinds of recurrent layers."""
GATES = "ifgo"
"""In the order of the weights' rows."""
_NARROW = (DType.FLOAT16, DType.BFLOAT16)


@operator(aten.mkldnn_rnn_layer.default)
def mkldnn_rnn_layer(
    call: Call,
    input: Value,
    weight0: Value,
    weight1: Value,
    weight2: Value,
    weight3: Value,
    hx: Value,
    cx: Value,
    reverse: bool,
    batch_sizes: Sequence[int],
    mode: int,
    hidden_size: int,
    num_layers: int,
    has_biases: bool,
    bidirectional: bool,
    batch_first: bool,
    train: bool,
) -> tuple[Value, ...]:
    """[T, B, H] of all moments and the last states [1, B, H], in float32 where numbers are narrower."""
    if mode != LSTM or num_layers != 1 or bidirectional or batch_sizes:
        raise call.unsupported("it is not one layer of LSTM in one direction")
    dtype = dtype_of(input)
    given = [input, weight0, weight1, weight2, weight3, hx, cx]
    x, own, recurrent, bias, more, *states = (converted(v, DType.FLOAT32) if dtype in _NARROW else v for v in given)
    moments, batch = (int(n) for n in input.shape[:2])
    rows = _rows(x, own, (bias, more) if has_biases else ())
    text = _step(batch, hidden_size)

    def step(carry: tuple[Value, ...], row: Value) -> tuple[tuple[Value, ...], Value]:
        hidden, cell = apply(text, *carry, row, recurrent)
        return (hidden, cell), hidden

    last, outputs = scan(step, tuple(reshaped(s, (batch, hidden_size)) for s in states), rows, reverse=reverse)
    shapes = ((moments, batch, hidden_size), (1, batch, hidden_size), (1, batch, hidden_size))
    found = (reshaped(v, shape) for v, shape in zip((outputs, *last), shapes, strict=True))
    return *(converted(v, dtype) for v in found), None


def _rows(x: Value, weight: Value, biases: Sequence[Value]) -> Value:
    """[T, B, 4 H]: what the inputs add to the gates of every moment."""
    shape = (*x.shape[:2], weight.shape[0])
    product = contraction("Q", shape, ("t", "b", "r"), "+", "X[t, b, i] * W[r, i]")
    names = "UV"[: len(biases)]
    return apply(function(f"XW{names}", "P", product, f"P = {' + '.join(['Q', *names])};"), x, weight, *biases)


def _step(batch: int, hidden: int) -> str:
    """States H and C [B, H] and a row P of the inputs' part become the next states."""
    index = ("b", "j")
    joint = contraction("S", (batch, len(GATES) * hidden), ("b", "r"), "+", "H[b, k] * R[r, k]")
    gates = [
        contraction(f"X{name}", (batch, hidden), index, "=", f"Z[b, {affine('j', 1, k * hidden)}]")
        for k, name in enumerate(GATES)
    ]
    cell = "NewC = sigmoid(Xf) * C + sigmoid(Xi) * tanh(Xg);"
    return function(
        "HCPR", ["NewH", "NewC"], joint, "Z = P + S;", *gates, cell, "NewH = sigmoid(Xo) * tanh(NewC);"
    )  # fmt: skip
