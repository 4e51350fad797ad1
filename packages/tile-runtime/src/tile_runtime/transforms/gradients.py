"""Gradients of Python functions that give a number."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, cast

from tile_ir.diagnostics import Diagnostic, TileTypeError

from tile_runtime.checks import described, wrong_kind
from tile_runtime.jit import Jitted, argument_name
from tile_runtime.symbols import Symbol
from tile_runtime.tracing import Traced, leaf_type, place, result_symbol, traced
from tile_runtime.trees import flatten, paths, unflatten


def value_and_grad(function: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Any:
    """A function that gives what `function` does, and its derivatives by the arguments in `argnums`: ``(value, gradient)``.

    `function` takes trees of tensors and gives a float scalar; with `has_aux` a pair of it and a tree of anything else,
    which comes as ``((value, aux), gradient)``. A gradient has the form, shapes and dtypes of its argument (a tuple of
    them where `argnums` is one), float leaves all. Value and derivatives are one program, compiled like `tile.jit`'s;
    on symbols it is part of the composition, so that it composes with jit, vmap, scan and itself.

    TileTypeError (TILE-E543) where the result is no float scalar, or an argument has integers.
    """
    return _differentiated(function, argnums, has_aux, "value_and_grad")


def grad(function: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Any:
    """The derivatives alone: `value_and_grad` without the value; ``(gradient, aux)`` with `has_aux`."""
    both = _differentiated(function, argnums, has_aux, "grad").function

    @functools.wraps(function, updated=())
    def derivatives(*args: Any, **named: Any) -> Any:
        value, slopes = both(*args, **named)
        return (slopes, value[1]) if has_aux else slopes

    return Jitted(derivatives)


def _differentiated(function: Callable[..., Any], argnums: int | Sequence[int], has_aux: bool, name: str) -> Jitted:
    if not callable(function):
        raise wrong_kind(
            f"{name} takes a function", function, f"such as tile.{name}(lambda w, x: ((w * x) ** 2).sum())"
        )
    numbers = _numbers(argnums)

    @functools.wraps(function, updated=())
    def both(*args: Any, **named: Any) -> Any:
        given = [_argument(args, k, name) for k in numbers]
        leaves, form = flatten(tuple(given))
        roots = (argument_name(function, k) for k in numbers)
        names = [path for root, part in zip(roots, form.parts, strict=True) for path in paths(part, root)]
        places = [_float_place(n, v) for n, v in zip(names, leaves, strict=True)]

        def call(symbols: Sequence[Symbol]) -> Any:
            everything = list(args)
            for k, value in zip(numbers, unflatten(form, symbols), strict=True):
                everything[k] = value
            return _scalar_first(function(*everything, **named), has_aux)

        forward = traced(getattr(function, "__name__", "function"), call, places)
        found = _pulled(forward, len(places)).applied(leaves)
        value, aux = unflatten(forward.form, found[: len(found) - len(places)])
        slopes = unflatten(form, found[len(found) - len(places) :])
        return ((value, aux) if has_aux else value), (slopes[0] if isinstance(argnums, int) else slopes)

    return Jitted(both)


def _pulled(forward: Traced, count: int) -> Traced:
    """The program with the derivatives of its first result by its first `count` inputs."""
    import tile_autodiff

    wrt = [p.name for p in forward.program.inputs[:count]]
    return forward.rewritten(tile_autodiff.value_and_gradient(forward.program, wrt, forward.outputs[0]))


def _scalar_first(result: Any, has_aux: bool) -> tuple[Symbol, Any]:
    """The value that is differentiated, and what comes beside it."""
    pair = cast("tuple[Any, ...]", result)
    if has_aux and not (isinstance(result, tuple) and len(pair) == 2):
        hint = "return (loss, aux), or leave has_aux out"
        raise _bad(f"with has_aux a function returns a pair, not {described(cast(object, result))}", hint)
    value, aux = pair if has_aux else (cast(Any, result), None)
    if isinstance(value, (tuple, list, dict)):
        hint = "return the loss alone, or (loss, the rest) with has_aux=True"
        raise _bad(f"a function to differentiate returns one number, not {described(cast(object, value))}", hint)
    symbol = result_symbol("result", value)
    if symbol.shape or not symbol.dtype.is_float:
        shape = f"{symbol.dtype}{list(symbol.shape)}"
        hint = (
            "take its .sum() or .mean(); tile.vjp takes a cotangent for each output"
            if symbol.shape
            else "compute it in a float dtype"
        )
        raise _bad(f"only a float scalar has a gradient, the function returns {shape}", hint)
    return symbol, aux


def _float_place(name: str, leaf: Any) -> Symbol:
    found = leaf_type(name, leaf)
    if not found.dtype.is_float:
        hint = "leave it out of argnums, pass it in another argument, or convert it to float32"
        raise _bad(f"{name} is {found}: only float tensors have gradients", hint)
    return place(name, found)


def _numbers(argnums: object) -> list[int]:
    given = list(cast("Sequence[object]", argnums)) if isinstance(argnums, (tuple, list)) else [argnums]
    found = [k for k in given if isinstance(k, int) and not isinstance(k, bool) and k >= 0]
    if not given or len(found) < len(given):
        hint = "such as argnums=0 or argnums=(0, 1)"
        raise wrong_kind("argnums is the number of an argument, or several", cast(object, argnums), hint)
    if len(set(found)) < len(found):
        raise _bad(f"argnums {argnums} names an argument twice", None)
    return found


def _argument(args: Sequence[Any], number: int, name: str) -> Any:
    if number >= len(args):
        hint = "arguments that are differentiated by are passed by position; argnums counts from 0"
        raise _bad(f"{name} has argnums {number}, and {len(args)} arguments were given", hint)
    return args[number]


def _bad(message: str, hint: str | None) -> TileTypeError:
    return TileTypeError(Diagnostic("TILE-E543", message, hint=hint))
