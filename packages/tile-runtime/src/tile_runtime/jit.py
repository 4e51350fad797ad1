"""Python functions as compiled programs, one for each form, shapes and dtypes of their arguments."""

from __future__ import annotations

import functools
import inspect
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from tile_hal.interfaces import Device
from tile_ir import forking
from tile_ir.diagnostics import Diagnostic, TileTypeError

from tile_runtime.arrays import readable
from tile_runtime.checks import checked_names, described, wrong_kind
from tile_runtime.evaluator import default_evaluator
from tile_runtime.symbols import Symbol, making
from tile_runtime.tensor import Tensor
from tile_runtime.tracing import Traced, leaf_type, place, places_for, traced
from tile_runtime.trees import Structure, flatten, flatten_arguments, form_of_leaves, paths, unflatten

if TYPE_CHECKING:
    from tile_ir.program.nodes import Program, TensorType

    from tile_runtime.function import BaseFunction
    from tile_runtime.lowered import Lowered

PROGRAMS = 64
"""Programs that a function keeps; the least recently used goes first."""


def jit(
    function: Callable[..., Any] | None = None,
    *,
    static: str | Sequence[str] = (),
    donate: str | Sequence[str] = (),
    dynamic: str | Sequence[str] = (),
    device: Device | str | None = None,
) -> Any:
    """`function` as one compiled program for each form, shapes and dtypes of its arguments; also a decorator.

    It is run once for each on symbols, as if they were arrays (`tile_runtime.numpy`, operators, Tile functions, scan,
    grad, vmap), and what it makes of them is compiled; later calls run the program. Arguments and results are trees
    (tuples, lists, dicts, dataclasses) of arrays, Tensors and numbers. NumPy arrays give NumPy arrays, Tensors Tensors.
    Called on symbols it is `function` itself, so that it composes with everything.

    Arguments named in `static` are any hashable values, by which programs are told apart. Those named in `donate`
    must not be used afterwards: their Tensors' memory receives results of the same shape and dtype, but for Tensors that
    are there several times. The tensors of those named in `dynamic` have one first dimension, which may be of any size
    without compiling again (see `Function`).
    Without `device` it runs where the Tensors are. TileTypeError for leaves that are no tensors, and for decisions that
    depend on elements.

        @tile.jit
        def step(weights, x):
            return {name: w - 0.1 * w * x.mean() for name, w in weights.items()}
    """
    if function is None:
        return functools.partial(jit, static=static, donate=donate, dynamic=dynamic, device=device)
    return Jitted(function, static, donate, device, dynamic)


@dataclass(frozen=True, slots=True)
class _Call:
    """Arguments, taken apart."""

    leaves: list[Any]
    form: Structure
    static: tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True)
class _Donation:
    """Which arguments' memory receives which results."""

    names: tuple[str, ...]
    places: tuple[int | None, ...]
    """For each result, the number of the leaf whose memory receives it."""


@dataclass(frozen=True, slots=True)
class _Entry:
    traced: Traced
    donation: _Donation | None
    function: BaseFunction
    """What runs: `traced`, or what serves all sizes of the dynamic dimension."""
    direct: bool
    """The arguments are what the program takes, one by one, and it gives results."""

    def together(self, found: Any) -> Any:
        """What the program gives, in the form of the Python function's result."""
        form = self.traced.form
        return found if form.kind is None else unflatten(form, found if len(self.function.outputs) > 1 else (found,))


