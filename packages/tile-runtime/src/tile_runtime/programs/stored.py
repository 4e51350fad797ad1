"""Whole programs in the disk cache: a second process runs them without compiling, or even parsing, anything.

An entry is one line of JSON (a `Head`), the device's compiled code, and the constants' bytes. Constants that the program
itself holds are not stored again. Devices that cannot load code without the kernels' bodies keep code only (`programs.cache.build`).
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache, cached_property
from importlib.metadata import version
from typing import TYPE_CHECKING, TypeVar

from tile_hal.disk_cache import disk_cache, sources
from tile_hal.interfaces import Device, Library
from tile_ir.contents import Contents
from tile_ir.frozen import frozen
from tile_ir.outline import Outline
from tile_ir.program.nodes import ConstantTensor, Param, Program
from tile_ir.record import from_record, to_record
from tile_ir.settings import Settings
from tile_ir.target import Target

from tile_runtime.programs.cache import build
from tile_runtime.programs.compiling import compiled as first_compiled
from tile_runtime.programs.runnable import Runnable
from tile_runtime.typed import Typed

if TYPE_CHECKING:
    from tile_ir.stripe.nodes import ConstantBuffer
    from tile_opt.compiled import Compiled
    from tile_opt.plan.plan import Plan

T = TypeVar("T")

FORMAT = "1"
COMPILER = ("tile_ir", "tile_lang", "tile_autodiff", "tile_opt", "tile_hal")
"""Packages that decide what a program becomes; the device's own comes to them."""
_LONG = 80
"""Characters from which an entry has the hash of a part instead."""

Parts = tuple[tuple[str, str], ...]


@frozen
class Constant:
    """Where the bytes of a constant are."""

    program: int
    """Number of the program's operation that holds them; -1: they are in the entry."""
    nbytes: int


@frozen
class Head:
    """What an entry says of itself."""

    parts: Parts
    """What the key was made from; long ones as hashes."""
    plans: str
    """What was decided for each kernel, for people."""
    inputs: tuple[Param, ...]
    outputs: tuple[tuple[str, str], ...]
    outline: Outline
    code: int
    """Bytes of code."""
    constants: tuple[Constant, ...]


