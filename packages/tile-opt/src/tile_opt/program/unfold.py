"""Windows of few channels, unfolded into rows that matrix instructions multiply.

``Y[n, o, y, x] = +(X[n, c, 2*y + i - 3, 2*x + j - 3] * W[o, c, i, j])`` with three channels has no long loop to sum over: an
instruction's depth is filled by the elements of a window together. So they are copied side by side, windows that overlap
several times, with zeros up to powers of two:

    U[n, h, x, j, c : N, H, 112, 8, 4] = =(X[n, c, h, 2*x + j - 3]), j < 7
    V[o, i, j, c : O, 7, 8, 4]         = =(W[o, c, i, j])
    Y[n, o, y, x]                      = +(U[n, 2*y + i - 3, x, j, c] * V[o, i, j, c])

Where rows are to have one index (`joined`), tensors in which `j` and `c` do not follow each other are copied with these last, each
element once, and windows are then copied as they lie:

    T[n, h, w, c]                 = =(X[n, c, h, w])
    U[n, h, x, q : N, H, 112, 32] = =(T3[n, h, 6*x + q - 9]), q < 21

Small windows go into the rows whole, ``i`` too. Zeros that fill rows up meet zeros, so that sums have what they had. Where
windows go beyond the ends of the data, zeros meet weights, as in all copies for matrix instructions whose rounding is allowed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import permutations
from math import prod

from tile_ir.dtype import DType
from tile_ir.frozen import frozen, replace
from tile_ir.matrix import PANEL_BYTES
from tile_ir.names import claim
from tile_ir.ops import Aggregation
from tile_ir.powers import power_of_two
from tile_ir.program.copies import copied
from tile_ir.program.nodes import (
    Constraint,
    Contraction,
    Op,
    Poly,
    Reshape,
    TensorLoad,
    TensorType,
    coordinates,
)
from tile_ir.stripe.affine import names_in

from tile_opt.program.base import OpRewrite
from tile_opt.program.factorise import result_ranges

PAIR = 2
PRODUCT = frozenset({"cast", "ident", "mul"})


@frozen
class Unfold(OpRewrite):
    """Copy the windows of convolutions of fewer than `depth` channels, with `columns` results a pixel and `least` products."""

    dtypes: frozenset[DType] = frozenset()
    """Of the factors of matrix instructions."""
    depth: int = 16
    columns: int = 32
    least: int = 1 << 28
    uses: int = 0
    """Products of each element of the data's rows, at least."""
    joined: bool = False
    """Rows have one index: those inside them follow each other in both tensors, or in copies of these."""

    def instead(self, types: Mapping[str, TensorType], taken: set[str], op: Op) -> Iterable[Op]:
        windows = _windows(op, types)
        if windows is None or not self._pays(windows):
            return (op,)
        return _together(windows, types, taken) if self.joined else windows.unfolded(taken)

    def _pays(self, windows: _Windows) -> bool:
        products = prod(windows.op.type.shape) * prod(windows.sizes.values())
        short = all(windows.sizes[n] < self.depth for n in windows.near)
        dtypes = {side.type.dtype for side in (windows.data, windows.weight)}
        large = windows.columns >= self.columns and products >= max(self.least, self.uses * windows.copied)
        return dtypes <= self.dtypes and len(dtypes) == 1 and short and large and windows.row <= windows.line


@frozen
class Factor:
    """What a convolution reads of one of its tensors."""

    load: TensorLoad
    type: TensorType

    @property
    def dims(self) -> Iterator[tuple[Poly, int]]:
        """Each dimension's subscript, and its size."""
        return zip(self.load.formulas, self.type.shape, strict=True)


