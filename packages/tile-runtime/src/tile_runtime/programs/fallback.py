"""Programs of which a device lacks something: what it lacks runs on another one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from tile_hal.errors import Code
from tile_hal.interfaces import Device
from tile_ir.diagnostics import Diagnostic, Span, TileDeviceError, TileFallbackWarning, TilePlanError, warn_user
from tile_ir.kernels import BufferInfo, BufferKind
from tile_ir.program.liveness import defined_by
from tile_ir.program.nodes import Op, Param, Program

from tile_runtime.arrays import Array
from tile_runtime.logs import FALLBACK
from tile_runtime.lowered import Lowered
from tile_runtime.programs.division import Part, divide, lacking
from tile_runtime.programs.executable import Executable
from tile_runtime.programs.parts import LoweredInParts, Section
from tile_runtime.requirements import MISSING
from tile_runtime.signature import Signature
from tile_runtime.tensor import Tensor, asarray, copy
from tile_runtime.typed import Typed

Tune = Callable[[Lowered], Lowered]
"""What is done to a program before it is compiled."""

_NODES = "TILE-E524"
_LACKS = (MISSING, _NODES, Code.BUILD.value, Code.WORKER.value)
"""Codes of errors that say that a device cannot have a program: a type, a node, a compiler that refuses it, one that it ends."""
_SHOWN = 5
"""Steps that a warning names."""


def with_fallback(first: Lowered, fallback: Device, tune: Tune) -> Lowered:
    """`first`, compiled; where its device lacks something for it, the same in parts of which some run on `fallback`."""
    found = _compiled(lambda: tune(first))
    if isinstance(found, Lowered):
        return found
    problem = found
    types = problem.diagnostics[0].code == MISSING
    away = lacking(first.program, first.device) if types else _tried(first, problem)
    if first.given:
        message = f"the program runs in parts on {first.device.id} and {fallback.id}, so plans cannot be given for it"
        raise TilePlanError(Diagnostic("TILE-E523", message, hint="plans are for programs of one device")) from problem
    made = DividedLowered(first, fallback, away, tune)
    if away:
        FALLBACK.info("%s", made.reason)
        warn_user(made.reason, TileFallbackWarning)
    return made


def _compiled(make: Callable[[], Lowered]) -> Lowered | TileDeviceError:
    """A program, compiled, or why its device cannot run it."""
    try:
        made = make()
        made.executable  # noqa: B018 - compiled now
    except TileDeviceError as problem:
        if not any(d.code in _LACKS for d in problem.diagnostics):
            raise
        return problem
    return made


def _tried(first: Lowered, problem: TileDeviceError) -> dict[str, str]:
    """The operations that a device cannot run alone, and why; all of them when it can run each but not all together."""
    program = first.program
    everything = divide(program, ())
    found: dict[str, str] = {}
    for op in (op for part in everything for op in part.program.ops):
        name = defined_by(op)[0]
        others = [n for p in everything for o in p.program.ops if o is not op for n in defined_by(o)]
        for part in divide(program, others):
            alone = None if part.away else _compiled(partial(_lowered, first, part, first.device))
            if isinstance(alone, TileDeviceError):
                found[name] = _sentence(alone)
    return found or {defined_by(op)[0]: _sentence(problem) for part in everything for op in part.program.ops}


def _sentence(problem: TileDeviceError) -> str:
    return " ".join(problem.diagnostics[0].message.split())[:200]


class _Fragment(Signature):
    """Part of a program as a function."""

    def __init__(self, part: Part, spans: Mapping[str, Span]) -> None:
        self.name = part.program.name
        self.inputs = tuple(p.name for p in part.program.inputs)
        self.outputs = tuple(name for name, _ in part.program.outputs)
        self.key = object()
        self._program, self._spans = part.program, spans

    @property
    def spans(self) -> Mapping[str, Span]:
        return self._spans

    def bind(self, types: object) -> Program:
        return self._program


def _lowered(first: Lowered, part: Part, device: Device) -> Lowered:
    target = replace(device.target, options=first.target.options)
    types = {p.name: p.type for p in part.program.inputs}
    return Lowered(Typed(_Fragment(part, first.spans), types), device, target=target)


class DividedLowered(LoweredInParts):
    """A program in `parts`, each of which is compiled for its device."""

    def __init__(self, first: Lowered, fallback: Device, away: Mapping[str, str], tune: Tune) -> None:
        """`away` says why an operation runs on `fallback`."""
        super().__init__(first.typed, first.device, target=first.target)
        self.fallback = fallback
        self._divided = divide(first.program, away)
        self.parts = tuple(tune(_lowered(first, p, fallback if p.away else first.device)) for p in self._divided)
        self.reason = self._why(away)
        """Which steps run on the other device, and why."""

    def _why(self, away: Mapping[str, str]) -> str:
        reasons: dict[str, list[str]] = {}
        for op in (op for part in self._divided if part.away for op in part.program.ops):
            why = away.get(defined_by(op)[0])
            if why is not None:
                reasons.setdefault(why, []).append(_place(op))
        moved = "; ".join(f"{_listed(steps)} ({why})" for why, steps in reasons.items())
        return f"{self.device.id} cannot run all of the program, these steps run on {self.fallback.id}: {moved}"

    @property
    def sections(self) -> Sequence[Section]:
        count = len(self.parts)
        return [(f"Part {n} of {count}, on {part.device.id}:", part) for n, part in enumerate(self.parts, 1)]

    @property
    def summary(self) -> str:
        return self.reason

    @property
    def no_stages(self) -> Diagnostic:
        message = f"the program runs in {len(self.parts)} parts on {self.device.id} and {self.fallback.id}"
        hint = "look at its parts: lowered.parts, each with stripe, plans and kernels"
        return Diagnostic("TILE-E523", message, hint=hint)

    @cached_property
    def executable(self) -> Executable:
        return DividedExecutable(self.device, self.program, [(p.program, p.executable) for p in self.parts])


def _place(op: Op) -> str:
    return f"{defined_by(op)[0]!r}" + (f" (line {op.origin.line})" if op.origin is not None else "")


def _listed(steps: Sequence[str]) -> str:
    more = len(steps) - _SHOWN
    return ", ".join(steps[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


Step = tuple[Program, Executable]


class DividedExecutable(Executable):
    """The parts of a program, run one after the other; what goes from one device to the other goes through the host."""

    __slots__ = ("_infos", "_outputs", "_params", "_steps")

    def __init__(self, device: Device, program: Program, steps: Sequence[Step]) -> None:  # pyright: ignore[reportMissingSuperCall]
        self.device = device
        self.used = 0
        self._steps = steps
        self._params: tuple[Param, ...] = program.inputs
        self._outputs = tuple(value for _, value in program.outputs)
        types = program.types()
        sized = [(name, types[value]) for name, value in program.outputs]
        self._infos = tuple(
            BufferInfo(n, name, BufferKind.OUTPUT, t.shape, t.dtype, t.nbytes) for n, (name, t) in enumerate(sized)
        )

    @property
    def outputs(self) -> tuple[BufferInfo, ...]:
        return self._infos

    def expect_more(self) -> Executable:
        return self

    def at_once(self, values: Sequence[Any], out: Any, args: Sequence[Any]) -> Any:
        return None

    @property
    def inherits(self) -> bool:
        return False

    def takes(self, out: Array, inputs: Sequence[Any]) -> bool:
        return False

    def run_arrays(self, arrays: Sequence[Array], out: Sequence[Array | None] | None = None) -> list[Array]:
        known: dict[str, Array] = {p.name: a for p, a in zip(self._params, arrays, strict=True)}
        for program, executable in self._steps:
            made = executable.run_arrays([known[p.name] for p in program.inputs])
            known |= zip((name for name, _ in program.outputs), made, strict=True)
        taken = {id(array) for array in arrays}
        results: list[Array] = []
        for name, given in zip(self._outputs, out or [None] * len(self._outputs), strict=True):
            made = known[name]
            if given is None and id(made) in taken:
                made = made.copy()  # an input, or another output
            taken.add(id(made))
            results.append(made if given is None else given)
            if given is not None:
                given[...] = made
        return results

    def run_tensors(self, tensors: Sequence[Tensor], out: Sequence[Tensor | None]) -> list[Tensor]:
        known: dict[str, Tensor] = {p.name: t for p, t in zip(self._params, tensors, strict=True)}
        for program, executable in self._steps:
            inputs = [asarray(known[p.name], executable.device) for p in program.inputs]
            made = executable.run_tensors(inputs, [None] * len(program.outputs))
            known |= zip((name for name, _ in program.outputs), made, strict=True)
        return [self._tensor_of(known[name], o, tensors) for name, o in zip(self._outputs, out, strict=True)]

    def _tensor_of(self, made: Tensor, out: Tensor | None, inputs: Sequence[Tensor]) -> Tensor:
        """A result on the program's own device, in memory that no input and no other output has."""
        result = Tensor(self.device, made.shape, made.dtype) if out is None else out
        if made.device is self.device:
            copy(made, result)
        else:
            with result.mmap_discard() as view:
                view[...] = made.numpy()
        return result
