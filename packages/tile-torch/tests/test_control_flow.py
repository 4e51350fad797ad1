"""Control flow that numbers decide, attention with scores of one's own, and random numbers in parts computed again."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tile_ir.diagnostics import TileTypeError
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.nn import functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.utils.checkpoint import checkpoint

Step = Callable[..., Tensor]


@pytest.fixture(autouse=True)
def fresh_dynamo() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


def compiled(function: Step, **options: object) -> Step:
    return torch.compile(function, backend="tile", options=options)


def test_branches_are_programs_with_gradients() -> None:
    warm, cold = nn.Linear(4, 4), nn.Linear(4, 4)

    def loss(x: Tensor) -> Tensor:
        found = torch.cond(x.sum() > 0, lambda x: warm(x).relu(), lambda x: cold(x).tanh(), (x @ x.mT,))
        return found.square().sum()

    fast = compiled(loss)
    weights = (warm.weight, cold.weight)
    for x in (torch.rand(4, 4), -torch.rand(4, 4)):
        found, wanted = (
            torch.autograd.grad(f(x), weights, allow_unused=True, materialize_grads=True) for f in (fast, loss)
        )
        assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(found, wanted, strict=True))


def test_loops_end_where_numbers_say() -> None:
    def grown(x: Tensor, limit: Tensor) -> Tensor:
        rounds, x = while_loop(lambda n, x: x.norm() < limit, lambda n, x: (n + 1, x * 1.5), (torch.tensor(0), x.exp()))
        return x.sin() + rounds

    x = torch.randn(3, 3)
    fast = compiled(grown)
    assert all(
        torch.allclose(fast(x, limit), grown(x, limit), atol=1e-4) for limit in (torch.tensor(1e1), torch.tensor(1e3))
    )


def test_a_scan_trains() -> None:
    weight = torch.randn(3, 3, requires_grad=True)

    def loss(x: Tensor) -> Tensor:
        last, every = scan(lambda h, b: ((h @ weight + b).tanh(), h * 2), torch.zeros(2, 3), x)
        return every.sum() + last.square().sum()

    x = torch.randn(4, 2, 3)
    (found,), (wanted,) = (torch.autograd.grad(f(x), weight) for f in (compiled(loss), loss))
    assert torch.allclose(found, wanted, atol=1e-5)


def test_what_a_branch_cannot_run_is_refused_first() -> None:
    def waves(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: torch.special.bessel_j0(x).sum(), lambda x: x.sum(), (x,))

    with pytest.raises(TileTypeError, match="bessel_j0"):
        compiled(waves)(torch.eye(3))


def test_scores_are_changed_and_left_out_by_functions() -> None:
    bias = torch.randn(2)
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 16, 16, device="cpu")

    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        def biased(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return s + bias[h] * (j - i)

        return flex_attention(q, k, v, score_mod=biased, block_mask=mask)

    q, k, v = (torch.randn(1, 2, 16, 8) for _ in range(3))
    place = torch.arange(16)
    away = place - place[:, None]
    scores = (q @ k.mT / 8**0.5 + bias[:, None, None] * away).masked_fill(away > 0, -torch.inf)
    assert torch.allclose(compiled(attention)(q, k, v), scores.softmax(-1) @ v, atol=1e-5)


def test_attention_behind_a_checkpoint_is_kept() -> None:
    given = [torch.randn(1, 2, 8, 4, requires_grad=True) for _ in range(3)]

    def loss(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        def layer(*given: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(*given, is_causal=True).tanh()

        return checkpoint(layer, q, k, v, use_reentrant=False).square().sum()

    found, wanted = (torch.autograd.grad(f(*given), given) for f in (compiled(loss), loss))
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("again", [False, True])
def test_masks_of_dropout_are_drawn_once_in_the_order_of_memory(again: bool) -> None:
    weight = torch.randn(8, 8, requires_grad=True)

    def loss(x: Tensor) -> Tensor:
        def layer(x: Tensor) -> Tensor:
            return F.dropout((x @ weight).relu(), 0.3).tanh()

        return (checkpoint(layer, x, use_reentrant=False) if again else layer(x)).square().sum()

    x = torch.randn(4, 3, 8).transpose(0, 1)
    for f in (fast := compiled(loss), loss):
        torch.manual_seed(3)
        weight.grad = None if f is fast else weight.grad
        f(x).backward()
        weight.grad = -weight.grad if f is fast and weight.grad is not None else weight.grad
    assert weight.grad is not None and float(weight.grad.abs().max()) < 1e-4