@frozen
class _Windows:
    """A convolution: what its subscripts are."""

    op: Contraction
    data: Factor
    weight: Factor
    near: tuple[str, ...]
    """What a row has at least: the index inside windows along the last dimension, and that of channels, if one is."""
    others: tuple[str, ...]
    """The indexes inside windows along other dimensions."""
    sizes: Mapping[str, int]
    """Iterations of the indexes that are summed over."""

    @property
    def line(self) -> int:
        """Elements of a row that matrix instructions read."""
        return PANEL_BYTES // self.data.type.dtype.bytes

    @property
    def columns(self) -> int:
        """Results that use each element of a window."""
        moved = names_in(self.data.load.formulas)
        return prod(size for n, size in result_ranges(self.op).items() if n not in moved)

    @property
    def row(self) -> int:
        return self._padded(self.near)

    def _padded(self, indexes: Iterable[str]) -> int:
        return prod(power_of_two(self.sizes[n]) for n in indexes)

    @property
    def rows(self) -> tuple[str, ...]:
        """The indexes of a row, outermost first: all of the window where a line holds it."""
        whole = (*self.others, *self.near)
        return whole if self._padded(whole) <= self.line else self.near

    @property
    def copied(self) -> int:
        """Elements of the data's rows."""
        sizes, _, _ = self._places(self.data)
        return prod(sizes.values()) * self._padded(self.rows)

    def unfolded(self, taken: set[str], whole: bool = False) -> Iterator[Op]:
        """Copies of both factors, and the product of their rows, along which one index goes if they are `whole`."""
        names, loads = {*self.op.indexes}, dict[str, TensorLoad]()
        # By their names they stay in the order of a row, and become one loop.
        row = tuple(claim(f"row{n}", names) for n in range(1 if whole else len(self.rows)))
        limits: list[Constraint] = []
        for factor in (self.data, self.weight):
            copy, forms = self._copy(claim(f"{factor.load.tensor}_rows", taken), factor)
            seen = _flat_rows(copy, len(self.rows), taken) if len(row) < len(self.rows) else ()
            forms = (*forms, *(Poly.of({n: 1}) for n in row))
            read = (copy, *seen)[-1]
            loads[factor.load.dst] = TensorLoad(factor.load.dst, read.name, forms)
            limits += bounds(zip(forms, read.type.shape, strict=True), self.op)
            yield from (copy, *seen)
        kept = tuple(c for c in self.op.constraints if c.formula in self.op.output)
        indexes = (*(n for n in self.op.indexes if n not in self.rows), *row)
        moved = tuple(loads[load.dst] for load in self.op.loads)
        yield replace(self.op, indexes=indexes, constraints=(*kept, *limits), loads=moved)

    def _copy(self, name: str, factor: Factor) -> tuple[Contraction, tuple[Poly, ...]]:
        """The factor's rows, and the convolution's subscripts of them."""
        sizes, reads, forms = self._places(factor)
        return self._rows(name, factor, sizes, reads), forms

    def _places(self, factor: Factor) -> tuple[dict[str, int], tuple[Poly, ...], tuple[Poly, ...]]:
        """The indexes that number the factor's rows, with their sizes, what these read, and the convolution's subscripts of them."""
        sizes: dict[str, int] = {}
        reads: list[Poly] = []
        forms: list[Poly] = []
        for d, (form, size) in enumerate(factor.dims):
            inside, outside = _sorted(form, self.rows)
            at = claim(f"d{d}", {*self.op.indexes})
            if not inside:
                sizes[at], read, seen = size, Poly.of({at: 1}), form
            elif outside:
                (result,) = outside
                sizes[at], seen = result_ranges(self.op)[result], Poly.of({result: 1})
                read = Poly.of({at if n == result else n: c for n, c in form.terms}, form.const)
            else:
                read, seen = form, None
            reads.append(read)
            forms += [seen] if seen is not None else []
        return sizes, tuple(reads), tuple(forms)

    def _rows(self, name: str, factor: Factor, sizes: Mapping[str, int], reads: tuple[Poly, ...]) -> Contraction:
        """``name[sizes, rows] = =(factor[reads])``, 0 behind the ends of windows and channels."""
        output = tuple(Poly.of({n: 1}) for n in (*sizes, *self.rows))
        shape = (*sizes.values(), *(power_of_two(self.sizes[n]) for n in self.rows))
        ends = ((Poly.of({n: 1}), self.sizes[n]) for n in self.rows)
        read = zip(reads, factor.type.shape, strict=True)
        return copied(
            name,
            TensorType(factor.type.dtype, shape),
            output,
            str(factor.load.tensor),
            reads,
            (*zip(output, shape, strict=True), *ends, *read),
            text=f"{name}: rows of {factor.load.tensor}, with {', '.join(self.rows)} side by side",
            origin=self.op.origin,
        )


def _flat_rows(copy: Contraction, dims: int, taken: set[str]) -> tuple[Reshape]:
    """The copy with as many dimensions, which are the last, as one."""
    shape = copy.type.shape
    whole = (*shape[:-dims], prod(shape[-dims:]))
    return (Reshape(claim(f"{copy.name}_flat", taken), replace(copy.type, shape=whole), copy.name),)


def bounds(sizes: Iterable[tuple[Poly, int]], op: Contraction) -> tuple[Constraint, ...]:
    """That each form is below its size, for the operation; each pair once."""
    return tuple(dict.fromkeys(Constraint(form, size, op.origin) for form, size in sizes))


def _sorted(form: Poly, names: Collection[str]) -> tuple[list[str], list[str]]:
    """The names of a form: those among `names`, and the others."""
    return [n for n in form.names if n in names], [n for n in form.names if n not in names]