class Jitted:
    """A Python function that is compiled when it is called: see `jit`."""

    def __init__(
        self,
        function: Callable[..., Any],
        static: str | Sequence[str] = (),
        donate: str | Sequence[str] = (),
        device: Device | str | None = None,
        dynamic: str | Sequence[str] = (),
    ) -> None:
        if not callable(function):
            raise wrong_kind("jit takes a function", function, "such as tile.jit(lambda x: x * 2)")
        self.function = function
        self._static = checked_names("static", static)
        self._donate = checked_names("donate", donate)
        self._dynamic = checked_names("dynamic", dynamic)
        self._named = bool(self._static or self._donate or self._dynamic)
        """Arguments are told apart by name."""
        self._device = device
        self._signature = _signature(function)
        self._programs: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._latest: tuple[tuple[Any, ...], _Entry] | None = None
        """The program of the last call, with its key: found without a hash, which takes as long as all else in a call."""
        self._families: dict[Hashable, object] = {}
        """A key for all programs that differ in the size of the dynamic dimension alone."""
        self._lock = forking.rlock()
        functools.update_wrapper(self, function, updated=())  # pyright: ignore[reportArgumentType]
        self._check_names()

    def __call__(self, *args: Any, **named: Any) -> Any:
        if not named and (again := self._again(args)) is not None:
            return again
        call = self._taken_apart(args, named)
        if making.get() or any(isinstance(v, Symbol) for v in call.leaves):
            return self.function(*args, **named)
        leaves = self._arrays(call)
        entry = self._entry(call, leaves)
        return self._run(entry, leaves) if entry.function.outputs else unflatten(entry.traced.form, ())

    def _again(self, args: tuple[Any, ...]) -> Any:
        """The result of a direct call of the last call's program; None when these arguments are others than that takes."""
        latest = self._latest
        if latest is None or not latest[1].direct or making.get():
            return None
        entry = latest[1]
        found = default_evaluator(self._device, args).at_once(entry.function, args)
        return None if found is None else entry.together(found)

    def traced(self, args: Sequence[Any], named: Mapping[str, Any], leaf: Callable[[str, Any], Any]) -> Traced:
        """The Tile function for such arguments, of their leaves, which ``leaf(name, value)`` makes arrays.

        For libraries that call it in a way of their own.
        """
        call = self._taken_apart(args, named)
        rows = zip(self._names(call.form), call.leaves, strict=True)
        leaves = [leaf(name, value) for name, value in rows]
        return self._entry(_Call(leaves, call.form, call.static), leaves).traced

    def lower(self, *args: Any, **named: Any) -> Lowered:
        """Every stage of compilation for arguments like these."""
        function, leaves = self.stated(args, named)
        return default_evaluator(self._device, leaves).lower(function, *leaves)

    def stated(self, args: Sequence[Any], named: Mapping[str, Any]) -> tuple[BaseFunction, list[Any]]:
        """The Tile function for arguments like these, and the arrays that it takes for them."""
        call = self._taken_apart(args, named)
        leaves = self._arrays(call)
        return self._entry(call, leaves).function, leaves

    def __repr__(self) -> str:
        return f"<tile jit {getattr(self.function, '__qualname__', self.function)}>"

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """As a method: the instance is an argument, a tree like the others."""
        return self if instance is None else functools.partial(self, instance)

    # --- arguments ------------------------------------------------------------------------------------

    def _check_names(self) -> None:
        known = () if self._signature is None else tuple(self._signature.parameters)
        for what, names in (("static", self._static), ("donate", self._donate), ("dynamic", self._dynamic)):
            for name in names:
                if name not in known:
                    hint = f"its parameters are {', '.join(known)}" if known else None
                    raise TileTypeError(
                        Diagnostic("TILE-E541", f"{what} names {name!r}, which {self!r} lacks", hint=hint)
                    )

    def _taken_apart(self, args: Sequence[Any], named: Mapping[str, Any]) -> _Call:
        if not self._named:
            return _Call(*flatten_arguments(tuple(args), dict(named)), ())
        assert self._signature is not None
        given = self._signature.bind(*args, **named).arguments
        fixed = tuple((name, given[name]) for name in self._static if name in given)
        tree = {name: value for name, value in given.items() if name not in self._static}
        return _Call(*flatten(tree), fixed)

    def _names(self, form: Structure) -> list[str]:
        """What errors call the leaves."""
        if self._named:
            return [path.removeprefix("['").replace("']", "", 1) for path in paths(form, "")]
        positional, named = form.parts
        first = [argument_name(self.function, k) for k in range(len(positional.parts))]
        parts = zip((*positional.parts, *named.parts), (*first, *named.keys), strict=True)
        return [path for part, name in parts for path in paths(part, name)]

    def _called(self, call: _Call, symbols: Sequence[Any]) -> Any:
        tree = unflatten(call.form, symbols)
        if not self._named:
            args, named = tree
            return self.function(*args, **named)
        assert self._signature is not None
        bound = inspect.BoundArguments(self._signature, OrderedDict())
        everything = {**tree, **dict(call.static)}
        bound.arguments = {n: everything[n] for n in self._signature.parameters if n in everything}  # pyright: ignore[reportAttributeAccessIssue]
        return self.function(*bound.args, **bound.kwargs)

    def _arrays(self, call: _Call) -> list[Any]:
        """The leaves as what an evaluator takes: Python's numbers become arrays of int32 and float32."""
        if all(isinstance(v, (np.ndarray, Tensor)) for v in call.leaves):
            return call.leaves
        return [as_array(n, v) for n, v in zip(self._names(call.form), call.leaves, strict=True)]

    # --- programs -------------------------------------------------------------------------------------

    def _entry(self, call: _Call, leaves: Sequence[Any]) -> _Entry:
        key = (
            call.form,
            _told_apart(call.static),
            *[(v.dtype.numpy if isinstance(v, Tensor) else v.dtype, v.shape) for v in leaves],
        )
        latest = self._latest
        if latest is not None and latest[0][0] is call.form and not call.static and latest[0] == key:
            return latest[1]
        with self._lock:
            try:
                found = self._programs.get(key)
            except TypeError:
                raise _unhashable(call) from None
            if found is None:
                found = self._programs[key] = self._traced(call)
                while len(self._programs) > PROGRAMS:
                    self._programs.popitem(last=False)
            self._programs.move_to_end(key)
            self._latest = key, found
            return found

    def _traced(self, call: _Call) -> _Entry:
        names = self._names(call.form)
        places = places_for(call.leaves, names)
        name = getattr(self.function, "__name__", "function")
        made = traced(name, functools.partial(self._called, call), places)
        if made.captured:
            from tile_runtime.symbols import composition_error

            message = f"{self!r} is called on arrays and uses {next(iter(made.captured.values()))!r} of a composition"
            raise composition_error(message, "pass it as an argument")
        function = self._sized(call, made, names) if self._dynamic else made
        direct = not self._named and call.form is form_of_leaves(len(call.leaves)) and bool(made.outputs)
        return _Entry(made, self._donation(made, names) if self._donate else None, function, direct)

    def _sized(self, call: _Call, made: Traced, names: Sequence[str]) -> BaseFunction:
        """What serves all sizes of the dynamic dimension; `made` itself where it uses Tensors of its own."""
        from tile_runtime.resizable import Resizable

        dynamic = [_belongs(n, self._dynamic) for n in names]
        if made.bound or not any(dynamic):
            return made
        types = [leaf_type(n, v) for n, v in zip(names, call.leaves, strict=True)]
        rest = [(t.dtype, t.shape[d:]) for t, d in zip(types, dynamic, strict=True)]
        key = self._families.setdefault((call.form, _told_apart(call.static), *rest), object())
        label = getattr(self.function, "__name__", "function")

        def again(types: Sequence[TensorType]) -> Program:
            places = [place(n, t) for n, t in zip(names, types, strict=True)]
            return traced(label, functools.partial(self._called, call), places).program

        return Resizable(made, again, tuple(n for n, d in zip(made.inputs, dynamic, strict=True) if d), key)

    def _donation(self, made: Traced, names: Sequence[str]) -> _Donation:
        program = made.program
        free = [k for k, n in enumerate(names) if _belongs(n, self._donate)]
        own = [p.type for p in program.inputs if p.name not in made.bound]
        inputs = [p.name for p in program.inputs if p.name not in made.bound]
        types, places = program.types(), list[int | None]()
        for _, value in program.outputs:
            fits = next((k for k in free if own[k] == types[value]), None)
            places.append(fits)
            if fits is not None:
                free.remove(fits)
        return _Donation(tuple(inputs[k] for k in places if k is not None), tuple(places))

    def _run(self, entry: _Entry, leaves: Sequence[Any]) -> Any:
        donation, out = entry.donation, None
        if donation is not None and any(isinstance(v, Tensor) for v in leaves):
            given = [None if k is None else leaves[k] for k in donation.places]
            times = Counter(map(id, leaves))
            out = [v if isinstance(v, Tensor) and times[id(v)] == 1 else None for v in given]
        names = donation.names if donation is not None and out is not None else ()
        return entry.together(default_evaluator(self._device, leaves).call(entry.function, leaves, {}, out, names))


