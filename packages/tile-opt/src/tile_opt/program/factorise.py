"""Sums of products of several factors, pair by pair: ``+(A[i, j] * B[j, k] * C[k, l])`` is two matrix products.

An index that two factors have and nothing else needs is summed in a contraction of these two, whose result takes their
place. A factor that moves in no step of a sum over few columns, ``+(A[i, k, j] * s[i, j])``, comes after it: the sum of A alone
fills vectors with rows side by side. Which pairs come first is found by dynamic programming over sets of factors, by the points that all contractions
visit. Integers wrap, so that any order gives the same; floats round as a sum of as many terms may.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from math import prod

from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.names import claim
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import (
    Contraction,
    Literal,
    Op,
    Operand,
    Poly,
    ScalarStatement,
    TensorLoad,
    TensorType,
)
from tile_ir.stripe.affine import names_in

from tile_opt.program.base import OpRewrite

RUNS, LARGE = 64, 1 << 17
"""Rows of few columns at most that are left of a large factor where they are summed once more with another."""
Names = frozenset[str]


@frozen
class Factorise(OpRewrite):
    """Contract pairs of factors first where that visits a `gain`-th of the points or less, of `worth` points or more; or takes two
    thirds of the multiplications or less, and `spared` fewer, which make up for another kernel: each point of three factors takes two.

    Of more than `searched` factors the cheapest pairs are taken together before the search. Where rows have fewer than `columns`
    elements, what is constant in a sum of two factors comes after it.
    """

    gain: int = 2
    worth: int = 1 << 12
    searched: int = 8
    columns: int = 0
    spared: int = 1 << 24

    def instead(self, types: Mapping[str, TensorType], taken: set[str], op: Op) -> Iterable[Op]:
        sizes = index_sizes(op) if isinstance(op, Contraction) and self._may(op, types) else None
        found = self._parts(op, sizes, types, taken) if isinstance(op, Contraction) and sizes else None
        return found or (op,)

    def _may(self, op: Contraction, types: Mapping[str, TensorType]) -> bool:
        """A product of three factors or more, or of two of which one may come later, that is summed."""
        return (len(op.loads) > 2 or (len(op.loads) == 2 and self.columns > 0)) and _is_product(op, types)

    def _parts(
        self, op: Contraction, sizes: Mapping[str, int], types: Mapping[str, TensorType], taken: set[str]
    ) -> list[Contraction] | None:
        whole = prod(sizes.values())
        if whole < self.worth:
            return None
        search = _Search(sizes, _pinned(op))
        tree = search.best([Leaf(load, _names(load.formulas)) for load in op.loads], self.searched)
        fewer = tree.cost * self.gain <= whole or self._spares((len(op.loads) - 1) * whole, tree.cost)
        if not fewer and not self._scales(tree, sizes):
            return None
        made = _Builder(op, sizes, types, taken)
        made.finish(tree)
        return made.ops

    def _spares(self, together: int, pairs: int) -> bool:
        """Pairs need far fewer multiplications than all factors together."""
        return 3 * pairs <= 2 * together and together - pairs >= self.spared

    def _scales(self, tree: Product, sizes: Mapping[str, int]) -> bool:
        """What is left after the sum of one factor over few columns is another times it, or a sum of that over few cells."""
        sums = [f for f in tree.factors if isinstance(f, Product)]
        if len(sums) != 1 or len(tree.factors) != 2 or len(sums[0].factors) != 1:
            return False
        (factor,) = sums[0].factors
        last = factor.load.formulas[-1].index if isinstance(factor, Leaf) and factor.load.formulas else None
        summed = prod(sizes[n] for n in sums[0].domain - sums[0].names)
        if last not in sums[0].names or not sizes[last] < self.columns <= summed:
            return False
        cells = prod(sizes[n] for n in sums[0].names)
        return tree.names == tree.domain or (cells <= RUNS * sizes[last] and cells * summed >= LARGE)


def _is_product(op: Contraction, types: Mapping[str, TensorType]) -> bool:
    """A sum of products, in the accumulator's dtype, each load a factor once."""
    if op.agg is not Aggregation.SUM or op.acc is not op.type.dtype.accumulator:
        return False
    read = sorted(a for s in op.body for a in s.args if isinstance(a, str))
    made = [load.dst for load in op.loads] + [s.dst for s in op.body]
    once = isinstance(op.result, str) and sorted([*read, op.result]) == sorted(made)
    loaded = {load.dst for load in op.loads}
    return once and all(
        s.dtype is op.acc and (s.fn == "mul" or (s.fn == "cast" and s.args[0] in loaded)) for s in op.body
    )


