"""Stripe: nested blocks of ordered statements, the one scheduling IR.

Meaning
-------
A block runs its statement list once for every point of its index box that satisfies its constraints
(in order for ORDERED indexes; FREE indexes may run in any order or at once). It sees only its own
indexes and refinements: an `Index` with a `value` passes a form of the parent's indexes down; a
`Refinement` gives a local name to a view of a parent's buffer (`access` is the view's origin in the
parent's view, per dimension) or allocates a buffer (`dir=ALLOC`). The order of `indexes` is the loop
order, outermost first. Scalars are SSA within one block and start with ``$``; nested blocks exchange
values through refinements only.

Every decision is a field: order, binding, layout, location, versions, instruction. Tags only select
passes; removing them all changes no result. The model is that of "PlaidML & Stripe", completed.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from tile_ir.contents import Contents
from tile_ir.diagnostics import Span
from tile_ir.dtype import DType, same_number
from tile_ir.frozen import frozen
from tile_ir.ops import Aggregation
from tile_ir.stripe.affine import Affine, Quasi


class Order(Enum):
    FREE = "free"
    ORDERED = "ordered"


class Bind(Enum):
    """What runs the iterations of an index."""

    NONE = "none"
    """A serial loop of the thread."""
    GRID = "grid"
    """Work groups; `axis` is the grid dimension."""
    GROUP = "group"
    """Threads of a work group; `axis` is the local dimension."""
    SUBGROUP = "subgroup"
    LANE = "lane"
    CORE = "core"
    VECTOR = "vector"
    """Lanes of vector registers, `lanes` at a time; the range is a multiple of `lanes`."""
    UNROLL = "unroll"
    """Repeated in straight-line code."""


ITEMS = (Bind.GROUP, Bind.SUBGROUP, Bind.LANE)
"""Dealt out to the work items of a group, axis by axis."""
STATIC = (Bind.UNROLL, Bind.VECTOR)
"""Straight-line code."""


@frozen
class Index:
    """A loop index ``name:range``, or ``name = value`` passed down from the parent (range 1)."""

    name: str
    range: int
    value: Affine | None = None
    order: Order = Order.FREE
    bind: Bind = Bind.NONE
    axis: int = 0
    lanes: int = 1


def number_of(loops: Sequence[Index]) -> Affine:
    """The number of an iteration of nested loops, outermost first."""
    form, count = Affine(), 1
    for index in reversed(loops):
        form, count = form + Affine.var(index.name, count), count * index.range
    return form


def iteration_of(number: int, loops: Sequence[Index]) -> dict[str, int]:
    """Where nested loops, outermost first, are in the iteration of this number."""
    found: dict[str, int] = {}
    for index in reversed(loops):
        number, found[index.name] = divmod(number, index.range)
    return found


@frozen
class Swizzle:
    """XOR swizzle of element offsets: ``o ^ (((o >> shift) & ((1 << bits) - 1)) << base)``."""

    bits: int
    base: int
    shift: int


@frozen
class Fragment:
    """Where an element of a tile lives in a sub-group: (lane, register), each the sum of its forms of ``d0, d1, …``.

    Dimensions that no form mentions come first; their positions follow one another in further registers.
    """

    lane: tuple[Quasi, ...]
    register: tuple[Quasi, ...]


@frozen
class Layout:
    """Strides in elements, alignment in bytes, optional swizzle, register fragment and panels.

    With a `panel` rows, as long as the smallest stride above 1, are cut into pieces of so many elements: the first
    pieces of all rows lie in front of all second ones. A swizzle is of the offsets that this gives.
    """

    strides: tuple[int, ...]
    align: int = 1
    swizzle: Swizzle | None = None
    fragment: Fragment | None = None
    panel: int = 0


@frozen
class TensorType:
    """A dense view: element type, sizes per dimension and layout of the underlying buffer."""

    dtype: DType
    sizes: tuple[int, ...]
    layout: Layout

    @staticmethod
    def row_major(dtype: DType, sizes: tuple[int, ...], align: int = 1) -> TensorType:
        return TensorType(dtype, sizes, Layout(row_major_strides(sizes), align))

    @property
    def strides(self) -> tuple[int, ...]:
        return self.layout.strides

    @property
    def extent(self) -> int:
        """Elements of the storage that the view spans, gaps included."""
        if not all(self.sizes):
            return 0
        return 1 + sum((size - 1) * stride for size, stride in zip(self.sizes, self.strides, strict=True))

    @property
    def solid(self) -> int:
        """Elements from the first one on that lie side by side, before the first gap."""
        found = 1 if all(self.sizes) else 0
        for stride, size in sorted(zip(self.strides, self.sizes, strict=True)):
            if size > 1 and stride <= found:
                found += (size - 1) * stride
        return found

    @property
    def nbytes(self) -> int:
        """Bytes of the storage that the view spans, gaps included."""
        return self.extent * self.dtype.bytes

    @property
    def is_packed(self) -> bool:
        """C order without gaps (strides of dimensions of extent 1 do not matter)."""
        packed = row_major_strides(self.sizes)
        return all(s == 1 or a == b for s, a, b in zip(self.sizes, self.strides, packed, strict=True))

    def reshapes(self, other: TensorType) -> bool:
        """The same elements in C order under another shape: a view of all of another may be of such a type.

        Where nothing lies between the elements it may be of another dtype, too: the same bytes, of words lowest bits first.
        """
        if self.sizes == other.sizes:
            return False
        if self.dtype is not other.dtype:
            return self.is_packed and other.is_packed and self.nbytes == other.nbytes
        return self._runs() == other._runs()

    def _runs(self) -> tuple[tuple[int, int], ...]:
        """Sizes and strides of the fewest dimensions that walk the same elements in the same order."""
        runs: list[tuple[int, int]] = []
        for size, stride in zip(self.sizes, self.strides, strict=True):
            if size != 1:
                joins = bool(runs) and runs[-1][1] == stride * size
                runs.append((runs.pop()[0] * size, stride) if joins else (size, stride))
        return tuple(runs)


def row_major_strides(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Element strides of a packed C-order array."""
    strides: list[int] = []
    step = 1
    for size in reversed(sizes):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