def _windows(op: Op, types: Mapping[str, TensorType]) -> _Windows | None:
    """What a convolution is; None for other operations."""
    if not isinstance(op, Contraction) or not is_product(op) or len(result_ranges(op)) < len(op.output):
        return None
    factors = [Factor(load, types[load.tensor]) for load in op.loads if isinstance(load.tensor, str)]
    if len(factors) != 2 or not is_bounded(op, factors):
        return None
    return next((w for pair in permutations(factors) if (w := _convolution(op, *pair)) is not None), None)


def is_product(op: Contraction) -> bool:
    """A sum of products, which are 0 where both factors are."""
    sums = op.agg is Aggregation.SUM and op.default is None and len(op.loads) == 2
    functions = [s.fn for s in op.body]
    return sums and functions.count("mul") == 1 and {*functions} <= PRODUCT


def is_bounded(op: Contraction, factors: Iterable[Factor]) -> bool:
    """Nothing but the sizes of its tensors bounds what it sums over."""
    sizes = {dim for factor in factors for dim in factor.dims} | {*zip(op.output, op.type.shape, strict=True)}
    return all((c.formula, c.size) in sizes for c in op.constraints)


def _convolution(op: Contraction, data: Factor, weight: Factor) -> _Windows | None:
    summed = {n for n in op.indexes if n not in result_ranges(op)}
    sizes = {form.index: size for form, size in weight.dims if form.index is not None}
    if len(sizes) != len(weight.type.shape) or not summed <= {*sizes}:
        return None
    inside: list[str] = []
    channels: list[str] = []
    for form, _ in data.dims:
        own, others = _sorted(form, summed)
        single = form.index is not None
        if not form.is_integral or len(own) > 1 or len(others) > 1 or not (single or (own and others)):
            return None
        inside += own if not single else []
        channels += own if single else []
    if not inside or len(channels) > 1 or {*inside, *channels} != summed or len({*inside}) != len(inside):
        return None
    return _Windows(op, data, weight, (inside[-1], *channels), tuple(inside[:-1]), {n: sizes[n] for n in summed})


def _together(windows: _Windows, types: Mapping[str, TensorType], taken: set[str]) -> Iterator[Op]:
    """Copies of both factors, and the product of their rows, each of which has one index."""
    made: list[Op] = []
    if len(windows.near) == PAIR:
        pair = (windows.near[0], windows.near[1])
        op, turned = _side_by_side(windows.op, pair, types, taken)
        types = {**types, **{t.name: t.type for t in turned}}
        op, flat = joined(op, pair, types, taken)
        one = _windows(op, {**types, **{r.name: r.type for r in flat}}) if flat else None
        if one is not None:
            windows, made = one, [*turned, *flat]
    yield from made
    yield from windows.unfolded(taken, whole=True)


def _side_by_side(
    op: Contraction, pair: tuple[str, str], types: Mapping[str, TensorType], taken: set[str]
) -> tuple[Contraction, tuple[Contraction, ...]]:
    """The contraction, and copies in which the pair follow each other at the end, of its tensors where they do not."""
    loads: list[TensorLoad] = []
    made: list[Contraction] = []
    for load in op.loads:
        factor = _Joined(load, types[str(load.tensor)], pair)
        copies = () if factor.at else (factor.turned(claim(f"{load.tensor}_turned", taken), op),)
        loads += [factor.moved(copy.name) for copy in copies] or [load]
        made += copies
    return replace(op, loads=tuple(loads)), tuple(made)


def joined(
    op: Contraction, pair: tuple[str, str], types: Mapping[str, TensorType], taken: set[str]
) -> tuple[Contraction, tuple[Reshape, ...]]:
    """The contraction with the pair as one index, and its tensors as it then reads them; itself where the pair is apart."""
    factors = [_Joined(load, types[load.tensor], pair) for load in op.loads if isinstance(load.tensor, str)]
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
class _Joined:
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

    @property
    def _order(self) -> tuple[int, ...]:
        """Its dimensions, those of the pair last."""
        forms = self.load.formulas
        return tuple(sorted(range(len(forms)), key=lambda d: [n in forms[d].names for n in self.pair[::-1]]))

    def turned(self, name: str, op: Contraction) -> Contraction:
        """The copy with the pair last."""
        cells, shape = coordinates(len(self._order)), tuple(self.type.shape[d] for d in self._order)
        reads = tuple(cells[self._order.index(d)] for d in range(len(cells)))
        sizes, text = (
            zip(cells, shape, strict=True),
            f"{name}: {self.load.tensor}, {' and '.join(self.pair)} side by side",
        )
        type = replace(self.type, shape=shape)
        return copied(name, type, cells, str(self.load.tensor), reads, sizes, text=text, origin=op.origin)

    def moved(self, name: str) -> TensorLoad:
        """What is read of that copy."""
        return TensorLoad(self.load.dst, name, tuple(self.load.formulas[d] for d in self._order))

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
