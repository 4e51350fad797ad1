"""Gradients of convolutions of few channels, with windows unfolded into columns that matrix instructions multiply.

With three channels neither gradient has as many rows or columns as an instruction. All elements of a window together do:

    dX[n, c, 2*y + i - 1, 2*x + j - 1] = +(dY[n, o, y, x] * W[o, c, i, j])
    dW[o, c, i, j]                     = +(dY[n, o, y, x] * X[n, c, 2*y + i - 1, 2*x + j - 1])

    P[n, c, i, j, y, x]                = +(dY[n, o, y, x] * W[o, c, i, j])
    dX[n, c, 2*y + i - 1, 2*x + j - 1] = +(P[n, c, i, j, y, x])

    U[n, c, i, j, y, x]                = =(X[n, c, 2*y + i - 1, 2*x + j - 1])
    dW[o, c, i, j]                     = +(dY[n, o, y, x] * U[n, c, i, j, y, x])

The elements of a window follow each other as in the weights, so that they become one loop, and so do positions. As in all
copies for matrix instructions, zeros meet gradients where windows go beyond the ends of the data.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import permutations
from math import prod

from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.names import claim
from tile_ir.program.copies import copied
from tile_ir.program.nodes import Contraction, Op, Poly, TensorLoad, TensorType
from tile_ir.stripe.affine import names_in

from tile_opt.program.base import OpRewrite
from tile_opt.program.factorise import index_sizes
from tile_opt.program.unfold import Factor, bounds, is_bounded, is_product

PART = "$windows"
"""An element of the tensor over windows, where it is read."""


@frozen
class UnfoldGradients(OpRewrite):
    """Tensors over windows for gradients of fewer than `channels` channels.

    Windows have at least `window` elements with their channels, each of which is used `columns` times, in `least` products.
    The tensors have at most `spread` elements for each of the results' gradient, which is read beside them.
    """

    dtypes: frozenset[DType] = frozenset()
    """Of the factors of matrix instructions."""
    channels: int = 16
    window: int = 16
    columns: int = 32
    least: int = 1 << 24
    spread: int = 2

    def instead(self, types: Mapping[str, TensorType], taken: set[str], op: Op) -> Iterable[Op]:
        found = _windows(op, types)
        return found.unfolded(taken) if found is not None and self._pays(found) else (op,)

    def _pays(self, found: _Windows) -> bool:
        dtypes = {type.dtype for type in found.factors}
        size, uses = found.count(found.window), found.sizes[found.outs]
        few = found.count(found.channels) < self.channels and self.window <= size <= self.spread * uses
        large = uses >= self.columns and prod(found.sizes.values()) >= self.least
        return dtypes <= self.dtypes and len(dtypes) == 1 and few and large


@frozen
class _Windows:
    """A gradient of a convolution: what its subscripts are."""

    op: Contraction
    factors: tuple[TensorType, ...]
    given: tuple[Poly, ...]
    """Subscripts of the results' gradient, each an index."""
    weight: tuple[Poly, ...]
    """Those of the weights, or of their gradient."""
    data: TensorLoad | None
    """What the windows are read from; None where their gradients are added up there."""
    sizes: Mapping[str, int]

    @property
    def outs(self) -> str:
        """The index of results of one window."""
        (name,) = names_in(self.given) & names_in(self.weight)
        return name

    @property
    def window(self) -> tuple[str, ...]:
        """The indexes of a window's elements, channels too, in the order of weights."""
        return tuple(n for f in self.weight for n in f.names if n != self.outs)

    @property
    def channels(self) -> tuple[str, ...]:
        forms = self.op.output if self.data is None else self.data.formulas
        return tuple(n for n in self.window if Poly.of({n: 1}) in forms)

    def count(self, indexes: Iterable[str]) -> int:
        return prod(self.sizes[n] for n in indexes)

    @property
    def _over(self) -> tuple[str, ...]:
        """The indexes of the tensor over windows.

        Windows take the place of results; a sum over positions follows these along memory.
        """
        given = [n for f in self.given for n in f.names]
        at = given.index(self.outs)
        if self.data is not None and given[-1] == self.outs:
            return *self.window, *given[:-1]
        return *given[:at], *self.window, *given[at + 1 :]

    def unfolded(self, taken: set[str]) -> Iterator[Op]:
        """The tensor over windows, and the gradient that is made of it."""
        cells = tuple(Poly.of({n: 1}) for n in self._over)
        name = claim(f"{self.op.name if self.data is None else self.data.tensor}_windows", taken)
        load = TensorLoad(PART, name, cells)
        if self.data is None:
            yield self._products(name, cells)
            yield self._summed(load)
            return
        yield self._copied(self.data, name, cells)
        moved = tuple(replace(load, dst=was.dst) if was == self.data else was for was in self.op.loads)
        inside = bounds(zip(cells, self._shape, strict=True), self.op)
        kept = tuple(c for c in self.op.constraints if c.formula.index is not None)
        yield replace(self.op, loads=moved, constraints=(*dict.fromkeys((*kept, *inside)),))

    @property
    def _shape(self) -> tuple[int, ...]:
        return tuple(self.sizes[n] for n in self._over)

    def _products(self, name: str, cells: tuple[Poly, ...]) -> Contraction:
        """``name[cells] = +(dY * W)``, over the results of a window alone."""
        kept = tuple(c for c in self.op.constraints if c.formula.index is not None)
        return replace(
            self.op,
            name=name,
            type=TensorType(self.op.acc, self._shape),
            output=cells,
            constraints=(*dict.fromkeys((*kept, *bounds(zip(cells, self._shape, strict=True), self.op))),),
            text=f"{name}: products of all windows, for {self.op.name}",
        )

    def _summed(self, load: TensorLoad) -> Contraction:
        """The products, where they belong."""
        limits = tuple(c for c in self.op.constraints if self.outs not in c.formula.names)
        return replace(
            self.op, indexes=tuple(sorted(self._over)), constraints=limits, loads=(load,), body=(), result=PART
        )

    def _copied(self, data: TensorLoad, name: str, cells: tuple[Poly, ...]) -> Contraction:
        """``name[cells] = =(X)``, 0 beyond the ends of the data."""
        limits = ((c.formula, c.size) for c in self.op.constraints if self.outs not in c.formula.names)
        dtype = next(t for load, t in zip(self.op.loads, self.factors, strict=True) if load == data).dtype
        sizes, source = (*zip(cells, self._shape, strict=True), *limits), str(data.tensor)
        text = f"{name}: windows of {source}, for {self.op.name}"
        type = TensorType(dtype, self._shape)
        return copied(name, type, cells, source, data.formulas, sizes, text=text, origin=self.op.origin)


