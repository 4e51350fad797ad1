"""No cliffs: time per operation from size to size, and from one layout of the operands to another.

Sizes lie on a √2 grid, with one less and one more beside each. Two neighbours' times per operation may differ by
`STEP`, and two layouts of the same bytes by `LAYOUT`. Where the larger one's bytes no longer fit a cache, a plain copy
of as many bytes takes longer, too: what it takes longer for each operation is the machine's, and taken off first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from classes import Case, instance
from classes.work import Value

STEP = 1.4
LAYOUT = 1.5
RETRIES = 8


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds of a case."""

    run: float
    copy: float
    """Of a copy that reads and writes as many bytes, by something else than what is measured."""


Measure = Callable[[Case], Measured]


@dataclass(frozen=True, slots=True)
class Curve:
    """A program along one size."""

    program: str
    values: Callable[[int], Mapping[str, Value]]
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Finding:
    """Two cases that should cost about the same for each unit of work, and how much they differ."""

    name: str
    slow: str
    fast: str
    measured: float
    """Times as much for each operation."""
    factor: float
    """The same without what the copy takes longer for each operation."""
    allowed: float

    @property
    def passed(self) -> bool:
        return self.factor <= self.allowed


def _few_columns(dtype: str, columns: int) -> Mapping[str, Value]:
    """Rows of a narrow matrix, something for each column beside them or of them."""
    return {"shape": f"{(1 << 20) // columns}x{columns}", "over": "0", "dtype": dtype}


