"""Fourier transforms as products with a matrix of cosines and sines: any length, along any axis, in one contraction."""

from __future__ import annotations

import math
from math import prod

import numpy as np
from tile_runtime.ops.text import cast, contraction, function, reshaped, wide
from tile_runtime.ops.values import Array, Value, apply

from tile_onnx.dtypes import numpy_dtype
from tile_onnx.node import Node
from tile_onnx.registry import operator

LARGEST = 1 << 24
"""Elements of the matrix up to which a transform is a product; a longer one is the host's, by a fast transform."""


@operator("DFT", since=17)
def dft_by_attribute(node: Node) -> Value:
    """The axis is an attribute."""
    return _dft(node, node.axis(node.attribute("axis", 1)))


@operator("DFT", since=20)
def dft_by_input(node: Node) -> Value:
    """The axis is an input."""
    return _dft(node, node.axis(node.ints(2, (-2,))[0]))


def _dft(node: Node, axis: int) -> Value:
    """Of real numbers (a last dimension of 1) or complex ones (2), forward or inverse, by half a spectrum or all of it."""
    shape, inverse, half = node.shape(0), bool(node.attribute("inverse", 0)), bool(node.attribute("onesided", 0))
    present = shape[axis]
    length = node.ints(1, (2 * (present - 1) if inverse and half else present,))[0]
    matrix = _matrix(node, length, present, shape[-1], inverse, half)
    taken, _, frequencies, parts = matrix.shape
    before, after = prod(shape[:axis]), prod(shape[axis + 1 : -1])
    statements = [
        f"X = {reshaped(wide('In', node.dtype(0)), (before, present, after, shape[-1]))};",
        contraction(
            "P", (before, frequencies, after, parts), ("b", "f", "a", "o"), "+", "X[b, t, a, c] * W[t, c, f, o]",
            f"t < {taken}",
        ),
        f"Y = {cast(reshaped('P', (*shape[:axis], frequencies, *shape[axis + 1 : -1], parts)), node.dtype(0))};",
    ]  # fmt: skip
    return apply(function(("In", "W"), ("Y",), *statements), node.value(0), matrix)


def _matrix(node: Node, length: int, present: int, parts: int, inverse: bool, half: bool) -> Array:
    """What part c of element t adds to part o of frequency f: [t, c, f, o], of the input's dtype, at least float32."""
    if parts not in (1, 2):
        raise node.unsupported(f"its last dimension is {parts}: 1 for real numbers, 2 for complex ones")
    taken = min(present, length // 2 + 1 if inverse and half else length)
    frequencies = length // 2 + 1 if half and not inverse else length
    if taken * parts * frequencies * 2 > LARGEST:
        raise node.on_host()
    angles = np.outer(np.arange(taken), np.arange(frequencies)) % max(length, 1) * (2 * np.pi / max(length, 1))
    cosines, sines = np.cos(angles), np.sin(angles) * (1 if inverse else -1)
    matrix = np.array([[cosines, sines], [-sines, cosines]]).transpose(2, 0, 3, 1)[:, :parts]
    if inverse:
        matrix = matrix / length
    if inverse and half:
        matrix = (matrix * _mirrored(length, taken)[:, None, None, None])[..., :1]
    return matrix.astype(np.promote_types(node.dtype(0).numpy, np.float32))


def _mirrored(length: int, taken: int) -> Array:
    """How often each frequency of half a spectrum stands in the whole one."""
    frequency = np.arange(taken)
    return np.where((frequency == 0) | (2 * frequency == length), 1.0, 2.0)


@operator("STFT", since=17)
def stft(node: Node) -> Value:
    """Transforms of windows that start every `frame_step` elements."""
    (samples, size, parts), step, half = node.shape(0), node.ints(1)[0], bool(node.attribute("onesided", 1))
    length = node.ints(3, node.shape(2) if node.has(2) else (size,))[0]
    matrix = _matrix(node, length, length, parts, inverse=False, half=half and parts == 1)
    sizes = (samples, (size - length) // step + 1, matrix.shape[2], 2)
    window = f" * {reshaped(wide('V', node.dtype(0)), (length, 1, 1, 1))}" if node.has(2) else ""
    frames = contraction("P", sizes, ("b", "s", "f", "o"), "+", f"X[b, {step} * s + t, c] * U[t, c, f, o]")
    statements = (
        f"X = {wide('In', node.dtype(0))};",
        f"U = W{window};",
        frames,
        f"Y = {cast('P', node.dtype(0))};",
    )
    inputs = ("In", "W", "V") if node.has(2) else ("In", "W")
    return apply(
        function(inputs, ("Y",), *statements), node.value(0), matrix, *([node.value(2)] if node.has(2) else [])
    )


@operator("MelWeightMatrix", since=17)
def mel_weights(node: Node) -> Value:
    """Triangles over the frequencies, evenly spaced in mel; computed on the host."""
    bins, length, rate, low, high = (float(node.host(k).reshape(())) for k in range(5))
    edges = np.linspace(_mel(low), _mel(high), int(bins) + 2, endpoint=False)
    points = np.floor((length + 1) * 700 * (np.power(10, edges / 2595) - 1) / rate)
    weights = _triangles(np.arange(length // 2 + 1)[:, None], points)
    return weights.astype(numpy_dtype(node.attribute("output_datatype", 1)))


def _mel(hertz: float) -> float:
    return 2595 * math.log10(1 + hertz / 700)


def _triangles(frequency: Array, points: Array) -> Array:
    """From 0 at each point to 1 at the next and 0 at the one after it: [frequencies, points - 2]."""
    left, peak, right = points[:-2], points[1:-1], points[2:]
    rising = np.where(left == peak, frequency == peak, (frequency - left) / np.maximum(peak - left, 1))
    falling = (right - frequency) / np.maximum(right - peak, 1)
    after = (frequency > peak) | ((frequency == peak) & (peak < right))
    return np.where(after, falling, np.where(frequency <= peak, rising, 0)).clip(0)
