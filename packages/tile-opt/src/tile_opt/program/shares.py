"""What elements weigh over the sum of their row's weights, as one exponential: gradients of keys and values read two numbers of a row.

``exp(x[s, t] - m[s]) / z[s] = exp(x[s, t] - l[s])`` with ``l = m + log(z)``, which is made once for each row, in float32. What such
elements are multiplied with is often divided by z as well: in ``exp(x - m) * (G / z + R)`` with ``R = r / z`` all of it cancels, and
``exp(x - l) * (G + r)`` is left. z is at least about 1 below a row's largest element; where a row has none, neither is a number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import add, sub

from tile_ir.frozen import replace
from tile_ir.names import claim
from tile_ir.program.nodes import Contraction, Literal, TensorType
from tile_ir.stripe.affine import Affine, names_in

from tile_opt.program.cascade import Groups, Weighted, instead, largest
from tile_opt.program.trees import Call, Leaf, Tree, as_dtype, call, computed, leaves, unwidened

Power = tuple[Tree, int]
"""An expression without the weights' sum, and the power of it that it is multiplied with."""


class Shares:
    """What is made of the weights of rows, other than sums of these rows, without dividing it by the sum of the weights."""

    def __init__(self, groups: Groups, total: Weighted, wide: Mapping[str, str]) -> None:
        """`total` is the sum of weights; numbers of rows in `wide` are those that they name over it."""
        self.trees, self.total, self.wide, self.taken = groups.pairs.trees, total, wide, groups.pairs.taken
        self.op, self.row, self.acc = total.pair.op, total.pair.row.tensor, total.pair.op.acc
        self.log = claim(f"{self.op.name}_log", self.taken)
        self.shares: dict[Tree, Leaf] = {}
        self.ops: list[Contraction] = []

    def made(self, readers: Iterable[Contraction]) -> Mapping[str, tuple[Contraction, ...]]:
        """By the name of an operation, what takes its place; nothing where some weights stay what they are."""
        readers = tuple(readers)
        read = dict.fromkeys(str(x.tensor) for op in readers for x in op.loads)
        found = {name: self._without(name) for name in read if self._weighs(name)}
        others = {name: op.name for name, op in found.items() if op is not None}
        if not found or len(others) < len(found):
            return {}
        made = {op.name: (_with(op, others),) for op in readers if any(x.tensor in others for x in op.loads)}
        return made | {self.op.name: (*self._rows(), *self.ops, *(op for op in found.values() if op is not None))}

    def _weighs(self, name: str) -> bool:
        return name in self.trees.made and any(self._exponentials(self.trees.element(name, self._at(name))))

    def _at(self, name: str) -> tuple[Affine, ...]:
        return tuple(Affine.var(f"d{d}") for d, _ in enumerate(self.trees.types[name].shape))

    def _exponentials(self, tree: Tree) -> Iterator[tuple[Call, Tree]]:
        """The weights in an expression, each with what is below the row's largest element in it."""
        match tree:
            case Call("exp", (shifted,)) if (inner := self._below(shifted)) is not None:
                yield tree, inner
            case Call(args=args):
                for arg in args:
                    yield from self._exponentials(arg)
            case _:
                return

    def _below(self, shifted: Tree) -> Tree | None:
        match unwidened(shifted):
            case Call("sub", (inner, pivot)) if instead(pivot) == self.total.instead:
                row = largest(pivot)
                return inner if row is not None and row.tensor == self.row else None
            case _:
                return None

    def _without(self, name: str) -> Contraction | None:
        """What is made of weights, without their sum; None where that is left, or one of another row."""
        type, at = self.trees.types[name], self._at(name)
        tree, extents = self.trees.element(name, at), {f.names[0]: n for f, n in zip(at, type.shape, strict=True)}
        row, *others = {leaf.forms for leaf in leaves(tree) if self._is_of_row(leaf)}
        if others:
            return None
        for weight, inner in self._exponentials(tree):
            if weight not in self.shares:
                self.shares[weight] = self._share(inner, row, extents)
        match self._power(tree):
            case value, 0:
                made = as_dtype(value, type.dtype)
                return computed(extents, claim(f"{name}_share", self.taken), type, at, made, origin=self.op.origin)
            case _:
                return None

    def _share(self, inner: Tree, row: tuple[Affine, ...], extents: Mapping[str, int]) -> Leaf:
        """The weight of an element over the sum of its row's, as one of a tensor of these."""
        log, acc, scores = Leaf(self.log, row, self.acc), self.acc, self._scores(inner)
        value = call("exp", (call("sub", (as_dtype(scores, acc), log), acc),), acc)
        names = names_in(f for leaf in leaves(value) for f in leaf.forms)
        at = tuple(Affine.var(n) for n in extents if n in names)
        type = TensorType(acc, tuple(extents[n] for n in extents if n in names))
        made = computed(extents, claim(f"{self.row}_shares", self.taken), type, at, value, origin=self.op.origin)
        self.ops.append(made)
        return Leaf(made.name, at, acc)

    def _scores(self, inner: Tree) -> Tree:
        """An element of what the largest one is found among, as it was: a tensor with one reader left is made by that, without vectors."""
        for load in self.total.pair.first.loads:
            name = str(load.tensor)
            if name in self.trees.made and self.trees.element(name, self._at(name)) == inner:
                return Leaf(name, self._at(name), inner.dtype)
        return inner

    def _is_of_row(self, leaf: Leaf) -> bool:
        return leaf.tensor in (self.row, self.op.name) or leaf.tensor in self.wide

    def _power(self, tree: Tree) -> Power | None:
        """The expression as one of shares, times a power of the weights' sum; None where it is no such product."""
        if not any(map(self._is_of_row, leaves(tree))):
            return tree, 0
        match tree:
            case Call() if tree in self.shares:
                return self.shares[tree], 1
            case Leaf(name, forms) if name in self.wide:
                return Leaf(self.wide[name], forms, self.acc), -1
            case Call("div", (a, b)) if isinstance(by := unwidened(b), Leaf) and by.tensor == self.op.name:
                made = self._power(a)
                return made and (made[0], made[1] - 1)
            case Call(dtype=dtype) if not (dtype.is_float and dtype.bytes <= self.acc.bytes):
                return None
            case Call("cast", (a,)):
                return self._power(a)
            case Call("cond", (test, *args)) if not any(map(self._is_of_row, leaves(test))):
                return self._call("cond", (test,), args)
            case Call("mul" | "div" | "add" | "sub" | "neg" as fn, args):
                return self._call(fn, (), args)
            case _:
                return None

    def _call(self, fn: str, test: tuple[Tree, ...], args: Sequence[Tree]) -> Power | None:
        """An operation on such expressions; None where it mixes powers."""
        made = [m for a in args if (m := self._power(a)) is not None]
        powers = [power for tree, power in made if not (isinstance(tree, Literal) and tree.value == 0)]
        if len(made) < len(args) or not (fn in _POWERS or len({*powers}) == 1):
            return None
        power = _POWERS[fn](*(power for _, power in made)) if fn in _POWERS else powers[0]
        return call(fn, (*test, *(as_dtype(tree, self.acc) for tree, _ in made)), self.acc), power

    def _rows(self) -> tuple[Contraction, ...]:
        """The sum of weights as it is added up, as it was, and what shares are the exponentials below."""
        op, domain, acc = self.op, self.total.pair.domain, self.acc
        name = claim(f"{op.name}_wide", self.taken)
        type, whole = TensorType(acc, op.type.shape), Leaf(name, domain.output, acc)
        wide = computed(domain.extents, name, type, domain.output, as_dtype(self.total.weight, acc), op)
        short = computed(
            domain.extents, op.name, op.type, domain.output, as_dtype(whole, op.type.dtype), origin=op.origin
        )
        value = call("add", (as_dtype(self.total.pivot, acc), call("log", (whole,), acc)), acc)
        return wide, short, computed(domain.extents, self.log, type, domain.output, value, origin=op.origin)


_POWERS: Mapping[str, Callable[..., int]] = {"mul": add, "div": sub}
"""Of what comes out of operations on products with different ones."""


def _with(op: Contraction, others: Mapping[str, str]) -> Contraction:
    """The operation on other tensors of the same elements."""
    loads = (replace(x, tensor=others.get(x.tensor, x.tensor)) if isinstance(x.tensor, str) else x for x in op.loads)
    return replace(op, loads=tuple(loads))
