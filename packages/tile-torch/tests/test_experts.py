"""Groups of rows with matrices of their own: by PyTorch's operator, and by the one that another library registers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from tile_torch.ops.grouped import grouped_rows
from tile_torch.registry import named
from torch import Tensor

ENDS = torch.tensor([2, 2, 8], dtype=torch.int32)


@pytest.fixture(autouse=True)
def fresh_dynamo() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


@pytest.mark.parametrize(
    ("left", "right"), [((8, 16), (3, 16, 8)), ((16, 8), (8, 16)), ((3, 16, 8), (8, 8)), ((3, 16, 8), (3, 8, 16))]
)
def test_groups_of_rows_of_columns_and_of_sums(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    def products(a: Tensor, b: Tensor) -> Tensor:
        return torch._grouped_mm(a, b, offs=ENDS if min(a.dim(), b.dim()) == 2 else None)

    operands = [torch.randn(*shape).bfloat16() for shape in (left, right)]
    for found, expected in zip(results(torch.compile(products, backend="tile"), operands), results(products, operands), strict=True):  # fmt: skip
        assert float((found - expected).abs().max()) <= 2e-2 * float(expected.abs().max())


def results(function: Callable[..., Tensor], operands: list[Tensor]) -> Iterator[Tensor]:
    """What a function gives, and the gradients of its operands."""
    own = [x.clone().requires_grad_() for x in operands]
    found = function(*own)
    yield found
    yield from torch.autograd.grad(found, own, torch.ones_like(found))


def test_an_operator_of_another_library() -> None:
    @torch.library.custom_op("tile_tests::rows", mutates_args=())
    def rows(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
        cut = torch.tensor_split(x, ends.tolist())
        return torch.cat([*(r @ w for r, w in zip(cut, weight, strict=False)), torch.zeros_like(cut[-1] @ weight[0])])

    @rows.register_fake
    def _(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
        return x.new_empty(x.shape[0], weight.shape[2])

    named("tile_tests::rows")(grouped_rows)
    x, weight = torch.randn(10, 4), torch.randn(3, 4, 5)
    found = torch.compile(lambda x: rows(x, weight, ENDS) * 2, backend="tile")(x)
    assert torch.allclose(found, rows(x, weight, ENDS) * 2, atol=1e-5) and not found[8:].any()


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_images_that_shrink_without_aliases(mode: str) -> None:
    def shrunk(x: Tensor) -> Tensor:
        return torch.nn.functional.interpolate(x, size=(7, 13), mode=mode, antialias=True)

    operand = [torch.randn(1, 2, 19, 8)]
    for found, expected in zip(results(torch.compile(shrunk, backend="tile"), operand), results(shrunk, operand), strict=True):  # fmt: skip
        assert torch.allclose(found, expected, atol=1e-5)
