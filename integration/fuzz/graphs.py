"""Graphs of array operations as data: drawn from a seed, computed over any namespace that has NumPy's functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Rng = np.random.Generator
LARGEST = 4000.0
"""What is larger is not drawn: sums and products of whole numbers stay exact in float32."""
SIZES = (1, 2, 3, 4, 7)
MOST = 600
"""Elements of a value."""


@dataclass(frozen=True, slots=True)
class Step:
    """One operation on earlier values, the inputs first."""

    op: str
    args: tuple[int, ...]
    params: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return f"{self.op}({', '.join([*(f'v{a}' for a in self.args), *map(repr, self.params)])})"


@dataclass(frozen=True)
class Graph:
    """Steps in order, the values that are results, and what the inputs are."""

    inputs: tuple[Array, ...]
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]

    def run(self, xp: Any, inputs: Sequence[Any]) -> list[Any]:
        """The results over a namespace."""
        values = [*inputs]
        for step in self.steps:
            values.append(OPS[step.op].compute(xp, *(values[a] for a in step.args), *step.params))
        return [values[n] for n in self.outputs]

    @cached_property
    def expected(self) -> list[Array]:
        return [np.asarray(v) for v in self.run(np, self.inputs)]

    @cached_property
    def bounds(self) -> list[float]:
        """What may be wrong with each result: nothing with whole numbers, else by how float64 differs from float32."""
        wide = replace(
            self,
            inputs=tuple(a.astype(np.float64) if a.dtype.kind == "f" else a for a in self.inputs),
            steps=tuple(replace(s, params=("float64",)) if s.params == ("float32",) else s for s in self.steps),
        )
        rough = _rough(self.steps, len(self.inputs))
        pairs = zip(self.outputs, self.expected, wide.run(np, wide.inputs), strict=True)
        return [_bound(a, np.asarray(b)) if n in rough else 0.0 for n, a, b in pairs]

    def only(self, output: int) -> Graph:
        """The part that one value needs."""
        needed, first = {output}, len(self.inputs)
        for n in range(first + len(self.steps) - 1, first - 1, -1):
            needed.update(self.steps[n - first].args if n in needed else ())
        kept = sorted(needed)
        at = {n: k for k, n in enumerate(kept)}
        inputs = tuple(self.inputs[n] for n in kept if n < first)
        chosen = (self.steps[n - first] for n in kept if n >= first)
        return Graph(inputs, tuple(replace(s, args=tuple(at[a] for a in s.args)) for s in chosen), (at[output],))

    def __str__(self) -> str:
        first = len(self.inputs)
        lines = [f"v{n} = {a.dtype}{list(a.shape)}" for n, a in enumerate(self.inputs)]
        lines += [f"v{n} = {s}" for n, s in enumerate(self.steps, first)]
        return "\n".join([*lines, f"results {', '.join(f'v{n}' for n in self.outputs)}"])


def _bound(value: Array, wide: Array) -> float:
    off = np.max(np.abs(value.astype(np.float64) - wide), initial=0.0)
    return float(50 * off + 1e-5 * (1 + np.max(np.abs(wide), initial=0.0)))


def _rough(steps: Sequence[Step], inputs: int) -> set[int]:
    """Values that rounding enters."""
    found = set[int]()
    for n, step in enumerate(steps, inputs):
        if OPS[step.op].rounds or found.intersection(step.args):
            found.add(n)
    return found


def differences(graph: Graph, found: Sequence[Array]) -> Iterator[str]:
    """What is wrong with results, in words."""
    for n, got, want, bound in zip(graph.outputs, found, graph.expected, graph.bounds, strict=True):
        if (got.dtype, got.shape) != (want.dtype, want.shape):
            yield f"v{n} is {got.dtype}{list(got.shape)} instead of {want.dtype}{list(want.shape)}"
            continue
        off = np.abs(got.astype(np.float64) - want.astype(np.float64))
        # Not-a-number where there should be a number is no difference that is small.
        if not np.all(off <= bound):
            yield f"v{n} is off by {np.max(off)}, and may be by {bound}:\n{got}\ninstead of\n{want}"


# --- operations --------------------------------------------------------------------------------------


Choice = tuple[tuple[int, ...], tuple[Any, ...]]
"""Numbers of operands, and parameters."""


@dataclass(frozen=True, slots=True)
class Pool:
    """The values so far."""

    rng: Rng
    values: list[Array]
    rough: set[int]

    def pick(self, options: Sequence[Any]) -> Any:
        return options[int(self.rng.integers(len(options)))] if options else None

    def number(self, kinds: str, exact: bool = False, dims: int = 0) -> int | None:
        """Some value of a kind: f, i or b; the latest ones more often."""
        fit = [
            n
            for n, v in enumerate(self.values)
            if v.dtype.kind in kinds and v.ndim >= dims and not (exact and n in self.rough)
        ]
        return self.pick([*fit, *fit[-3:], *fit[-1:]])

    def axis(self, n: int) -> int:
        return int(self.rng.integers(self.values[n].ndim))


Draw = Callable[[Pool], "Choice | None"]


@dataclass(frozen=True, slots=True)
class Op:
    """How operands are drawn, and what is computed of them over a namespace."""

    draw: Draw
    compute: Callable[..., Any]
    rounds: bool = False


def unary(kinds: str, exact: bool = False) -> Draw:
    def draw(pool: Pool) -> Choice | None:
        n = pool.number(kinds, exact)
        return None if n is None else ((n,), ())

    return draw


def binary(kinds: str, exact: bool = False) -> Draw:
    """Two values of one dtype that fit."""

    def draw(pool: Pool) -> Choice | None:
        n = pool.number(kinds, exact)
        m = None if n is None else _partner(pool, n, exact)
        return None if n is None or m is None else (((n, m), (m, n))[int(pool.rng.integers(2))], ())

    return draw


def _partner(pool: Pool, n: int, exact: bool) -> int | None:
    one = pool.values[n]
    return pool.pick(
        [
            m
            for m, v in enumerate(pool.values)
            if v.dtype == one.dtype and _broadcasts(v.shape, one.shape) and not (exact and m in pool.rough)
        ]
    )


def _broadcasts(a: Sequence[int], b: Sequence[int]) -> bool:
    return all(x == y or 1 in (x, y) for x, y in zip(reversed(a), reversed(b), strict=False))


def along(kinds: str, *options: Sequence[Any], exact: bool = False) -> Draw:
    """One axis, and one of each of the options."""

    def draw(pool: Pool) -> Choice | None:
        n = pool.number(kinds, exact, dims=1)
        return None if n is None else ((n,), (pool.axis(n), *(pool.pick(o) for o in options)))

    return draw


def moved(choose: Callable[[Pool, tuple[int, ...]], tuple[Any, ...]], dims: int = 1) -> Draw:
    """Parameters that follow from a shape."""

    def draw(pool: Pool) -> Choice | None:
        n = pool.number("fib", dims=dims)
        return None if n is None else ((n,), choose(pool, pool.values[n].shape))

    return draw


def _sizes(pool: Pool, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Another shape of as many elements."""
    count = int(np.prod(shape))
    shapes = [s for k in range(1, 4) for s in product((1, 2, 3, 4, 6, 7, 8, 12), repeat=k) if np.prod(s) == count]
    return (pool.pick([*shapes, (count,)]),)


