"""A scheduled kernel as the model sees it: a tree of loops, and accesses whose addresses are affine in them.

Everything is read from Stripe: nothing here knows which plan, pass or person made the schedule.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import gcd, prod

from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.matrix import MATRIX_LOADS
from tile_ir.matrix.x86 import TILE, is_tile_step
from tile_ir.ops import Aggregation
from tile_ir.stripe.affine import Affine, DivMod, DivModOp, Quasi
from tile_ir.stripe.nodes import (
    ITEMS,
    STATIC,
    Bind,
    Block,
    Direction,
    Load,
    Op,
    Order,
    Refinement,
    Scope,
    Store,
    Swizzle,
    Transfer,
)

from tile_opt.lowering.points import OUTSIDE, Nest

ALIGNED = 64
"""Bytes: the alignment that stores past the caches need; a vector that straddles two lines leaves both of them in parts."""


@frozen
class Loop:
    """A loop of the nest under its unique name."""

    name: str
    extent: int
    bind: Bind
    lanes: int = 1
    axis: int = 0
    ordered: bool = False


@frozen
class Term:
    """``stride * x`` bytes of an address, x running over `extent` values as any of `loops` does."""

    stride: int
    extent: int
    loops: frozenset[str]
    form: DivMod | None = None
    """What x is of the loops, where it is a quotient or a remainder."""

    def at(self, values: Mapping[str, int]) -> int:
        """Bytes where the loops have these values, those not mentioned 0."""
        if self.form is None:
            (name,) = self.loops
            return self.stride * values.get(name, 0)
        num = self.form.num.const + sum(c * values.get(n, 0) for n, c in self.form.num.terms)
        return self.stride * (num // self.form.den if self.form.op is DivModOp.DIV else num % self.form.den)


@dataclass(frozen=True, slots=True, eq=False)
class Buffer:
    """What is accessed: a whole buffer, or an array of the kernel's own; one object for all its views."""

    name: str
    unit: str
    scope: Scope
    bytes: int
    align: int
    swizzle: Swizzle | None = None
    around: frozenset[str] = frozenset()
    """Loops whose every iteration has it anew."""

    @property
    def in_registers(self) -> bool:
        return self.unit in ("REG", TILE)


@dataclass(frozen=True, slots=True, eq=False)
class Access:
    """All that a leaf reads or writes through one view."""

    buffer: Buffer
    dtype: DType
    terms: tuple[Term, ...]
    """Ascending strides; coefficients of one loop added up."""
    offset: int
    """Bytes from the buffer's start where all loops are 0."""
    reads: bool
    writes: bool
    agg: Aggregation | None
    streaming: bool
    scattered: bool
    """Some subscript is a value that only the run knows."""
    chosen: frozenset[str] = frozenset()
    """Loops whose iterations have such values of their own."""
    ahead: bool = False
    """What it writes next is fetched before."""

    def stride(self, loop: str) -> int | None:
        """Bytes between neighbouring iterations of `loop`; None where they differ."""
        found = [t for t in self.terms if loop in t.loops]
        if not found:
            return 0
        return found[0].stride if len(found) == 1 and len(found[0].loops) == 1 else None

    def moved_by(self, loop: str) -> bool:
        return any(loop in t.loops for t in self.terms)

    def alignment(self, vector: Loop, most: int) -> int:
        """Bytes, up to `most`, of which the address of every first lane of `vector` is a multiple."""
        found = gcd(most, self.offset, self.buffer.align)
        for term in self.terms:
            found = gcd(found, term.stride * (vector.lanes if vector.name in term.loops else 1))
        return found & -found


@dataclass(slots=True)
class Tree:
    """A block: its own loops, what its statements access, the blocks within it."""

    block: Block
    loops: tuple[Loop, ...]
    """Its own, outermost first."""
    path: tuple[Loop, ...]
    """Those around it and its own."""
    points: int
    """How often its statements run in the whole kernel, for all lanes of each vector."""
    entries: int
    """How often the block is entered."""
    accesses: Mapping[str, Access]
    inner: list[Tree] = field(default_factory=list["Tree"])
    registers: int = 0
    """Bytes of its arrays in registers."""
    filled: set[Access] = field(default_factory=set["Access"])
    """Stores of lanes some steps apart beside which neighbouring blocks store all that is in between."""

    def walk(self) -> Iterator[Tree]:
        """This block and all within it, in order."""
        yield self
        for tree in self.inner:
            yield from tree.walk()

    @property
    def serial(self) -> tuple[Loop, ...]:
        """Its own loops whose iterations follow one another: those of the code, and those of the grid."""
        return tuple(i for i in self.loops if i.bind not in STATIC and i.bind not in ITEMS)

    @property
    def items(self) -> int:
        """Work items that run it side by side, those of loops around it included."""
        return prod(i.extent for i in self.path if i.bind in ITEMS)

    @property
    def runs(self) -> float:
        """How often the busiest item runs it, in all groups together."""
        around = self.items // prod(i.extent for i in self.loops if i.bind in ITEMS)
        return self.entries / around * prod(i.extent for i in self.serial)

    @property
    def passes(self) -> float:
        """How often one item runs its straight-line code, in all groups together."""
        return self.points / prod(i.extent for i in self.static) / self.items

    @property
    def static(self) -> tuple[Loop, ...]:
        return tuple(i for i in self.loops if i.bind in STATIC)

    @property
    def vector(self) -> Loop | None:
        """Its own loop across vector lanes."""
        return next((i for i in self.loops if i.bind is Bind.VECTOR and i.lanes > 1), None)

    def passing(self, access: Access) -> Loop | None:
        """The vector loop of stores that pass the caches by; None for all other accesses.

        Only vectors do, and those only where they do not straddle what the machine writes at once.
        """
        vector = self.vector
        if not access.streaming or access.reads or vector is None:
            return None
        element = access.dtype.bytes
        if access.stride(vector.name) != element:
            return None
        least = min(vector.lanes * element, ALIGNED)
        return vector if access.alignment(vector, ALIGNED) >= least else None


