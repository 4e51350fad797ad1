"""Level 3, ahead of time: what the exporter of a device that has one delivers (`tile_hal.ahead`)."""

from __future__ import annotations

import ctypes
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from os import environ
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tile_opt
from tile_ir.dtype import DType
from tile_ir.kernels import BufferKind
from tile_ir.program.nodes import Program, TensorType
from tile_ir.target import Target

from tile_hal.ahead import ABI, Entry, Exported, Exporter, Parameter, Status
from tile_hal.conformance import programs
from tile_hal.conformance.kernels import Array, need
from tile_hal.conformance.strategies import Data
from tile_hal.folding import folded
from tile_hal.interfaces import Device

pytestmark = pytest.mark.compile_only

ALIGN = 64
"""Bytes, which no kernel asks more than."""
CASES = {
    "one": "function (A[N, K], B[K, M], S) -> (O, P) { P[i, j : N, M] = +(A[i, k] * B[k, j]); O = P * S; }",
    "two": "function (A[N, K], B[K, M], S) -> (O, P) { O[i, k : N, K] = >(A[i, k] * S[]); P[i, j : N, M] = +(O[i, k] * B[k, j]); }",
}
"""Two C functions of one signature, by name: several kernels, intermediate results and a number."""
TYPES = {
    "A": TensorType(DType.FLOAT32, (5, 5)), "B": TensorType(DType.FLOAT32, (5, 5)), "S": TensorType(DType.FLOAT32, ())
}  # fmt: skip


def test_targets_have_names_and_sentences(tile_device: Device) -> None:
    exporter = _exporter(tile_device)
    assert exporter.targets, "no target that anything could be written for"
    for name, sentence in exporter.targets.items():
        assert name and not any(c.isspace() for c in name) and sentence.strip(), f"target {name!r}: {sentence!r}"
        target = exporter.target(name, 1)
        assert isinstance(target, Target) and target.codegen == tile_device.target.codegen


def test_every_target_is_written_for(tile_device: Device) -> None:
    """Object files or texts, as the exporter says; and the same bytes whenever they are asked for."""
    exporter = _exporter(tile_device)
    for name in exporter.targets:
        first, second = (_exported(tile_device, exporter, "one", name) for _ in range(2))
        assert first == second, f"{name}: the files are others the second time"
        assert bool(first.objects) == exporter.links and bool(first.texts) != exporter.links, name
        if exporter.links:
            assert all(o.code for o in first.objects) and "one" in {s for o in first.objects for s in o.symbols}
        else:
            assert all(suffix.startswith(".") and text for suffix, text in first.texts.items()), name
            assert any("one" in text for text in first.texts.values()), f"{name}: no text has the function's name"


def test_symbols_of_two_programs_differ(tile_device: Device) -> None:
    """Whoever uses both links them into one program."""
    exporter = _linking(tile_device)
    target = next(iter(exporter.targets))
    symbols = [{s for o in _exported(tile_device, exporter, n, target).objects for s in o.symbols} for n in CASES]
    assert not symbols[0] & symbols[1]


@pytest.mark.parametrize("threads", [1, 3])
def test_libraries_compute_what_the_device_does(tile_device: Device, threads: int, tmp_path: Path) -> None:
    """Both programs, linked into one library; a wrong call is refused with the status that says why."""
    library = _linked(tile_device, threads, tmp_path)
    inputs = [programs.fill(t, Data.EXACT, n) for n, t in enumerate(TYPES.values())]
    for name in CASES:
        assert getattr(library, f"{name}_abi")() == ABI
        outputs = [_aligned(p.shape) for p in _parameters(name) if p.output]
        assert _called(library, name, inputs, outputs) == Status.OK
        expected = programs.run(tile_device, _program(name), dict(zip(TYPES, inputs, strict=True)))
        for got, wanted in zip(outputs, expected.values(), strict=True):
            np.testing.assert_array_equal(got, wanted)


