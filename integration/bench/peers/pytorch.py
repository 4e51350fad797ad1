"""PyTorch: eager and compiled, in every memory format that the operands have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from classes.work import Work

from peers import Arrays, Contestants, expression

FORMATS = {
    3: {"": torch.contiguous_format},
    4: {" NCHW": torch.contiguous_format, " NHWC": torch.channels_last},
    5: {" NCDHW": torch.contiguous_format, " NDHWC": torch.channels_last_3d},
}


def eager(work: Work, arrays: Arrays) -> Contestants:
    """One contestant for each memory format."""
    run = _run(work)
    return {f"PyTorch{name}": _bound(run, tensors) for name, tensors in operands(work, arrays).items()}


def compiled(work: Work, arrays: Arrays) -> Contestants:
    """Through TorchInductor, which needs a C++ compiler; a program that it cannot take is left out."""
    if not work.torch or work.gradients:
        return {}
    torch._dynamo.reset()  # noqa: SLF001
    run = torch.compile(function(work), dynamic=False)
    return {f"compiled{name}": _bound(run, tensors) for name, tensors in operands(work, arrays).items()}


def function(work: Work) -> Callable[..., Any]:
    """The case's expression, of tensors as `operands` gives them."""
    return expression(work.torch, work, torch=torch, F=F)


def operands(work: Work, arrays: Arrays) -> Mapping[str, list[torch.Tensor]]:
    """Memory format -> the inputs as PyTorch wants them; plain work has one, named by nothing."""
    if not work.torch:
        return {}
    plain = dict(zip(work.inputs, map(torch.from_numpy, arrays), strict=True))
    if not work.arranged:
        return {"": list(plain.values())}
    seen = {n: expression(work.arranged[n], work)(*plain.values()) if n in work.arranged else t for n, t in plain.items()}
    rank = max(t.dim() for t in seen.values())
    return {
        name: [t.contiguous(memory_format=layout) if t.dim() == rank else t for t in seen.values()]
        for name, layout in FORMATS[rank].items()
    }


def _run(work: Work) -> Callable[..., Any]:
    run = function(work)
    if not work.gradients:
        return run
    places = [list(work.inputs).index(name) for name in work.gradients]

    def both(*tensors: torch.Tensor) -> Any:
        with torch.enable_grad():
            leaves = [t.detach().requires_grad_(place in places) for place, t in enumerate(tensors)]
            return torch.autograd.grad(run(*leaves), [leaves[p] for p in places], tensors[-1])

    return both


def _bound(run: Callable[..., Any], tensors: list[torch.Tensor]) -> Callable[[], Any]:
    def call() -> Any:
        with torch.no_grad():
            return run(*tensors)

    return call