class Scope(Enum):
    """Who shares an allocation."""

    DEVICE = "device"
    GROUP = "group"
    SUBGROUP = "subgroup"
    """Register fragments: the lanes hold the elements together."""
    THREAD = "thread"


@frozen
class Location:
    """A unit of the hardware model and its index: ``SRAM[i]``, ``DRAM``, ``LOCAL``, ``REG``…"""

    unit: str
    at: tuple[Quasi, ...] = ()
    scope: Scope = Scope.DEVICE


class Direction(Enum):
    ALLOC = "none"
    IN = "in"
    OUT = "out"
    INOUT = "inout"


class Init(Enum):
    """What an aggregating refinement holds when its block starts."""

    KEEP = "keep"
    """Whatever is there: the block adds to it."""
    IDENTITY = "identity"
    """The block first sets every cell of the view (type.sizes at the access) to the aggregation's identity."""
    PARTIAL = "partial"
    """Partial results of an earlier sibling in accumulator form; the block adds to them."""


@frozen
class Refinement:
    """A view of a parent's buffer, or an allocation (then `source` is empty and `access` all zero).

    `access[d]` is the origin of the view in dimension d of the parent's view; `type.sizes` is the
    extent seen inside, `type.strides` those of the underlying buffer. `agg` is how stores merge.
    A view of all of its source (access all zero) may have another shape of as many elements: the same
    elements in C order (`TensorType.reshapes`).
    """

    dir: Direction
    into: str
    source: str
    access: tuple[Quasi, ...]
    type: TensorType
    agg: Aggregation | None = None
    init: Init = Init.KEEP
    acc: DType | None = None
    loc: Location = Location("DRAM")
    offset: int = 0
    """Byte offset in its arena once memory placement has run."""
    versions: int = 1
    """Copies for multi-buffering; iteration k uses copy ``k mod versions``. A view with its source's number shows all.
    Those of an allocation whose location names no unit go round the units of its memory: copy k lies in unit
    ``k mod count``."""
    bank_dim: int | None = None
    const: bool = False
    hint: str = ""
    """"streaming" for data that is written (or read) once and should pass the caches by, "prefetch" for what is stored in
    rows that go on later."""
    tags: frozenset[str] = frozenset()

    @staticmethod
    def allocation(into: str, type: TensorType, loc: Location | None = None) -> Refinement:
        """A buffer of the block's own; without a location in the device's memory."""
        return Refinement(Direction.ALLOC, into, "", (Affine(),) * len(type.sizes), type, loc=loc or Location("DRAM"))


# --- statements ----------------------------------------------------------------------------------
# Each has `deps` (numbers of sibling statements it waits for) and `origin` (where in the source).


@frozen
class Load:
    """``$dst = load(src[at…])``: `at` is an offset per dimension (forms or ``$`` integers); empty means zeros."""

    dst: str
    src: str
    at: tuple[Quasi | str, ...] = ()
    clamp: bool = False
    """Clamp subscripts into the view instead of requiring them in range (gather)."""
    deps: tuple[int, ...] = ()
    origin: Span | None = None


@frozen
class Store:
    """``dst[at…] = store($src)``, merged by the refinement's aggregation; `at` as in Load (scatter)."""

    dst: str
    src: str
    at: tuple[Quasi | str, ...] = ()
    clamp: bool = False
    atomic: bool = False
    deps: tuple[int, ...] = ()
    origin: Span | None = None