class Place:
    """Where a program is, or would be, in the disk cache."""

    def __init__(self, device: Device, target: Target, typed: Typed, given: Mapping[str, Plan]) -> None:
        """A function on typed inputs, compiled for a target of the device with the plans that are given."""
        self.device = device
        self._target = target
        self._typed = typed
        self._given = given

    @property
    def used(self) -> bool:
        """Whether the device can run programs that are stored whole."""
        return self.device.capabilities.loads_outlines and self._target.codegen == "semtree"

    @cached_property
    def parts(self) -> Parts:
        """What the code depends on, by name, so that a miss can be explained."""
        packages = (*COMPILER, self.device.compiler.package)
        return (
            ("format", FORMAT),
            *self._typed.identity,
            ("target", self._target.to_json()),
            ("plans", _plans_text(self._given)),
            ("device", self.device.compiler.fingerprint),
            ("versions", _versions()),
            ("sources", " ".join(map(sources, packages))),
            ("passes", " ".join(_foreign_passes(self._target))),
        )

    @property
    def short_parts(self) -> Parts:
        """The parts, long ones as hashes."""
        return tuple((n, v if len(v) < _LONG else hashlib.sha256(v.encode()).hexdigest()) for n, v in self.parts)

    @property
    def name(self) -> str:
        """What the function is called, for messages."""
        return self._typed.name

    @cached_property
    def key(self) -> str:
        """SHA-256 of the parts, in hexadecimal."""
        return hashlib.sha256(json.dumps(self.parts).encode()).hexdigest()

    def read(self, unpack: Callable[[Head, _Rest], T]) -> T | None:
        """What `unpack` makes of the entry; None where there is none, or, with a warning, none that can be used."""
        settings = Settings.from_environment()
        if settings.cache == "off" or not self.used:
            return None
        folder = disk_cache(settings)
        data = folder.read(self.key)
        if data is None:
            return None
        try:
            line, _, rest = data.partition(b"\n")
            return unpack(from_record(Head, json.loads(line)), _Rest(rest))
        except (ValueError, TypeError, LookupError, RecursionError) as problem:
            folder.discard(self.key, f"does not fit this device ({problem})")
            return None

    def write(self, compiled: Compiled, library: Library, code: bytes | None = None) -> None:
        """Store a program, where the settings allow it and its code can be stored; `code` where that is known already."""
        settings = Settings.from_environment()
        code = (code or library.serialize()) if settings.cache == "on" else None
        if code is not None:
            kept = compiled.kernels.constants
            where = _places(kept, self._typed.program) if kept else ()
            run = Runnable.of(compiled)
            outline = Outline.of(run.kernels)
            head = Head(self.short_parts, str(compiled.plans), run.inputs, run.outputs, outline, len(code), where)
            inside = (c.data for c, place in zip(kept, where, strict=True) if place.program < 0)
            text = json.dumps(to_record(head)).encode()
            disk_cache(settings).write(self.key, b"".join((text, b"\n", code, *inside)))

    def run(self, head: Head, rest: _Rest) -> tuple[Runnable, Library]:
        """What an entry holds, its code loaded without the kernels' bodies."""
        code = rest.take(head.code)
        constants = [self._constant(place, rest) for place in head.constants]
        kernels = head.outline.kernel_list(self._target, constants).described(self._typed.labelled)
        return Runnable(head.inputs, head.outputs, kernels), self.device.compiler.load(kernels, code)

    def _constant(self, place: Constant, rest: _Rest) -> Contents:
        if place.program < 0:
            return Contents(rest.take(place.nbytes))
        op = self._typed.program.ops[place.program]
        if not isinstance(op, ConstantTensor) or len(op.data) != place.nbytes:
            raise ValueError("its constants are others")
        return op.contents


def library_of(place: Place, compiled: Compiled) -> Library:
    """The code of a program that was compiled as far as its kernels, from the disk cache where it is there."""
    kernels, compiler = compiled.kernels, place.device.compiler
    if not place.used:
        return build(place.device, kernels)
    library = place.read(lambda head, rest: compiler.deserialize(kernels, rest.take(head.code)))
    if library is None:
        library, code = first_compiled(place.device, kernels)
        place.write(compiled, library, code)
    return library


class _Rest:
    """Bytes behind the head, taken one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)
        self._at = 0

    def take(self, nbytes: int) -> bytes:
        start, self._at = self._at, self._at + nbytes
        if not start <= self._at <= len(self._data):
            raise ValueError("it is shorter than it says")
        return bytes(self._data[start : self._at])


def _places(constants: tuple[ConstantBuffer, ...], program: Program) -> tuple[Constant, ...]:
    """Where each constant is found again."""
    held = {op.contents: number for number, op in enumerate(program.ops) if isinstance(op, ConstantTensor)}
    return tuple(Constant(held.get(c.contents, -1), len(c.data)) for c in constants)


def _plans_text(given: Mapping[str, Plan]) -> str:
    if not given:
        return ""
    from tile_opt.plan.text import print_plans

    return print_plans(given)


@cache
def _versions() -> str:
    return " ".join(f"{package} {version(package.replace('_', '-'))}" for package in COMPILER)


def _foreign_passes(target: Target) -> Iterator[str]:
    """The target's passes that others have registered, and stamps of their packages; none before the optimizer is there."""
    registry = sys.modules.get("tile_opt.passes")
    known: Mapping[str, str] = registry.PASSES if registry else {}
    for name in dict.fromkeys(p.name for p in target.passes):
        path = known.get(name, "")
        package = path.partition(":")[0].partition(".")[0]
        if package not in ("", "tile_opt"):
            yield f"{path} {sources(package)}"
