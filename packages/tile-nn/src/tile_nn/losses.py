"""Losses, one for each example: take their mean. And a measure."""

from __future__ import annotations

from typing import Any

from tile_runtime import numpy as tnp

from tile_nn.errors import shown, wrong_number, wrong_shape


def cross_entropy(logits: Any, labels: Any, *, smoothing: float = 0.0) -> Any:
    """-log of the share that ``softmax(logits)`` gives the label: logits [..., classes], integers [...], a loss [...].

    With `smoothing`, of a target that gives this share to all classes alike.
    """
    if tuple(labels.shape) != tuple(logits.shape[:-1]):
        hint = "labels are the numbers of classes, one for each row of logits"
        raise wrong_shape(f"labels {shown(labels)} do not fit logits {shown(logits)}", hint)
    if not 0 <= smoothing < 1:
        raise wrong_number(f"smoothing is {smoothing}", "it is a share from 0 to before 1")
    shares = tnp.log_softmax(logits)
    classes = logits.shape[-1]
    hit = tnp.expand_dims(labels, axis=-1) == tnp.arange(classes, dtype=tnp.result_type(labels))
    found = -tnp.where(hit, shares, 0.0).sum(-1)
    return found if not smoothing else (1 - smoothing) * found - smoothing * shares.mean(-1)


def binary_cross_entropy(logits: Any, targets: Any) -> Any:
    """-log of the share that ``sigmoid(logits)`` gives targets between 0 and 1; of each element."""
    return tnp.relu(logits) - logits * targets + tnp.log1p(tnp.exp(-tnp.abs(logits)))


def squared_error(predictions: Any, targets: Any) -> Any:
    """``(predictions - targets)²`` of each element; TileTypeError where shapes differ."""
    _check_same(predictions, targets)
    return tnp.square(predictions - targets)


def huber(predictions: Any, targets: Any, *, width: float = 1.0) -> Any:
    """Half the squared error up to `width`, and straight lines beyond."""
    _check_same(predictions, targets)
    distance = tnp.abs(predictions - targets)
    return tnp.where(distance < width, 0.5 * distance * distance, width * (distance - 0.5 * width))


def _check_same(predictions: Any, targets: Any) -> None:
    if tuple(predictions.shape) != tuple(targets.shape):
        hint = "shapes that broadcast would compare each with each: reshape one of them"
        raise wrong_shape(f"predictions {shown(predictions)} and targets {shown(targets)} differ", hint)


def accuracy(logits: Any, labels: Any) -> Any:
    """The share of rows of logits [..., classes] whose largest one is at the label."""
    return (tnp.argmax(logits, axis=-1) == labels).astype("float32").mean()
