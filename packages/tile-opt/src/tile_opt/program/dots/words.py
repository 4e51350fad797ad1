"""Words of factors: where a factor's elements go, and the operations that put them there.

Factors that follow each other along one summed index, the *packed* one, lie side by side in a word; of a dimension of n
elements a quarter (or half) as many words are left. Whatever the dimension lacks in its last word is zero there. Where a
given tensor's rows are that index, its bytes are the words already.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field

from tile_ir.dots import WORD
from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.names import claim
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import (
    Constraint,
    Contraction,
    Elementwise,
    Literal,
    Op,
    Operand,
    Poly,
    Reshape,
    ScalarStatement,
    TensorLoad,
    TensorType,
)
from tile_ir.stripe.affine import Affine

from tile_opt.program.trees import Leaf, Tree

Pads = tuple[tuple[int, int], ...]
"""By dimension, how many elements stand in front of a tensor and behind it."""
_TURNED = 0x80808080
FLIP = {DType.UINT8: DType.INT8, DType.INT8: DType.UINT8}
"""The dtype of a byte whose highest bit is turned over: its value is then 128 less, or more."""


@frozen
class Stored:
    """A factor ``x - zero`` as its words hold it: as ``y = x - zero + center``, which is a number of `dtype`.

    `pads` are, by dimension, the elements in front of the tensor and behind it: there the factor is 0.
    """

    leaf: Leaf
    dtype: DType
    zero: Tree | int
    pads: Pads = ()

    @property
    def less(self) -> int:
        """What is taken away before: 16 bits hold the difference itself."""
        return self.zero if isinstance(self.zero, int) and self.dtype.bits > self.leaf.dtype.bits else 0

    @property
    def offset(self) -> int:
        """What `center` is beside ``zero``."""
        if self.flipped:
            return -128 if self.dtype.is_signed else 128
        return -self.less

    @property
    def center(self) -> int | None:
        """What a factor of 0 is stored as; None where only a run knows."""
        return self.zero + self.offset if isinstance(self.zero, int) else None

    @property
    def flipped(self) -> bool:
        return FLIP.get(self.leaf.dtype) is self.dtype

    @property
    def can_pad(self) -> bool:
        """A factor of 0 can be stored."""
        return self.center is not None and self.dtype.min_value <= self.center <= self.dtype.max_value

    @property
    def filling(self) -> int:
        """A word of factors that count as nothing: `center`, where that is known."""
        number = self.center or 0
        return sum((number & ((1 << self.dtype.bits) - 1)) << at for at in range(0, WORD.bits, self.dtype.bits))


def packed_dim(leaf: Leaf, index: str, depth: int) -> int | None:
    """The dimension along which `index` goes by ones and starts at the start of a word; None where there is not just one."""
    found = [d for d, f in enumerate(leaf.forms) if index in f.names]
    if len(found) != 1:
        return None
    form = leaf.forms[found[0]]
    rest = form - Affine.var(index)
    whole = rest.const % depth == 0 and all(c % depth == 0 for _, c in rest.terms)
    return found[0] if form.coefficient(index) == 1 and whole else None


def is_words(stored: Stored, dim: int, type: TensorType, depth: int) -> bool:
    """Elements lie in memory as in words: the packed dimension is the last one, and made of whole words of such numbers.

    Beside them there are only words of zeros, if any.
    """
    last = dim == len(type.shape) - 1 and type.dtype.bits == stored.dtype.bits and type.shape[dim] % depth == 0
    return last and (not stored.filling or not any(map(any, stored.pads)))


def in_words(leaf: Leaf, dim: int, index: str, word: str, depth: int, pads: Pads, last: int | None = None) -> Leaf:
    """The element of the words: `word` counts them along the packed dimension; one may be the `last` there."""
    forms = [f + front for f, (front, _) in zip(leaf.forms, pads, strict=True)] if pads else list(leaf.forms)
    rest = forms[dim] - Affine.var(index)
    forms[dim] = Affine.of({n: c // depth for n, c in rest.terms}, rest.const // depth) + Affine.var(word)
    return Leaf(leaf.tensor, tuple(forms[d] for d in _order(len(forms), last)), WORD)


def _order(rank: int, last: int | None) -> tuple[int, ...]:
    """The dimensions of a tensor as its words have them."""
    return tuple(sorted(range(rank), key=lambda d: d == last))


@dataclass(slots=True)
class Packing:
    """The operations that pack a program's factors, each once."""

    types: dict[str, TensorType]
    taken: set[str]
    given: Container[str] = ()
    """Values that no operation makes: their bytes may be read as words."""
    made: dict[object, str] = field(default_factory=dict[object, str])

    def words(
        self, stored: Stored, dim: int, depth: int, ops: list[Op], whole: bool = False, last: int | None = None
    ) -> str:
        """The tensor of the words of a factor along a dimension, or of the whole ones; what makes it goes to `ops`, if nothing has made it.

        Where it has to be made, a dimension may become its `last`.
        """
        pads = stored.pads or ((0, 0),) * len(stored.leaf.forms)
        key = (
            stored.leaf.tensor,
            stored.dtype,
            stored.filling if any(map(any, pads)) else 0,
            stored.less,
            pads,
            dim,
            depth,
            whole,
            last,
        )
        if key not in self.made:
            source = stored.leaf.tensor
            if source in self.given and is_words(stored, dim, self.types[source], depth):
                self.made[key] = self._as_words(stored, depth, pads, ops)
                return self.made[key]
            if self.types[source].shape[dim] % depth and not whole:
                source = self._add(
                    ops, _filled(claim(f"{source}_whole", self.taken), self.types[source], stored, dim, depth)
                )
            self.made[key] = self._packed(source, stored, dim, depth, pads, ops, last)
        return self.made[key]

    def _as_words(self, stored: Stored, depth: int, pads: Pads, ops: list[Op]) -> str:
        """The bytes as they are, or a copy of words with zeros around them."""
        source = stored.leaf.tensor
        if source not in self.made:
            *outer, last = self.types[source].shape
            name = claim(f"{source}_view", self.taken)
            self.made[source] = self._add(ops, Reshape(name, TensorType(WORD, (*outer, last // depth)), source))
        type = self.types[self.made[source]]
        mask = _TURNED if stored.flipped else 0
        if not mask and not any(map(any, pads)):
            return self.made[source]
        body = (ScalarStatement("$y", *(("bit_xor", ("$x0", word(mask))) if mask else ("ident", ("$x0",))), WORD),)
        name = claim(f"{source}_words", self.taken)
        return self._add(ops, _gathered(name, self.made[source], type, len(type.shape) - 1, 1, pads, body))

    def _add(self, ops: list[Op], op: Contraction | Elementwise | Reshape) -> str:
        ops.append(op)
        self.types[op.name] = op.type
        return op.name

    def _packed(
        self, source: str, stored: Stored, dim: int, depth: int, pads: Pads, ops: list[Op], last: int | None
    ) -> str:
        """Outside the tensor there is 0 at first, and then, where another number counts as nothing, that."""
        type, raw = self.types[source], source == stored.leaf.tensor
        outside = stored.filling if any(map(any, pads)) else 0
        turned = _TURNED if raw and stored.flipped else 0
        body = _word_body(type.dtype, stored.less if raw else 0, depth, turned ^ outside)
        name = claim(f"{stored.leaf.tensor}_words", self.taken)
        made = self._add(ops, _gathered(name, source, type, dim, depth, pads, body, last))
        if not outside:
            return made
        name = claim(f"{stored.leaf.tensor}_padded", self.taken)
        return self._add(ops, Elementwise(name, self.types[made], "bit_xor", (made, word(outside))))


def _filled(name: str, type: TensorType, stored: Stored, dim: int, depth: int) -> Contraction:
    """A tensor as it is stored, with zeros up to a whole number of words."""
    size = -(-type.shape[dim] // depth) * depth
    shape = tuple(size if d == dim else n for d, n in enumerate(type.shape))
    forms = tuple(Poly.of({f"d{d}": 1}) for d in range(len(shape)))
    body: list[ScalarStatement] = []
    if stored.flipped:
        bit = Literal(-128 if type.dtype is DType.INT8 else 128, type.dtype)
        body = [ScalarStatement("$y", "bit_xor", ("$x", bit), type.dtype)]
    elif stored.dtype is not type.dtype:
        less = Literal(stored.less, stored.dtype)
        body = [
            ScalarStatement("$c", "cast", ("$x",), stored.dtype),
            ScalarStatement("$y", "sub", ("$c", less), stored.dtype),
        ]
    dtype = body[-1].dtype if body else type.dtype
    return Contraction(
        name, TensorType(dtype, shape), Aggregation.ASSIGN, tuple(f.names[0] for f in forms), forms,
        tuple(Constraint(f, n) for f, n in zip(forms, type.shape, strict=True)),
        (TensorLoad("$x", stored.leaf.tensor, forms),), tuple(body), body[-1].dst if body else "$x", dtype,
        text=f"{name}: {stored.leaf.tensor}, filled up to whole words",
    )  # fmt: skip


def _gathered(
    name: str,
    source: str,
    type: TensorType,
    dim: int,
    depth: int,
    pads: Pads,
    body: tuple[ScalarStatement, ...],
    last: int | None = None,
) -> Contraction:
    """Neighbours along a dimension as words; 0 outside the tensor. A dimension may become the `last`."""
    words = tuple(n // depth if d == dim else n for d, n in enumerate(type.shape))
    shape = tuple(n + sum(pad) for n, pad in zip(words, pads, strict=True))
    cells = tuple(Poly.of({f"d{d}": 1}) for d in range(len(shape)))
    inside = tuple(c + Poly.of({}, -front) for c, (front, _) in zip(cells, pads, strict=True))

    def element(q: int) -> tuple[Poly, ...]:
        return tuple(f.scaled(depth) + Poly.of({}, q) if d == dim else f for d, f in enumerate(inside))

    bounds = dict.fromkeys([*zip(cells, shape, strict=True), *zip(inside, words, strict=True)])
    order = _order(len(shape), last)
    made = tuple(cells[d] for d in order)
    return Contraction(
        name, TensorType(WORD, tuple(shape[d] for d in order)), Aggregation.ASSIGN, tuple(c.names[0] for c in made), made,
        tuple(Constraint(f, n) for f, n in bounds),
        tuple(TensorLoad(f"$x{q}", source, element(q)) for q in range(depth)), body, body[-1].dst, WORD,
        text=f"{name}: words of {source}",
    )  # fmt: skip


def _word_body(source: DType, less: int, depth: int, mask: int) -> tuple[ScalarStatement, ...]:
    """``(x0 | x1 << 8 | …) ^ mask``, each factor cut to its bits."""
    bits = WORD.bits // depth
    body: list[ScalarStatement] = []

    def add(fn: str, *args: Operand, dtype: DType = WORD) -> str:
        body.append(ScalarStatement(f"$t{len(body)}", fn, args, dtype))
        return body[-1].dst

    def factor(q: int) -> str:
        unsigned = DType(f"uint{bits}")
        if source.is_float:
            return add("cast", add("bitcast", f"$x{q}", dtype=unsigned))
        if source.bits == bits:
            return add("cast", f"$x{q}" if source is unsigned else add("cast", f"$x{q}", dtype=unsigned))
        wide = add("cast", f"$x{q}")
        return add("bit_and", add("sub", wide, word(less)) if less else wide, word((1 << bits) - 1))

    total = factor(0)
    for q in range(1, depth):
        total = add("bit_or", total, add("bit_left", factor(q), word(bits * q)))
    if mask:
        add("bit_xor", total, word(mask))
    return tuple(body)


def word(bits: int) -> Literal:
    """A number, wrapped to 32 bits, as the int32 of these bits."""
    bits &= 0xFFFFFFFF
    return Literal(bits - (1 << 32) if bits >> 31 else bits, WORD)