def _belongs(leaf: str, arguments: Sequence[str]) -> bool:
    """The leaf of this name is part of one of the arguments."""
    return any(leaf == name or leaf.startswith((f"{name}[", f"{name}.")) for name in arguments)


def as_array(name: str, value: Any) -> Any:
    """A leaf as an array; other libraries' arrays stay what they are."""
    leaf_type(name, value)
    if isinstance(value, np.generic) or not hasattr(value, "dtype"):
        return readable(name, cast(Any, value))
    return value


def argument_name(function: Callable[..., Any], number: int) -> str:
    """What errors call the argument of this number."""
    found = _signature(function)
    known = () if found is None else [p.name for p in found.parameters.values() if p.kind is not p.VAR_POSITIONAL]
    return known[number] if number < len(known) else f"argument {number}"


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):  # written in C
        return None


def _told_apart(value: Any) -> Hashable:
    """A static value as part of a key: 1, 1.0 and True are equal and make other programs, 0.0 and -0.0 too."""
    kind = type(cast("object", value))
    if isinstance(value, tuple):
        return kind, *map(_told_apart, cast("tuple[Any, ...]", value))
    return kind, repr(value) if issubclass(kind, (complex, float, np.generic)) else value


def _unhashable(call: _Call) -> TileTypeError:
    for name, value in call.static:
        try:
            hash(value)
        except TypeError:
            hint = "programs are told apart by it: pass a tuple instead of a list, or leave it out of static"
            return TileTypeError(
                Diagnostic("TILE-E541", f"static {name} is {described(value)}, which has no hash", hint=hint)
            )
    return TileTypeError(Diagnostic("TILE-E541", "a static part of an argument has no hash"))