def _slices(pool: Pool, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Begin, end and step of each axis; steps go backwards, too."""
    parts: list[tuple[int, int, int]] = []
    for size in shape:
        low, high = sorted(int(k) for k in pool.rng.integers(0, size, 2))
        step = int(pool.pick((1, 1, 2, 3, -1, -2)))
        parts.append((low, high + 1, step) if step > 0 else (high, low - 1, step))
    return (tuple(parts),)


def _where(pool: Pool) -> Choice | None:
    n = pool.number("fi")
    m = None if n is None else _partner(pool, n, False)
    if n is None or m is None:
        return None
    shapes = (pool.values[n].shape, pool.values[m].shape)
    fit = [k for k, v in enumerate(pool.values) if v.dtype == bool and all(_broadcasts(v.shape, s) for s in shapes)]
    return ((pool.pick(fit), n, m), ()) if fit else None


def _joined(pool: Pool) -> Choice | None:
    n = pool.number("fib", dims=1)
    if n is None:
        return None
    axis, one = pool.axis(n), pool.values[n]

    def rest(v: Array) -> tuple[int, ...]:
        return (*v.shape[:axis], *v.shape[axis + 1 :])

    fit = [m for m, v in enumerate(pool.values) if v.dtype == one.dtype and v.ndim == one.ndim and rest(v) == rest(one)]
    return tuple(pool.pick(fit) if k else n for k in range(int(pool.rng.integers(2, 4)))), (axis,)


def _product(pool: Pool) -> Choice | None:
    floats = [n for n, v in enumerate(pool.values) if v.dtype.kind == "f" and v.ndim >= 2]
    pairs = [
        (a, b)
        for a in floats
        for b in floats
        if pool.values[a].shape[-1] == pool.values[b].shape[-2]
        and _broadcasts(pool.values[a].shape[:-2], pool.values[b].shape[:-2])
    ]
    return (pool.pick(pairs), ()) if pairs else None


def _taken(pool: Pool) -> Choice | None:
    n = pool.number("fib", dims=1)
    if n is None:
        return None
    axis = pool.axis(n)
    return (n,), (tuple(int(k) for k in pool.rng.integers(0, pool.values[n].shape[axis], 3)), axis)


def _cast(pool: Pool) -> Choice | None:
    n = pool.number("fib", exact=True)
    return None if n is None else ((n,), (pool.pick(("float32", "int32", "bool")),))


def _scalar(pool: Pool) -> Choice | None:
    n = pool.number("fi")
    return None if n is None else ((n,), (int(pool.rng.integers(-3, 4)),))


def _at(x: Any, parts: Sequence[tuple[int, int, int]]) -> Any:
    return x[tuple(slice(low, high if high >= 0 else None, step) for low, high, step in parts)]


def _getitem(xp: Any, x: Any, parts: Sequence[tuple[int, int, int]]) -> Any:
    return xp.getitem(x, parts) if hasattr(xp, "getitem") else _at(x, parts)


def function(name: str) -> Callable[..., Any]:
    """The namespace's function of that name."""
    return lambda xp, *operands: getattr(xp, name)(*operands)


def reduction(name: str) -> Callable[..., Any]:
    return lambda xp, x, axis, keep: getattr(xp, name)(x, axis=axis, keepdims=keep)


OPS: dict[str, Op] = {
    **{n: Op(binary("fi"), function(n)) for n in ("add", "subtract", "multiply", "maximum", "minimum")},
    **{n: Op(binary("fi", exact=True), function(n)) for n in ("less", "equal")},
    **{n: Op(binary("b"), function(n)) for n in ("logical_and", "logical_or")},
    **{n: Op(unary("fi"), function(n)) for n in ("negative", "abs")},
    **{n: Op(unary("f"), function(n), rounds=True) for n in ("tanh",)},
    **{n: Op(along("fi", (False, True)), reduction(n)) for n in ("max", "min")},
    **{n: Op(along("b", (False, True)), reduction(n)) for n in ("any", "all")},
    "sum": Op(along("f", (False, True)), reduction("sum")),
    "mean": Op(along("f", (False, True)), reduction("mean"), rounds=True),
    "sign": Op(unary("fi", exact=True), function("sign")),
    "logical_not": Op(unary("b"), function("logical_not")),
    "root": Op(unary("f", exact=True), lambda xp, x: xp.sqrt(xp.abs(x)), rounds=True),
    "quotient": Op(binary("f", exact=True), lambda xp, a, b: xp.divide(a, xp.add(xp.abs(b), 1)), rounds=True),
    "decay": Op(unary("f", exact=True), lambda xp, x: xp.exp(xp.negative(xp.abs(x))), rounds=True),
    "plus": Op(_scalar, lambda xp, x, k: xp.add(x, k)),
    "times": Op(_scalar, lambda xp, x, k: xp.multiply(x, k)),
    "astype": Op(_cast, lambda xp, x, to: xp.astype(x, getattr(xp, to if to != "bool" else "bool_", None) or xp.bool)),
    "where": Op(_where, function("where")),
    "reshape": Op(moved(_sizes), lambda xp, x, shape: xp.reshape(x, shape)),
    "permute": Op(moved(lambda p, s: (tuple(int(k) for k in p.rng.permutation(len(s))),), 2), function("permute_dims")),
    "widen": Op(moved(lambda p, s: ((int(p.pick((2, 3))), *s),), 0), function("broadcast_to")),
    "flip": Op(along("fib"), lambda xp, x, axis: xp.flip(x, axis=axis)),
    "roll": Op(along("fib", (-2, 1, 3)), lambda xp, x, axis, by: xp.roll(x, by, axis=axis)),
    "slice": Op(moved(_slices), _getitem),
    "join": Op(_joined, lambda xp, *given: xp.concat(given[:-1], axis=given[-1])),
    "expand": Op(moved(lambda p, s: (int(p.rng.integers(len(s) + 1)),), 0), lambda xp, x, at: xp.expand_dims(x, axis=at)),
    "take": Op(_taken, lambda xp, x, where, axis: xp.take(x, xp.asarray(where), axis=axis)),
    "tril": Op(moved(lambda p, s: (int(p.pick((-1, 0, 1))),), 2), lambda xp, x, k: xp.tril(x, k=k)),
    "matmul": Op(_product, function("matmul")),
    "scan": Op(along("f"), lambda xp, x, axis: xp.cumulative_sum(x, axis=axis)),
    "sort": Op(along("f", exact=True), lambda xp, x, axis: xp.sort(x, axis=axis)),
    "argmax": Op(along("f", exact=True), lambda xp, x, axis: xp.astype(xp.argmax(x, axis=axis), xp.int32)),
}  # fmt: skip
"""Discontinuous operations take whole numbers only: what is nearly equal would decide."""


# --- drawing -----------------------------------------------------------------------------------------


def drawn(seed: int | Sequence[int], most: int = 12) -> Graph:
    """The graph of a seed, of `most` steps at most; every value that no step uses is a result, and some others."""
    rng = np.random.default_rng(seed)
    pool = Pool(rng, [_input(rng) for _ in range(int(rng.integers(1, 4)))], set())
    inputs, steps = len(pool.values), list[Step]()
    for name in rng.choice([*OPS], 3 * most):
        choice = OPS[name].draw(pool)
        if choice is not None and len(steps) < most:
            _take(pool, Step(str(name), *choice), steps)
    used = {a for s in steps for a in s.args}
    ends = [n for n in range(inputs, len(pool.values)) if n not in used or rng.random() < 0.1]
    graph = Graph(tuple(pool.values[:inputs]), tuple(steps), tuple(ends))
    return graph if ends else drawn([*np.atleast_1d(seed), 1], most)


def _input(rng: Rng) -> Array:
    shape = tuple(int(n) for n in rng.choice(SIZES, int(rng.integers(0, 4))))
    kind = rng.choice(["float32", "float32", "float32", "int32", "bool"])
    return np.asarray(rng.integers(0 if kind == "bool" else -4, 2 if kind == "bool" else 5, shape)).astype(kind)


def _take(pool: Pool, step: Step, steps: list[Step]) -> None:
    """The step, if its value is neither large nor rough where it may not be."""
    op = OPS[step.op]
    with np.errstate(all="ignore"):
        value = np.asarray(op.compute(np, *(pool.values[a] for a in step.args), *step.params))
    if value.size > MOST or value.ndim > 5 or not np.all(np.abs(value.astype(np.float64)) <= LARGEST):
        return
    if op.rounds or pool.rough.intersection(step.args):
        pool.rough.add(len(pool.values))
    pool.values.append(value)
    steps.append(step)
