"""The source of one kernel, and of several."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tile_ir.dtype import DType
from tile_ir.emit.walker import walk_all, walk_functions, walk_statements
from tile_ir.kernels import Kernel
from tile_ir.semtree.nodes import Alloc, Atomic, Function, Type

from hal_opencl.emit.dialect import PLAIN, Dialect
from hal_opencl.emit.prepare import prepare
from hal_opencl.emit.printer import OpenCLPrinter
from hal_opencl.emit.registers import size_attribute
from hal_opencl.emit.types import comment_text


@dataclass(frozen=True, slots=True)
class Source:
    """OpenCL C text, in parts that depend on those before them, and the identifier of its kernel."""

    parts: tuple[str, ...]
    entry: str

    @property
    def text(self) -> str:
        """The kernel as a program of its own."""
        return joined([self])


def joined(sources: Iterable[Source]) -> str:
    """One program of several kernels: a helper's name says what it does, so that equal ones stand there once."""
    return "\n".join(dict.fromkeys(part for source in sources for part in source.parts))


def gathered(sources: Iterable[Source], most: int) -> Iterator[tuple[Source, ...]]:
    """The distinct sources, up to `most` that follow one another and have names of their own at a time."""
    group: dict[str, Source] = {}
    for source in dict.fromkeys(sources):
        if len(group) == most or source.entry in group:
            yield tuple(group.values())
            group = {}
        group[source.entry] = source
    if group:
        yield tuple(group.values())


def emit_kernel(kernel: Kernel, dialect: Dialect = PLAIN) -> Source:
    """OpenCL C 1.2 of a kernel, with the Tile line and tables it came from as comments.

    SemtreeError for a node or operation that OpenCL C cannot express.
    """
    function = kernel.function
    assert function is not None
    printer = OpenCLPrinter(kernel.groups, dialect)
    printer.size_attribute = size_attribute(kernel, function, dialect)
    body = printer.program(prepare(function, dialect))
    head = [*_extensions(function), "#pragma OPENCL FP_CONTRACT OFF", ""]
    comments = [f"// {line}".rstrip() for line in comment_text(kernel.stripe.comment)]
    parts = ["\n".join(head), *(f"{text}\n" for text in printer.preamble.values()), *_joined(comments), body]
    return Source(tuple(parts), printer.lookup(function.name))


def _joined(comments: list[str]) -> list[str]:
    return ["\n".join(comments)] if comments else []


def _extensions(function: Function) -> list[str]:
    wide = uses(function, DType.FLOAT64)
    lines = ["#pragma OPENCL EXTENSION cl_khr_fp64 : enable"] if wide else []
    atomics = {
        s.value.type.dtype.bits
        for f in walk_functions(function)
        for s in walk_statements(f.body)
        if isinstance(s, Atomic)
    }
    return [*lines, *(["#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable"] if 64 in atomics else [])]


def uses(function: Function, dtype: DType) -> bool:
    """Whether a kernel computes with `dtype` or keeps it in memory."""
    return any(t.dtype is dtype for part in walk_functions(function) for t in _types(part))


def _types(function: Function) -> Iterator[Type]:
    yield from (p.type for p in function.params)
    yield from (s.type for s in walk_statements(function.body) if isinstance(s, Alloc))
    yield from (node.type for node in walk_all(function))