def test_wrong_calls_are_refused(tile_device: Device, tmp_path: Path) -> None:
    library = _linked(tile_device, 1, tmp_path)
    inputs = [programs.fill(t, Data.EXACT, n) for n, t in enumerate(TYPES.values())]
    first, second = (_aligned((5, 5)) for _ in range(2))
    odd = np.zeros(101, np.uint8)[1:]
    assert _called(library, "one", inputs, [first, None]) == Status.NULL
    assert _called(library, "one", [None, *inputs[1:]], [first, second]) == Status.NULL
    assert _called(library, "one", inputs, [first, odd]) == Status.ALIGNMENT
    assert _called(library, "one", inputs, [first, first]) == Status.OVERLAP
    assert _called(library, "one", [first, *inputs[1:]], [first, second]) == Status.OVERLAP


# --- helpers -----------------------------------------------------------------------------------------


def _exporter(device: Device) -> Exporter:
    need(device, DType.FLOAT32)
    if device.exporter is None:
        pytest.skip("device has no exporter")
    return device.exporter


def _linking(device: Device) -> Exporter:
    exporter = _exporter(device)
    if not exporter.links:
        pytest.skip("device writes texts, not object files")
    return exporter


def _program(name: str) -> Program:
    return programs.bind(CASES[name], TYPES)


def _exported(device: Device, exporter: Exporter, name: str, target: str, threads: int = 1) -> Exported:
    """The files of a case."""
    compiled = tile_opt.compile(_program(name), exporter.target(target, threads))
    kernels = folded(device, compiled.kernels)
    numbers = {b.name: b.id for b in kernels.buffers if b.kind in (BufferKind.INPUT, BufferKind.OUTPUT)}
    buffers = [*TYPES, *compiled.stripe.outputs]
    parameters = zip(_parameters(name), buffers, strict=True)
    entry = Entry(name, tuple(replace(p, buffer=numbers.get(b)) for p, b in parameters), threads)
    return exporter.export(kernels, entry, target)


def _parameters(name: str) -> Iterator[Parameter]:
    program = _program(name)
    types = program.types()
    for param in program.inputs:
        yield Parameter(param.name.lower(), param.type.dtype, param.type.shape, None, align=param.type.dtype.bytes)
    for public, value in program.outputs:
        yield Parameter(public.lower(), types[value].dtype, types[value].shape, None, output=True, align=ALIGN)


def _linked(device: Device, threads: int, folder: Path) -> ctypes.CDLL:
    """The library of both programs, linked by the system's C compiler."""
    exporter = _linking(device)
    command = shlex.split(environ.get("CC", "cc"))
    if not device.capabilities.executes or shutil.which(command[0]) is None:
        pytest.skip("nothing runs here, or there is no C compiler (cc)")
    target = next(iter(exporter.targets))
    objects = [o for name in CASES for o in _exported(device, exporter, name, target, threads).objects]
    files = [folder / f"{n}.o" for n in range(len(objects))]
    for file, made in zip(files, objects, strict=True):
        file.write_bytes(made.code)
    library = folder / "both.so"
    subprocess.run([*command, "-shared", "-o", str(library), *map(str, files), "-lm", "-lpthread"], check=True)
    return ctypes.CDLL(str(library))


def _aligned(shape: Sequence[int]) -> Array:
    """Garbage at an address that any kernel takes."""
    count = int(np.prod(shape)) * 4
    room = np.full(count + ALIGN, 0x5A, np.uint8)
    first = -room.ctypes.data % ALIGN
    return room[first : first + count].view(np.float32).reshape(shape)


def _called(library: ctypes.CDLL, name: str, inputs: Sequence[Array | None], outputs: Sequence[Array | None]) -> int:
    """The function's status; numbers by value, arrays by address, None as a null pointer."""
    arguments: list[Any] = [
        ctypes.c_float(float(a)) if a is not None and not a.ndim else _address(a) for a in (*inputs, *outputs)
    ]
    return int(getattr(library, name)(*arguments))


def _address(array: Array | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if array is None else array.ctypes.data)
