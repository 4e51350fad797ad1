"""What random cases are drawn from: shapes, dtypes, arrays, and the form of a case."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]
Rng = np.random.Generator

FLOATS = ("float32", "float32", "float16", "bfloat16")
SIGNED = ("int8", "int16", "int32")
UNSIGNED = ("uint8", "uint16", "uint32")
INTEGERS = SIGNED + UNSIGNED
NUMBERS = FLOATS + INTEGERS
ALL = (*NUMBERS, "bool")


@dataclass(frozen=True, slots=True)
class Case:
    """A function of arrays, and arrays; how far from JAX's own CPU its results may be, as a part of their size."""

    function: Callable[..., Any]
    arguments: tuple[Array, ...]
    tolerance: float = 1e-5


Family = Callable[[Rng], Case]
FAMILIES: dict[str, Family] = {}


def family(draw: Family) -> Family:
    """Registers a function that draws cases."""
    FAMILIES[draw.__name__] = draw
    return draw


def dtype(name: str) -> np.dtype[Any]:
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


def shape(rng: Rng, least: int = 0, most: int = 4, size: int = 6) -> tuple[int, ...]:
    """Now and then an axis has one element, and seldom none."""
    sizes = [0, *[1] * 5, *range(2, size + 1), *range(2, size + 1), *range(2, size + 1)]
    return tuple(int(rng.choice(sizes)) for _ in range(int(rng.integers(least, most + 1))))


def full_shape(rng: Rng, least: int, most: int, size: int = 6) -> tuple[int, ...]:
    """No axis is empty."""
    return tuple(int(n) for n in rng.integers(1, size + 1, int(rng.integers(least, most + 1))))


def pick(rng: Rng, values: Sequence[Any]) -> Any:
    return values[int(rng.integers(len(values)))]


def array(rng: Rng, name: str, sizes: Sequence[int], low: float = -4, high: float = 4) -> Array:
    """Numbers between bounds; the extremes of integers now and then."""
    if name == "bool":
        return rng.random(tuple(sizes)) < 0.5
    kind = dtype(name)
    if name in INTEGERS:
        info = np.iinfo(kind)
        drawn = rng.integers(max(int(low), info.min), min(int(high), info.max), tuple(sizes), endpoint=True)
        return np.asarray(drawn).astype(kind)
    return np.asarray(rng.uniform(low, high, tuple(sizes))).astype(kind)


SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan, 0.5, -0.5, 1.5, 2.5, -1.0, 1e-3, 30.0, -30.0)


def anything(rng: Rng, name: str, sizes: Sequence[int]) -> Array:
    """Floats with infinities, zeros of both signs and NaN among them; integers from end to end."""
    if name in INTEGERS:
        info = np.iinfo(dtype(name))
        wide = rng.integers(info.min, info.max, tuple(sizes), endpoint=True, dtype=np.int64)
        ends = rng.choice([info.min, info.max, 0, 1, info.max - 1], tuple(sizes))
        return np.where(rng.random(tuple(sizes)) < 0.3, ends, wide).astype(dtype(name))
    drawn = array(rng, name, sizes)
    if name == "bool":
        return drawn
    return np.where(rng.random(tuple(sizes)) < 0.3, rng.choice(SPECIAL, tuple(sizes)), drawn.astype(float)).astype(
        drawn.dtype
    )


def loose(name: str) -> float:
    """The tolerance for results that are rounded to a dtype."""
    return {"float16": 4e-3, "bfloat16": 3e-2}.get(name, 2e-5)