def _windows(op: Op, types: Mapping[str, TensorType]) -> _Windows | None:
    """What a gradient of a convolution is; None for other operations."""
    if not isinstance(op, Contraction) or not is_product(op):
        return None
    factors = [Factor(load, types[load.tensor]) for load in op.loads if isinstance(load.tensor, str)]
    sizes = index_sizes(op)
    if len(factors) != 2 or sizes is None or not is_bounded(op, factors):
        return None
    kinds = tuple(f.type for f in factors)
    for one, other in permutations(f.load for f in factors):
        for weight, windows, data in ((other.formulas, op.output, None), (op.output, other.formulas, other)):
            if _is_gradient(one.formulas, weight, windows, sizes):
                return _Windows(op, kinds, one.formulas, weight, data, sizes)
    return None


def _is_gradient(
    given: tuple[Poly, ...], weight: tuple[Poly, ...], windows: tuple[Poly, ...], sizes: Mapping[str, int]
) -> bool:
    """Windows of the weights' size at positions of the results; what weights have of a window lies together."""
    if not weight or any(f.index is None for f in (*given, *weight)):
        return False
    here, there = names_in(given), names_in(weight)
    plain = len(here) == len(given) and len(there) == len(weight)
    outs = here & there
    ends = {weight[0].index, weight[-1].index}
    if not plain or len(outs) != 1 or not outs <= ends or (here | there) - outs != names_in(windows):
        return False
    moving = [f for f in windows if f.index is None]
    names = [n for f in windows for n in f.names]
    return bool(moving) and len({*names}) == len(names) and all(_moves(f, here, there, sizes) for f in moving)


def _moves(form: Poly, here: Collection[str], there: Collection[str], sizes: Mapping[str, int]) -> bool:
    """A window's element at a position of which there are no fewer than elements."""
    position, inside = ([n for n in form.names if n in some] for some in (here, there))
    return form.is_integral and len(position) == len(inside) == 1 and sizes[inside[0]] <= sizes[position[0]]
