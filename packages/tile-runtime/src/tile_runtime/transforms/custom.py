"""Functions with a gradient of their own, and derivatives in forward direction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any, cast

from tile_ir.diagnostics import Diagnostic, TileTypeError
from tile_ir.names import claim

from tile_runtime.checks import check_function, described, wrong_kind
from tile_runtime.compose import compose
from tile_runtime.function import BaseFunction
from tile_runtime.symbols import Symbol, placeholder, tracing
from tile_runtime.transforms.derivatives import vjp

if TYPE_CHECKING:
    from tile_ir.program.nodes import Program, TensorType

Backward = BaseFunction | Callable[..., Any]
_ARGUMENTS = "it takes the inputs, the outputs and one cotangent per output"


class CustomVjp(BaseFunction):
    """`function` with `backward` as its vector-Jacobian product, wherever it is used: alone, composed, differentiated."""

    def __init__(self, function: BaseFunction, backward: Backward) -> None:
        check_function(function)
        if not callable(backward):
            raise wrong_kind("a gradient is a Python function or a Tile function", backward, _ARGUMENTS)
        if function.bound or function.updates:
            raise _bad(f"function {function.name!r} has bound tensors", "pass them as inputs")
        self.function = function
        self.backward = backward
        self.name = getattr(backward, "__name__", function.name)
        self.inputs, self.outputs = function.inputs, function.outputs
        same = backward.key if isinstance(backward, BaseFunction) else backward
        self.key = ("custom_vjp", function.key, same)

    def bind(self, types: Mapping[str, TensorType]) -> Program:
        from tile_ir.program.nodes import CustomGradient

        program = _defined_outputs(self.function.bind(types))
        known = program.types()
        values = tuple(dict.fromkeys(value for _, value in program.outputs))
        given = [types[n] for n in self.inputs]
        results = [known[value] for value in values]
        backward = self._backward(given, results)
        rule = CustomGradient(self.inputs, values, backward)
        return replace(program, gradients=(*program.gradients, rule))

    def _backward(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Program:
        types = (*inputs, *outputs, *outputs)
        if not isinstance(self.backward, BaseFunction):
            _check_arity(self.backward, len(types))
            return _traced(self.backward, types, inputs)
        names = self.backward.inputs
        if len(names) != len(types):
            message = f"the gradient {self.backward.name!r} of {self.function.name!r} takes {len(names)} arguments"
            raise _bad(f"{message}, not {len(types)}", _ARGUMENTS)
        return self.backward.bind(dict(zip(names, types, strict=True)))


def _check_arity(backward: Callable[..., Any], count: int) -> None:
    try:
        parameters = signature(backward)
    except (TypeError, ValueError):  # written in C
        return
    try:
        parameters.bind(*range(count))
    except TypeError:
        raise _bad(f"the gradient {described(backward)} cannot be called with {count} arguments", _ARGUMENTS) from None


def _bad(message: str, hint: str | None = None) -> TileTypeError:
    return TileTypeError(Diagnostic("TILE-E514", message, hint=hint))


def _defined_outputs(program: Program) -> Program:
    """`program` with a copy for each output that is an input: a gradient belongs to what operations define."""
    from tile_ir.program.nodes import Elementwise

    inputs = {p.name: p.type for p in program.inputs}
    taken, ops, outputs = set(program.types()), list(program.ops), list[tuple[str, str]]()
    for public, value in program.outputs:
        if value in inputs:
            copy = claim(value, taken)
            ops.append(Elementwise(copy, inputs[value], "ident", (value,)))
            value = copy
        outputs.append((public, value))
    return replace(program, ops=tuple(ops), outputs=tuple(outputs))


def _traced(backward: Callable[..., Any], types: Sequence[TensorType], inputs: Sequence[TensorType]) -> Program:
    """The program of a Python function from symbols to symbols; None stands for a derivative that is zero."""
    from tile_ir.program.macros import literal
    from tile_ir.program.nodes import Elementwise

    symbols = [placeholder(t.dtype, t.shape, f"P{k}") for k, t in enumerate(types)]
    with tracing():
        found = backward(*symbols)
    results: list[Any] = list(found) if isinstance(found, tuple | list) else [found]  # pyright: ignore[reportUnknownArgumentType]
    if len(results) != len(inputs) or not all(r is None or isinstance(r, Symbol) for r in results):
        hint = "return one symbol, or None, per input"
        raise _bad(f"a custom gradient gave {described(cast(object, found))} for {len(inputs)} inputs", hint)
    wanted: list[Symbol] = [r for r in results if r is not None]
    composed = compose(symbols, wanted or [symbols[-1]])
    if composed.bound:
        raise _bad("a custom gradient uses a Tensor", "pass it to the function as an input")
    program = composed.program
    values = iter(value for _, value in program.outputs)
    zeros = tuple(
        Elementwise(f"Zero{k}", t, "ident", (literal(0, t.dtype),)) for k, t in enumerate(inputs) if results[k] is None
    )
    names = [f"Zero{k}" if r is None else next(values) for k, r in enumerate(results)]
    return replace(program, ops=(*program.ops, *zeros), outputs=tuple((f"D{k}", n) for k, n in enumerate(names)))


def custom_vjp(function: BaseFunction, backward: Backward | None = None) -> Any:
    """`function` with a gradient of its own::

        @tile.custom_vjp(ROUND)
        def straight_through(x, y, dy):     # inputs, outputs, one cotangent per output
            return dy                       # one symbol (or None: zero) per input

    `backward` is such a Python function, or a Tile function with these parameters. Without it: a decorator.
    """
    check_function(function)
    return partial(CustomVjp, function) if backward is None else CustomVjp(function, backward)


class Tangent(BaseFunction):
    """``(*inputs, *one tangent per name in wrt) -> one tangent per output``; they are named ``t_<name>``."""

    def __init__(self, function: BaseFunction, wrt: Sequence[str]) -> None:
        self.function = function
        self.wrt = tuple(wrt)
        self.name = f"jvp_{function.name}"
        self.inputs = (*function.inputs, *(f"t_{n}" for n in self.wrt))
        self.outputs = tuple(f"t_{o}" for o in function.outputs)
        self.bound = function.bound
        self.key = ("jvp", function.key, self.wrt)

    def bind(self, types: Mapping[str, TensorType]) -> Program:
        import tile_autodiff

        program = tile_autodiff.jvp(self.function.bind({n: types[n] for n in self.function.inputs}), self.wrt)
        _check_types(program, types, {f"t_{n}" for n in self.wrt})
        return program


class HessianProduct(BaseFunction):
    """``(*inputs, *cotangents d_<output>, *tangents t_<name>) -> h_<name>`` per name in wrt."""

    def __init__(self, function: BaseFunction, wrt: Sequence[str]) -> None:
        self.function = function
        self.wrt = tuple(wrt)
        self.name = f"hvp_{function.name}"
        self.inputs = (*function.inputs, *(f"d_{o}" for o in function.outputs), *(f"t_{n}" for n in self.wrt))
        self.outputs = tuple(f"h_{n}" for n in self.wrt)
        self.bound = function.bound
        self.key = ("hvp", function.key, self.wrt)

    def bind(self, types: Mapping[str, TensorType]) -> Program:
        import tile_autodiff

        program = self.function.bind({n: types[n] for n in self.function.inputs})
        product = tile_autodiff.hessian_vector_product(program, self.wrt)
        _check_types(product, types, set(self.inputs) - set(self.function.inputs))
        return product


def _check_types(program: Program, types: Mapping[str, TensorType], names: set[str]) -> None:
    for param in program.inputs:
        if param.name in names and types[param.name] != param.type:
            message = f"argument {param.name} is {types[param.name]}, it must be {param.type}"
            raise TileTypeError(Diagnostic("TILE-E508", message))


def jvp(function: BaseFunction, wrt: str | Sequence[str]) -> Tangent:
    """The Jacobian-vector product of `function` (forward mode) for tangents of the inputs named in `wrt`; errors as `vjp`."""
    return Tangent(function, vjp(function, wrt).wrt)


def hessian_vector_product(function: BaseFunction, wrt: str | Sequence[str]) -> HessianProduct:
    """The Hessian of ``sum of d_<output> * output`` times tangents, for the inputs named in `wrt`; errors as `vjp`."""
    return HessianProduct(function, vjp(function, wrt).wrt)
