"""Evaluators: a device, its options and the programs compiled for it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tile_hal.interfaces import Device
from tile_ir.dtype import from_numpy
from tile_ir.settings import Settings

from tile_runtime.arguments import collect, input_type
from tile_runtime.arrays import readable
from tile_runtime.devices import device as find_device
from tile_runtime.executable import Executable, check_out
from tile_runtime.function import Callable_
from tile_runtime.tensor import Tensor, asarray, same_device

PROGRAMS = 512
"""Compiled programs an evaluator keeps; the least recently used goes first."""

Signature = tuple[Any, ...]


class Evaluator:
    """Runs functions on one device; the seed's "device settings and ProgramCache"."""

    def __init__(self, device: Device | str | None = None, *, fast_math: bool = False, tile_trials: int = 1) -> None:
        """`fast_math` allows approximate math functions; `tile_trials` > 1 measures that many tilings per kernel."""
        self.device = find_device(device)
        self.fast_math = fast_math
        self.tile_trials = tile_trials
        self._programs = ProgramCache(PROGRAMS)

    def __call__(self, function: Callable_, *args: Any, out: Any = None, **named: Any) -> Any:
        """Run `function`; see `Function.__call__`."""
        if not named and out is None and not function.bound and len(args) == len(function.inputs):
            values: Sequence[Any] = args
        else:
            values = tuple(collect(function, args, named).values())
        if any(type(v) is not np.ndarray for v in values):
            return self._general(function, values, out)
        return self._on_arrays(function, values, out)

    def _on_arrays(self, function: Callable_, values: Sequence[Any], out: Any) -> Any:
        arrays = [readable(n, v) for n, v in zip(function.inputs, values, strict=True)]
        signature: Signature = (function, *[(a.dtype, a.shape) for a in arrays])
        executable = self._programs.find(signature)
        if executable is None:
            types = {n: input_type(n, a) for n, a in zip(function.inputs, arrays, strict=True)}
            executable = self._programs.make(signature, lambda: self._compile(function, types))
        given = None if out is None else self._given(function, executable, out, arrays)
        results = executable.run_arrays(arrays, given)
        return results[0] if len(results) == 1 else tuple(results)

    def _general(self, function: Callable_, values: Sequence[Any], out: Any) -> Any:
        """Arguments that are not all plain arrays: symbols, tensors, or what NumPy makes arrays of."""
        from tile_runtime.compose import Symbol, apply

        if any(isinstance(v, Symbol) for v in values):
            return apply(function, dict(zip(function.inputs, values, strict=True)))
        if any(isinstance(v, Tensor) for v in values):
            return self._on_tensors(function, values, out)
        arrays = tuple(readable(n, v) for n, v in zip(function.inputs, values, strict=True))
        return self._on_arrays(function, arrays, out)

    def _on_tensors(self, function: Callable_, values: Sequence[Any], out: Any) -> Any:
        named = list(zip(function.inputs, values, strict=True))
        same_device(((n, v) for n, v in named if isinstance(v, Tensor)), self.device)
        signature: Signature = (function, *[_kind(n, v) for n, v in named])
        executable = self._programs.find(signature)
        if executable is None:
            types = {n: input_type(n, v) for n, v in named}
            executable = self._programs.make(signature, lambda: self._compile(function, types))
        tensors = [asarray(v, self.device) for v in values]
        given = None if out is None else self._given(function, executable, out, tensors)
        if given is not None and not all(isinstance(o, Tensor) for o in given):
            given = None if out is None else given
        results = self._run_tensors(function, executable, tensors, given)
        return results[0] if len(results) == 1 else tuple(results)

    def _run_tensors(
        self, function: Callable_, executable: Executable, tensors: Sequence[Tensor], given: Sequence[Any] | None
    ) -> list[Any]:
        results = executable.run_tensors(tensors, given)
        if not function.updates:
            return list(results)
        from tile_runtime.compose import write_updates

        return write_updates(function, results)

    def _given(self, function: Callable_, executable: Executable, out: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        given = tuple(out) if isinstance(out, (tuple, list)) else (out,)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        infos = executable._outputs  # pyright: ignore[reportPrivateUsage]
        from tile_runtime.executable import _bad_out  # pyright: ignore[reportPrivateUsage]

        if len(given) != len(infos):
            raise _bad_out(f"{len(infos)} outputs ({', '.join(function.outputs)}) need as many arrays, not {len(given)}")
        check_out(function.outputs, infos, given, inputs)
        return given

    def _compile(self, function: Callable_, types: Mapping[str, Any]) -> Executable:
        return self.lower_types(function, types).executable

    def lower(self, function: Callable_, *args: Any, **named: Any) -> Any:
        """The stages of compilation for arguments like these."""
        values = collect(function, args, named)
        return self.lower_types(function, {n: input_type(n, v) for n, v in values.items()})

    def lower_types(self, function: Callable_, types: Mapping[str, Any]) -> Any:
        """The stages of compilation for inputs of these types."""
        from tile_runtime.lowered import Lowered

        return Lowered(function.bind(types), self.device)


def _kind(name: str, value: Any) -> tuple[Any, ...]:
    if isinstance(value, Tensor):
        return (value.dtype.numpy, value.shape)
    array = readable(name, value)
    from_numpy(array.dtype)
    return (array.dtype, array.shape)


class ProgramCache:
    """Bounded, thread-safe, least recently used first out; each signature is compiled by one thread only."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._ready: OrderedDict[Signature, Executable] = OrderedDict()
        self._making: dict[Signature, threading.Lock] = {}
        self._lock = threading.Lock()

    def find(self, signature: Signature) -> Executable | None:
        found = self._ready.get(signature)
        if found is not None:
            with self._lock:
                if signature in self._ready:
                    self._ready.move_to_end(signature)
        return found

    def make(self, signature: Signature, compile: Any) -> Executable:
        """The executable, compiled now unless another thread just did."""
        with self._lock:
            gate = self._making.setdefault(signature, threading.Lock())
        with gate:
            found = self.find(signature)
            if found is None:
                found = compile()
                with self._lock:
                    self._ready[signature] = found
                    while len(self._ready) > self._limit:
                        self._ready.popitem(last=False)
        with self._lock:
            self._making.pop(signature, None)
        return found

    def __len__(self) -> int:
        return len(self._ready)


_evaluators: dict[str, Evaluator] = {}
_evaluators_lock = threading.Lock()


def default_evaluator(device: Device | str | None, args: Sequence[Any], named: Mapping[str, Any]) -> Evaluator:
    """The shared evaluator of the device asked for, of the tensors passed, or of the default device."""
    if device is None:
        tensor = next((v for v in (*args, *named.values()) if isinstance(v, Tensor)), None)
        if tensor is not None:
            device = tensor.device
    key = device if isinstance(device, str) else device.id if device is not None else ""
    found = _evaluators.get(key)
    if found is not None:
        return found
    chosen = find_device(device or Settings.from_environment().device)
    with _evaluators_lock:
        return _evaluators.setdefault(key, Evaluator(chosen))
