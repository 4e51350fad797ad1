"""Two summed indexes that follow each other in both factors of a contraction are one, as their elements lie in memory.

``+(X[n, 2*x + j - 3, c] * W[j, c, o])`` of three channels is ``+(X3[n, 6*x + q - 9] * W3[q, o])``, where X3 and W3 are the same
elements with both dimensions as one.
"""

from __future__ import annotations

from collections.abc import Mapping

from tile_ir.frozen import frozen, replace
from tile_ir.names import claim
from tile_ir.program.nodes import Constraint, Contraction, Poly, Reshape, TensorLoad, TensorType


def joined(
    op: Contraction, pair: tuple[str, str], types: Mapping[str, TensorType], taken: set[str]
) -> tuple[Contraction, tuple[Reshape, ...]]:
    """The contraction with the pair as one index, and its tensors as it then reads them; itself where the pair is apart."""
    factors = [_Factor(load, types[load.tensor], pair) for load in op.loads if isinstance(load.tensor, str)]
    lengths = {f.length for f in factors}
    if len(factors) < len(op.loads) or len(lengths) > 1 or 0 in lengths:
        return op, ()
    index = claim("".join(pair), {*op.indexes})
    seen = tuple(f.seen(claim(f"{f.load.tensor}_flat", taken)) for f in factors)
    loads = tuple(f.read(reshape.name, index) for f, reshape in zip(factors, seen, strict=True))
    kept = [(c.formula, c.size) for c in op.constraints if {*pair}.isdisjoint(c.formula.names)]
    for load, reshape in zip(loads, seen, strict=True):
        kept += zip(load.formulas, reshape.type.shape, strict=True)
    constraints = tuple(Constraint(form, size, op.origin) for form, size in dict.fromkeys(kept))
    indexes = tuple(index if n == pair[0] else n for n in op.indexes if n != pair[1])
    return replace(op, indexes=indexes, constraints=constraints, loads=loads), seen


@frozen
class _Factor:
    load: TensorLoad
    type: TensorType
    pair: tuple[str, str]

    @property
    def at(self) -> int:
        """The dimension along which the second index goes alone, just behind the one along which the first goes by ones; or 0."""
        slow, fast = self.pair
        forms = self.load.formulas
        found = [d for d in range(1, len(forms)) if forms[d].index == fast and forms[d - 1].coefficient(slow) == 1]
        elsewhere = sum(not {*self.pair}.isdisjoint(f.names) for f in forms)
        return found[0] if len(found) == 1 and elsewhere == len(self.pair) else 0

    @property
    def length(self) -> int:
        """Elements along the second index; 0 where the pair is apart."""
        return self.type.shape[self.at] if self.at else 0

    def seen(self, name: str) -> Reshape:
        """The tensor with both dimensions as one."""
        shape, at = self.type.shape, self.at
        whole = (*shape[: at - 1], shape[at - 1] * shape[at], *shape[at + 1 :])
        assert isinstance(self.load.tensor, str)
        return Reshape(name, replace(self.type, shape=whole), self.load.tensor)

    def read(self, name: str, index: str) -> TensorLoad:
        """What is read of it."""
        forms, at = self.load.formulas, self.at
        slow = forms[at - 1] + Poly.of({self.pair[0]: -1})
        both = slow.scaled(self.length) + Poly.of({index: 1})
        return TensorLoad(self.load.dst, name, (*forms[: at - 1], both, *forms[at + 1 :]))
