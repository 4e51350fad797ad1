"""Programs that take as inputs what depends on the size: limits of masks, numbers and constants."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np
from tile_ir.dtype import DType
from tile_ir.names import claim
from tile_ir.program.liveness import defined_by
from tile_ir.program.macros import literal
from tile_ir.program.nodes import (
    ConstantTensor,
    Contraction,
    Elementwise,
    IndexOf,
    Literal,
    Op,
    Operand,
    Param,
    Program,
    TensorLoad,
    TensorType,
)
from tile_ir.program.rename import renamed

from tile_onnx.padding.literals import literals, substituted
from tile_onnx.padding.needs import Needs

Array = np.ndarray[Any, Any]
Source = tuple[str, int, int]
"""What fills an input: ("limit", value, axis), ("literal", operation, place) or ("constant", operation, 0)."""
Marks = Mapping[tuple[int, int], Hashable]
"""Of limits, by (value, axis): those with equal marks are one input. Values are counted as `values` gives them."""


@dataclass(frozen=True, slots=True, eq=False)
class General:
    """A program for a size and smaller ones, whose inputs are padded with zeros; its last inputs have these sources."""

    program: Program
    sources: tuple[Source, ...]


def values(program: Program) -> list[str]:
    """Every name that a program defines: inputs, then operations in order."""
    return [*(p.name for p in program.inputs), *(n for op in program.ops for n in defined_by(op))]


def generalised(program: Program, needs: Needs, marks: Marks) -> General:
    """The program with what it needs (see `compared`)."""
    return _Builder(program, needs, marks).general()


def numbers(general: General, small: Program) -> list[Array]:
    """What the last inputs of a general program hold so that it stands for `small`; constants are padded with zeros."""
    names, types = values(small), small.types()
    params = general.program.inputs[len(small.inputs) :]
    return [_number(small, names, types, p, s) for p, s in zip(params, general.sources, strict=True)]


def _number(small: Program, names: list[str], types: Mapping[str, TensorType], param: Param, source: Source) -> Array:
    kind, first, second = source
    dtype = param.type.dtype.numpy
    if kind == "limit":
        return np.asarray(types[names[first]].shape[second], dtype)
    op = small.ops[first]
    if not isinstance(op, ConstantTensor):
        return np.asarray(literals(op)[second].value, dtype)
    found = np.zeros(param.type.shape, dtype)
    found[tuple(map(slice, op.type.shape))] = np.frombuffer(op.data, dtype).reshape(op.type.shape)
    return found


class _Builder:
    """One program being made."""

    def __init__(self, program: Program, needs: Needs, marks: Marks) -> None:
        self._program = program
        self._needs = needs
        self._marks = marks
        self._types = program.types()
        self._taken = set(self._types)
        self._place = {name: k for k, name in enumerate(values(program))}
        self._params: dict[str, Param] = {}
        self._sources: list[Source] = []
        self._limits: dict[Hashable, str] = {}
        self._versions = self._named()

    def _named(self) -> dict[tuple[str, int | float], str]:
        """Names of masked tensors by what stands outside. One of them replaces the tensor that an operation makes."""
        found: dict[tuple[str, int | float], str] = {}
        inputs = {p.name for p in self._program.inputs}
        for key in sorted({(m.tensor, m.neutral) for m in self._needs.masks}, key=lambda k: (k[0], k[1] != 0)):
            first = not any(tensor == key[0] for tensor, _ in found)
            if key[0] not in inputs:
                found[key] = key[0] if first else claim(f"{key[0]}_masked", self._taken)
            else:  # inputs are padded with zeros
                found[key] = key[0] if key[1] == 0 else claim(f"{key[0]}_masked", self._taken)
        return found

    def general(self) -> General:
        ops = [new for param in self._program.inputs for new in self._masked(param.name, param.name)]
        for k, op in enumerate(self._program.ops):
            if k in self._needs.constants:
                (name,) = defined_by(op)
                self._input(("constant", k, 0), self._types[name], name)
            else:
                ops += self._made(k, op)
        inputs = (*self._program.inputs, *self._params.values())
        return General(replace(self._program, inputs=inputs, ops=tuple(ops)), tuple(self._sources))

    def _made(self, k: int, op: Op) -> Iterator[Op]:
        op = self._reading(k, self._with_numbers(k, op))
        replaced = {n: claim(f"{n}_raw", self._taken) for n in defined_by(op) if n in self._versions.values()}
        yield renamed(op, replaced)
        for name in defined_by(op):
            yield from self._masked(name, replaced.get(name, name))

    def _reading(self, k: int, op: Op) -> Op:
        """The operation with its loads from masked tensors."""
        if not isinstance(op, Contraction):
            return op
        wanted = {m.load: self._versions[m.tensor, m.neutral] for m in self._needs.masks if m.op == k}
        loads = (replace(load, tensor=wanted.get(i, load.tensor)) for i, load in enumerate(op.loads))
        return replace(op, loads=tuple(loads)) if wanted else op

    def _masked(self, name: str, raw: str) -> Iterator[Op]:
        """Operations that make every version of a tensor."""
        for (tensor, neutral), version in self._versions.items():
            if tensor == name and version != raw:
                axes = sorted({m.axis for m in self._needs.masks if (m.tensor, m.neutral) == (tensor, neutral)})
                yield from self._steps(name, raw, version, axes, neutral)

    def _steps(self, name: str, raw: str, version: str, axes: list[int], neutral: int | float) -> Iterator[Op]:
        type = self._types[name]
        for axis in axes:
            flat = tuple(size if k == axis else 1 for k, size in enumerate(type.shape))
            index, inside = claim(f"{name}_at", self._taken), claim(f"{name}_inside", self._taken)
            target = version if axis == axes[-1] else claim(f"{name}_masked", self._taken)
            yield IndexOf(index, TensorType(DType.INT32, flat), axis)
            yield Elementwise(inside, TensorType(DType.BOOL, flat), "cmp_lt", (index, self._limit(name, axis)))
            yield Elementwise(target, type, "cond", (inside, raw, literal(neutral, type.dtype)))
            raw = target

    def _limit(self, name: str, axis: int) -> str:
        key = self._place[name], axis
        mark = self._marks[key]
        if mark not in self._limits:
            self._limits[mark] = self._input(("limit", *key), TensorType(DType.INT32, ()), "limit")
        return self._limits[mark]

    def _with_numbers(self, k: int, op: Op) -> Op:
        """The operation with inputs for literals that depend on the size."""
        places, found = count(), list[TensorLoad]()
        loaded = sum(isinstance(load.tensor, Literal) for load in op.loads) if isinstance(op, Contraction) else 0

        def new(given: Literal) -> Operand:
            place = next(places)
            if (k, place) not in self._needs.literals:
                return given
            name = self._input(("literal", k, place), TensorType(given.dtype, ()), "number")
            if not isinstance(op, Contraction) or place < loaded:
                return name
            found.append(TensorLoad(f"${name}", name, ()))
            return f"${name}"

        made = substituted(op, new)
        return replace(made, loads=(*made.loads, *found)) if isinstance(made, Contraction) and found else made

    def _input(self, source: Source, type: TensorType, wanted: str) -> str:
        name = wanted if source[0] == "constant" else claim(wanted, self._taken)
        self._params[name] = Param(name, type)
        self._sources.append(source)
        return name
