"""Functions for inputs of certain types: known by what they are made from, their programs made when asked for."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Set
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from tile_ir.contents import Contents
from tile_ir.diagnostics import Source, Span
from tile_ir.program.nodes import ConstantTensor, Contraction, Program
from tile_ir.program.provenance import bare, origins

from tile_runtime.signature import Signature

if TYPE_CHECKING:
    from tile_ir.program.nodes import TensorType


class Typed:
    """A function and the types of all its inputs."""

    def __init__(self, function: Signature, types: Mapping[str, TensorType]) -> None:
        self._function = function
        self._types = types

    @cached_property
    def program(self) -> Program:
        """The typed program, which says what is bound and not updated by every call; TileError when the types do not fit."""
        program = self._function.bind(self._types)
        return with_bound(program, self._function.bound.keys() - {name for name, _ in self._function.updates})

    @property
    def name(self) -> str:
        return self._function.name

    @property
    def spans(self) -> Mapping[str, Span]:
        """Where inputs are declared, for error messages."""
        return self._function.spans

    @property
    def labelled(self) -> Mapping[int, Span]:
        """Where operations of the program that have labels come from, by number; without making the program for it."""
        if self._function.digest is not None:
            return self._function.origins
        return origins(self.program) if self._function.written is None else {}

    @cached_property
    def identity(self) -> tuple[tuple[str, str], ...]:
        """Named texts that decide what `program` is; they are there without it where the function says what it is made from."""
        types = "; ".join(f"{name} {type}" for name, type in self._types.items())
        written = self._function.written
        if written is None:
            return (("program", self._function.digest or program_digest(self.program)),)
        return (("function", written), ("types", types))


def with_bound(program: Program, bound: Set[str]) -> Program:
    """The program, which says that inputs of these names are bound."""
    if not bound:
        return program
    return replace(program, inputs=tuple(replace(p, bound=p.name in bound) for p in program.inputs))


_NOTHING = Contents(b"")


def program_digest(program: Program) -> str:
    """SHA-256 (hex) of everything that a program says, the texts it comes from and its constants included."""
    digest = hashlib.sha256()
    ops = tuple(replace(op, contents=_NOTHING) if isinstance(op, ConstantTensor) else op for op in program.ops)
    digest.update(repr(bare(replace(program, ops=ops))).encode())
    for source in dict.fromkeys(_sources(program)):
        digest.update(repr((source.name, source.text)).encode())
    for op in program.ops:
        if isinstance(op, ConstantTensor):
            digest.update(op.contents.digest)
    return digest.hexdigest()


def _sources(program: Program) -> Iterator[Source]:
    """The texts that spans of the program point into."""
    for op in program.ops:
        if op.origin is not None and op.origin.is_place:
            yield op.origin.source
        if isinstance(op, Contraction):
            yield from (c.origin.source for c in op.constraints if c.origin is not None)
