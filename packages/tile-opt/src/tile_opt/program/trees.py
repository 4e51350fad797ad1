"""What a value is, as an expression of other values' elements: elementwise operations, and copies, unfolded down to what they load."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from math import inf

from tile_ir.diagnostics import Span
from tile_ir.dtype import DType
from tile_ir.frozen import frozen, replace
from tile_ir.ops import OPS, Aggregation
from tile_ir.program.nodes import (
    Constraint,
    Contraction,
    Elementwise,
    Literal,
    Op,
    Operand,
    Poly,
    ScalarStatement,
    TensorLoad,
    TensorType,
)
from tile_ir.stripe.affine import Affine, names_in

from tile_opt.analysis import FlatDomain, affine, poly

LARGEST = 64
"""Operations of an expression that is still unfolded."""
Names = Mapping[str, Affine]


@frozen
class Leaf:
    """An element of a tensor."""

    tensor: str
    forms: tuple[Affine, ...]
    dtype: DType


@frozen
class Call:
    """A scalar operation of `tile_ir.ops.OPS`."""

    fn: str
    args: tuple[Tree, ...]
    dtype: DType
    size: int = field(compare=False)


Tree = Leaf | Call | Literal


class Trees:
    """The expressions of one program's values."""

    def __init__(self, ops: Iterable[Op], types: Mapping[str, TensorType], *, copies: bool = False) -> None:
        """With `copies` an element of a copy is one of what is copied."""
        self.made: dict[str, Elementwise] = {}
        self.copies: dict[str, Contraction] = {}
        for op in ops:
            if isinstance(op, Elementwise):
                self.made[op.name] = op
            elif copies and isinstance(op, Contraction) and _is_copy(op, types):
                self.copies[op.name] = op
        self.types = types
        self.known: dict[tuple[str, tuple[Affine, ...]], Tree] = {}

    def element(self, tensor: str, forms: tuple[Affine, ...]) -> Tree:
        """The element of a tensor at `forms`; a leaf where it is not elementwise, or would be too large."""
        key = tensor, forms
        if key not in self.known:
            self.known[key] = self._unfolded(tensor, forms)
        return self.known[key]

    def summand(self, op: Contraction, domain: FlatDomain) -> Tree:
        """What a contraction aggregates, by the indexes of its domain."""
        return self.summed(op, domain.accesses)

    def summed(self, op: Contraction, accesses: Sequence[tuple[Affine, ...]]) -> Tree:
        """What a contraction aggregates, with the subscripts of its loads as forms."""
        scalars: dict[str, Tree] = {}
        for load, forms in zip(op.loads, accesses, strict=True):
            scalars[load.dst] = self.element(load.tensor, forms) if isinstance(load.tensor, str) else load.tensor
        for s in op.body:
            scalars[s.dst] = call(s.fn, (scalars[a] if isinstance(a, str) else a for a in s.args), s.dtype)
        return scalars[op.result] if isinstance(op.result, str) else op.result

    def _unfolded(self, tensor: str, forms: tuple[Affine, ...]) -> Tree:
        if tensor in self.copies:
            return self._copied(self.copies[tensor], forms)
        type, op = self.types[tensor], self.made.get(tensor)
        leaf = Leaf(tensor, forms, type.dtype)
        if op is None or op.fn not in OPS or op.params:
            return leaf
        args = (a if isinstance(a, Literal) else self.element(a, self._stretched(a, forms)) for a in op.args)
        found = plain(call(op.fn, args, type.dtype))
        return found if not isinstance(found, Call) or found.size <= LARGEST else leaf

    def _copied(self, op: Contraction, forms: tuple[Affine, ...]) -> Tree:
        """What a copy's element is an element of."""
        (load,) = op.loads
        at = dict.fromkeys(op.indexes, Affine())
        at |= {name: form for f, form in zip(op.output, forms, strict=True) if (name := f.index) is not None}
        read = (affine(f).substitute(at) for f in load.formulas)
        return self.element(str(load.tensor), tuple(read))

    def _stretched(self, operand: str, forms: tuple[Affine, ...]) -> tuple[Affine, ...]:
        """Subscripts of an operand, by NumPy's rule of broadcasting."""
        shape = self.types[operand].shape
        mine = forms[len(forms) - len(shape) :]
        return tuple(Affine() if size == 1 else f for f, size in zip(mine, shape, strict=True))