@frozen
class _View:
    """A view of a buffer: the byte address of its origin."""

    buffer: Buffer
    affine: Affine
    quasi: tuple[Term, ...]
    strides: tuple[int, ...]
    """Bytes per dimension."""


def read(kernel: Block) -> Tree:
    """The tree of one scheduled kernel; its refinements' sources are the buffers of the program around it."""
    given = {r.source: r for r in kernel.refs if r.source}
    views = {n: _View(_buffer(r, n, frozenset()), Affine(), (), ()) for n, r in given.items()}
    return _tree(kernel, OUTSIDE, (), views, 1)


def _tree(block: Block, outside: Nest, path: tuple[Loop, ...], parents: Mapping[str, _View], entries: int) -> Tree:
    nest = outside.inside(block)
    # One instruction does all iterations of a block on tile registers, and all that the lanes of a sub-group load together.
    whole = block.instr is not None and (is_tile_step(block.instr.name) or block.instr.name in MATRIX_LOADS)
    bind = Bind.UNROLL if whole else None
    loops = tuple(
        Loop(nest.names[i.name].names[0], i.range, bind or i.bind, i.lanes, i.axis, i.order is Order.ORDERED)
        for i in block.indexes
        if i.value is None
    )
    path = (*path, *loops)
    around = frozenset(i.name for i in path)
    views = {r.into: _view(r, parents.get(r.source), nest, around) for r in block.refs}
    constrained = nest.empty or nest.constraints != outside.constraints
    points = _points(nest, loops) if constrained else entries * prod(i.extent for i in loops)
    tree = Tree(block, loops, path, points, entries, _accesses(block, views, nest))
    tree.registers = sum(
        r.type.nbytes * r.versions for r in block.refs if r.dir is Direction.ALLOC and r.loc.unit == "REG"
    )
    tree.inner = [_tree(s, nest, path, views, points) for s in block.body if isinstance(s, Block)]
    _fill(tree.inner)
    return tree


def _fill(blocks: list[Tree]) -> None:
    """Note the stores of neighbouring blocks that together leave no gaps between their lanes."""
    found: dict[tuple[Buffer, int], list[tuple[Tree, Access]]] = {}
    for tree in blocks if len(blocks) > 1 else ():
        for access in tree.accesses.values() if tree.vector else ():
            step = access.stride(tree.vector.name) if tree.vector else None
            if access.writes and step and step > access.dtype.bytes and not access.scattered:
                found.setdefault((access.buffer, step), []).append((tree, access))
    for (_, step), stores in found.items():
        cells = {at % step for tree, access in stores for at in _cells(tree, access)}
        if len(cells) * stores[0][1].dtype.bytes == step:
            for tree, access in stores:
                tree.filled.add(access)


def _cells(tree: Tree, access: Access) -> set[int]:
    """Bytes from the buffer's start at which the first lane of each unrolled iteration is."""
    found = {access.offset}
    for loop in tree.static:
        step = access.stride(loop.name) if loop is not tree.vector else 0
        found = {at + (step or 0) * k for at in found for k in range(loop.extent if step else 1)}
    return found


def _points(nest: Nest, loops: tuple[Loop, ...]) -> int:
    """Iterations that run, those that a mask leaves out included: an instruction takes all lanes of its vector."""
    lanes = 1
    for loop in loops:
        if loop.bind is Bind.VECTOR and any(loop.name in form.names for form in nest.constraints):
            whole = nest.by_vectors(loop.name, loop.lanes)
            lanes, nest = lanes if whole is nest else lanes * loop.lanes, whole
    return nest.points() * lanes


