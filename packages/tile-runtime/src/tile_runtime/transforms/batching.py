"""One more axis for functions that know nothing of it."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from tile_ir.diagnostics import Diagnostic, TileTypeError

from tile_runtime.checks import wrong_kind
from tile_runtime.function import BaseFunction
from tile_runtime.jit import Jitted, argument_name
from tile_runtime.symbols import Symbol
from tile_runtime.tracing import Traced, leaf_type, place, traced
from tile_runtime.trees import Structure, flatten, leaves_like, paths, unflatten

if TYPE_CHECKING:
    from tile_ir.program.nodes import Program, TensorType


def vmap(function: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0) -> Any:
    """`function`, written for one example, for many at once: its program with one more index.

    `in_axes` says which axis of the arguments counts the examples: one number for all, or one for each positional
    argument, where a tree stands for a tree; None: the same for all examples. Arguments by name count along axis 0.
    `out_axes` says where that axis stands in the results; None: it is not there, because they do not depend on it.

    A Python function gives one that is compiled like `tile.jit`'s, and composes with jit, grad, scan and itself. A Tile
    function gives a Tile function, which has a vjp and can be lowered; `in_axes` may name its inputs in a dict.

    TileTypeError (TILE-E544) where axes do not exist, sizes differ, or a result depends on an axis it shall not have.
    """
    if isinstance(function, BaseFunction):
        return Batched(function, in_axes, out_axes)
    if not callable(function):
        raise wrong_kind("vmap takes a function", function, "such as tile.vmap(lambda x: x / x.sum())")

    @functools.wraps(function, updated=())
    def many(*args: Any, **named: Any) -> Any:
        leaves, form = flatten((args, named))
        names = _leaf_names(function, form)
        types = [leaf_type(n, v) for n, v in zip(names, leaves, strict=True)]
        axes = _leaf_axes(form, in_axes, types, names)
        size = _size({names[k]: types[k].shape[axis] for k, axis in axes.items()})
        places = [place(names[k], _one(types[k], axis)) for k, axis in axes.items()]

        def call(symbols: Sequence[Symbol]) -> Any:
            everything = list(leaves)
            for k, symbol in zip(axes, symbols, strict=True):
                everything[k] = symbol
            values, named_values = unflatten(form, everything)
            return function(*values, **named_values)

        one = traced(getattr(function, "__name__", "function"), call, places)
        made = _rewritten(one, list(axes.values()), size, _result_axes(one, out_axes))
        return unflatten(one.form, made.applied([leaves[k] for k in axes]))

    return Jitted(many)


def _rewritten(one: Traced, axes: Sequence[int], size: int, results: Mapping[str, int | None]) -> Traced:
    inputs = one.program.inputs[: len(axes)]
    return one.rewritten(
        batched_program(one.program, {p.name: a for p, a in zip(inputs, axes, strict=True)}, size, results)
    )


def batched_program(program: Program, axes: Mapping[str, int], size: int, results: Mapping[str, int | None]) -> Program:
    """See `tile_autodiff.batched`; TileTypeError where a result depends on an axis that it shall not have."""
    import tile_autodiff

    try:
        return tile_autodiff.batched(program, axes, size, results)
    except ValueError as problem:
        raise _bad(str(problem), "give it a place in out_axes: None is for what is the same for all") from None


def _leaf_names(function: Callable[..., Any], form: Structure) -> list[str]:
    positional, named = form.parts
    roots = [argument_name(function, k) for k in range(len(positional.parts))]
    pairs = zip((*roots, *named.keys), (*positional.parts, *named.parts), strict=True)
    return [path for root, part in pairs for path in paths(part, root)]


def _leaf_axes(form: Structure, in_axes: Any, types: Sequence[TensorType], names: Sequence[str]) -> dict[int, int]:
    """The axis of each leaf that has one, by its number."""
    positional = form.parts[0]
    if isinstance(in_axes, list):
        in_axes = tuple(cast("list[Any]", in_axes))
    if isinstance(in_axes, tuple) and len(cast("tuple[Any, ...]", in_axes)) != len(positional.parts):
        raise _bad(
            f"in_axes {in_axes} is for {len(cast('tuple[Any, ...]', in_axes))} arguments, {len(positional.parts)} are given"
        )
    given = leaves_like(positional, in_axes, "in_axes", prefix=True)
    given += [0] * (len(types) - len(given))
    rows = zip(given, types, names, strict=True)
    found = {k: _axis(axis, len(type.shape), name) for k, (axis, type, name) in enumerate(rows) if axis is not None}
    if not found:
        hint = "in_axes=0 counts along the first axis of every argument"
        raise _bad("no argument has an axis to count along", hint)
    return found


def _axis(axis: Any, rank: int, name: str) -> int:
    try:
        number = operator.index(axis)
    except TypeError:
        raise wrong_kind("an axis is a number, or None", axis, "such as in_axes=(0, None)") from None
    if not -rank <= number < rank:
        raise _bad(f"{name} has {rank} dimensions, and no axis {number}", "None in in_axes: the same for all examples")
    return number % rank


def _size(sizes: Mapping[str, int]) -> int:
    """The number of examples, which all that are mapped have."""
    if len(set(sizes.values())) > 1:
        told = ", ".join(f"{name}: {size}" for name, size in sizes.items())
        raise _bad(f"the axes that count examples have different sizes: {told}")
    return next(iter(sizes.values()))


def _one(type: TensorType, axis: int) -> TensorType:
    from tile_ir.program.nodes import TensorType

    return TensorType(type.dtype, (*type.shape[:axis], *type.shape[axis + 1 :]))


def _result_axes(one: Traced, out_axes: Any) -> dict[str, int | None]:
    given = leaves_like(one.form, out_axes, "out_axes", prefix=True)
    return _placed(one.program, given)


def _placed(program: Program, given: Sequence[Any]) -> dict[str, int | None]:
    types = program.types()
    pairs = zip(program.outputs, given, strict=True)
    return {n: None if a is None else _axis(a, len(types[v].shape) + 1, n) for (n, v), a in pairs}


class Batched(BaseFunction):
    """A Tile function for many examples at once."""

    def __init__(self, function: BaseFunction, in_axes: Any, out_axes: Any) -> None:
        if function.updates:
            raise _bad(f"{function!r} updates tensors, so it cannot be mapped")
        self.function = function
        self.name = f"vmap_{function.name}"
        self.inputs, self.outputs, self.bound = function.inputs, function.outputs, function.bound
        self.axes = _by_name(function.arguments, in_axes, "in_axes")
        self.ends = _by_name(function.outputs, out_axes, "out_axes")
        self.key = ("vmap", function.key, tuple(self.axes.items()), tuple(self.ends.items()))

    @property
    def written(self) -> str | None:
        inner = self.function.written
        return None if inner is None else f"vmap {self.axes} {self.ends} of {inner}"

    def bind(self, types: Mapping[str, TensorType]) -> Program:
        own = {n: a for n, a in self.axes.items() if a is not None}
        axes = {n: _axis(a, len(types[n].shape), f"input {n}") for n, a in own.items()}
        if not axes:
            raise _bad("no input has an axis to count along", "in_axes=0 counts along the first axis of every input")
        size = _size({n: types[n].shape[a] for n, a in axes.items()})
        one = self.function.bind({n: _one(t, axes[n]) if n in axes else t for n, t in types.items()})
        ends = _placed(one, [self.ends[n] for n, _ in one.outputs])
        return batched_program(one, axes, size, ends)

    def __reduce__(self) -> tuple[type[Batched], tuple[BaseFunction, Any, Any]]:
        return (Batched, (self.function, self.axes, self.ends))


def _by_name(names: Sequence[str], given: Any, what: str) -> dict[str, Any]:
    if isinstance(given, Mapping):
        table = cast("Mapping[str, Any]", given)
        unknown = [n for n in table if n not in names]
        if unknown:
            raise _bad(f"{what} names {unknown[0]!r}", f"the names are {', '.join(names)}")
        return {n: table.get(n) for n in names}
    if isinstance(given, (tuple, list)):
        several = cast("Sequence[Any]", given)
        if len(several) != len(names):
            raise _bad(f"{what} has {len(several)} entries for {', '.join(names)}")
        return dict(zip(names, several, strict=True))
    return dict.fromkeys(names, given)


def _bad(message: str, hint: str | None = None) -> TileTypeError:
    return TileTypeError(Diagnostic("TILE-E544", message, hint=hint))
