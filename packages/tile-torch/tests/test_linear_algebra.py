"""Systems of equations and what follows from factors of matrices, with gradients, beside eager PyTorch; and its errors."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

Function = Callable[..., Tensor]


@pytest.fixture(autouse=True)
def fresh_dynamo() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


def regular(*shape: int) -> Tensor:
    """Matrices far from singular, which still need their rows swapped."""
    return torch.randn(*shape) + 2 * torch.eye(shape[-1]).flip(0)


def likelihood(mean: Tensor, factor: Tensor) -> Tensor:
    scale = torch.tril(factor) + 2 * torch.eye(factor.shape[-1]).flip(0).tril()
    scale = scale + 3 * torch.eye(factor.shape[-1])
    normal = torch.distributions.MultivariateNormal(mean, scale_tril=scale, validate_args=False)
    return normal.log_prob(torch.ones(5, mean.shape[-1]))


torch.manual_seed(0)  # the operands that follow: of drawn matrices, some are close to singular
CASES: dict[str, tuple[Function, tuple[Tensor, ...]]] = {
    "a lower triangle": (lambda a, b: torch.linalg.solve_triangular(a.tril() + 3 * torch.eye(4), b, upper=False), (regular(2, 4, 4), torch.randn(4, 3))),
    "an upper one from the right": (lambda a, b: torch.linalg.solve_triangular(a / 5, b, upper=True, left=False, unitriangular=True), (regular(4, 4), torch.randn(2, 3, 4))),
    "Cholesky": (lambda a, b: torch.cholesky_solve(b, torch.linalg.cholesky(a @ a.mT + torch.eye(4), upper=True), upper=True), (regular(4, 4), torch.randn(4, 2))),
    "an inverse": (torch.linalg.inv, (regular(2, 4, 4),)),
    "a system": (torch.linalg.solve, (regular(2, 4, 4), torch.randn(2, 4, 3))),
    "a vector and a turned matrix": (lambda a, b: torch.linalg.solve(a.mT, b), (regular(4, 4), torch.randn(4))),
    "a system from the right": (lambda a, b: torch.linalg.solve(a, b, left=False), (regular(4, 4), torch.randn(3, 4))),
    "a determinant": (torch.linalg.det, (regular(3, 4, 4),)),
    "its logarithm": (lambda a: torch.linalg.slogdet(a.mT)[1], (regular(3, 4, 4),)),
    "eigenvalues between programs": (lambda a: torch.linalg.eigh(a @ a.mT)[0].log().sum(-1), (regular(2, 4, 4),)),
    "triangular factors": (lambda a: torch.cat(torch.linalg.lu(a), -1), (regular(2, 4, 4),)),
    "a pseudoinverse": (lambda a: torch.linalg.pinv(2 * a) + 1, (torch.randn(2, 4, 3),)),
    "complex eigenvalues": (lambda a: torch.linalg.eigvals(a.tril()).abs().sum(-1), (regular(4, 4) + torch.arange(4.).diag(),)),
    "a normal distribution": (likelihood, (torch.randn(3), torch.randn(3, 3) / 10)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_results_and_gradients(name: str) -> None:
    function, operands = CASES[name]
    for found, expected in zip(
        both(torch.compile(function, backend="tile"), operands), both(function, operands), strict=True
    ):
        assert float((found - expected).abs().max()) <= 1e-4 * float(expected.abs().max())


def both(function: Function, operands: tuple[Tensor, ...]) -> list[Tensor]:
    """What a function gives, and the gradients of its operands."""
    own = [x.clone().requires_grad_() for x in operands]
    found = function(*own)
    return [found, *torch.autograd.grad(found, own, torch.linspace(0.5, 1.5, found.numel()).view(found.shape))]


def test_weights_of_orthogonal_rows_are_computed_in_inference() -> None:
    """A part of the graph has no operands but parameters."""
    model = torch.nn.utils.parametrizations.orthogonal(torch.nn.Linear(4, 3))
    x = torch.randn(2, 4)
    with torch.no_grad():
        assert torch.allclose(torch.compile(model, backend="tile")(x), model(x), atol=1e-5)


@pytest.mark.parametrize(
    ("function", "words"), [(torch.linalg.inv, "singular"), (torch.linalg.cholesky, "not positive-definite")]
)
def test_what_has_no_answer_is_pytorchs_own_error(function: Function, words: str) -> None:
    compiled = torch.compile(function, backend="tile")
    assert compiled(torch.eye(3)).equal(torch.eye(3))
    with pytest.raises(torch.linalg.LinAlgError, match=words):
        compiled(torch.zeros(3, 3))
