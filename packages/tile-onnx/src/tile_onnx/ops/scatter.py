"""Operators that put elements where data says."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from tile_onnx.node import Node, Value, apply
from tile_onnx.ops.gather import linear, wrapped, wrapped_places
from tile_onnx.ops.text import at, function, names
from tile_onnx.registry import operator

AGGREGATIONS = {"none": "=", "add": "+", "mul": "*", "max": ">", "min": "<"}


def scattering(
    target: str,
    sizes: Sequence[int],
    subscripts: Sequence[str],
    aggregation: str,
    updates: tuple[str, Sequence[int]],
    default: str,
) -> list[str]:
    """Statements ``target[subscripts : sizes] = aggregation(updates[i0, i1…]) default default``."""
    name, shape = updates
    flat = f"reshape({name}, {prod(shape)})"
    cell = linear("K", sizes, shape, subscripts)
    statements = [*cell, f"L = reshape(K, {prod(shape)});", f"D = reshape({default}, {prod(sizes)});"]
    size = ", ".join(map(str, sizes))
    if aggregation == "+":
        return [*statements, f"{target} = reshape(D + scatter({flat}, L, D), {size});"]
    statements += [f"U1 = {flat};", "H = scatter(U1 == U1 ? 1 : 1, L, D);", "V = scatter(U1, L, D);"]
    return [*statements, f"{target} = reshape(H == 0 ? D : V, {size});"]


def scattered(updates: Value, indices: Value, size: int) -> Value:
    """A vector of `size` zeros in which each of `updates` has been put where `indices`, of the same shape, says."""
    count = prod(updates.shape)
    text = f"function (U, I, Z) -> (Y) {{ V = reshape(U, {count}); K = reshape(I, {count}); Y = scatter(V, K, Z); }}"
    return apply(text, updates, indices, np.zeros(size, np.float32))


@operator("Scatter", since=9)
@operator("ScatterElements", since=11)
def scatter_elements(node: Node) -> Value:
    shape, sizes = node.shape(0), node.shape(1)
    axis = node.axis(node.attribute("axis", 0))
    index = names(len(sizes))
    subscripts = (*index[:axis], at("I", index), *index[axis + 1 :])
    return _scatter(node, subscripts, wrapped(node.value(1), shape[axis]))


@operator("ScatterND", since=11)
def scatter_nd(node: Node) -> Value:
    shape, places = node.shape(0), node.shape(1)
    own, depth = len(places) - 1, places[-1]
    index = names(len(node.shape(2)))
    subscripts = (*(at("I", (*index[:own], k)) for k in range(depth)), *index[own:])
    return _scatter(node, subscripts, wrapped_places(node.value(1), shape[:depth]))


def _scatter(node: Node, subscripts: Sequence[str], indices: Value) -> Value:
    aggregation = AGGREGATIONS[node.attribute("reduction", "none")]
    statements = scattering("Y", node.shape(0), subscripts, aggregation, ("U", node.shape(2)), "X")
    return apply(function("XIU", "Y", *statements), node.value(0), indices, node.value(2))
