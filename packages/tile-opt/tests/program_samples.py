"""Random programs of every operation kind, and inputs for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from contraction_samples import contractions
from hypothesis import strategies as st
from tile_ir.contents import Contents
from tile_ir.dtype import DType
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import (
    Argsort,
    ConstantTensor,
    Contraction,
    Elementwise,
    Gather,
    IndexOf,
    Literal,
    Lookup,
    Op,
    Param,
    Program,
    Reshape,
    ScalarStatement,
    Scatter,
    Subscript,
    TensorType,
    coordinates,
)
from tile_lang.domain import undetermined

REDUCTIONS = (Aggregation.SUM, Aggregation.PROD, Aggregation.MAX, Aggregation.MIN)
DTYPES = (DType.FLOAT32, DType.FLOAT32, DType.INT32, DType.UINT8, DType.FLOAT16, DType.FLOAT64, DType.BOOL)
_BINARY = ("add", "sub", "mul", "max", "min", "div")


def random_array(type_: TensorType, rng: np.random.Generator) -> npt.NDArray[Any]:
    """Small integers of the type's dtype, so that sums and products of floats are exact."""
    low = 0 if type_.dtype in (DType.BOOL, DType.UINT8) else -3
    return np.asarray(rng.integers(low, 2 if type_.dtype is DType.BOOL else 4, type_.shape)).astype(type_.dtype.numpy)


def random_inputs(program: Program, seed: int = 0) -> dict[str, npt.NDArray[Any]]:
    rng = np.random.default_rng(seed)
    return {param.name: random_array(param.type, rng) for param in program.inputs}


@dataclass
class _Draft:
    """A program under construction."""

    draw: st.DrawFn
    inputs: list[Param] = field(default_factory=list[Param])
    ops: list[Op] = field(default_factory=list[Op])
    types: dict[str, TensorType] = field(default_factory=dict[str, TensorType])

    def input(self, dtype: DType, shape: Sequence[int]) -> str:
        name = f"I{len(self.inputs)}"
        self.inputs.append(Param(name, TensorType(dtype, tuple(shape))))
        self.types[name] = self.inputs[-1].type
        return name

    def tensor(self, dtype: DType, shape: Sequence[int]) -> str:
        """A value of this type: one that exists, or a new input."""
        wanted = TensorType(dtype, tuple(shape))
        found = [name for name, t in self.types.items() if t == wanted]
        return self.draw(st.sampled_from(found)) if found else self.input(dtype, shape)

    def add(self, op: Any) -> None:
        self.ops.append(op)
        self.types[op.name] = op.type

    def fresh(self) -> str:
        return f"V{len(self.ops)}"

    def any(self) -> str:
        return self.draw(st.sampled_from(list(self.types)))


@st.composite
def typed_contractions(draw: st.DrawFn, dtype: DType = DType.FLOAT32) -> tuple[Contraction, list[tuple[int, ...]]]:
    """A bounded contraction of any dtype, and the shapes of the tensors A, B it loads."""
    c = draw(contractions(REDUCTIONS).filter(lambda c: not undetermined(c.constraints, c.indexes)))
    acc = dtype.accumulator if c.agg in (Aggregation.SUM, Aggregation.PROD) else dtype
    body = tuple(replace(s, dtype=dtype) for s in c.body)
    result = c.result
    if acc is not dtype:
        body += (ScalarStatement("$wide", "cast", (result,), acc),)
        result = "$wide"
    shapes: list[tuple[int, ...]] = []
    at = len(c.output)
    for load in c.loads:
        shapes.append(tuple(k.size for k in c.constraints[at : at + len(load.formulas)]))
        at += len(load.formulas)
    return replace(c, type=TensorType(dtype, c.type.shape), body=body, result=result, acc=acc), shapes


def _contract(d: _Draft) -> None:
    dtype = d.draw(st.sampled_from(DTYPES))
    c, shapes = d.draw(typed_contractions(dtype))
    names = [d.tensor(dtype, shape) for shape in shapes]
    loads = tuple(replace(load, tensor=name) for load, name in zip(c.loads, names, strict=True))
    default = d.tensor(dtype, c.type.shape) if d.draw(st.integers(0, 3)) == 0 else None
    d.add(replace(c, name=d.fresh(), loads=loads, default=default))


def _binary(d: _Draft) -> None:
    a = d.any()
    dtype, shape = d.types[a].dtype, d.types[a].shape
    other = tuple(1 if d.draw(st.booleans()) else size for size in shape)[d.draw(st.integers(0, len(shape))) :]
    literal = Literal(np.ones((), dtype.numpy).item(), dtype)
    b = d.draw(st.sampled_from([literal, d.tensor(dtype, other)]))
    args = (a, b) if d.draw(st.booleans()) else (b, a)
    d.add(Elementwise(d.fresh(), TensorType(dtype, shape), d.draw(st.sampled_from(_BINARY)), args))


def _unary(d: _Draft) -> None:
    a = d.any()
    fns = ["relu", "neg", "ident", "stop_gradient"] + (["sigmoid", "exp"] if d.types[a].dtype.is_float else [])
    d.add(Elementwise(d.fresh(), d.types[a], d.draw(st.sampled_from(fns)), (a,)))