def own_ranges(op: Contraction) -> dict[str, int]:
    """The indexes that have a range of their own, and its size."""
    sizes: dict[str, int] = {}
    for c in op.constraints:
        if (name := c.formula.index) is not None:
            sizes[name] = min(c.size, sizes.get(name, c.size))
    return sizes


def result_ranges(op: Contraction) -> dict[str, int]:
    """The indexes that are subscripts of the result, and its sizes there."""
    pairs = zip(op.output, op.type.shape, strict=True)
    return {f.index: size for f, size in pairs if f.index is not None}


def index_sizes(op: Contraction) -> dict[str, int] | None:
    """The range of each index, by its own constraint; None where one has none, or nothing is valid."""
    if any(not c.formula.names and not 0 <= c.formula.const < c.size for c in op.constraints):
        return None
    sizes = own_ranges(op)
    return sizes if sizes.keys() == set(op.indexes) and all(sizes.values()) else None


def _pinned(op: Contraction) -> Names:
    """Indexes that the result has, or that constraints tie to others: they stay to the end."""
    tied = (c.formula for c in op.constraints if c.formula.index is None)
    return _names((*op.output, *tied))


def _names(formulas: Iterable[Poly]) -> Names:
    return frozenset(names_in(formulas))


# --- which pairs -----------------------------------------------------------------------------------


@frozen
class Leaf:
    """A factor as the contraction loads it."""

    load: TensorLoad
    names: Names
    cost: int = 0


@frozen
class Product:
    """Factors that are multiplied and summed over what only they have; `names` are the indexes that remain."""

    factors: tuple[Tree, ...]
    names: Names
    cost: int
    """Points of this contraction and of those before it."""

    @property
    def domain(self) -> Names:
        return frozenset[str]().union(*(f.names for f in self.factors))


Tree = Leaf | Product


@dataclass
class _Search:
    """The cheapest order for factors over indexes of these sizes."""

    sizes: Mapping[str, int]
    pinned: Names

    def best(self, leaves: list[Leaf], searched: int) -> Product:
        trees: list[Tree] = list(leaves)
        while len(trees) > searched:
            trees = self._greedy(trees)
        everything = (1 << len(trees)) - 1
        known: dict[int, Tree] = {}
        for chosen in sorted(range(1, everything + 1), key=int.bit_count):
            needed = self._needed(trees, chosen)
            if chosen.bit_count() == 1:
                known[chosen] = self._alone(trees[chosen.bit_length() - 1], needed)
                continue
            halves = ((known[chosen ^ half], known[half]) for half in _halves(chosen))
            known[chosen] = min((self._product(pair, needed) for pair in halves), key=lambda t: t.cost)
        found = known[everything]
        assert isinstance(found, Product)
        return found

    def _needed(self, trees: list[Tree], chosen: int) -> Names:
        """Indexes that something outside the chosen factors has."""
        others = (t.names for k, t in enumerate(trees) if not chosen >> k & 1)
        return self.pinned.union(*others)

    def _alone(self, tree: Tree, needed: Names) -> Tree:
        """A factor summed over the indexes that it alone has."""
        return tree if tree.names <= needed else self._product((tree,), needed)

    def _product(self, factors: tuple[Tree, ...], needed: Names) -> Product:
        domain = frozenset[str]().union(*(f.names for f in factors))
        cost = prod(self.sizes[n] for n in domain) + sum(f.cost for f in factors)
        return Product(factors, domain & needed, cost)

    def _greedy(self, trees: list[Tree]) -> list[Tree]:
        """One product in the place of the pair that costs least."""

        def merged(pair: tuple[int, int]) -> Product:
            needed = self._needed(trees, 1 << pair[0] | 1 << pair[1])
            return self._product((trees[pair[0]], trees[pair[1]]), needed)

        pair = min(combinations(range(len(trees)), 2), key=lambda p: merged(p).cost)
        return [*(t for k, t in enumerate(trees) if k not in pair), merged(pair)]


