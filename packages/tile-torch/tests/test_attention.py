"""Attention: PyTorch's operator and what networks write by hand, beside eager, forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import pytest
import torch
from tile_runtime.compose import Composition
from tile_runtime.evaluator import Evaluator
from tile_runtime.symbols import placeholder
from tile_torch.plans import RECORDERS
from torch import Tensor
from torch.nn import functional as F

Attention = Callable[..., Tensor]


@pytest.fixture(autouse=True)
def fresh_dynamo() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


def drawn(
    heads: int = 4, groups: int = 4, queries: int = 9, keys: int = 9, dtype: torch.dtype = torch.float32
) -> list[Tensor]:
    sizes = (heads, queries), (groups, keys), (groups, keys)
    return [torch.randn(2, h, n, 8).to(dtype).requires_grad_() for h, n in sizes]


def masked() -> Tensor:
    """Of which one row has nothing left."""
    mask = torch.rand(2, 1, 9, 9) > 0.3
    mask[0, 0, 3] = False
    return mask


CASES: dict[str, tuple[Callable[[], list[Tensor]], dict[str, object]]] = {
    "plain": (drawn, {}),
    "causal, scaled": (drawn, {"is_causal": True, "scale": 0.3}),
    "causal, more keys": (lambda: drawn(keys=13), {"is_causal": True}),
    "causal, fewer keys": (lambda: drawn(keys=5), {"is_causal": True}),
    "shared keys": (lambda: drawn(groups=2), {"enable_gqa": True, "is_causal": True}),
    "shared keys, a mask of each head": (
        lambda: drawn(groups=2),
        {"enable_gqa": True, "attn_mask": torch.rand(2, 4, 9, 9) > 0.3},
    ),
    "a mask with an empty row": (drawn, {"attn_mask": masked()}),
    "a mask of keys": (drawn, {"attn_mask": torch.tensor([True] * 6 + [False] * 3).expand(9, 9)}),
    "a bias": (drawn, {"attn_mask": torch.randn(9, 9)}),
    "a bias of infinities": (drawn, {"attn_mask": torch.full((4, 9, 9), -inf).triu(2)}),
    "heads inside": (lambda: [t.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_() for t in drawn()], {}),
    "three dimensions": (lambda: [t.detach()[0].requires_grad_() for t in drawn()], {}),
}  # fmt: skip


def outcome(function: Attention, tensors: list[Tensor]) -> list[Tensor]:
    """The result, and gradients that weigh each of its numbers otherwise."""
    found = function(*tensors)
    weights = torch.linspace(-1, 1, found.numel(), dtype=found.dtype).reshape(found.shape)
    return [found, *torch.autograd.grad((found * weights).sum(), tensors)]


@pytest.mark.parametrize("name", CASES)
def test_the_operator_agrees_with_eager(name: str) -> None:
    make, options = CASES[name]
    tensors = make()

    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, **options)  # pyright: ignore[reportArgumentType]

    found = outcome(torch.compile(attention, backend="tile"), tensors)
    for a, b in zip(found, outcome(attention, tensors), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5, equal_nan=True)


@pytest.mark.diagonal(3)
@pytest.mark.parametrize("name", CASES)
def test_without_gradients_it_agrees_with_eager(name: str) -> None:
    make, options = CASES[name]
    tensors = make()

    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, **options)  # pyright: ignore[reportArgumentType]

    with torch.no_grad():
        found, wanted = torch.compile(attention, backend="tile")(*tensors), attention(*tensors)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5, equal_nan=True)


def test_scores_of_short_floats_are_not_rounded() -> None:
    tensors = [4 * t.detach().double() for t in drawn(queries=33, keys=33)]
    short = [t.bfloat16().requires_grad_() for t in tensors]
    wanted = outcome(F.scaled_dot_product_attention, [t.detach().double().requires_grad_() for t in short])
    found = outcome(torch.compile(F.scaled_dot_product_attention, backend="tile"), short)
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype is torch.bfloat16
        assert (a.double() - b).abs().max() < 0.01 * b.abs().max()


def by_hand(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.transpose(-2, -1) / 8**0.5, -1) @ v


def of_heads(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """As networks have it: heads beside one another in and out."""
    apart = (t.unflatten(-1, (4, 8)).transpose(1, 2) for t in (q, k, v))
    return F.scaled_dot_product_attention(*apart, is_causal=True).transpose(1, 2).flatten(2)


LENGTH = 3072


@pytest.mark.parametrize("attention", [by_hand, F.scaled_dot_product_attention, of_heads])
def test_no_matrix_of_scores_is_kept(attention: Attention, monkeypatch: pytest.MonkeyPatch) -> None:
    largest: list[int] = []

    def record(evaluator: Evaluator, composition: Composition) -> None:
        given = (placeholder(p.type.dtype, p.type.shape, p.name) for p in composition.program.inputs)
        largest.append(max(b.bytes for b in evaluator.lower(composition, *given).kernels.buffers))

    monkeypatch.setattr("tile_torch.plans.RECORDERS", [*RECORDERS, record])
    shape = (1, LENGTH, 32) if attention is of_heads else (1, 2, LENGTH, 8)
    tensors = [torch.randn(shape) for _ in range(3)]
    with torch.no_grad():
        found = torch.compile(attention, backend="tile", options={"device": "llvm"})(*tensors)
        wanted = attention(*tensors)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    assert 0 < max(largest) < LENGTH * LENGTH * 4
