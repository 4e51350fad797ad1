"""Operators that are divided here: lists of tensors, layers, samples of distributions, and values that a mask takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from tile_torch import listwise
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm


@pytest.fixture(autouse=True)
def fresh_dynamo() -> None:
    torch._dynamo.reset()


def agree(function: Callable[..., Sequence[Tensor]], *operands: Tensor, atol: float = 1e-5) -> None:
    """The same numbers, and the same gradients of what has some, after the same seed."""
    runs: list[list[Tensor]] = []
    for run in (torch.compile(function, backend="tile"), function):
        torch.manual_seed(4)
        own = [x.detach().clone().requires_grad_(x.requires_grad) for x in operands]
        made = run(*own)
        smooth = [y for y in made if y.requires_grad]
        if smooth:
            torch.stack([(y * y.detach().cos()).sum() for y in smooth]).sum().backward()
        runs.append([*made, *(x.grad for x in own if x.grad is not None)])
    for found, wanted in zip(*runs, strict=True):
        assert found.dtype is wanted.dtype and torch.allclose(found, wanted, atol=atol, rtol=1e-4, equal_nan=True)


SINGLE = [
    "abs",
    "acos",
    "ceil",
    "erf",
    "exp",
    "floor",
    "frac",
    "log",
    "max",
    "neg",
    "norm",
    "reciprocal",
    "round",
    "rsqrt",
    "sigmoid",
    "sign",
    "sqrt",
    "tanh",
    "trunc",
]
PAIRED = ["add", "sub", "mul", "div", "clamp_max", "clamp_min", "maximum", "minimum", "pow"]


def test_lists_of_tensors() -> None:
    def listed(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> list[Tensor]:
        given, others = [a, b], [c, d]
        made: list[Tensor] = []
        for name in SINGLE:
            made += getattr(torch, f"_foreach_{name}")(given)
        for name in PAIRED:
            every: Any = getattr(torch, f"_foreach_{name}")
            made += [*every(given, others), *every(given, 0.7), *every(given, [0.7, 0.2])]
        made += torch._foreach_add(given, others, alpha=2)
        made += torch._foreach_addcmul(given, others, others, torch.tensor([0.3, 0.2]))
        made += torch._foreach_addcdiv(given, others, others, 0.3)
        made += torch._foreach_lerp(given, others, 0.3)
        made += torch._foreach_pow(2.0, given)
        torch._foreach_zero_(made[:1])
        return made

    agree(listed, *(torch.rand(*shape) * 0.5 + 0.3 for shape in ((3,), (2, 2), (3,), (2, 2))))


def test_every_list_operator_has_one_of_its_tensors() -> None:
    names = {str(op).partition(".")[2].partition(".")[0] for op, _ in listwise.divisions()}
    assert len(names) > 45 and {"_foreach_add", "_foreach_norm", "_foreach_copy", "_foreach_lerp"} <= names


def test_an_optimizer_over_lists_in_a_program() -> None:
    ours, theirs = nn.Linear(4, 3), nn.Linear(4, 3)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(5, 4)
    for model in (ours, theirs):
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, foreach=True)

        def step() -> None:
            nn.utils.clip_grad_norm_(model.parameters(), 0.5, foreach=True)  # noqa: B023
            optimizer.step()  # noqa: B023

        run = torch.compile(step, backend="tile") if model is ours else step
        for _ in range(2):
            optimizer.zero_grad()
            model(x).square().sum().backward()
            run()
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))


def test_lengths_and_directions_of_weights() -> None:
    rows, columns = weight_norm(nn.Linear(4, 5)), weight_norm(nn.Linear(5, 3), dim=1)
    lengths = [rows.parametrizations.weight.original0, columns.parametrizations.weight.original0]  # pyright: ignore
    x = torch.randn(2, 4)
    found, wanted = (torch.autograd.grad(f(rows(x).tanh()).sum(), lengths)
                     for f in (torch.compile(columns, backend="tile"), columns))  # fmt: skip
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(found, wanted, strict=True))


def test_a_layer_whose_weight_is_normed_trains() -> None:
    layer = weight_norm(nn.Conv1d(3, 4, 3))
    x = torch.randn(2, 3, 6)
    found, wanted = (torch.autograd.grad(f(x).square().sum(), list(layer.parameters()))
                     for f in (torch.compile(layer, backend="tile"), layer))  # fmt: skip
    assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(found, wanted, strict=True))


def test_quantization_in_training() -> None:
    def quantized(x: Tensor, scale: Tensor) -> list[Tensor]:
        zero = torch.zeros(4, dtype=torch.int32)
        return [
            torch.fake_quantize_per_tensor_affine(x, 0.1, 3, -128, 127),
            torch.fake_quantize_per_channel_affine(x, scale, zero, 0, -8, 7),
        ]

    agree(quantized, torch.randn(4, 6, requires_grad=True), torch.rand(4) + 0.1)


def test_samples_follow_pytorchs_stream() -> None:
    def drawn(x: Tensor) -> list[Tensor]:
        chances = x.softmax(-1)
        plain = [torch.multinomial(chances, 1), torch.multinomial(chances, 3), torch.normal(1.0, 2.0, (3,))]
        return [*plain, torch.normal(x, 0.5), torch.normal(x, x.abs()), torch.normal(2.0, x.abs())]

    agree(drawn, torch.randn(3, 7))


def test_small_operators() -> None:
    def several(x: Tensor, n: Tensor) -> list[Tensor]:
        signs = [torch.sgn(x), x.angle(), F.softsign(x), F.rrelu(x), F.lp_pool1d(x[None], 2.0, 2)]
        return [*signs, *n.mode(1), *n.mode(0, keepdim=True), n << 2, n >> 1, n[0].float().mode()[0]]

    agree(several, torch.randn(4, 6, requires_grad=True), torch.randint(0, 3, (4, 7)))


def test_factors_of_cholesky_and_back() -> None:
    def factors(a: Tensor) -> list[Tensor]:
        whole = a @ a.mT + torch.eye(4)
        lower = torch.linalg.cholesky(whole)
        return [torch.cholesky_inverse(lower), torch.cholesky_inverse(lower.mT, upper=True)]

    agree(factors, torch.randn(2, 4, 4), atol=1e-4)


def test_tangents_of_functions_that_are_differentiated_forward() -> None:
    weight = torch.randn(4, 4)
    agree(lambda x: [torch.func.jacfwd(lambda x: torch.tanh(weight @ x).sum() * x)(x)], torch.randn(4))


def test_values_that_a_mask_takes_one_after_the_other() -> None:
    mask = torch.tensor([[1, 0, 1, 1], [0, 0, 1, 0], [0, 0, 0, 0]]).bool()

    def put(x: Tensor, values: Tensor, rows: Tensor, columns: Tensor) -> list[Tensor]:
        cells, lines, across = x.clone(), x.clone(), x.clone()
        cells[mask] = values
        lines[mask.any(1)] = rows
        across[:, mask.any(0)] = columns
        return [cells, lines, across, x.index_put((mask,), values, accumulate=True)]

    agree(put, torch.randn(3, 4), torch.randn(4), torch.randn(2, 4), torch.randn(3, 3))
    with pytest.raises(RuntimeError, match="4 true elements, and 3 values"):
        torch.compile(lambda x, v: x.index_put((mask,), v), backend="tile")(torch.randn(3, 4), torch.randn(3))


def test_what_a_program_asserts_is_raised_after_it() -> None:
    def positive(x: Tensor) -> Tensor:
        torch._assert_async(x.sum() > 0, "there is nothing")
        return F.one_hot(x, 5)

    fast = torch.compile(positive, backend="tile")
    assert torch.equal(fast(torch.tensor([1, 3])), F.one_hot(torch.tensor([1, 3]), 5))
    with pytest.raises(RuntimeError, match="there is nothing"):
        fast(torch.tensor([0, 0]))


def ragged(*lengths: int) -> Tensor:
    return torch.nested.nested_tensor([torch.randn(n, 4) for n in lengths], layout=torch.jagged)


def test_rows_of_lengths_of_their_own() -> None:
    layer = nn.Linear(4, 3)

    def several(x: Tensor) -> list[Tensor]:
        return [layer(x).relu().values(), x.sum(1), torch.softmax(x, 1).values(), x.to_padded_tensor(0.5)]

    fast = torch.compile(several, backend="tile")
    for x in (ragged(2, 3), ragged(4, 1), ragged(1, 2, 4)):
        assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(fast(x), several(x), strict=True))
    made = torch.compile(lambda x: x * 2, backend="tile")(x)
    assert torch.equal(made.offsets(), x.offsets()) and torch.equal((made + x).values(), x.values() * 3)


def test_layers_of_ragged_rows_train() -> None:
    layer, x = nn.Linear(4, 3), ragged(2, 3)
    found, wanted = (torch.autograd.grad(f(x).values().square().sum(), layer.weight)[0]
                     for f in (torch.compile(layer, backend="tile"), layer))  # fmt: skip
    assert torch.allclose(found, wanted, atol=1e-4)
