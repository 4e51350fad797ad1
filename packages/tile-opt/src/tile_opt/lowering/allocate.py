"""Allocations inside kernels: named registers, private and local arrays, device temporaries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tile_ir.matrix.x86 import ROWS_OF_TILE, TILE, WORDS_OF_ROW
from tile_ir.semtree.nodes import Alloc, Const, Space, Type, Var
from tile_ir.stripe import nodes as stripe
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Bind

from tile_opt.lowering.arranged import arrangement
from tile_opt.lowering.body import LoweringError, View
from tile_opt.lowering.builder import Builder
from tile_opt.lowering.forms import Env, linear, resolve
from tile_opt.lowering.fragments import fragment_map
from tile_opt.lowering.places import Home, Lanes, Root

ARRAY_ALIGN = 64


@dataclass(slots=True)
class Allocator:
    """Makes the roots of a kernel's own allocations."""

    builder: Builder
    threads: int
    groups: int
    group_id: Affine
    """Linear number of the work group, below `groups`."""
    temps: list[Root] = field(default_factory=list[Root])
    """Device temporaries met so far; they become parameters."""
    _plans: dict[tuple[int, str], int] = field(default_factory=dict[tuple[int, str], int])

    def view(self, ref: stripe.Refinement, block: stripe.Block, lanes: Lanes) -> View:
        """A fresh allocation for one instance of `block`; inside a vector index each lane has its own."""
        layout = ref.type.layout
        if layout.fragment is not None:
            return self._fragments(ref)
        if ref.loc.unit == TILE:
            return _tiles(ref)
        pitch = _pitch(ref)
        arranged = arrangement(ref, pitch)
        if (arranged or ref.versions > 1) and lanes.symbol:
            raise LoweringError(f"allocation {ref.into!r} has a layout that this target cannot address")
        swizzled = _whole(ref) if ref.type.layout.swizzle is not None else ref.type.extent
        elements = (pitch * ref.versions or swizzled) * lanes.count
        root, offset = self._root(ref, block, lanes, elements)
        root.arrangement = arranged
        if arranged is not None and root.home is not Home.ARRAY:
            raise LoweringError(f"allocation {ref.into!r} has a layout for local memory, and is not there")
        if lanes.symbol:
            offset = offset + Affine.var(lanes.symbol)
        strides = tuple(s * lanes.count for s in ref.type.strides)
        return View(root, offset, (), ref.type.sizes, strides, ref.hint, ref.agg, lanes.count, pitch)

    def _fragments(self, ref: stripe.Refinement) -> View:
        """A variable for each matrix of the tile: a vector of the elements that one lane holds."""
        fragments = fragment_map(ref.type)
        type = Type(ref.type.dtype, fragments.registers)
        zero = Const(0.0 if type.dtype.is_float else 0, type)
        elements = ref.type.extent
        variables = [self.builder.mutable(ref.into, zero) for _ in range(elements // fragments.elements)]
        root = Root(
            ref.into, type.dtype, Home.FRAGMENT, elements, chunk=type.lanes, variables=variables, fragments=fragments
        )
        return View(root, Affine(), (), ref.type.sizes, ref.type.strides, ref.hint, ref.agg)

    def _root(self, ref: stripe.Refinement, block: stripe.Block, lanes: Lanes, elements: int) -> tuple[Root, Affine]:
        loc = ref.loc
        chunk = self._chunk(block, ref.into) if loc.unit == "REG" else 0
        if chunk:
            return self._registers(ref, lanes.count if lanes.symbol else chunk, elements), Affine()
        if loc.unit in ("REG", "LOCAL") or loc.scope is not stripe.Scope.DEVICE:
            return self._array(ref, elements), Affine()
        return self._temp(ref, elements)

    def _chunk(self, block: stripe.Block, name: str) -> int:
        key = (id(block), name)
        if key not in self._plans:
            self._plans[key] = chunk_of(block, name)
        return self._plans[key]

    def _registers(self, ref: stripe.Refinement, chunk: int, elements: int) -> Root:
        type = Type(ref.type.dtype, chunk)
        zero = Const(0.0 if type.dtype.is_float else 0, type)
        count = -(-elements // chunk)
        variables = [self.builder.mutable(ref.into, zero) for _ in range(count)]
        return Root(ref.into, type.dtype, Home.REG, elements, chunk=chunk, variables=variables)

    def _array(self, ref: stripe.Refinement, elements: int) -> Root:
        shared = self.threads > 1 and ref.loc.scope is not stripe.Scope.THREAD and ref.loc.unit != "REG"
        type = Type(ref.type.dtype, 1, max(elements, 1), Space.LOCAL if shared else Space.PRIVATE)
        align = max(ARRAY_ALIGN, ref.type.layout.align)
        name = self.builder.fresh(ref.into)
        self.builder.allocations.append(Alloc(name, type, align))
        return Root(name, type.dtype, Home.ARRAY, elements, Var(name, type), align, ref.type.solid, shared)

    def _temp(self, ref: stripe.Refinement, elements: int) -> tuple[Root, Affine]:
        # Groups run at once, so each has its own copy; copies start on cache lines.
        line = max(ARRAY_ALIGN // ref.type.dtype.bytes, 1)
        each = -(-elements // line) * line if self.groups > 1 else elements
        name = self.builder.fresh(ref.into)
        type = Type(ref.type.dtype, space=Space.GLOBAL, ptr=True)
        root = Root(
            name, type.dtype, Home.PARAM, each * self.groups, Var(name, type), ARRAY_ALIGN, ref.type.solid, True
        )
        self.temps.append(root)
        return root, self.group_id * each


def _tiles(ref: stripe.Refinement) -> View:
    """Tile registers from the one on that the allocation's place names."""
    (number,) = ref.loc.at
    assert isinstance(number, Affine) and not number.terms, "registers are numbers"
    elements = ROWS_OF_TILE * WORDS_OF_ROW
    root = Root(ref.into, ref.type.dtype, Home.TILE, ref.type.extent, chunk=elements, first=number.const)
    return View(root, Affine(), (), ref.type.sizes, ref.type.strides, ref.hint, ref.agg)


def _pitch(ref: stripe.Refinement) -> int:
    """Elements from one version to the next, each aligned like the first; 0 where there is one only."""
    return _whole(ref) if ref.versions > 1 else 0


def _whole(ref: stripe.Refinement) -> int:
    """Elements up to where another one may begin; pieces of swizzled rows take places behind padded ones, too."""
    unit = max(1, ref.type.layout.align // ref.type.dtype.bytes)
    return -(-ref.type.extent // unit) * unit


def chunk_of(block: stripe.Block, name: str) -> int:
    """Elements per variable for the registers `name` of `block`: its widest vector access, 0 when an access moves."""
    symbols = _Symbols()
    env: Env = {i.name: symbols.of(i) if i.value is None else symbols.new(MOVING) for i in block.indexes}
    widest = 1
    stack: list[tuple[stripe.Block, Env, Mapping[str, Affine]]] = [(block, env, {name: Affine()})]
    while stack:
        current, values, views = stack.pop()
        for statement in current.body:
            match statement:
                case stripe.Block():
                    inner = _enter(statement, values, views, symbols)
                    if inner is None:
                        return 0
                    if inner[1]:
                        stack.append((statement, *inner))
                case stripe.Load(src=target, at=at) | stripe.Store(dst=target, at=at) if target in views:
                    form = _position(current, name if current is block else target, at, values, views[target])
                    width = 0 if form is None else symbols.width(form)
                    if not width:
                        return 0
                    widest = max(widest, width)
                case stripe.Transfer(dst=dst, src=src) if dst in views or src in views:
                    return 0
                case _:
                    pass
    return widest


MOVING, STATIC = 0, 1


@dataclass(slots=True)
class _Symbols:
    """Indexes of nested blocks, apart from each other whatever their names: the lanes of each, MOVING for loops."""

    lanes: dict[str, int] = field(default_factory=dict[str, int])

    def of(self, index: stripe.Index) -> Affine:
        if index.range == 1:
            return Affine()
        if index.bind is Bind.VECTOR:
            return self.new(max(STATIC, index.lanes))
        return self.new(STATIC if index.bind is Bind.UNROLL else MOVING)

    def new(self, lanes: int) -> Affine:
        name = f"i{len(self.lanes)}"
        self.lanes[name] = lanes
        return Affine.var(name)

    def width(self, form: Affine) -> int:
        """Lanes of an access with this position, 0 when it is not static."""
        if any(self.lanes[name] == MOVING for name, _ in form.terms):
            return 0
        return max((self.lanes[name] for name, step in form.terms if step == 1), default=1)


def _enter(
    block: stripe.Block, values: Env, views: Mapping[str, Affine], symbols: _Symbols
) -> tuple[Env, Mapping[str, Affine]] | None:
    """Index values and views of the registers inside a nested block; None for an access that is not affine."""
    env = {i.name: symbols.of(i) if i.value is None else resolve(i.value, values) for i in block.indexes}
    inner: dict[str, Affine] = {}
    for ref in block.refs:
        if ref.source in views:
            affine, quasi = linear(ref.access, ref.type.strides)
            if quasi:
                return None
            inner[ref.into] = resolve(affine, env, views[ref.source])
    return env, inner


def _position(block: stripe.Block, ref: str, at: tuple[object, ...], values: Env, view: Affine) -> Affine | None:
    forms = [form for form in at if isinstance(form, Affine)]
    if len(forms) != len(at):
        return None
    if not forms:
        return view
    affine, _ = linear(forms, block.ref(ref).type.strides)
    return resolve(affine, values, view)