def _is_copy(op: Contraction, types: Mapping[str, TensorType]) -> bool:
    """Every cell of it is an element of its one operand: dimensions in another order, more of them, or repeated ones."""
    if op.agg is not Aggregation.ASSIGN or len(op.loads) != 1 or op.default is not None:
        return False
    (load,) = op.loads
    if not _gives(op, load.dst) or not isinstance(load.tensor, str) or types[load.tensor].dtype is not op.type.dtype:
        return False
    cells = list(zip(op.output, op.type.shape, strict=True))
    sizes = {name: size for form, size in cells if (name := form.index) is not None}
    whole = all(form.index is not None or (size == 1 and form == Poly()) for form, size in cells)
    own = len(sizes) == sum(form.index is not None for form, _ in cells)
    single = {name: 1 for c in op.constraints if c.size == 1 and (name := c.formula.index) is not None}
    ranges = single | sizes
    read = all(form.is_integral for form in load.formulas)
    return whole and own and read and ranges.keys() >= {*op.indexes} and all(_always(c, ranges) for c in op.constraints)


def _gives(op: Contraction, loaded: str) -> bool:
    """What is loaded, perhaps converted to a wider float."""
    given: Operand = loaded
    for s in op.body:
        if s.fn != "cast" or s.args != (given,) or not s.dtype.is_float or s.dtype.bytes < op.type.dtype.bytes:
            return False
        given = s.dst
    return op.result == given and (not op.body or op.type.dtype.is_float)


def _always(constraint: Constraint, sizes: Mapping[str, int]) -> bool:
    """It holds for all values of an index below its size, or of none."""
    form = constraint.formula
    if not form.terms:
        return 0 <= form.const < constraint.size
    name = form.index
    return name is not None and name in sizes and sizes[name] <= constraint.size


def plain(tree: Call) -> Tree:
    """The expression without a comparison that it always wins: nothing is less than -inf."""
    match tree:
        case Call("max", (Literal(value=bound), other) | (other, Literal(value=bound))) if bound == -inf:
            return other
        case _:
            return tree


def call(fn: str, args: Iterable[Tree], dtype: DType) -> Call:
    found = tuple(args)
    return Call(fn, found, dtype, 1 + sum(a.size for a in found if isinstance(a, Call)))


def unwidened(tree: Tree) -> Tree:
    """The float that is converted to wider ones, perhaps several times: its value is the same."""
    while isinstance(tree, Call) and tree.fn == "cast":
        (given,) = tree.args
        if not (tree.dtype.is_float and given.dtype.is_float and tree.dtype.bytes > given.dtype.bytes):
            break
        tree = given
    return tree


def as_dtype(tree: Tree, dtype: DType) -> Tree:
    return tree if tree.dtype is dtype else call("cast", (tree,), dtype)


def leaves(tree: Tree) -> Iterator[Leaf]:
    match tree:
        case Leaf():
            yield tree
        case Call():
            for a in tree.args:
                yield from leaves(a)
        case Literal():
            pass


def substituted(tree: Tree, names: Names) -> Tree:
    """The expression with forms in the place of indexes."""
    match tree:
        case Leaf():
            return Leaf(tree.tensor, tuple(f.substitute(names) for f in tree.forms), tree.dtype)
        case Call():
            return Call(tree.fn, tuple(substituted(a, names) for a in tree.args), tree.dtype, tree.size)
        case Literal():
            return tree


