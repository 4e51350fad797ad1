"""Complex numbers and transforms of Fourier, forward and backward, beside eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tile_torch.explaining import recorded
from torch import Tensor, nn

C = torch.complex64
INDEX = torch.tensor([2, 0, 2, 1])
Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def fresh_dynamo() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


def drawn(*shape: int, dtype: torch.dtype = C) -> Tensor:
    return torch.randn(shape, dtype=dtype)


def real(*shape: int) -> Tensor:
    return torch.randn(shape)


def rotary(x: Tensor, angles: Tensor) -> Tensor:
    """Positions as rotations of pairs."""
    turns = torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * turns).flatten(-2)


def neural_operator(x: Tensor, weights: Tensor) -> Tensor:
    low = torch.fft.rfft(x)[..., :5]
    return torch.fft.irfft(torch.einsum("bim,iom->bom", low, weights), n=x.shape[-1])


def placed(z: Tensor) -> Tensor:
    """Frequencies that a slice of zeros takes."""
    out = torch.zeros(3, 8, 5, dtype=z.dtype)
    out[:, :2, :4], out[:, -2:, :4] = z * 2, z * 1j
    return out


def spectrogram(x: Tensor) -> Tensor:
    return torch.stft(x, 16, 4, window=torch.hann_window(16), return_complex=True).abs()


def halved(x: Tensor) -> Tensor:
    """Signals out of spectra; PyTorch gives what their windows add up to for one of them."""
    window = torch.hann_window(16)
    spectra = torch.stft(x, 16, 4, window=window, return_complex=True)
    return torch.istft(spectra * 0.5, 16, 4, window=window, length=x.shape[-1])


CASES: dict[str, tuple[Function, Callable[[], tuple[Tensor, ...]]]] = {
    "arithmetic": (
        lambda z, w: (z * w, z + w, z - 2 * w, z / w, z * (1 + 2j), -z, z.conj(), z + 1, 2 - z, z / 3),
        lambda: (drawn(3, 4), drawn(3, 4)),
    ),
    "functions": (
        lambda z: (z.abs(), z.angle(), z.real + 1, z.imag * 2, torch.exp(z), z.reciprocal(), z.log(), z**2, z.sqrt()),
        lambda: (drawn(3, 4),),
    ),
    "elementary functions": (
        lambda z: (z.sin(), z.cos(), z.tan(), z.sinh(), z.cosh(), z.tanh(), z.sigmoid(), z.expm1(), z.exp2(), z.rsqrt()),
        lambda: (drawn(3, 4),),
    ),
    "logarithms and powers": (
        lambda z, w: (z.log1p(), z.log2(), z.log10(), z**w, 2.0**z, z.real.abs() ** w, z ** (1 + 2j), z**0.5, z.var(1)),
        lambda: (drawn(3, 4), drawn(3, 4)),
    ),
    "moves": (
        lambda z: (z.t(), z[1], torch.cat([z, z.real], 1), z.reshape(-1), z.sum(), z.mean(0), torch.where(z.real > 0, z, -z)),
        lambda: (drawn(3, 4),),
    ),
    "products": (lambda z, w: (z @ w.t(), torch.einsum("ab,cb->ac", z, w.conj())), lambda: (drawn(3, 4), drawn(3, 4))),
    "products with what is added": (
        lambda z, w: (torch.addmm(z, z, w, beta=2j, alpha=0.5), torch.nn.functional.linear(z, w, w[0])),
        lambda: (drawn(4, 4), drawn(4, 4)),
    ),
    "states of a recurrence": (
        lambda z, w: (z.cumsum(0), (z.log() * torch.arange(4)).exp(), z.unfold(1, 2, 1), z.index_add(0, INDEX, w)),
        lambda: (drawn(3, 4), drawn(4, 4)),
    ),
    "places": (
        lambda z, w: (z.scatter(0, INDEX[None], w[:1]), z.scatter_add(1, INDEX[:3, None], w[:3, :1]), z.take_along_dim(INDEX[None], 0),
                      z.scatter(0, INDEX[None], 2.0), z.index_put((INDEX,), w, accumulate=True), z.diagonal_scatter(w[0, :3])),
        lambda: (drawn(3, 4), drawn(4, 4)),
    ),
    "rotary positions": (rotary, lambda: (real(2, 5, 8), real(5, 4))),
    "a neural operator": (neural_operator, lambda: (real(2, 4, 16), drawn(4, 4, 5))),
    "slices that are written": (placed, lambda: (drawn(3, 2, 4),)),
    "a spectrogram": (spectrogram, lambda: (real(2, 64),)),
    "transforms": (
        lambda z: (torch.fft.fft(z), torch.fft.ifft(z, norm="ortho"), torch.fft.fft2(z), torch.fft.irfft(z, 9)),
        lambda: (drawn(3, 6, 5),),
    ),
    "long transforms": (
        lambda z: (torch.fft.fft(z, dim=1), torch.fft.ifft(z, dim=1, norm="ortho"), torch.fft.fftn(z[:, :, 0])),
        lambda: (drawn(14, 120, 12),),
    ),
    "long transforms of real ones": (
        lambda x: (torch.fft.rfft2(x, dim=(1, 2)), torch.fft.rfft(x[:, :119], dim=1)),
        lambda: (real(2, 130, 100, 4),),
    ),
    "long transforms to real ones": (
        lambda z: (torch.fft.irfft(z, n=150, dim=1), torch.fft.irfft2(z[:, :, 0], s=(120, 150), dim=(0, 1))),
        lambda: (drawn(130, 76, 8),),
    ),
    "transforms of signals": (
        lambda x: (torch.fft.irfft(torch.fft.rfft(x, n=8192) * 2, n=8192),),
        lambda: (real(2, 4096),),
    ),
    "transforms of real ones": (
        lambda x: (torch.fft.rfft2(x).abs(), torch.fft.fft(x), torch.fft.irfft2(torch.fft.rfft2(x), s=(6, 5))),
        lambda: (real(3, 6, 5),),
    ),
}  # fmt: skip


def weighted(result: Tensor) -> Tensor:
    """A sum in which every number counts differently."""
    parts = torch.view_as_real(result.resolve_conj()) if result.is_complex() else result
    return (parts * torch.linspace(0.5, 1.5, parts.numel()).view(parts.shape)).sum()


def both(function: Function, given: tuple[Tensor, ...]) -> list[Tensor]:
    """Results, and gradients of their weighted sum."""
    leaves = [x.detach().clone().requires_grad_() for x in given]
    made = function(*leaves)
    results = made if isinstance(made, tuple) else (made,)
    torch.stack([weighted(r) for r in results]).sum().backward()
    return [*(r.detach() for r in results), *(x.grad for x in leaves if x.grad is not None)]


@pytest.mark.parametrize("name", CASES)
def test_forward_and_backward_agree(name: str) -> None:
    function, make = CASES[name]
    given = make()
    for found, wanted in zip(both(torch.compile(function, backend="tile"), given), both(function, given), strict=True):
        assert (found.dtype, found.shape, found.stride()) == (wanted.dtype, wanted.shape, wanted.stride())
        assert float((found - wanted).abs().max()) <= 2e-6 * float(wanted.abs().max())


@pytest.mark.parametrize("shape", [(3, 12), (150, 250)])
def test_the_middle_frequency_of_real_numbers_is_real(shape: tuple[int, ...]) -> None:
    """Exactly, as a negative one has an angle of π, not of whichever sign rounding gives; also where a transform is two."""
    compiled = torch.compile(torch.fft.rfft, backend="tile")
    with torch.no_grad():
        found = compiled(real(*shape))
    assert not found.imag[:, [0, -1]].any()


def test_functions_of_numbers_at_the_edges() -> None:
    z = torch.tensor([0, -0.0, 4, -4, complex(-4, -0.0), 90 + 1j, -90 - 1j, 1e-6 + 1e-6j, 2j])

    def function(z: Tensor) -> tuple[Tensor, ...]:
        return z.sqrt(), z.tanh(), z.log1p(), z ** (1 + z.abs()), (z / 0).isnan(), z.isinf()

    with torch.no_grad():
        for found, wanted in zip(torch.compile(function, backend="tile")(z), function(z), strict=True):
            torch.testing.assert_close(found, wanted, equal_nan=True)


def test_signals_of_several_spectra() -> None:
    x = real(3, 64)
    with torch.no_grad():
        found = torch.compile(halved, backend="tile")(x)
    assert torch.allclose(found, 0.5 * x, atol=1e-5)


@pytest.mark.parametrize(
    ("function", "size"),
    [(lambda z: torch.view_as_real(torch.fft.fft(z)), 1024), (lambda z: torch.fft.irfft(z, n=1024), 513)],
    ids=["fft", "irfft"],
)
def test_long_transforms_take_two_steps(function: Function, size: int) -> None:
    """Of 32 by 32 numbers, not one product of each with all."""
    compiled = torch.compile(function, backend="tile")
    with torch.no_grad(), recorded() as found:
        compiled(drawn(8, size))
    assert sum(kernel.operations for low in found for kernel in low.report().kernels) < 8 * 1024 * 8 * 32 * 3


class Turned(nn.Module):
    """With a complex buffer and a complex parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("turns", torch.polar(torch.ones(7, 4), torch.randn(7, 4)))
        self.weight = nn.Parameter(drawn(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        return (torch.view_as_complex(x.unflatten(-1, (4, 2))) * self.turns[: x.shape[1]]) @ self.weight.t()


def test_complex_parameters_are_followed() -> None:
    module = Turned()
    compiled = torch.compile(module, backend="tile")
    with torch.no_grad():
        for size in (5, 5, 6):
            x = real(2, size, 8)
            torch.testing.assert_close(compiled(x), module(x))
            module.weight.mul_(1j)


def test_what_has_no_form_is_named_or_left_to_pytorch() -> None:
    def function(z: Tensor) -> Tensor:
        return (z * 2).cumprod(0).abs()

    z = drawn(3, 3)
    with pytest.raises(Exception, match=r"TILE-E920: aten\.cumprod(.|\n)*hint: options=.*fallback"):
        torch.compile(function, backend="tile")(z)
    torch._dynamo.reset()
    with pytest.warns(match="cumprod"):
        found = torch.compile(function, backend="tile", options={"fallback": "eager"})(z)
    torch.testing.assert_close(found, function(z))
