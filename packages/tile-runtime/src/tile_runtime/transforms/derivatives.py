"""Gradients of functions as functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tile_ir.diagnostics import Diagnostic, TileTypeError

from tile_runtime.checks import check_function, checked_names
from tile_runtime.function import BaseFunction

if TYPE_CHECKING:
    from tile_ir.program.nodes import Program, TensorType


class Gradient(BaseFunction):
    """``(*inputs, *one cotangent per output) -> one gradient per name in wrt``; cotangents are named ``d_<output>``."""

    def __init__(self, function: BaseFunction, wrt: Sequence[str]) -> None:
        self.function = function
        self.wrt = tuple(wrt)
        self.name = f"vjp_{function.name}"
        self.inputs = (*function.inputs, *(f"d_{o}" for o in function.outputs))
        self.outputs = tuple(f"d_{name}" for name in self.wrt)
        self.bound = function.bound
        self.key = ("vjp", function.key, self.wrt)

    @property
    def written(self) -> str | None:
        inner = self.function.written
        return None if inner is None else f"vjp {self.wrt} of {inner}"

    def bind(self, types: Mapping[str, TensorType]) -> Program:
        import tile_autodiff

        program = self.function.bind({n: types[n] for n in self.function.inputs})
        self._check_cotangents(program, types)
        return tile_autodiff.gradient(program, self.wrt)

    def _check_cotangents(self, program: Program, types: Mapping[str, TensorType]) -> None:
        known = program.types()
        for public, value in program.outputs:
            want, got = known[value], types[f"d_{public}"]
            if want != got:
                message = f"cotangent d_{public} is {got}, output {public} is {want}"
                raise TileTypeError(
                    Diagnostic("TILE-E508", message, hint="a cotangent has its output's shape and dtype")
                )

    def __reduce__(self) -> tuple[type[Gradient], tuple[BaseFunction, tuple[str, ...]]]:
        return (Gradient, (self.function, self.wrt))


def vjp(function: BaseFunction, wrt: str | Sequence[str]) -> Gradient:
    """The vector-Jacobian product of `function` with respect to the inputs named in `wrt`.

    TileTypeError when a name is not an input, or given twice. Gradients of inputs that no output depends on are zeros.
    """
    check_function(function)
    names = checked_names("wrt", wrt)
    if function.updates:
        raise TileTypeError(Diagnostic("TILE-E504", f"{function!r} updates tensors, so it has no gradient function"))
    clash = [f"d_{o}" for o in function.outputs if f"d_{o}" in function.inputs]
    if clash:
        message = f"function {function.name!r} has an input {clash[0]!r}, which is what its cotangent would be called"
        raise TileTypeError(Diagnostic("TILE-E504", message, hint="rename the input"))
    double = [n for n in names if names.count(n) > 1]
    if double:
        raise TileTypeError(Diagnostic("TILE-E504", f"wrt names input {double[0]!r} twice"))
    unknown = [n for n in names if n not in function.inputs]
    if unknown or not names:
        message = f"function {function.name!r} has no input {', '.join(map(repr, unknown)) or '(wrt is empty)'}"
        raise TileTypeError(Diagnostic("TILE-E504", message, hint=f"its inputs are {', '.join(function.inputs)}"))
    return Gradient(function, names)
