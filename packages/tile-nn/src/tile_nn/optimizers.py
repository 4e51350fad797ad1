"""Optimisers: pure functions from parameters, their derivatives and a state to the next parameters and state.

Both are trees of tensors; moments have the form of the parameters. Everything works on symbols, so that
`tile_nn.training_step` makes one program of loss, derivatives and update.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tile_runtime as tile
from tile_runtime import numpy as tnp

from tile_nn.errors import wrong_number
from tile_nn.schedules import Schedule

Tree = Any


@dataclass(frozen=True, slots=True)
class Optimizer:
    """``init(params) -> state`` and ``update(params, slopes, state) -> (params, state)``."""

    init: Callable[[Tree], Tree]
    update: Callable[[Tree, Tree, Tree], tuple[Tree, Tree]]


def sgd(
    rate: float | Schedule, *, momentum: float = 0.0, nesterov: bool = False, weight_decay: float = 0.0
) -> Optimizer:
    """Steps down the slope; with `momentum` down its running sum. `weight_decay` adds that share of the parameters."""
    _check_share("momentum", momentum)

    def init(params: Tree) -> Tree:
        return {"step": _zero(params), "sum": _zeros(params)} if momentum else {"step": _zero(params)}

    def update(params: Tree, slopes: Tree, state: Tree) -> tuple[Tree, Tree]:
        now = _rate(rate, state["step"])
        if weight_decay:
            slopes = tile.tree_map(lambda g, p: g + weight_decay * p, slopes, params)
        after = {"step": state["step"] + 1}
        if momentum:
            after["sum"] = tile.tree_map(lambda m, g: momentum * m + g, state["sum"], slopes)
            slopes = tile.tree_map(lambda m, g: momentum * m + g, after["sum"], slopes) if nesterov else after["sum"]
        return tile.tree_map(lambda p, g: _like(p - now * g, p), params, slopes), after

    return Optimizer(init, update)


def adam(rate: float | Schedule, *, first: float = 0.9, second: float = 0.999, epsilon: float = 1e-8) -> Optimizer:
    """Steps by the running mean of slopes over the root of that of their squares (Kingma and Ba, 2015)."""
    return adamw(rate, first=first, second=second, epsilon=epsilon, weight_decay=0.0)


def adamw(
    rate: float | Schedule,
    *,
    first: float = 0.9,
    second: float = 0.999,
    epsilon: float = 1e-8,
    weight_decay: float = 0.01,
) -> Optimizer:
    """Adam, and each step takes the share ``rate * weight_decay`` off the parameters (Loshchilov and Hutter, 2019)."""
    _check_share("first", first)
    _check_share("second", second)

    def init(params: Tree) -> Tree:
        return {"step": _zero(params), "mean": _zeros(params), "square": _zeros(params)}

    def update(params: Tree, slopes: Tree, state: Tree) -> tuple[Tree, Tree]:
        step = state["step"] + 1
        count = step.astype("float32")
        now = _rate(rate, state["step"])
        mean = tile.tree_map(lambda m, g: first * m + (1 - first) * g, state["mean"], slopes)
        square = tile.tree_map(lambda v, g: second * v + (1 - second) * g * g, state["square"], slopes)
        bias, bound = 1 - tnp.pow(first, count), tnp.sqrt(1 - tnp.pow(second, count))

        def moved(p: Any, m: Any, v: Any) -> Any:
            change = m / bias / (tnp.sqrt(v) / bound + epsilon)
            return _like(p - now * (change + weight_decay * p if weight_decay else change), p)

        return tile.tree_map(moved, params, mean, square), {"step": step, "mean": mean, "square": square}

    return Optimizer(init, update)


def clipped(optimizer: Optimizer, norm: float) -> Optimizer:
    """The same with slopes shortened to a length of `norm`, taken over all of them, where they are longer."""
    if norm <= 0:
        raise wrong_number(f"slopes cannot be shortened to {norm}", "the norm is above 0")

    def update(params: Tree, slopes: Tree, state: Tree) -> tuple[Tree, Tree]:
        squares = [tnp.square(g.astype("float32")).sum() for g in tile.tree_leaves(slopes)]
        factor = norm / tnp.maximum(tnp.sqrt(sum(squares[1:], start=squares[0])), norm)
        return optimizer.update(params, tile.tree_map(lambda g: _like(g * factor, g), slopes), state)

    return Optimizer(optimizer.init, update)


def _zero(params: Tree) -> Any:
    device = next((p.device for p in tile.tree_leaves(params) if isinstance(p, tile.Tensor)), None)
    return tnp.zeros((), dtype="int32", device=device)


def _zeros(params: Tree) -> Tree:
    """Moments are float32 at least, whatever the parameters are."""
    return tile.tree_map(lambda p: tnp.zeros_like(p, dtype=tnp.result_type(p, tnp.float32)), params)


def _like(value: Any, param: Any) -> Any:
    """In the dtype of a parameter, which a float32 rate may have widened."""
    return value.astype(param.dtype)


def _rate(rate: float | Schedule, step: Any) -> Any:
    return rate(step) if callable(rate) else rate


def _check_share(name: str, value: float) -> None:
    if not 0 <= value < 1:
        raise wrong_number(f"{name} is {value}", "it is a share from 0 to before 1")