@frozen
class Const:
    """``$dst = (dtype)value``."""

    dst: str
    value: int | float | bool
    dtype: DType
    deps: tuple[int, ...] = ()
    origin: Span | None = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Const) or not same_number(self.value, other.value):
            return False
        return (self.dst, self.dtype, self.deps, self.origin) == (other.dst, other.dtype, other.deps, other.origin)


@frozen
class LoadIndex:
    """``$dst = load_index(form)``: an index form as a scalar of `dtype` (int32 or int64)."""

    dst: str
    value: Quasi
    dtype: DType = DType.INT32
    deps: tuple[int, ...] = ()
    origin: Span | None = None


@frozen
class Op:
    """``$dst = name($args…)``: a scalar operation of `tile_ir.ops.OPS` with result `dtype`."""

    dst: str
    name: str
    args: tuple[str, ...]
    dtype: DType
    deps: tuple[int, ...] = ()
    origin: Span | None = None


@frozen
class Reduce:
    """``$dst = reduce_agg($src) over names``: combine a scalar across bound indexes, optionally to all of them."""

    dst: str
    src: str
    agg: Aggregation
    over: tuple[str, ...]
    broadcast: bool = True
    deps: tuple[int, ...] = ()
    origin: Span | None = None


@frozen
class Transfer:
    """Copy view `src` to view `dst` on a transfer unit, asynchronously within `group`.

    Both have the same sizes, but for dimensions of 1. Where a form of `where` is negative `src` is not touched, and all of
    `dst` becomes 0.
    """

    dst: str
    src: str
    unit: str = ""
    group: int = 0
    where: tuple[Quasi, ...] = ()
    deps: tuple[int, ...] = ()
    origin: Span | None = None


def same_element(at: Sequence[Affine], to: Sequence[int], source: Sequence[int]) -> tuple[Affine, ...]:
    """Where the source of a transfer has what goes to `at` in its target; both by their sizes."""
    moving = iter([form for form, size in zip(at, to, strict=True) if size != 1])
    return tuple(next(moving) if size != 1 else Affine() for size in source)


@frozen
class Wait:
    """Close the batch of transfers of `group` since the last wait, then wait for all but the latest `pending` batches."""

    group: int = 0
    pending: int = 0
    deps: tuple[int, ...] = ()
    origin: Span | None = None


@frozen
class Sync:
    """Barrier for the threads of `scope`; `fence` names the memory made visible."""

    scope: Scope = Scope.GROUP
    fence: str = "local"
    deps: tuple[int, ...] = ()
    origin: Span | None = None


@frozen
class Special:
    """Foreign code by name; the compiler knows only what it reads and writes."""

    name: str
    outs: tuple[str, ...]
    ins: tuple[str, ...]
    params: tuple[tuple[str, int | float | str], ...] = ()
    deps: tuple[int, ...] = ()
    origin: Span | None = None


@frozen
class Instr:
    """A hardware instruction by name, as ``mma_m16n8k8_tf32(m:16, n:8, k:8)``, ``conv(co:32, ci:-1)`` or ``round(10)``."""

    name: str
    sizes: tuple[tuple[str, int], ...] = ()
    """Indexes of the block that run over the instruction's sides, and how long those are; -1 = any."""
    params: tuple[int, ...] = ()

    def __str__(self) -> str:
        args = [*(f"{name}:{size}" for name, size in self.sizes), *map(str, self.params)]
        return f"{self.name}({', '.join(args)})" if args else self.name


@frozen
class Block:
    """See the module's text. `guard` forms (of the parent's indexes, each >= 0) decide whether it runs at all."""

    name: str
    indexes: tuple[Index, ...] = ()
    constraints: tuple[Quasi, ...] = ()
    """Forms of this block's indexes; an iteration runs when all are >= 0."""
    guard: tuple[Quasi, ...] = ()
    refs: tuple[Refinement, ...] = ()
    body: tuple[Statement, ...] = ()
    loc: Location | None = None
    instr: Instr | None = None
    """A hardware instruction that does the whole block; the body stays as its meaning."""
    tags: frozenset[str] = frozenset()
    comment: str = ""
    deps: tuple[int, ...] = ()
    origin: Span | None = None

    def ref(self, name: str) -> Refinement:
        """The refinement called `name`; KeyError when there is none."""
        for ref in self.refs:
            if ref.into == name:
                return ref
        raise KeyError(name)


Statement = Load | Store | Const | LoadIndex | Op | Reduce | Transfer | Wait | Sync | Special | Block


@frozen
class ConstantBuffer:
    """A named constant tensor."""

    name: str
    type: TensorType
    contents: Contents

    @property
    def data(self) -> memoryview:
        """Its bytes, little-endian in C order."""
        return self.contents.view


@frozen
class Program:
    """A whole program: `entry` allocates every buffer (inputs and outputs tagged ``user``) and runs the kernels.

    `entry.body` holds one ``main`` block whose statements are the kernels in order.
    """

    entry: Block
    constants: tuple[ConstantBuffer, ...] = ()
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
