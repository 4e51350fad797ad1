"""`build`: a function for arguments of certain types as files that C programs use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tile_hal.ahead import Entry, Exporter, Parameter
from tile_hal.folding import folded
from tile_hal.interfaces import Device
from tile_ir.diagnostics import Diagnostic, TileDeviceError, TileTypeError
from tile_ir.kernels import BufferKind, KernelList, Step
from tile_ir.program.nodes import ConstantTensor, Program
from tile_ir.target import Options

from tile_runtime.ahead.header import header, identifier, is_identifier
from tile_runtime.ahead.linking import ARCHIVE, SHARED, archive, compiler, shared_library
from tile_runtime.arguments import collect, input_type
from tile_runtime.arrays import contents, kept
from tile_runtime.checks import check_function, checked_count
from tile_runtime.names import checked_name
from tile_runtime.programs.runnable import Runnable
from tile_runtime.requirements import check_dtypes
from tile_runtime.signature import Family, Signature

if TYPE_CHECKING:
    from tile_opt.plan.plan import Plan


class Making(Protocol):
    """What somebody compiles for, and how: an evaluator."""

    device: Device
    plans: Mapping[str, Plan]

    @property
    def options(self) -> Options: ...


@dataclass(frozen=True, slots=True)
class Built:
    """What `build` wrote."""

    name: str
    """The C function."""
    prototype: str
    """Its declaration."""
    target: str
    """What the code runs on."""
    files: tuple[Path, ...]
    """The library (or sources) first, then the header."""


def build(
    making: Making,
    function: Signature | Family,
    args: Sequence[Any],
    named: Mapping[str, Any],
    output: str | Path,
    *,
    header_file: str | Path | None = None,
    name: str | None = None,
    target: str | None = None,
    threads: int = 1,
) -> Built:
    """See `tile_runtime.build`."""
    if isinstance(function, Family):
        function, args = function.stated(args, named)
        named = {}
    check_function(function)
    path, c_name = _path("output", output), _c_name(name, function)
    exporter = _exporter(making.device)
    chosen = _target(exporter, making.device, target)
    if exporter.links:
        _check_suffix(path)
    program, spans = _program(function, collect(function, args, named)), function.spans
    check_dtypes(program, making.device, spans)
    runnable = _compiled(making, program, exporter, chosen, checked_count("threads", threads))
    kernels = folded(making.device, runnable.kernels)
    entry = Entry(c_name, tuple(_parameters(function, runnable, kernels)), threads)
    exported = exporter.export(kernels, entry, chosen)
    files = [*_write(path, exported.objects)] if exported.objects else [*_texts(path, exported.texts)]
    if header_file is not None:
        files.append(_path("header", header_file))
        files[-1].write_text(header(entry, _made_by(function, chosen)), encoding="utf-8")
    return Built(c_name, entry.prototype, chosen, tuple(files))


# --- what is asked for ----------------------------------------------------------------------------------


def _path(what: str, given: object) -> Path:
    if isinstance(given, (str, Path)) and str(given) and "\0" not in str(given):
        return Path(given)
    raise _refused(f"{what} is the path of a file, not {given!r}", "such as 'libf.so'")


def _c_name(name: str | None, function: Signature) -> str:
    if name is None:
        return identifier(function.name, set())
    if is_identifier(checked_name("a C function", name)):
        return name
    raise _refused(f"{name!r} is no name of a C function", "letters, digits and _, and no digit first")


def _exporter(device: Device) -> Exporter:
    exporter = device.exporter
    if exporter is None:
        raise TileDeviceError(Diagnostic("TILE-E526", f"device {device.id} builds nothing ahead of time"))
    return exporter


def _target(exporter: Exporter, device: Device, wanted: object) -> str:
    if wanted is None:
        return next(iter(exporter.targets))
    if wanted in exporter.targets:
        return str(wanted)
    known = ", ".join(exporter.targets)
    raise _refused(f"{device.id} builds for no target {wanted!r}", f"its targets are {known}")


def _check_suffix(path: Path) -> None:
    """Before anything is compiled: a name that says what is wanted, and a linker for it."""
    if path.suffix in SHARED:
        compiler()
    elif path.suffix != ARCHIVE:
        raise _refused(
            f"output {path.name!r} says neither shared nor static library", "let it end in .so, .dylib or .a"
        )


def _refused(message: str, hint: str) -> TileTypeError:
    return TileTypeError(Diagnostic("TILE-E525", message, hint=hint))


# --- the program ----------------------------------------------------------------------------------------


def _program(function: Signature, values: Mapping[str, Any]) -> Program:
    """The program for these arguments, what is bound being constants."""
    if function.updates:
        hint = "compose it with the new values as outputs; the caller keeps them"
        raise _refused(f"{function!r} updates tensors, which a C function does not have", hint)
    program = function.bind({n: input_type(n, v) for n, v in values.items()})
    constants = tuple(
        ConstantTensor(p.name, p.type, contents(kept(p.name, values[p.name].numpy())))
        for p in program.inputs
        if p.name in function.bound
    )
    inputs = tuple(p for p in program.inputs if p.name not in function.bound)
    return replace(program, inputs=inputs, ops=(*constants, *program.ops))


def _compiled(making: Making, program: Program, exporter: Exporter, name: str, threads: int) -> Runnable:
    import tile_opt
    from tile_ir.deadline import within_time

    target = replace(exporter.target(name, threads), options=making.options)
    with within_time():
        return Runnable.of(tile_opt.compile(program, target, plans=making.plans))


def _parameters(function: Signature, runnable: Runnable, kernels: KernelList) -> Iterator[Parameter]:
    """The C function's parameters: inputs as a caller passes them, then outputs."""
    taken: set[str] = set()
    numbers = {(b.kind, b.name): b for b in kernels.buffers}
    aligns = _alignments(kernels)
    for name, param in zip(function.arguments, runnable.inputs, strict=True):
        info = numbers.get((BufferKind.INPUT, param.name))
        align = aligns.get(info.id, 1) if info is not None else 1
        number = None if info is None else info.id
        align = max(align, param.type.dtype.bytes)
        yield Parameter(identifier(name, taken), param.type.dtype, param.type.shape, number, align=align)
    for name, buffer in runnable.outputs:
        info = numbers[BufferKind.OUTPUT, buffer]
        align = max(aligns.get(info.id, 1), info.dtype.bytes)
        yield Parameter(identifier(name, taken), info.dtype, info.shape, info.id, output=True, align=align)


