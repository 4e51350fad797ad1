"""Images between the products of a network, with their channels last.

Windows of ``Y[n, o, y, x] = +(X[n, c, y + i, x + j] * W[o, c, i, j])`` begin anywhere in the rows of X, and matrix instructions
take rows that begin at multiples of 16 bytes: of every such X a copy with its channels last would be made. What no caller
sees may lie that way from the start, together with all that is computed of it element by element:

    X[n, y, x, c] = relu(P[n, y, x, c] + B[c]);  Y[n, y, x, o] = +(X[n, y + i, x + j, c] * W[o, c, i, j])
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from math import prod

from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.names import claim
from tile_ir.program.liveness import defined_by, used_by
from tile_ir.program.nodes import Contraction, Elementwise, Op, Operand, Poly, Program, Reshape, TensorLoad, TensorType
from tile_ir.stripe.affine import names_in

from tile_opt.program.base import Rewrite, fixed_values, with_each
from tile_opt.program.factorise import index_sizes
from tile_opt.program.permutations import Order, permuted
from tile_opt.program.unfold import is_product

CHUNK = 16
"""Bytes that are copied at once: rows of channels, and of images, begin at multiples of it or are copied before."""


@frozen
class ChannelsLast(Rewrite):
    """Turn values, of which products of at least `least` terms for matrix instructions would have copies."""

    dtypes: frozenset[DType] = frozenset()
    """Of the factors of matrix instructions."""
    least: int = 1 << 24

    def apply(self, program: Program) -> Program:
        types = program.types()
        products = [op for op in program.ops if isinstance(op, Contraction) and self._is_large(op, types)]
        if not any(copied for op in products for _, _, copied in _images(op, types)):
            return program
        orders = _Families(program, types).orders(products)
        return with_each(program, _Turned(types, orders, {*types}).op) if orders else program

    def _is_large(self, op: Contraction, types: Mapping[str, TensorType]) -> bool:
        if not is_product(op) or not {types[str(load.tensor)].dtype for load in op.loads} <= self.dtypes:
            return False
        sizes = index_sizes(op)
        return sizes is not None and prod(sizes.values()) >= self.least


def _images(op: Contraction, types: Mapping[str, TensorType]) -> Iterator[tuple[str, int, bool]]:
    """What a product with weights reads and makes of images: the value, the dimension of its channels, and whether it would be copied."""
    made = [f.index for f in op.output]
    for load, other in (op.loads, op.loads[::-1]):
        name, images, weights = str(load.tensor), names_in(load.formulas), names_in(other.formulas)
        sums = [d for d, f in enumerate(load.formulas) if f.index in weights - names_in(op.output)]
        apart = [d for d, index in enumerate(made) if index in weights - images]
        if len(sums) == len(apart) == 1 and len(load.formulas) == len(made) > 2 and not images & weights & {*made}:
            found = ((name, sums[0], _is_copied(load.formulas, types[name], sums[0])), (op.name, apart[0], False))
            yield from (image for image in found if types[image[0]].shape[image[1]] * op.type.dtype.bytes % CHUNK == 0)


def _follow(output: tuple[Poly, ...], read: tuple[Poly, ...]) -> bool:
    """Each dimension of the result is one of what is read, or goes over it in steps or windows, as pools do."""
    return len(output) == len(read) and all({*a.names} & {*b.names} for a, b in zip(output, read, strict=True))


def _is_copied(formulas: tuple[Poly, ...], type: TensorType, channels: int) -> bool:
    """Rows of pixels begin where windows do, or images where the last one ended."""
    image = prod(type.shape[channels + 1 :]) * type.dtype.bytes
    return channels < len(formulas) - 1 and (formulas[-1].index is None or image % CHUNK > 0)


def _order(type: TensorType, channels: int | None) -> Order | None:
    """The dimensions with the channels behind the others; None where they are."""
    rank = len(type.shape)
    return None if channels in (None, rank - 1) else (*(d for d in range(rank) if d != channels), channels)


class _Sets:
    """Names in sets that do not meet, each called by one of its names."""

    def __init__(self) -> None:
        self._next: dict[str, str] = {}

    def of(self, name: str) -> str:
        while name in self._next:
            name = self._next[name]
        return name

    def join(self, names: Iterable[str]) -> None:
        heads = [*dict.fromkeys(map(self.of, names))]
        self._next.update(dict.fromkeys(heads[1:], heads[0]) if heads else {})


class _Families:
    """Values that operations make of each other element by element, or window by window: they lie alike."""

    def __init__(self, program: Program, types: Mapping[str, TensorType]) -> None:
        self.types, self.sets, self.fixed = types, _Sets(), fixed_values(program)
        for op in program.ops:
            self.sets.join(self._alike(op))
        self.seen = {self.sets.of(name) for name in self._named(program)}

    def orders(self, products: Iterable[Contraction]) -> dict[str, Order]:
        """The order of the dimensions of each value that is turned: where one is copied, with all that products make of it."""
        channels, copied, connected = defaultdict[str, set[int]](set), set[str](), _Sets()
        for op in products:
            images = [(self.sets.of(name), d, copy) for name, d, copy in _images(op, self.types)]
            free = [image for image in images if image[0] not in self.seen]
            for family, d, _ in free:
                channels[family].add(d)
            copied |= {family for family, _, copy in free if copy}
            connected.join(family for family, _, _ in free)
        heads = {connected.of(family) for family in copied}
        turned = {f: d for f, (d, *more) in channels.items() if not more and connected.of(f) in heads}
        found = {name: _order(type, turned.get(self.sets.of(name))) for name, type in self.types.items()}
        return {name: order for name, order in found.items() if order is not None}

    def _alike(self, op: Op) -> Iterator[str]:
        """A result, and what it has its order from."""
        yield from defined_by(op)
        match op:
            case Elementwise():
                yield from (a for a in op.args if isinstance(a, str) and self._is_whole(a, op) and a not in self.fixed)
            case Contraction():
                read = (load.tensor for load in op.loads if _follow(op.output, load.formulas))
                yield from (name for name in read if isinstance(name, str) and name not in self.fixed)
                yield from () if op.default is None else (op.default,)  # a fixed one, too: nothing turns it
            case _:
                return

    def _is_whole(self, operand: str, op: Elementwise) -> bool:
        return self.types[operand].shape == op.type.shape

    def _named(self, program: Program) -> Iterator[str]:
        """Values whose order a caller sees, or an operation of another kind, or one that repeats them along others."""
        yield from (param.name for param in program.inputs)
        yield from (value for _, value in program.outputs)
        yield from self.fixed
        for op in program.ops:
            match op:
                case Contraction():
                    continue
                case Elementwise():
                    yield from (a for a in used_by(op) if not self._is_whole(a, op))
                case _:
                    yield from (*used_by(op), *defined_by(op))


class _Turned:
    """Operations on values with their dimensions in other orders."""

    def __init__(self, types: Mapping[str, TensorType], orders: Mapping[str, Order], taken: set[str]) -> None:
        self.types, self.orders, self.taken = types, orders, taken

    def op(self, op: Op) -> Iterator[Op]:
        match op:
            case Contraction():
                loads, order = tuple(map(self._load, op.loads)), self.orders.get(op.name)
                output = op.output if order is None else tuple(op.output[d] for d in order)
                yield replace(op, loads=loads, output=output, type=self._type(op.name, op.type))
            case Elementwise() if op.name in self.orders:
                made: list[Op] = []
                args = tuple(self._operand(a, self.orders[op.name], op, made) for a in op.args)
                yield from (*made, replace(op, args=args, type=self._type(op.name, op.type)))
            case _:
                yield op

    def _type(self, name: str, type: TensorType) -> TensorType:
        order = self.orders.get(name)
        return type if order is None else replace(type, shape=tuple(type.shape[d] for d in order))

    def _load(self, load: TensorLoad) -> TensorLoad:
        order = self.orders.get(load.tensor) if isinstance(load.tensor, str) else None
        return load if order is None else replace(load, formulas=tuple(load.formulas[d] for d in order))

    def _operand(self, operand: Operand, order: Order, op: Elementwise, made: list[Op]) -> Operand:
        """What the operation reads: one that it repeats, or that lies as it always did, with its dimensions in that order."""
        if not isinstance(operand, str) or operand in self.orders or not self.types[operand].shape:
            return operand
        type = self.types[operand]
        full = replace(type, shape=(1,) * (len(order) - len(type.shape)) + type.shape)
        wide, name = tuple(d for d in order if full.shape[d] > 1), claim(f"{operand}_turned", self.taken)
        if wide == tuple(sorted(wide)):
            made.append(Reshape(name, replace(type, shape=tuple(full.shape[d] for d in order)), operand, op.origin))
            return name
        whole = claim(f"{operand}_whole", self.taken)
        made += Reshape(whole, full, operand, op.origin), permuted(name, whole, full, order, op)
        return name
