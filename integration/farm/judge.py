"""One program under one configuration: run it, and compare with what the reference evaluator says."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from random import Random

import numpy as np
import tile_hal
import tile_runtime as tile
from hal_llvm import pool
from tile_hal.conformance.buffers import Guarded, check_guards, download, guarded
from tile_hal.conformance.kernels import assert_same
from tile_hal.conformance.tolerance import assert_close
from tile_hal.interfaces import Device, Library
from tile_ir.diagnostics import TileError, TilePlanError
from tile_ir.kernels import BufferKind, KernelList
from tile_ir.program.nodes import reinterprets_bits
from tile_ir.stripe import interpret
from tile_ir.stripe.nodes import Program as Stripe
from tile_ir.target import HardwareSettings, Target
from tile_opt.lower_kernels import lower_kernels
from tile_opt.pipeline import schedule
from tile_opt.plan.check import lowering, refuse_unused
from tile_opt.plan.text import parse_plans, print_plans
from tile_opt.program import rewrite, rewrites_for
from tile_opt.translate import to_stripe

from farm import machines
from farm.differences import derivatives_agree
from farm.errors import bounds
from farm.plans import drawn
from farm.sample import Array, Arrays, Sample
from farm.ways import Way

BUSY = 20_000_000
"""Operations that kernels say they do, so that the threads of a processor share them: a millisecond's."""


Key = tuple[str, tuple[str, ...] | None, str, str]


class Verdict(Enum):
    SAME = "same"
    REFUSED = "refused"
    """By an error of ours, where one may be: plans that do not fit, mutated sources that nobody can run, machines that lack
    a node that the program asks for."""
    ALIKE = "alike"
    """Threads would change nothing: no kernel has several work groups."""
    OPEN = "open"
    """No output that the language defines well enough to compare."""


class Wrong(AssertionError):
    """The results differ from the reference evaluator's."""


@dataclass(frozen=True, slots=True)
class Lowered:
    """A compiled program: scheduled Stripe, and what devices get."""

    stripe: Stripe
    kernels: KernelList