CPU_CURVES: Mapping[str, Curve] = {
    "matmul": Curve("matmul", lambda s: {"m": s, "k": s, "n": s}, 128, 1448),
    "matmul of 64 rows": Curve("matmul", lambda s: {"m": 64, "k": s, "n": s}, 256, 2896),
    "gemv": Curve("gemv", lambda s: {"m": s, "n": s}, 512, 5792),
    "conv channels": Curve("conv", lambda s: {"n": 2, "size": "28x28", "ci": s, "co": s}, 16, 256),
    "conv image": Curve("conv", lambda s: {"n": 2, "size": f"{s}x{s}", "ci": 64, "co": 64}, 11, 128),
    "row sums": Curve("reduce", lambda s: {"shape": f"{max(1, (1 << 22) // s)}x{s}", "over": "1"}, 16, 1 << 20),
    "column sums": Curve("reduce", lambda s: {"shape": f"{s}x{max(1, (1 << 22) // s)}", "over": "0"}, 16, 1 << 20),
    **{
        f"few columns of {dtype}": Curve("reduce", partial(_few_columns, dtype), 3, 96)
        for dtype in ("float32", "float16", "int8")
    },
    **{
        f"few channels of {dtype}": Curve("broadcast", partial(_few_columns, dtype), 3, 96)
        for dtype in ("float32", "float16", "int8")
    },
    "softmax": Curve("softmax", lambda s: {"shape": f"{max(1, (1 << 21) // s)}x{s}", "over": "1"}, 16, 1 << 18),
    "transpose": Curve("permute", lambda s: {"shape": f"{s}x{s}", "order": "10"}, 362, 4096),
    "chain": Curve("chain", lambda s: {"shape": f"{s}x{s}"}, 256, 4096),
    "laplace": Curve("laplace", lambda s: {"h": s, "w": s}, 256, 2896),
    "gather width": Curve("gather", lambda s: {"rows": (1 << 20) // s, "width": s, "count": (1 << 20) // s}, 16, 1448),
    "gather count": Curve("gather", lambda s: {"rows": 10_000, "width": 32, "count": s}, 256, 1 << 17),
    "max-plus": Curve("max-plus", lambda s: {"m": s, "k": s, "n": s}, 64, 512),
}
GPU_CURVES: Mapping[str, Curve] = {
    "matmul": Curve("matmul", lambda s: {"m": s, "k": s, "n": s}, 1024, 5792),
    "row sums": Curve("reduce", lambda s: {"shape": f"{max(1, (1 << 26) // s)}x{s}", "over": "1"}, 64, 1 << 20),
    "column sums": Curve("reduce", lambda s: {"shape": f"{s}x{max(1, (1 << 26) // s)}", "over": "0"}, 64, 1 << 20),
    "softmax": Curve("softmax", lambda s: {"shape": f"{max(1, (1 << 26) // s)}x{s}", "over": "1"}, 64, 1 << 18),
    "scan": Curve("cumulative-rows", lambda s: {"m": max(1, (1 << 25) // s), "n": s, "axis": 1}, 64, 1 << 18),
    "scan of columns": Curve(
        "cumulative-rows", lambda s: {"m": s, "n": max(1, (1 << 25) // s), "axis": 0}, 64, 1 << 16
    ),
    "transpose": Curve("permute", lambda s: {"shape": f"{s}x{s}", "order": "10"}, 2048, 11585),
    "chain": Curve("chain", lambda s: {"shape": f"{s}x{s}"}, 2048, 11585),
}

CPU_LAYOUTS: Mapping[str, tuple[str, Sequence[Mapping[str, Value]]]] = {
    "matmul": ("matmul", [{"m": 509, "k": 720, "n": 1000, "layout": x} for x in ("nn", "nt", "tn", "tt")]),
    "square matmul": ("matmul", [{"m": 1024, "k": 1024, "n": 1024, "layout": x} for x in ("nn", "nt", "tn", "tt")]),
    "skinny matmul": ("matmul", [{"m": 24, "k": 1024, "n": 4099, "layout": x} for x in ("nn", "nt", "tn", "tt")]),
    "gemv": ("gemv", [{"m": 3000, "n": 3000, "side": x} for x in ("left", "right")]),
    "conv": ("conv", [{"n": 4, "size": "28x28", "ci": 96, "co": 128, "layout": x} for x in ("last", "first")]),
    "reduction": ("reduce", [{"shape": "160x160x160", "over": x} for x in ("0", "1", "2")]),
    "normalisation": ("layer-norm", [{"shape": "128x128x128", "over": x} for x in ("0", "1", "2")]),
    "permutation": (
        "permute",
        [{"shape": "96x100x104x4", "order": x} for x in ("0132", "0213", "1023", "2103", "3210", "1302")],
    ),
}
GPU_LAYOUTS: Mapping[str, tuple[str, Sequence[Mapping[str, Value]]]] = {
    "matmul": ("matmul", [{"m": 2048, "k": 2048, "n": 2048, "layout": x} for x in ("nn", "nt", "tn", "tt")]),
    "odd matmul": ("matmul", [{"m": 1999, "k": 2500, "n": 3001, "layout": x} for x in ("nn", "nt", "tn", "tt")]),
    "conv": ("conv", [{"n": 32, "size": "56x56", "ci": 96, "co": 128, "layout": x} for x in ("last", "first")]),
    "reduction": ("reduce", [{"shape": "512x512x512", "over": x} for x in ("0", "1", "2")]),
    "permutation": (
        "permute",
        [{"shape": "192x200x208x16", "order": x} for x in ("0132", "0213", "1023", "2103", "3210", "1302")],
    ),
}


def found(
    wanted: str,
    curves: Mapping[str, Curve],
    groups: Mapping[str, tuple[str, Sequence[Mapping[str, Value]]]],
    measure: Measure,
) -> Iterator[Finding]:
    """Of every curve and group of layouts whose name contains one of the comma-separated `wanted`; layouts first."""
    parts = wanted.split(",")
    for name, (program, values) in groups.items():
        if any(p in name for p in parts):
            yield layouts(f"layouts of {name}", program, values, measure)
    for name, curve in curves.items():
        if any(p in name for p in parts):
            yield from jumps(name, curve, measure)


def grid(low: int, high: int) -> list[int]:
    """Powers of √2 from `low` to `high`, each with its two neighbours, rising."""
    steps = round(2 * math.log2(high / low))
    return sorted({round(low * 2 ** (n / 2)) + off for n in range(steps + 1) for off in (-1, 0, 1)})


def jumps(name: str, curve: Curve, measure: Measure) -> Iterator[Finding]:
    """How much each size differs from the next one in time per unit of work."""
    clock = _Clock(measure)
    cases = (instance(curve.program, curve.values(size)) for size in grid(curve.low, curve.high))
    for one, other in pairwise(cases):
        yield clock.compared(name, [one, other], STEP)


def layouts(name: str, program: str, values: Sequence[Mapping[str, Value]], measure: Measure) -> Finding:
    """How much the slowest layout differs from the fastest."""
    return _Clock(measure).compared(name, [instance(program, v) for v in values], LAYOUT)


class _Clock:
    """Remembers the shortest times of each case."""

    def __init__(self, measure: Measure) -> None:
        self._once = measure
        self._best: dict[str, Measured] = {}

    def compared(self, name: str, cases: Sequence[Case], allowed: float) -> Finding:
        """The slowest against the fastest per unit of work; what fails is measured again, because machines are busy."""
        finding = self._finding(name, cases, allowed)
        for _ in range(RETRIES):
            if finding.passed:
                break
            for case in cases:
                self._measure(case)
            finding = self._finding(name, cases, allowed)
        return finding

    def _finding(self, name: str, cases: Sequence[Case], allowed: float) -> Finding:
        for case in cases:
            if case.name not in self._best:
                self._measure(case)
        costs = {case.name: self._cost(case) for case in cases}
        slow, fast = (pick(costs, key=lambda n: costs[n].run) for pick in (max, min))
        farther = max(0.0, costs[slow].copy - costs[fast].copy)
        factor = max(1.0, (costs[slow].run - farther) / costs[fast].run)
        return Finding(name, slow, fast, costs[slow].run / costs[fast].run, factor, allowed)

    def _cost(self, case: Case) -> Measured:
        """Seconds for each unit of work."""
        best, work = self._best[case.name], case.work.size
        return Measured(best.run / work, best.copy / work)

    def _measure(self, case: Case) -> None:
        new = self._once(case)
        old = self._best.get(case.name, new)
        self._best[case.name] = Measured(min(new.run, old.run), min(new.copy, old.copy))