def _view(ref: Refinement, parent: _View | None, nest: Nest, around: frozenset[str]) -> _View:
    element = ref.type.dtype.bytes
    strides = tuple([s * element for s in ref.type.layout.strides])
    if ref.dir is Direction.ALLOC:
        return _View(_buffer(ref, ref.into, around), Affine(), (), strides)
    assert parent is not None
    access = ref.access[len(ref.access) - len(strides) :]
    if not any(isinstance(form, DivMod) or form.terms or form.const for form in access):
        return parent if parent.strides == strides else _View(parent.buffer, parent.affine, parent.quasi, strides)
    affine, quasi = _address(access, strides, nest)
    return _View(parent.buffer, parent.affine + affine, (*parent.quasi, *quasi), strides)


def _buffer(ref: Refinement, name: str, around: frozenset[str]) -> Buffer:
    layout, bytes_ = ref.type.layout, ref.type.nbytes * ref.versions
    align = max(layout.align, ref.type.dtype.bytes)
    return Buffer(name, ref.loc.unit, ref.loc.scope, bytes_, align, layout.swizzle, around)


def _address(forms: tuple[Quasi, ...], strides: tuple[int, ...], nest: Nest) -> tuple[Affine, tuple[Term, ...]]:
    """Bytes of subscripts: the affine part, and a term for each division or remainder."""
    terms: list[tuple[str, int]] = []
    quasi: list[Term] = []
    const = 0
    for form, stride in zip(forms, strides, strict=True):
        plain = form if isinstance(form, Affine) else form.plus
        resolved = plain.substitute(nest.names)
        terms += [(n, c * stride) for n, c in resolved.terms]
        const += resolved.const * stride
        if not isinstance(form, Affine):
            num = form.num.substitute(nest.names)
            values = 1 + sum(abs(c) * (nest.ranges[n] - 1) for n, c in num.terms)
            extent = min(form.den, values) if form.op is DivModOp.MOD else -(-values // form.den)
            resolved_form = DivMod(num, form.den, form.op)
            quasi.append(Term(form.scale * stride, extent, frozenset(num.names), resolved_form))
    return Affine.of(terms, const), tuple(quasi)


def _accesses(block: Block, views: Mapping[str, _View], nest: Nest) -> dict[str, Access]:
    """By refinement, what the block's own statements touch."""
    reads: set[str] = set()
    writes: set[str] = set()
    at: dict[str, tuple[Quasi | str, ...]] = {}
    for statement in block.body:
        match statement:
            case Load(src=src):
                reads.add(src)
                at[src] = statement.at
            case Store(dst=dst):
                writes.add(dst)
                at[dst] = statement.at
            case Transfer(dst=dst, src=src):
                reads.add(src)
                writes.add(dst)
            case _:
                pass
    if not reads and not writes:
        return {}
    refs, chosen = {r.into: r for r in block.refs}, _chosen(block, views, nest)
    return {
        name: _access(refs[name], views[name], at.get(name, ()), nest, name in reads, name in writes, chosen.get(name))
        for name in sorted(reads | writes)
    }


def _chosen(block: Block, views: Mapping[str, _View], nest: Nest) -> dict[str, frozenset[str]]:
    """By refinement, the loops that move the values which subscribe it."""
    moved: dict[str, frozenset[str]] = {}
    found: dict[str, frozenset[str]] = {}

    def of(names: Iterable[object]) -> frozenset[str]:
        return frozenset[str]().union(*(moved.get(n, frozenset()) for n in names if isinstance(n, str)))

    for statement in block.body:
        match statement:
            case Load(dst=dst, src=src, at=at):
                found[src] = of(at)
                view, forms = views[src], [a for a in at if isinstance(a, Affine)]
                own = {n for f in forms for n in f.substitute(nest.names).names}
                moved[dst] = found[src].union(own, view.affine.names, *(t.loops for t in view.quasi))
            case Op(dst=dst, args=args):
                moved[dst] = of(args)
            case Store(dst=dst, at=at):
                found[dst] = of(at)
            case _:
                pass
    return found


def _access(
    ref: Refinement,
    view: _View,
    at: tuple[Quasi | str, ...],
    nest: Nest,
    reads: bool,
    writes: bool,
    chosen: frozenset[str] | None,
) -> Access:
    affine, quasi = view.affine, view.quasi
    known = tuple(Affine() if isinstance(a, str) else a for a in at)
    if known:
        more, parts = _address(known, view.strides, nest)
        affine, quasi = affine + more, (*quasi, *parts)
    terms = [Term(abs(c), nest.ranges[n], frozenset((n,))) for n, c in affine.terms if c and nest.ranges[n] > 1]
    terms += [t for t in quasi if t.extent > 1 and t.stride]
    low = affine.const + sum(c * (nest.ranges[n] - 1) for n, c in affine.terms if c < 0)
    agg = ref.agg if ref.agg is not Aggregation.ASSIGN else None
    return Access(
        view.buffer, ref.type.dtype, tuple(sorted(terms, key=lambda t: (t.stride, t.extent))), low,
        reads or agg is not None, writes, agg, ref.hint == "streaming", any(isinstance(a, str) for a in at),
        chosen or frozenset(), ref.hint == "prefetch",
    )  # fmt: skip
