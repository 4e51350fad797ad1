"""Programs to try: text, types of the inputs, and what fills them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import tile_autodiff
import tile_lang
from tile_ir.diagnostics import Source
from tile_ir.dtype import DType
from tile_ir.program.nodes import Contraction, Op, Program, TensorType, results_of
from tile_lang.domain import tuples

Array = npt.NDArray[Any]
Arrays = dict[str, Array]

SMOOTH = 2.0
"""Inputs lie between minus and plus this; whole numbers, unless `fractions`."""


@dataclass(frozen=True)
class Sample:
    """A program: of order 1, the gradient of what `source` says; of order 2, the gradient of that."""

    source: str
    types: Mapping[str, TensorType]
    data: int = 0
    """Seeds the contents of the inputs."""
    fractions: bool = False
    """Inputs are any numbers near zero instead of small whole ones."""
    special: bool = False
    """Some elements are infinite or not a number; whole numbers may be as large as their dtype allows."""
    order: int = 0
    wrt: tuple[str, ...] = ()
    kind: str = field(default="", compare=False)
    """What it was drawn as, for statistics."""

    @cached_property
    def stages(self) -> tuple[Program, ...]:
        """The bound program, its gradient, and so on to `order`."""
        found = [tile_lang.bind(tile_lang.parse(Source(self.source, "sample.tile")), self.types)]
        for _ in range(self.order):
            found.append(tile_autodiff.gradient(found[-1], self.wrt))
        return tuple(found)

    @property
    def program(self) -> Program:
        return self.stages[-1]

    @cached_property
    def inputs(self) -> Arrays:
        """An array for every input of the program, cotangents included."""
        return {p.name: self._fill(p.type, n) for n, p in enumerate(self.program.inputs)}

    @cached_property
    def expected(self) -> Arrays:
        """The reference evaluator's outputs."""
        return tile_lang.evaluate(self.program, self.inputs)

    @cached_property
    def work(self) -> int:
        """Elements and index tuples: what an interpreter runs through."""
        return sum(_work(op) for op in self.program.ops)

    def _fill(self, type_: TensorType, number: int) -> Array:
        random = np.random.default_rng([self.data, number])
        values = self._ordinary(random, type_)
        if self.special and type_.size:
            odd = random.random(type_.shape) < 0.1
            values[odd] = random.choice(_extremes(type_.dtype), type_.shape)[odd]
        return values

    def _ordinary(self, random: np.random.Generator, type_: TensorType) -> Array:
        dtype, shape = type_.dtype, type_.shape
        if dtype is DType.BOOL:
            return random.integers(0, 2, shape).astype(bool)
        if self.fractions and dtype.is_float:
            return random.uniform(-SMOOTH, SMOOTH, shape).astype(dtype.numpy)
        return random.integers(-2 if dtype.is_float or dtype.is_signed else 0, 3, shape).astype(dtype.numpy)


def _work(op: Op) -> int:
    if isinstance(op, Contraction):
        return op.type.size + len(tuples(op.constraints, op.indexes))
    return sum(type.size for _, type in results_of(op))


def _extremes(dtype: DType) -> Sequence[Any]:
    if dtype.is_float:
        return np.asarray([np.nan, np.inf, -np.inf, 0.0], dtype.numpy)
    if dtype is DType.BOOL:
        return np.asarray([True, False])
    information = np.iinfo(dtype.numpy)
    return np.asarray([information.min, information.max, information.max - 1, 1], dtype.numpy)
