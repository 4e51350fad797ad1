"""PyTorch: eager and compiled, in every memory format that the operands have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from classes import Work

from peers import Arrays, Contestants, expression

FORMATS = {
    3: {"": torch.contiguous_format},
    4: {" NCHW": torch.contiguous_format, " NHWC": torch.channels_last},
    5: {" NCDHW": torch.contiguous_format, " NDHWC": torch.channels_last_3d},
}
Tensors = Sequence[torch.Tensor]


def on_host(arrays: Arrays) -> list[torch.Tensor]:
    """The same memory, seen by PyTorch."""
    return [torch.from_numpy(a) for a in arrays]


def eager(work: Work, tensors: Tensors) -> Contestants:
    """One contestant for each memory format."""
    if not work.torch:
        return {}
    run = _gradients(work) if work.gradients and not work.eager else function(work, work.eager)
    return {f"PyTorch{name}": _bound(run, seen) for name, seen in operands(work, tensors).items()}


def compiled(work: Work, tensors: Tensors) -> Contestants:
    """Through TorchInductor."""
    if not work.torch or work.gradients:
        return {}
    torch._dynamo.reset()
    run = torch.compile(function(work), dynamic=False)
    return {f"compiled{name}": _bound(run, seen) for name, seen in operands(work, tensors).items()}


def function(work: Work, text: str = "") -> Callable[..., Any]:
    """The case's expression (`text`, or the one to compile) of tensors as `operands` gives them."""
    return expression(text or work.torch, work, torch=torch, F=F)


def operands(work: Work, tensors: Tensors) -> Mapping[str, list[torch.Tensor]]:
    """Memory format -> the inputs as PyTorch wants them; plain work has one, named by nothing."""
    if not work.arranged:
        return {"": list(tensors)}
    given = dict(zip(work.inputs, tensors, strict=True))
    seen = [expression(work.arranged.get(name, name), work)(*tensors) for name in given]
    rank = max(t.dim() for t in seen)
    return {
        name: [t.contiguous(memory_format=layout) if t.dim() == rank else t for t in seen]
        for name, layout in FORMATS[rank].items()
    }


def _gradients(work: Work) -> Callable[..., Any]:
    run, wanted = function(work), [list(work.inputs).index(name) for name in work.gradients]

    def both(*tensors: torch.Tensor) -> Any:
        with torch.enable_grad():
            leaves = [t.detach().requires_grad_(place in wanted) for place, t in enumerate(tensors)]
            return torch.autograd.grad(run(*leaves), [leaves[w] for w in wanted], tensors[-1])

    return both


def _bound(run: Callable[..., Any], tensors: Tensors) -> Callable[[], Any]:
    def call() -> Any:
        with torch.no_grad():
            return run(*tensors)

    return call
