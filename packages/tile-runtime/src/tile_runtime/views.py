"""Large views, such as slices and transposes: programs of their own read them where they lie.

``f(x.T)`` and ``f(x[:, ::-1])`` would copy first, which takes longer than most of what f does with it. The same function of
the flat memory, which finds the elements by their steps, has no copy.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

from tile_ir.diagnostics import Span
from tile_ir.names import claim
from tile_ir.program.copies import copied
from tile_ir.program.nodes import Contraction, Param, Poly, Program, TensorType, coordinates
from tile_ir.program.rename import renamed

from tile_runtime.arrays import Array, Lying
from tile_runtime.signature import Signature


class OverMemory(Signature):
    """`function` of the memory of those `values` that have a place in it, and of the others."""

    def __init__(self, function: Signature, values: Sequence[Array], places: Sequence[Lying | None]) -> None:
        self.name, self.inputs, self.outputs = function.name, function.inputs, function.outputs
        self._function = function
        self._views = {
            n: (v.shape, place)
            for n, v, place in zip(function.inputs, values, places, strict=True)
            if place is not None
        }
        self.key: Hashable = (function.key, *self._views.items())

    @property
    def spans(self) -> Mapping[str, Span]:
        return self._function.spans

    def bind(self, types: Mapping[str, TensorType]) -> Program:
        seen = {n: TensorType(t.dtype, self._views[n][0]) if n in self._views else t for n, t in types.items()}
        program = self._function.bind(seen)
        taken = set(program.types())
        names = {n: claim(f"{n}_seen", taken) for n in self._views}
        views = tuple(_view(names[n], n, seen[n], place) for n, (_, place) in self._views.items())
        return replace(
            program,
            inputs=tuple(Param(p.name, types[p.name], p.bound) for p in program.inputs),
            ops=(*views, *(renamed(op, names) for op in program.ops)),
            outputs=tuple((public, names.get(value, value)) for public, value in program.outputs),
            gradients=(),
        )


def _view(name: str, memory: str, type: TensorType, place: Lying) -> Contraction:
    """``name[i0, …] = =(memory[first + step * i0 + …])``."""
    first, steps = place
    cells = coordinates(len(type.shape))
    lies = sum((c.scaled(step) for c, step in zip(cells, steps, strict=True)), Poly.of({}, first))
    sizes = zip(cells, type.shape, strict=True)
    return copied(name, type, cells, memory, (lies,), sizes, text=f"{name}: a view of {memory}")