def _alignments(kernels: KernelList) -> dict[int, int]:
    """The alignment in bytes that kernels ask for, by buffer."""
    found: dict[int, int] = {}
    _ask(kernels, kernels.steps, {}, found)
    return found


def _ask(
    kernels: KernelList, steps: Sequence[Step], windows: Mapping[int, frozenset[int]], found: dict[int, int]
) -> None:
    for step in steps:
        if step.loop is not None:
            inner = dict(windows)
            for window in step.loop.windows:
                bases = (windows.get(b, frozenset((b,))) for b in (*window.first, *window.cycle))
                inner[window.id] = frozenset[int]().union(*bases)
            _ask(kernels, step.loop.steps, inner, found)
        elif step.kernel >= 0 and (made := kernels.kernels[step.kernel].function) is not None:
            for buffer, param in zip(step.buffers, made.params, strict=True):
                for base in windows.get(buffer, frozenset((buffer,))):
                    found[base] = max(found.get(base, 1), param.align)


# --- files ----------------------------------------------------------------------------------------------


def _write(path: Path, objects: Sequence[Any]) -> Iterator[Path]:
    if path.suffix in SHARED:
        shared_library(objects, path)
    else:
        path.write_bytes(archive(objects))
    yield path


def _texts(path: Path, texts: Mapping[str, str]) -> Iterator[Path]:
    for suffix, text in texts.items():
        file = path.with_suffix(suffix)
        file.write_text(text, encoding="utf-8")
        yield file


def _made_by(function: Signature, target: str) -> str:
    inputs, outputs = ", ".join(function.arguments), ", ".join(function.results)
    return f"{function.name} ({inputs}) -> ({outputs}), built for {target} by Tile {version('tile-runtime')}."
