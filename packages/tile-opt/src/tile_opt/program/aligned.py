"""An expression of elements as elementwise operations over whole tensors, broadcast by NumPy's rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from tile_ir.program.nodes import Elementwise, Literal, Op, Operand, TensorType
from tile_ir.stripe.affine import Affine, names_in

from tile_opt.analysis import FlatDomain
from tile_opt.program.trees import Call, Leaf, Tree, computed


def aligned(
    tree: Call, names: Sequence[str], domain: FlatDomain, types: Mapping[str, TensorType], fresh: Callable[[str], str]
) -> list[Op]:
    """What computes `tree`, the last operation, for all values of the indexes `names` of a domain, an axis for each.

    An axis has one cell where the tree does not depend on its index.
    """
    made = _Aligned(names, domain, types, fresh)
    made.value(tree)
    return made.ops


@dataclass(slots=True)
class _Aligned:
    names: Sequence[str]
    domain: FlatDomain
    types: Mapping[str, TensorType]
    fresh: Callable[[str], str]
    ops: list[Op] = field(default_factory=list[Op])
    known: dict[Tree, Operand] = field(default_factory=dict[Tree, Operand])
    shapes: dict[Operand, tuple[int, ...]] = field(default_factory=dict[Operand, tuple[int, ...]])

    def value(self, tree: Tree) -> Operand:
        if isinstance(tree, Literal):
            return tree
        if tree not in self.known:
            self.known[tree] = self._leaf(tree) if isinstance(tree, Leaf) else self._call(tree)
        return self.known[tree]

    def _call(self, tree: Call) -> str:
        args = tuple(map(self.value, tree.args))
        shape = np.broadcast_shapes(*(self.shapes.get(a, ()) for a in args))
        name = self.fresh("aligned")
        self.ops.append(Elementwise(name, TensorType(tree.dtype, shape), tree.fn, args))
        self.shapes[name] = shape
        return name

    def _leaf(self, leaf: Leaf) -> str:
        """The tensor itself where its axes are the last ones of ours; else a copy."""
        shape = self.types[leaf.tensor].shape
        if self._lies(leaf, shape):
            self.shapes[leaf.tensor] = shape
            return leaf.tensor
        read = names_in(leaf.forms)
        output = tuple(Affine.var(n) if n in read else Affine() for n in self.names)
        sizes = tuple(self.domain.extents[n] if n in read else 1 for n in self.names)
        name = self.fresh(f"{leaf.tensor}_aligned")
        self.ops.append(computed(self.domain.extents, name, TensorType(leaf.dtype, sizes), output, leaf))
        self.shapes[name] = sizes
        return name

    def _lies(self, leaf: Leaf, shape: tuple[int, ...]) -> bool:
        behind = self.names[len(self.names) - len(shape) :] if len(shape) <= len(self.names) else ()
        sizes = zip(leaf.forms, shape, behind, strict=False)
        return len(behind) == len(shape) and all(
            (f == Affine.var(n) and size == self.domain.extents[n]) or (f == Affine() and size == 1)
            for f, size, n in sizes
        )
