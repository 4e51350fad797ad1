"""Rows that loops cut off and stack, where they must be padded to begin where a device's views may begin."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace
from math import prod

from tile_ir.names import fresh
from tile_ir.program.copies import copied
from tile_ir.program.macros import literal
from tile_ir.program.nodes import (
    Contraction,
    Elementwise,
    Gather,
    Loop,
    Op,
    Poly,
    Program,
    Reshape,
    TensorType,
    coordinates,
)


def laid_out(program: Program, align: int, single: Container[tuple[str, ...]] = ()) -> Program:
    """The program with loops that go round, whose slices and stacks have rows of a multiple of `align` bytes.

    A padded slice or stack is [rows, elements of a padded row]; the body's types stay as they are. Loops whose results
    are among `single` are left as they are.
    """
    work = _Layout(program.types(), align)
    for op in program.ops:
        if isinstance(op, Loop) and op.results in single:
            work.ops.append(op)
        else:
            work.add(op)
    return replace(program, ops=tuple(work.ops))


def row_bytes(stack: TensorType) -> int:
    """Bytes from one row to the next."""
    return prod(stack.shape[1:]) * stack.dtype.bytes


@dataclass(slots=True)
class _Layout:
    types: dict[str, TensorType]
    align: int
    ops: list[Op]
    _padded: dict[str, str]

    def __init__(self, types: dict[str, TensorType], align: int) -> None:
        self.types, self.align, self.ops, self._padded = types, align, [], {}

    def add(self, op: Op) -> None:
        if not isinstance(op, Loop):
            self.ops.append(op)
        elif op.count == 0:
            self._unentered(op)
        else:
            self._loop(op)

    def _unentered(self, op: Loop) -> None:
        """What a loop gives that never goes round."""
        kept = len(op.carries)
        for name, type, start in zip(op.results[:kept], op.types[:kept], op.carries, strict=True):
            self.ops.append(Elementwise(name, type, "ident", (start,), origin=op.origin))
        for name, type in zip(op.results[kept:], op.types[kept:], strict=True):
            self.ops.append(Elementwise(name, type, "ident", (literal(0, type.dtype),), origin=op.origin))

    def _loop(self, op: Loop) -> None:
        slices = tuple(map(self._sliced, op.slices))
        results, types, after = list(op.results), list(op.types), list[Op]()
        for k in range(len(op.carries), len(results)):
            if row_bytes(types[k]) % self.align:
                padded = self._name(f"{results[k]}_rows", self._padded_type(types[k]))
                after += self._cut(padded, results[k], types[k])
                results[k], types[k] = padded, self.types[padded]
        self.ops.append(replace(op, results=tuple(results), types=tuple(types), slices=slices))
        self.ops += after

    def _sliced(self, name: str) -> str:
        type = self.types[name]
        if row_bytes(type) % self.align == 0:
            return name
        if name not in self._padded:
            flat = self._name(f"{name}_flat", TensorType(type.dtype, (type.shape[0], prod(type.shape[1:]))))
            padded = self._padded[name] = self._name(f"{name}_rows", self._padded_type(type))
            self.ops += [Reshape(flat, self.types[flat], name), self._widened(flat, padded)]
        return self._padded[name]

    def _widened(self, flat: str, padded: str) -> Contraction:
        forms = (Poly.of({"t": 1}), Poly.of({"i": 1}))
        shapes = (*zip(forms, self.types[padded].shape, strict=True), *zip(forms, self.types[flat].shape, strict=True))
        return copied(padded, self.types[padded], forms, flat, forms, shapes, text=f"{padded}[t, i] = =({flat}[t, i])")

    def _cut(self, padded: str, name: str, type: TensorType) -> list[Op]:
        flat = TensorType(type.dtype, (type.shape[0], prod(type.shape[1:])))
        if len(type.shape) == 2:
            return [Gather(name, type, padded, coordinates(2))]
        cut = self._name(f"{name}_cut", flat)
        return [Gather(cut, flat, padded, coordinates(2)), Reshape(name, type, cut)]

    def _padded_type(self, type: TensorType) -> TensorType:
        nbytes = -(-row_bytes(type) // self.align) * self.align
        return TensorType(type.dtype, (type.shape[0], nbytes // type.dtype.bytes))

    def _name(self, wanted: str, type: TensorType) -> str:
        name = fresh(wanted, self.types)
        self.types[name] = type
        return name
