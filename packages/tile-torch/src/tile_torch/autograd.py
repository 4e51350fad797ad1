"""Tile functions inside of PyTorch programs: tensors in and out without copies, derivatives by Tile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from tile_ir.diagnostics import Diagnostic, TileTypeError
from tile_ir.program.nodes import Program, TensorType
from tile_runtime import jit, vjp
from tile_runtime.arguments import collect
from tile_runtime.arrays import readable
from tile_runtime.checks import wrong_kind
from tile_runtime.function import BaseFunction
from tile_runtime.trees import unflatten

from tile_torch.dtypes import DTYPES, to_array, to_tensor


def torch_function(function: Callable[..., Any], *, device: Any = None) -> TorchFunction:
    """A Tile function, or a Python function as `tile.jit` takes it, as a function of PyTorch's tensors.

    CPU tensors go in and come out; where `device` (the default one without) works in the host's memory, contiguous ones
    are not copied. PyTorch's autograd goes through it, to derivatives of any order: the backward pass is the function's
    vjp, compiled for the inputs that ask for a gradient. It may be called in the `forward` of a module. A Python function
    may take and give trees of tensors.

        norm = tile.torch_function(tile.Function("function (X[N]) -> (Y) { Y[] = +(X[i] * X[i]); }"))
        norm(x).backward()
    """
    return TorchFunction(function, device)


class TorchFunction:
    """What `torch_function` makes."""

    def __init__(self, function: Callable[..., Any], device: Any = None) -> None:
        if not callable(function):
            raise wrong_kind(
                "torch_function takes a function", function, "a tile.Function, or a Python function of tensors"
            )
        if isinstance(function, BaseFunction) and function.updates:
            message = f"{function!r} updates tensors, which PyTorch's autograd would not know of"
            raise TileTypeError(Diagnostic("TILE-E922", message, hint="give what it updates as results"))
        self.function = function
        self.device = device
        self._traced = None if isinstance(function, BaseFunction) else jit(function)

    def __call__(self, *args: Any, **named: Any) -> Any:
        """The results as tensors; TileTypeError names an argument that is no CPU tensor, or does not fit."""
        if self._traced is None:
            whole = cast(BaseFunction, self.function)
            given = collect(whole, args, named)
            found = self._applied(whole, [_tensor(n, given[n]) for n in whole.arguments])
            return found[0] if len(found) == 1 else tuple(found)
        tensors: list[torch.Tensor] = []

        def array(name: str, value: Any) -> Any:
            tensors.append(_tensor(name, value))
            return to_array(tensors[-1])

        traced = self._traced.traced(args, named, array)
        return unflatten(traced.form, self._applied(traced, tensors))

    def __repr__(self) -> str:
        return f"<torch function of {self.function!r}>"

    def _applied(self, function: BaseFunction, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        if not function.outputs:
            return []
        found = _apply(function, self.device, *tensors)
        return list(cast("tuple[torch.Tensor, ...]", found))


class _Slopes(BaseFunction):
    """A vjp whose results are called by its order, so that the cotangents of each order have names of their own."""

    def __init__(self, function: BaseFunction, names: Sequence[str]) -> None:
        self.gradient = vjp(function, names)
        self.order = function.order + 1 if isinstance(function, _Slopes) else 1
        self.name, self.inputs, self.bound = self.gradient.name, self.gradient.inputs, self.gradient.bound
        self.outputs = tuple(f"slope{self.order}_{k}" for k in range(len(names)))
        self.key = ("slopes", self.order, self.gradient.key)

    def bind(self, types: Mapping[str, TensorType]) -> Program:
        program = self.gradient.bind(types)
        values = (value for _, value in program.outputs)
        return replace(program, outputs=tuple(zip(self.outputs, values, strict=True)))


class _Applied(torch.autograd.Function):
    """A function of tensors whose backward pass is one again, so that derivatives have derivatives."""

    @staticmethod
    def forward(ctx: Any, function: BaseFunction, device: Any, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        found = function(*map(to_array, tensors), device=device)
        results = tuple(map(to_tensor, cast("tuple[Any, ...]", found) if isinstance(found, tuple) else (found,)))
        ctx.function, ctx.device = function, device
        ctx.types = [(r.shape, r.dtype) for r in results]
        ctx.save_for_backward(*tensors)
        ctx.mark_non_differentiable(*(r for r in results if not r.dtype.is_floating_point))
        return results

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor | None) -> tuple[Any, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        wanted = [k for k, needed in enumerate(ctx.needs_input_grad[2:]) if needed]
        names = tuple(ctx.function.arguments[k] for k in wanted)
        pairs = zip(cotangents, ctx.types, strict=True)
        given = [torch.zeros(shape, dtype=dtype) if c is None else c for c, (shape, dtype) in pairs]
        found = _apply(_Slopes(ctx.function, names), ctx.device, *ctx.saved_tensors, *given)
        slopes = dict(zip(wanted, cast("tuple[torch.Tensor, ...]", found), strict=True))
        return (None, None, *(slopes.get(k) for k in range(len(ctx.saved_tensors))))


_apply = cast("Callable[..., Any]", _Applied.apply)  # pyright: ignore[reportUnknownMemberType]


def _tensor(name: str, value: Any) -> torch.Tensor:
    """An argument as a CPU tensor: numbers and arrays are taken as Tile takes them."""
    if not isinstance(value, torch.Tensor):
        return to_tensor(np.array(readable(name, value)))
    if value.device.type != "cpu":
        hint = "pass x.cpu(); on another device Tile works with device= of torch_function"
        raise TileTypeError(
            Diagnostic("TILE-E922", f"argument {name!r} is on {value.device}, not on the CPU", hint=hint)
        )
    if value.layout is not torch.strided or value.dtype not in DTYPES:
        message = f"argument {name!r} is a tensor of {value.dtype}, {value.layout}"
        raise TileTypeError(
            Diagnostic("TILE-E922", message, hint="Tile takes dense tensors of bool, integers and floats")
        )
    return value
