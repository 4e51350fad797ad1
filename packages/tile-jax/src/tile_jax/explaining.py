"""What a function of JAX becomes: its device programs with their kernels, and what the host decides between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tile_runtime.devices import device as find_device
from tile_runtime.evaluator import Evaluator

from tile_jax.lowering import lowered
from tile_jax.lowering.mlir import artifact
from tile_jax.program import CaseStep, CollectiveStep, DeviceStep, HostStep, Program, Step, WhileStep

if TYPE_CHECKING:
    from tile_hal.interfaces import Device


def lower(function: Callable[..., Any], *args: Any, **named: Any) -> Program:
    """The program of a function, jitted or not, for arguments like these (arrays, or `jax.ShapeDtypeStruct`).

    TileTypeError names the operations that cannot run.
    """
    jax: Any = import_module("jax")
    jitted: Any = function if hasattr(function, "trace") else jax.jit(function)
    module = jitted.trace(*args, **named).lower(lowering_platforms=("tile",)).compiler_ir("stablehlo")
    return lowered(artifact(module))


def explain(
    function: Callable[..., Any],
    *args: Any,
    device: Device | str | None = None,
    kernels: bool = False,
    **named: Any,
) -> str:
    """The programs of a function on a Tile device, in the order in which they run; nothing runs.

    With `kernels`, what every kernel is, with JAX's operations and the user's lines that it computes.
    """
    evaluator = Evaluator(find_device(device), short_products=True)
    return "\n".join(_Explained(evaluator, kernels).program(lower(function, *args, **named)))


@dataclass(frozen=True, slots=True)
class _Explained:
    """Lines about programs; what is inside of a step is indented."""

    evaluator: Evaluator
    kernels: bool

    def program(self, found: Program) -> Iterator[str]:
        if not found.steps:
            yield "Nothing is left to compute: the results are arguments"
        for number, step in enumerate(found.steps, 1):
            first, *others = self._step(step)
            yield f"{number}. {first}"
            yield from (f"   {line}" for line in others)

    def _step(self, step: Step) -> Iterator[str]:
        match step:
            case DeviceStep():
                yield from self._device_step(step)
            case WhileStep():
                yield from self._loop(step)
            case CaseStep():
                yield f"The host chooses one of {len(step.branches)} branches by a number that the device computes"
                for k, branch in enumerate(step.branches):
                    yield from self._inside(f"Branch {k}:", branch)
            case HostStep():
                arrays = f"from {_counted(len(step.reads), 'array')} to {_counted(len(step.outputs), 'array')}"
                yield f"The host computes {step.name}, {arrays}"
            case CollectiveStep():
                yield f"Devices tell one another {len(step.outputs)} arrays, by way of the host"
            case _:
                yield type(step).__name__

    def _loop(self, step: WhileStep) -> Iterator[str]:
        yield "The host goes round as long as a condition that the device computes holds"
        if step.rounds == 1:
            yield from self._inside("The condition, before the first round:", step.condition)
            yield from self._inside("A round, and the condition after it:", step.body)
        else:
            yield f"The program before it has computed up to {step.rounds} rounds"
            yield from self._inside("As many again, and whether to go on:", step.body)

    def _inside(self, title: str, found: Program) -> Iterator[str]:
        yield title
        yield from (f"   {line}" for line in self.program(found))

    def _device_step(self, step: DeviceStep) -> Iterator[str]:
        types = {p.name: p.type for p in step.function.program.inputs}
        low = self.evaluator.lower_types(step.function, types)
        kernels = _counted(len(low.report().kernels), "kernel")
        arrays = f"from {_counted(len(types), 'array')} to {_counted(len(step.outputs), 'array')}"
        yield f"A program of {kernels} on {self.evaluator.device.id}, {arrays}"
        if self.kernels:
            yield from low.explain().splitlines()


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