def replaced(tree: Tree, old: Tree, new: Tree) -> Tree:
    """The expression with `new` in the place of `old`."""
    if tree == old:
        return new
    if isinstance(tree, Call):
        return call(tree.fn, (replaced(a, old, new) for a in tree.args), tree.dtype)
    return tree


def matched(tree: Tree, other: Tree, names: dict[str, Affine]) -> bool:
    """Both are the same once the indexes of `tree` are what `names` says; it learns what it has no form for."""
    match tree, other:
        case Leaf(), Leaf():
            same = tree.tensor == other.tensor
            return same and all(_solved(a, b, names) for a, b in zip(tree.forms, other.forms, strict=True))
        case Call(), Call():
            same = (tree.fn, tree.dtype, len(tree.args)) == (other.fn, other.dtype, len(other.args))
            return same and all(matched(a, b, names) for a, b in zip(tree.args, other.args, strict=True))
        case _:
            return tree == other


def _solved(form: Affine, other: Affine, names: dict[str, Affine]) -> bool:
    """The two are equal; an index that has no form yet gets the one index that makes them so."""
    unknown = [(n, c) for n, c in form.terms if n not in names]
    rest = Affine.of([t for t in form.terms if t not in unknown], form.const).substitute(names)
    if not unknown:
        return rest == other
    ((name, step), *more) = unknown
    left = other - rest
    if more or left.const or len(left.terms) != 1 or left.terms[0][1] != step:
        return False
    names[name] = Affine.var(left.terms[0][0])
    return True


class Body:
    """Loads and statements of a contraction under construction; what is equal is computed once."""

    def __init__(self) -> None:
        self.loads: list[TensorLoad] = []
        self.forms: list[tuple[Affine, ...]] = []
        """Of each load, in the indexes of the domain."""
        self.statements: list[ScalarStatement] = []
        self.known: dict[Tree, Operand] = {}

    def add(self, tree: Tree) -> Operand:
        """The scalar that holds the expression's value."""
        if isinstance(tree, Literal):
            return tree
        if tree not in self.known:
            self.known[tree] = self._load(tree) if isinstance(tree, Leaf) else self._statement(tree)
        return self.known[tree]

    def of(self, op: Contraction, tree: Tree) -> Contraction:
        """The contraction as if it aggregated `tree`."""
        result = self.add(tree)
        return replace(op, loads=tuple(self.loads), body=tuple(self.statements), result=result)

    def _load(self, leaf: Leaf) -> str:
        name = f"$x{len(self.loads)}"
        self.loads.append(TensorLoad(name, leaf.tensor, tuple(map(poly, leaf.forms))))
        self.forms.append(leaf.forms)
        return name

    def _statement(self, tree: Call) -> str:
        args = tuple(map(self.add, tree.args))
        name = f"$t{len(self.statements)}"
        self.statements.append(ScalarStatement(name, tree.fn, args, tree.dtype))
        return name


def computed(
    extents: Mapping[str, int],
    name: str,
    type: TensorType,
    output: tuple[Affine, ...],
    value: Tree,
    like: Contraction | None = None,
    *,
    origin: Span | None = None,
) -> Contraction:
    """``name[output] = value``, or its aggregate as in `like`, at every point of the indexes that they name."""
    names = names_in((*output, *(g for leaf in leaves(value) for g in leaf.forms)))
    body, origin = Body(), origin if like is None else like.origin
    result = body.add(value)
    return Contraction(
        name,
        type,
        Aggregation.ASSIGN if like is None else like.agg,
        tuple(sorted(names)),
        tuple(map(poly, output)),
        tuple(Constraint(Poly.of({n: 1}), r, origin) for n, r in extents.items() if n in names),
        tuple(body.loads),
        tuple(body.statements),
        result,
        value.dtype,
        no_defract=True,
        text="" if like is None else like.text,
        origin=origin,
    )
