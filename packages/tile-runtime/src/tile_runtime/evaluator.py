"""Evaluators: a device, its options and the programs compiled for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from tile_hal.interfaces import Device, MemoryUsage
from tile_ir import forking
from tile_ir.diagnostics import Diagnostic, TileShapeWarning, TileTypeError, warn_user
from tile_ir.recent import Recent
from tile_ir.target import Options

from tile_runtime import hazards
from tile_runtime.arguments import collect, input_type
from tile_runtime.arrays import check_dtype, flat, is_plain, lying, readable
from tile_runtime.checks import check_function, checked_count, checked_flag
from tile_runtime.devices import checked_fallback, isolated
from tile_runtime.devices import device as find_device
from tile_runtime.exchange import handed_over, library
from tile_runtime.outputs import donated, given_outputs
from tile_runtime.plans import read_plans
from tile_runtime.programs.executable import Executable
from tile_runtime.programs.program_cache import ProgramCache
from tile_runtime.programs.program_cache import Signature as CacheKey
from tile_runtime.signature import Family, Signature
from tile_runtime.symbols import Symbol, apply
from tile_runtime.tensor import Tensor, asarray, deliver, same_device
from tile_runtime.views import OverMemory

if TYPE_CHECKING:
    from pathlib import Path

    from tile_ir.program.nodes import TensorType

    from tile_runtime.ahead.building import Built
    from tile_runtime.lowered import Lowered
    from tile_runtime.plans import Given

PROGRAMS = 128
"""Compiled programs an evaluator keeps; the least recently used goes first. A small one takes about 200 KiB."""


MANY_SHAPES = 10
"""Shapes of one function from which on somebody should know."""


class Evaluator:
    """Runs functions on one device: device settings and a cache of programs. Safe to use from any thread.

    `fast_math` lets backends use approximate math functions.

    `reduced_precision` allows matrix instructions where the device has them: float32 factors of contractions are
    rounded to TF32 (10 mantissa bits), beside bfloat16 to that, attention's weights as its values are, and products, those of bfloat16 and float16 too, are added up in the
    hardware's own order and rounding; processors (AVX512-BF16) then count subnormal numbers among those of bfloat16 as zeros.
    Where attention's rows see a part of the keys, others may be multiplied with weights of 0: infinities there show.

    `short_products` allows the same for products of bfloat16 and float16 alone, as other frameworks do by themselves:
    float32 stays exact. The front ends for other frameworks' models set it.

    `fold_scales` lets constant weights take up what scales their products behind them: a convolution and its batch
    normalisation ``(X*W - m)*s + b`` is computed as ``X*(W*s) + (b - m*s)``, as inference engines do. Sums are then
    rounded in other places, and a factor beyond a float's range shows elsewhere. `fast_math` includes it.

    With `tile_trials` above 1, so many schedules of each program are compiled and timed when it is first
    called, and the fastest one is kept; sums may then be taken in another order from one process to the
    next. TileDeviceError for an unknown device.

    `plans` (by kernel name, or as text, or a Path to it: see `Lowered.plans`) go before what the compiler would
    choose; a program without one of their kernels, or that one does not fit, is a TilePlanError.

    With `isolate` the device's driver runs in a worker process, which all isolated evaluators of a device share: a
    crash is a TileDeviceError, and the next call works. Tensors for it are made on `evaluator.device`. TILE_ISOLATE
    does the same for whole drivers.

    `fallback` is a device that runs the steps for which this one lacks an element type, or an operation of the
    kernel language; values go there and back through the host, results are on `device`, and a TileFallbackWarning
    names the steps. Without it such a program is refused.
    """

    def __init__(
        self,
        device: Device | str | None = None,
        *,
        fast_math: bool = False,
        tile_trials: int = 1,
        reduced_precision: bool = False,
        fold_scales: bool = False,
        short_products: bool = False,
        plans: Given = None,
        isolate: bool = False,
        fallback: Device | str | None = None,
    ) -> None:
        self.device = isolated(find_device(device)) if checked_flag("isolate", isolate) else find_device(device)
        self.fallback = checked_fallback(fallback, self.device)
        self.fast_math = fast_math
        self.tile_trials = checked_count("tile_trials", tile_trials)
        self.programs = ProgramCache(PROGRAMS)
        self._pieces: Recent[CacheKey, Lowered] = Recent(PROGRAMS)
        """Of functions with a dynamic dimension, by their types: what calls of many sizes share."""
        self.plans = read_plans(plans)
        self._updating = forking.rlock()
        """Reading tensors and claiming their update is one step, so that no thread's update is lost."""
        self.reduced_precision = reduced_precision
        options = Options(
            checked_flag("fast_math", fast_math),
            checked_flag("reduced_precision", reduced_precision),
            checked_flag("fold_scales", fold_scales),
            checked_flag("short_products", short_products),
        )
        self._target = replace(self.device.target, options=options)

    def __repr__(self) -> str:
        return f"<tile Evaluator on {self.device.id}>"

    @property
    def memory(self) -> MemoryUsage | None:
        """Bytes of the device's memory that this process uses and holds; None where the device does not count."""
        return self.device.memory.usage

    @property
    def options(self) -> Options:
        """What programs are compiled with."""
        return self._target.options

    def __call__(
        self, function: Signature, *args: Any, out: Any = None, donate: str | Sequence[str] = (), **named: Any
    ) -> Any:
        """Run `function`; see `tile_runtime.Function.__call__`."""
        check_function(function)
        return self.call(function, args, named, out, donate)

    def call(
        self,
        function: Signature,
        args: Sequence[Any],
        named: Mapping[str, Any],
        out: Any = None,
        donate: str | Sequence[str] = (),
    ) -> Any:
        """The same, for arguments as Python hands them over."""
        if not named:
            results = (
                self._donated_at_once(function, args, out, donate) if donate else self.at_once(function, args, out)
            )
            if results is not None:
                return results
        if named or function.bound or donate or len(args) != len(function.inputs):
            found = collect(function, args, named)
            values = tuple(found[n] for n in function.inputs)  # two of one name are refused with their places
            given = (*args, *named.values())
        else:
            values = given = args
        for value in values:
            if type(value) is not np.ndarray:
                return self._general(function, values, given, out, donate)
        return self._on_arrays(function, values, out, donate)

    def at_once(self, function: Signature, args: Sequence[Any], out: Any = None) -> Any:
        """The results of a direct call of the program that was called last, or None: see `Executable.at_once`."""
        executable = self.programs.latest(function.key)
        if executable is None:
            return None
        if not function.bound:
            return executable.at_once(args, out, args)
        if len(args) + len(function.bound) != len(function.inputs):
            return None
        if not function.updates:
            return executable.at_once(function.filled(args), out, args)
        return self._updated_at_once(executable, function, args) if out is None else None

    def _donated_at_once(self, function: Signature, args: Sequence[Any], out: Any, donate: str | Sequence[str]) -> Any:
        """The same, of a call that donates arguments in whose memory results are then."""
        executable = self.programs.latest(function.key)
        if executable is None or not executable.inherits or function.bound or len(args) != len(function.inputs):
            return None
        found = executable.taken.get(donate if isinstance(donate, str) else tuple(donate))
        return None if found is None else found.at_once(args, out, args)

    def _updated_at_once(self, executable: Executable, function: Signature, args: Sequence[Any]) -> Any:
        taken = executable.taken.get(None) if executable.inherits else executable
        if taken is None:
            return None
        with self._updating:
            made = taken.at_once(function.filled(args), None, ())
            if made is None:
                return None
            several = (made,) if isinstance(made, Tensor) else cast("tuple[Tensor, ...]", made)
            fresh = dict(zip(function.outputs, several, strict=True))
            _update(function, fresh)
        as_arrays = bool(args) and Tensor not in map(type, args)
        results = [fresh[n].wait().host if as_arrays else fresh[n] for n in function.results]
        return results[0] if len(results) == 1 else tuple(results)

    def _on_arrays(self, function: Signature, values: Sequence[Any], out: Any, donate: str | Sequence[str]) -> Any:
        plain = all(map(is_plain, values))
        if not plain and not donate and (instead := self._on_memory(function, values)) is not None:
            return self._on_arrays(*instead, out, donate)
        executable = self.programs.find((function.key, *[(a.dtype, a.shape) for a in values]))
        arrays = values
        if executable is None or not plain:
            arrays = [readable(n, v) for n, v in zip(function.inputs, values, strict=True)]
            executable = executable or self._executable(function, arrays)
        if not donate:
            results = executable.at_once(arrays, out, values)
            if results is not None:
                return results
        given = None
        if out is not None or donate:
            given = self._given(function, executable, values, out, donate)
            if given is not None and any(isinstance(o, Tensor) for o in given):
                return self._on_tensors(function, arrays, given, executable, donate, as_arrays=True)
        results = executable.run_arrays(arrays, given)
        return results[0] if len(results) == 1 else tuple(results)

    def _on_memory(self, function: Signature, values: Sequence[Any]) -> tuple[Signature, list[Any]] | None:
        """The function of large views' memory, and that; None where there are none, or where plans are given."""
        places = lying(values)
        if places is None or function.updates or function.dynamic or self.plans:
            return None
        for name, value in zip(function.inputs, values, strict=True):
            check_dtype(name, value.dtype)
        return OverMemory(function, values, places), flat(values, places)

    def _given(
        self, function: Signature, executable: Executable, values: Sequence[Any], out: Any, donate: str | Sequence[str]
    ) -> list[Any] | None:
        if type(out) is np.ndarray and not donate and executable.takes(out, values):
            return [out]
        names = donated(function, donate)
        return None if out is None else given_outputs(function, executable.outputs, out, values, names, self.device)

    def _general(
        self, function: Signature, values: Sequence[Any], given: Sequence[Any], out: Any, donate: str | Sequence[str]
    ) -> Any:
        """Arguments that are not all plain arrays: symbols, tensors, or what NumPy makes arrays of."""
        if any(isinstance(v, Symbol) for v in values):
            if out is not None:
                raise TileTypeError(
                    Diagnostic("TILE-E505", "a call on placeholders computes nothing yet: it takes no out")
                )
            return apply(function, dict(zip(function.inputs, values, strict=True)))
        named = list(zip(function.inputs, values, strict=True))
        if not any(isinstance(v, Tensor) for v in values):
            results = self._on_arrays(function, [readable(n, v) for n, v in named], out, donate)
            theirs = None if out is not None else library(given)
            return results if theirs is None else handed_over(results, theirs)
        self._check_devices(function, named)
        plain = [v if isinstance(v, Tensor) else readable(n, v) for n, v in named]
        executable = self._executable(function, plain)
        if not (donate or function.updates):
            results = executable.at_once(plain, out, given)
            if results is not None:
                return results
        outs = self._given(function, executable, values, out, donate)
        as_arrays = bool(given) and not any(isinstance(v, Tensor) for v in given)
        return self._on_tensors(function, plain, outs, executable, donate, as_arrays=as_arrays)

    def _check_devices(self, function: Signature, named: Sequence[tuple[str, Any]]) -> None:
        bound = function.bound
        same_device(((n, v) for n, v in named if isinstance(v, Tensor) and n not in bound), self.device)
        same_device(((n, v) for n, v in named if n in bound), self.device, "the composition's tensor")

    def _on_tensors(
        self,
        function: Signature,
        values: Sequence[Any],
        out: Sequence[Any] | None,
        executable: Executable,
        donate: str | Sequence[str],
        *,
        as_arrays: bool,
    ) -> Any:
        """Tensors in; results are Tensors, but NumPy arrays with `as_arrays` and where `out` has an array."""
        tensors = [asarray(v, self.device) for v in values]
        given: dict[str, Any] = dict(zip(function.results, out, strict=True)) if out is not None else {}
        used = {id(t.buffer) for t in tensors}
        direct = [
            o if isinstance(o := given.get(n), Tensor) and id(o.buffer) not in used else None for n in function.outputs
        ]
        names = donated(function, donate)
        found = executable.inheriting(_dead(function, tensors, given, names)) if executable.inherits else None
        if found is not None:
            executable.taken[(donate if isinstance(donate, str) else tuple(donate)) or None] = found
            executable, (tensors, taken) = found.executable, found.split(tensors)
            direct = [o if t is None else t for o, t in zip(direct, taken, strict=True)]
        if function.updates:
            with self._updating:
                fresh = dict(zip(function.outputs, executable.run_tensors(tensors, direct), strict=True))
                _update(function, fresh)
        else:
            fresh = dict(zip(function.outputs, executable.run_tensors(tensors, direct), strict=True))
        results = [_delivered(fresh[n], given.get(n), as_arrays) for n in function.results]
        return results[0] if len(results) == 1 else tuple(results)

    # --- compiling ------------------------------------------------------------------------------------

    def _executable(self, function: Signature, values: Sequence[Any]) -> Executable:
        """The program for arguments like `values` (plain arrays and Tensors), compiled when it is new."""
        signature: CacheKey = (function.key, *[_kind(v) for v in values])
        found = self.programs.find(signature)
        if found is None:
            types = {n: input_type(n, v) for n, v in zip(function.inputs, values, strict=True)}
            found = self.programs.make(signature, lambda: self.lower_types(function, types).executable)
            if not function.dynamic and self.programs.shapes(function.key) == MANY_SHAPES:
                warn_user(_many_shapes(function, types), TileShapeWarning)
        return found

    def prepare(self, function: Signature, *args: Any, **named: Any) -> None:
        """Compiles the program for arguments like these (arrays, Tensors, placeholders), so that a call finds it."""
        check_function(function)
        types = {n: input_type(n, v) for n, v in collect(function, args, named).items()}
        signature: CacheKey = (function.key, *[(t.dtype.numpy, t.shape) for t in types.values()])
        if self.programs.find(signature) is None:
            self.programs.make(signature, lambda: self.lower_types(function, types).executable)

    def lower(self, function: Signature, *args: Any, **named: Any) -> Lowered:
        """The stages of compilation for arguments like these (arrays, Tensors, placeholders)."""
        check_function(function)
        values = collect(function, args, named)
        lowered = self.lower_types(function, {n: input_type(n, v) for n, v in values.items()})
        lowered.program  # noqa: B018 - errors of the types show now
        return lowered

    def build(
        self,
        function: Signature | Family,
        *args: Any,
        output: str | Path,
        header: str | Path | None = None,
        name: str | None = None,
        target: str | None = None,
        threads: int = 1,
        **named: Any,
    ) -> Built:
        """Files that need no Python, of `function` for arguments like these; see `tile_runtime.build`."""
        from tile_runtime.ahead.building import build

        return build(self, function, args, named, output, header_file=header, name=name, target=target, threads=threads)

    def lower_types(self, function: Signature, types: Mapping[str, TensorType]) -> Lowered:
        """The stages of compilation for inputs of these types."""
        if not function.dynamic or self.fallback is not None:
            return self._lowered(function, types)
        from tile_runtime.dynamic import by_rows

        return by_rows(function, types, self._untuned(function, types), partial(self._piece, function))

    def _piece(self, function: Signature, types: Mapping[str, TensorType]) -> Lowered:
        """What all calls of a function share whose first dimension is dynamic, for one size of it."""
        return self._pieces.get((function.key, *types.values()), lambda: self._lowered(function, types))

    def _lowered(self, function: Signature, types: Mapping[str, TensorType]) -> Lowered:
        first = self._untuned(function, types)
        if self.fallback is None:
            return self._tuned(first)
        from tile_runtime.programs.fallback import with_fallback

        return with_fallback(first, self.fallback, self._tuned)

    def _untuned(self, function: Signature, types: Mapping[str, TensorType]) -> Lowered:
        from tile_runtime.lowered import Lowered
        from tile_runtime.typed import Typed

        return Lowered(Typed(function, types), self.device, target=self._target, plans=self.plans)

    def _tuned(self, lowered: Lowered) -> Lowered:
        if self.tile_trials == 1:
            return lowered
        from tile_runtime.measuring.tuning import best

        return best(lowered, self.tile_trials)