def _cast(d: _Draft) -> None:
    a = d.any()
    d.add(Elementwise(d.fresh(), TensorType(d.draw(st.sampled_from(DTYPES)), d.types[a].shape), "cast", (a,)))


def _select(d: _Draft) -> None:
    a = d.any()
    t = d.types[a]
    test = d.fresh()
    d.add(Elementwise(test, TensorType(DType.BOOL, t.shape), "cmp_lt", (a, d.tensor(t.dtype, ()))))
    d.add(Elementwise(d.fresh(), t, "cond", (test, a, d.tensor(t.dtype, t.shape))))


def _reshape(d: _Draft) -> None:
    a = d.any()
    size = d.types[a].size
    divisors = [k for k in range(1, size + 1) if size % k == 0] or [0]
    first = d.draw(st.sampled_from(divisors))
    rest = size // first if first else 5
    second = d.draw(st.sampled_from([k for k in range(1, rest + 1) if rest % k == 0] or [0]))
    shape = (first, second, rest // second if second else 0)
    d.add(Reshape(d.fresh(), TensorType(d.types[a].dtype, shape), a))


def _index(d: _Draft) -> None:
    ranked = [name for name, t in d.types.items() if t.shape]
    if ranked:
        a = d.draw(st.sampled_from(ranked))
        axis = d.draw(st.integers(0, len(d.types[a].shape) - 1))
        d.add(IndexOf(d.fresh(), TensorType(DType.INT32, d.types[a].shape), axis))


def _rows(d: _Draft) -> tuple[DType, tuple[int, ...], tuple[int, ...]]:
    rows = tuple(d.draw(st.lists(st.integers(0, 4), min_size=0, max_size=2)))
    return d.draw(st.sampled_from(DTYPES)), rows, tuple(d.draw(st.lists(st.integers(1, 3), max_size=1)))


def _by_rows(d: _Draft, rows: tuple[int, ...], rest: tuple[int, ...]) -> tuple[Subscript, ...]:
    """One dimension by data, between or beside those of `rest`, for cells of ``rows + rest`` in any order."""
    cell = coordinates(len(rows) + len(rest))
    data = Lookup(d.tensor(DType.INT32, rows), cell[: len(rows)])
    return tuple(d.draw(st.permutations((data, *cell[len(rows) :]))))


def _sizes(subscripts: tuple[Subscript, ...], shape: tuple[int, ...], size: int) -> tuple[int, ...]:
    return tuple(size if isinstance(s, Lookup) else shape[int(s.names[0][1:])] for s in subscripts)


def _gather(d: _Draft) -> None:
    dtype, rows, rest = _rows(d)
    subscripts = _by_rows(d, rows, rest)
    data = d.tensor(dtype, _sizes(subscripts, rows + rest, d.draw(st.integers(0, 4))))
    d.add(Gather(d.fresh(), TensorType(dtype, rows + rest), data, subscripts))


def _scatter(d: _Draft) -> None:
    dtype, rows, rest = _rows(d)
    subscripts = _by_rows(d, rows, rest)
    shape = _sizes(subscripts, rows + rest, d.draw(st.integers(1, 4)))
    default = d.tensor(dtype, shape) if d.draw(st.booleans()) else None
    agg = d.draw(st.sampled_from(Aggregation))
    d.add(Scatter(d.fresh(), TensorType(dtype, shape), d.tensor(dtype, rows + rest), subscripts, agg, default))


def _argsort(d: _Draft) -> None:
    dtype = d.draw(st.sampled_from((DType.FLOAT32, DType.INT32, DType.UINT8)))
    shape = d.draw(st.sampled_from([(1,), (5,), (70,), (3, 4), (4, 2, 3), (2, 0)]))
    axis = d.draw(st.integers(0, len(shape) - 1))
    kept = tuple(d.draw(st.integers(0, n)) if k == axis else n for k, n in enumerate(shape))
    d.add(Argsort(d.fresh(), TensorType(DType.INT32, kept), d.tensor(dtype, shape), axis, d.draw(st.booleans())))


def _constant(d: _Draft) -> None:
    t = TensorType(d.draw(st.sampled_from(DTYPES)), tuple(d.draw(st.lists(st.integers(0, 3), max_size=2))))
    d.add(ConstantTensor(d.fresh(), t, Contents(random_array(t, np.random.default_rng(1)).tobytes())))


_KINDS = (
    _contract,
    _contract,
    _binary,
    _binary,
    _unary,
    _cast,
    _select,
    _reshape,
    _index,
    _gather,
    _scatter,
    _argsort,
    _constant,
)


@st.composite
def programs(draw: st.DrawFn, most_ops: int = 4) -> Program:
    """Random programs; outputs may be inputs, constants, or one value under two names."""
    d = _Draft(draw)
    d.input(draw(st.sampled_from(DTYPES)), draw(st.sampled_from([(3, 4), (2, 3, 2), (5,), (), (1, 3), (0, 2)])))
    for _ in range(draw(st.integers(1, most_ops))):
        draw(st.sampled_from(_KINDS))(d)
    values = draw(st.lists(st.sampled_from(list(d.types)[::-1]), min_size=1, max_size=3))
    outputs = tuple((f"O{k}", value) for k, value in enumerate(values))
    return Program("random", tuple(d.inputs), tuple(d.ops), outputs)