@dataclass
class Trial:
    """A program, compiled once for each target and plan however many backends run it."""

    sample: Sample

    def __post_init__(self) -> None:
        self._initial: dict[tuple[HardwareSettings, frozenset[str]], Stripe] = {}
        self._compiled: dict[Key, Lowered] = {}
        self._libraries: dict[Key, tuple[Library, KernelList]] = {}

    @cached_property
    def bounds(self) -> Mapping[str, float]:
        """The error that each output may have."""
        return bounds(self.sample.program, self.sample.inputs)

    def check(self, way: Way) -> Verdict:
        """Run one way; `Wrong`, or whatever exception should not have been raised."""
        if way.backend == "differences":
            return Verdict.SAME if derivatives_agree(self.sample) else Verdict.OPEN
        if not any(math.isfinite(b) for b in self.bounds.values()):
            return Verdict.OPEN
        if way.again and not self._shares_work(way):
            return Verdict.ALIKE
        if self._lacks_node(way):
            return Verdict.REFUSED
        try:
            actual = self._run(way)
        except TilePlanError:
            if way.plans:
                return Verdict.REFUSED
            raise
        except TileError:
            if self.sample.kind == "mutated source":
                return Verdict.REFUSED
            raise
        self._compare(actual)
        return Verdict.SAME

    def _compare(self, actual: Arrays) -> None:
        for name, expected in self.sample.expected.items():
            found, bound = actual[name], self.bounds[name]
            if found.dtype != expected.dtype or found.shape != expected.shape:
                raise Wrong(
                    f"{name} is {found.dtype}{list(found.shape)} instead of {expected.dtype}{list(expected.shape)}"
                )
            try:
                if not bound:
                    assert_same(found.reshape(-1), expected.reshape(-1), name)
                elif math.isfinite(bound):
                    assert_close(found, expected, np.asarray(bound), name)
            except BaseException as problem:
                raise Wrong(str(problem)) from None

    def _shares_work(self, way: Way) -> bool:
        """Whether a case that ran with other threads has work groups for them."""
        library = self._libraries.get(self._key(way, tile_hal.device(way.backend)))
        return library is not None and any(math.prod(k.groups) > 1 for k in library[1].kernels)

    def _lacks_node(self, way: Way) -> bool:
        """The machine cannot reinterpret bits, which the program does: callers hear of it before anything is compiled."""
        if not any(reinterprets_bits(op) for op in self.sample.program.ops):
            return False
        return "Bitcast" not in machines.target(way.machine, way.passes, self._device(way)).nodes

    # --- running -------------------------------------------------------------------------------------

    def _run(self, way: Way) -> Arrays:
        if way.form != "compiled":
            return self._called(way)
        device = self._device(way)
        compiled = self.compiled(way, device)
        return self._on_stripe(compiled) if way.backend == "stripe" else self._on_device(way, device, compiled)

    @staticmethod
    def _device(way: Way) -> Device:
        return tile_hal.device("interp" if way.backend == "stripe" else way.backend)

    def compiled(self, way: Way, device: Device) -> Lowered:
        """The program compiled for the machine, with the passes and plans that the way says."""
        key = self._key(way, device)
        if key not in self._compiled:
            self._compiled[key] = self._lowered(way, machines.target(way.machine, way.passes, device))
        return self._compiled[key]

    def _key(self, way: Way, device: Device) -> Key:
        """Equal where the same is compiled."""
        return way.machine, way.passes, way.plans, "" if way.backend == "stripe" else device.id

    def _lowered(self, way: Way, target: Target) -> Lowered:
        """What `tile_opt.compile` does, but for translating the program once however many targets it is for."""
        text = self.plans(way, target)
        plans = parse_plans(text) if text else None
        scheduled = schedule(self._stripe(target), target, plans=plans, verify=True)
        if plans:
            refuse_unused(plans, scheduled.decisions)
        with lowering(plans or {}):
            return Lowered(scheduled.program, lower_kernels(scheduled.program, target, verify=True))

    def _stripe(self, target: Target) -> Stripe:
        """The unscheduled program, as it is rewritten for a machine."""
        machine = target.settings, target.nodes
        if machine not in self._initial:
            self._initial[machine] = to_stripe(rewrite(self.sample.program, rewrites_for(target)), target)
        return self._initial[machine]

    def plans(self, way: Way, target: Target) -> str:
        """The plans as text: those that are to be drawn are drawn for the kernels that the passes make."""
        if not way.plans.startswith("drawn "):
            return way.plans
        random = Random(way.plans)
        scheduled = schedule(self._stripe(target), target)
        added = {made for name, d in scheduled.decisions.items() for made in d.made if made != name}
        free = {name: d for name, d in scheduled.decisions.items() if name not in added and not d.within}
        some = random.sample(sorted(free), random.randrange(1, len(free) + 1)) if free else []
        return str(print_plans({name: drawn(free[name], target, random) for name in some}))

    def _on_stripe(self, compiled: Lowered) -> Arrays:
        stripe = compiled.stripe
        found = interpret.run(stripe, {n: self.sample.inputs[n] for n in stripe.inputs})
        return {public: found[n] for (public, _), n in zip(self.sample.program.outputs, stripe.outputs, strict=True)}

    def _on_device(self, way: Way, device: Device, compiled: Lowered) -> Arrays:
        key = self._key(way, device)
        if key not in self._libraries:
            busy = _busy(compiled.kernels)
            self._libraries[key] = device.compiler.build(busy), busy
        library, kernels = self._libraries[key]
        _with_threads(way)
        buffers: dict[int, Guarded] = {}
        for info in kernels.buffers:
            if info.kind is BufferKind.INPUT:
                buffers[info.id] = guarded(device, info.name, self.sample.inputs[info.name])
            elif info.kind is BufferKind.OUTPUT:
                # Garbage first: a cell that nothing writes would show.
                buffers[info.id] = guarded(device, info.name, np.full(info.bytes, 0x5A, np.uint8))
        tile_hal.submit(device, library, kernels, {n: made.buffer for n, made in buffers.items()}).wait()
        _unharmed(buffers.values())
        infos = {b.name: b for b in kernels.buffers if b.kind is BufferKind.OUTPUT}
        results: Arrays = {}
        for (public, _), name in zip(self.sample.program.outputs, compiled.stripe.outputs, strict=True):
            info = infos[name]
            size = math.prod(info.shape)
            results[public] = download(buffers[info.id].buffer, info.dtype)[:size].reshape(info.shape)
        return results

    def _called(self, way: Way) -> Arrays:
        os.environ["TILE_CACHE"] = "off" if way.cache == "off" else "on"
        _with_threads(way)
        sample = self.sample
        function = tile.Function(sample.source)
        for _ in range(sample.order):
            function = tile.vjp(function, sample.wrt)
        arrays = [sample.inputs[n] for n in function.inputs]
        if way.form == "composed":
            return _named(sample, _composed(function, arrays, way.backend, sample.data))
        results = _named(sample, tile.Evaluator(way.backend)(function, *arrays))
        if way.cache == "cold":
            # Once more, by the program that is in memory now.
            self._compare(results)
            results = _named(sample, tile.Evaluator(way.backend)(function, *arrays))
        return results


def _with_threads(way: Way) -> None:
    if way.backend == "llvm" and pool.current().threads != way.threads:
        pool.resize(way.threads)


def _busy(kernels: KernelList) -> KernelList:
    return replace(kernels, kernels=tuple(replace(k, flops=BUSY) for k in kernels.kernels))


def _unharmed(buffers: object) -> None:
    try:
        check_guards(buffers)  # pyright: ignore[reportArgumentType]
    except BaseException as problem:
        raise Wrong(str(problem)) from None


def _named(sample: Sample, results: object) -> Arrays:
    several: Sequence[Array] = results if isinstance(results, tuple) else (results,)  # pyright: ignore
    return {public: np.asarray(a) for (public, _), a in zip(sample.program.outputs, several, strict=True)}


def _composed(function: tile.Function, arrays: Sequence[Array], device: str, number: int) -> object:
    """The function within a composition: some inputs are tensors bound to it, some constants, some placeholders."""
    random = Random(number)
    placeholders, given, passed = [], [], []
    for name, array in zip(function.inputs, arrays, strict=True):
        kind = random.choice(("placeholder", "placeholder", "tensor", "constant"))
        if kind == "placeholder" or (name == function.inputs[-1] and not placeholders):
            placeholders.append(tile.placeholder(str(array.dtype), array.shape, name=name))
            given.append(placeholders[-1])
            passed.append(array)
        else:
            given.append(tile.asarray(array, device=tile.device(device)) if kind == "tensor" else array)
    made = function(*given)
    same = tile.Function("function (A) -> (B) { B = max(A, A); }")
    outputs = [same(s) if random.random() < 0.5 else s for s in (made if isinstance(made, tuple) else (made,))]
    return tile.Evaluator(device)(tile.compose(placeholders, outputs), *passed)