def _many_shapes(function: Signature, types: Mapping[str, TensorType]) -> str:
    last = ", ".join(f"{name} {type_}" for name, type_ in types.items())
    called = f"{function.name} ({', '.join(function.arguments)}) -> ({', '.join(function.results)})"
    return (
        f"{called} has been compiled for its {MANY_SHAPES}th shape ({last}): each takes compile time and memory of"
        " its own; pad arguments to a few sizes, or make the function with dynamic= where only a first dimension differs"
    )


def _kind(value: Any) -> tuple[Any, ...]:
    return (value.dtype.numpy if isinstance(value, Tensor) else value.dtype, value.shape)


def _update(function: Signature, fresh: Mapping[str, Tensor]) -> None:
    """The tensors that a composition updates hold what was computed for them, where they do not already."""
    for name, output in function.updates:
        if fresh[output] is not function.bound[name]:
            deliver(fresh[output], function.bound[name])


def _dead(
    function: Signature, tensors: Sequence[Tensor], given: Mapping[str, Any], donate: Collection[str]
) -> tuple[tuple[int, int], ...]:
    """Results, by number, and arguments in whose memory they may be: those updated, and donated ones that nobody else has."""
    number = {name: n for n, name in enumerate(function.outputs)}
    updated = dict(function.updates)
    buffers = Counter(id(t.buffer) for t in tensors)
    found: list[tuple[int, int]] = []
    for k, (name, tensor) in enumerate(zip(function.inputs, tensors, strict=True)):
        if buffers[id(tensor.buffer)] > 1 or id(tensor) in hazards.lent:
            continue
        if name in updated:
            found.append((number[updated[name]], k))
        elif name in donate:
            mine = [n for n in function.results if given.get(n) is tensor]
            found += [(number[n], k) for n in mine or (n for n in function.results if given.get(n) is None)]
    return tuple(found)


def _delivered(fresh: Tensor, given: Any, as_arrays: bool) -> Any:
    """A result as the caller wants it: in what was given for it, else as an array or as the Tensor it is."""
    if given is None:
        return fresh.numpy() if as_arrays else fresh
    if isinstance(given, Tensor):
        if given is not fresh:  # a donated argument
            deliver(fresh, given)
        return given
    with fresh.mmap_current() as view:
        given[...] = view
    return given


_evaluators: dict[Device, Evaluator] = {}
_lock = forking.rlock()


def default_evaluator(device: Device | str | None, values: Sequence[Any]) -> Evaluator:
    """The shared evaluator of the device asked for, of the first tensor passed, of $TILE_DEVICE, or of the best device."""
    chosen = None
    if device is None:
        for value in values:
            if isinstance(value, Tensor):
                chosen = value.device
                break
    if chosen is None:
        chosen = find_device(device)
    found = _evaluators.get(chosen)
    if found is None:
        made = Evaluator(chosen)
        with _lock:
            found = _evaluators.setdefault(chosen, made)
    return found
