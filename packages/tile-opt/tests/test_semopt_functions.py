"""Functions that a target lacks become formulas of the core: within the stated bounds, lane by lane the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tile_ir import numerics
from tile_ir.accuracy import ulp_bound
from tile_ir.dtype import DType
from tile_ir.ops import OPS
from tile_ir.semtree.interpret import launch
from tile_ir.semtree.nodes import Access, Block, Call, Const, For, Function, Load, Param, Space, Store, Type, Var
from tile_ir.semtree.verify import OPTIONAL_FUNCTIONS, verify
from tile_opt.semtree.legalise import VECTOR_NODES, legalise
from tile_opt.semtree.simplify import simplify

Array = npt.NDArray[Any]
I32 = Type(DType.INT32)
COUNT = 72
EXACT = ("trunc", "round_even", "fmod")


def pointer(dtype: DType) -> Type:
    return Type(dtype, space=Space.GLOBAL, ptr=True)


def function(name: str, dtype: DType, lanes: int) -> Function:
    """``out[i] = name(a0[i], …)``."""
    params = [Param("out", pointer(dtype), Access.WRITE, elements=COUNT)]
    params += [Param(f"a{n}", pointer(dtype), elements=COUNT) for n in range(OPS[name].arity)]
    i, t = Var("i", I32), Type(dtype, lanes)
    loads = tuple(Load(Var(p.name, p.type), i, t) for p in params[1:])
    store = Store(Var("out", pointer(dtype)), i, Call(name, loads, t))
    return Function("f", tuple(params), Block((For("i", Const(0, I32), Const(COUNT, I32), lanes, Block((store,))),)))


def operands(name: str, dtype: DType) -> list[Array]:
    """Extremes in all pairs, then numbers of every size and ordinary ones."""
    random = np.random.default_rng(3)
    edges = np.array([0.0, -0.0, 1.0, -2.5, 6e4, -np.inf, np.nan, np.inf]).astype(dtype.numpy)
    pairs = [a.reshape(-1) for a in np.meshgrid(edges, edges)] if OPS[name].arity == 2 else [edges]
    rest = COUNT - len(pairs[0])
    some = [np.where(np.arange(rest) % 2, *random.normal(0, (1, 30), (rest, 2)).T) for _ in pairs]
    return [np.concatenate([a, b.astype(dtype.numpy)]) for a, b in zip(pairs, some, strict=True)]


def distance(a: Array, b: Array) -> npt.NDArray[np.float64]:
    """Representable values between two arrays; 0 for two NaN."""
    bits = [x.view(f"i{x.dtype.itemsize}").astype(object) for x in (a, b)]
    low = -(1 << (a.dtype.itemsize * 8 - 1))
    first, second = ([n if n >= 0 else low - n for n in row] for row in bits)
    steps = np.array([abs(x - y) for x, y in zip(first, second, strict=True)], np.float64)
    return np.where((a != a) & (b != b), 0.0, steps)


@pytest.mark.diagonal(2)
@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.FLOAT64, DType.FLOAT16], ids=str)
@pytest.mark.parametrize("name", sorted(OPTIONAL_FUNCTIONS))
def test_formulas_keep_the_stated_bounds(name: str, dtype: DType) -> None:
    args = operands(name, dtype)
    results: list[Array] = []
    for lanes, nodes in ((1, frozenset[str]()), (4, VECTOR_NODES)):
        legal = simplify(legalise(function(name, dtype, lanes), nodes))
        verify(legal, nodes)
        results.append(np.zeros(COUNT, dtype.numpy))
        launch(legal, (1, 1, 1), [results[-1], *args])
    scalar, vector = results
    assert not distance(scalar, vector).any()
    wanted = numerics.apply(name, args, dtype)
    # NumPy's own float64 functions may be a few steps off.
    allowed = 0 if name in EXACT else ulp_bound(name, dtype) + (4 if dtype is DType.FLOAT64 else 0.5)
    far = distance(scalar, wanted)
    worst = int(np.argmax(far))
    assert far[worst] <= allowed, ([a[worst] for a in args], scalar[worst], wanted[worst])


def test_listed_functions_stay() -> None:
    given = function("erf", DType.FLOAT32, 1)
    assert legalise(given, frozenset({"erf"})) is given