def _halves(chosen: int) -> Iterator[int]:
    """Proper subsets of a set of bits, one of each complementary pair."""
    half = (chosen - 1) & chosen
    while half > chosen ^ half:
        yield half
        half = (half - 1) & chosen


# --- contractions ------------------------------------------------------------------------------------


@dataclass
class _Builder:
    """The contractions of a tree, in order."""

    op: Contraction
    sizes: Mapping[str, int]
    types: Mapping[str, TensorType]
    taken: set[str]

    @cached_property
    def ops(self) -> list[Contraction]:
        return []

    def finish(self, tree: Product) -> None:
        """The last contraction takes the place of the whole; indexes that no factor has repeat it as before."""
        kept = self._merged(tree)
        gone = frozenset(self.op.indexes) - tree.domain - _pinned(self.op) - self._unread()
        self.ops.append(
            self._contraction(self.op.name, kept, self.op.output, frozenset(self.op.indexes) - gone, self.op)
        )

    def _unread(self) -> Names:
        """Indexes that no factor has."""
        return frozenset(self.op.indexes) - _names(f for load in self.op.loads for f in load.formulas)

    def _merged(self, tree: Product) -> list[TensorLoad]:
        """The factors of a product; those of an inner one over the same indexes, which sums nothing, as well."""
        loads: list[TensorLoad] = []
        for factor in tree.factors:
            if isinstance(factor, Leaf):
                loads.append(factor.load)
            elif factor.names == factor.domain == tree.domain:
                loads += self._merged(factor)
            else:
                loads.append(self._part(factor))
        return loads

    def _part(self, tree: Product) -> TensorLoad:
        """A contraction of its own; gives the load of its element."""
        loads = self._merged(tree)
        name = claim(f"{self.op.name}_part", self.taken)
        # Lies as its factors do, whatever the indexes are called.
        names = (n for load in loads for f in load.formulas for n in f.names)
        cells = [n for n in dict.fromkeys(names) if n in tree.names]
        cell = tuple(Poly.of({n: 1}) for n in cells)
        type_ = TensorType(self.op.acc, tuple(self.sizes[n] for n in cells))
        like = replace(self.op, name=name, type=type_, default=None)
        self.ops.append(self._contraction(name, loads, cell, tree.domain, like))
        return TensorLoad("", name, cell)

    def _contraction(
        self, name: str, loads: list[TensorLoad], output: tuple[Poly, ...], indexes: Names, like: Contraction
    ) -> Contraction:
        placed = tuple(replace(load, dst=f"${k}") for k, load in enumerate(loads))
        body, result = self._body(placed)
        constraints = tuple(c for c in like.constraints if indexes.issuperset(c.formula.names))
        shape = ", ".join(map(str, like.type.shape))
        text = f"{name}[{', '.join(map(str, output))} : {shape}] = +({' * '.join(map(_access, placed))})"
        return replace(
            like,
            indexes=tuple(sorted(indexes)),
            output=output,
            constraints=constraints,
            loads=placed,
            body=body,
            result=result,
            text=text,
        )

    def _body(self, loads: tuple[TensorLoad, ...]) -> tuple[tuple[ScalarStatement, ...], Operand]:
        """The product of what is loaded, in the accumulator's dtype."""
        statements: list[ScalarStatement] = []

        def emit(fn: str, *args: Operand) -> str:
            statements.append(ScalarStatement(f"$r{len(statements)}", fn, args, self.op.acc))
            return statements[-1].dst

        values = [emit("cast", x.dst) if self._dtype(x.tensor) is not self.op.acc else x.dst for x in loads]
        total = values[0]
        for value in values[1:]:
            total = emit("mul", total, value)
        return tuple(statements), total

    def _dtype(self, tensor: Operand) -> DType:
        if isinstance(tensor, Literal):
            return tensor.dtype
        return self.types[tensor].dtype if tensor in self.types else self.op.acc


def _access(load: TensorLoad) -> str:
    tensor = load.tensor if isinstance(load.tensor, str) else str(load.tensor.value)
    return f"{tensor}[{', '.join(map(str, load.formulas))}]"
