"""Semtree: the typed kernel language between the optimizer and every emitter.

Operand types are equal and casts explicit, so emitters never promote. Values are variables: `Let`
binds once, `Assign` changes a variable declared by `Let(mutable=True)`. Integer semantics are those of
the language (`docs/language.md`: division by zero gives 0, shifts are total, float→int saturates).
The core every backend has: Const, Var, Load, Store, Unary, Binary, Compare, Select, Cast, Call, Limit,
WorkId, Let, Assign, Alloc, For, If, Block, Comment. All else is listed in `Capabilities.nodes` or
rewritten by `tile_opt.semtree.legalise`.
"""

from __future__ import annotations

from enum import Enum

from tile_ir.frozen import frozen
from tile_ir.matrix import CHUNK_BYTES, OWN_BYTES
from tile_ir.ops import Aggregation
from tile_ir.semtree.expressions import (
    Binary,
    Bitcast,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Extract,
    Fma,
    IdKind,
    Insert,
    Iota,
    Limit,
    Load,
    MatrixLoad,
    Mma,
    ReduceLanes,
    Round,
    Select,
    Shuffle,
    Space,
    Splat,
    SubgroupOp,
    Type,
    Unary,
    Var,
    WorkId,
)  # fmt: skip

__all__ = [
    "Access", "Alloc", "Assign", "AsyncCopy", "AsyncWait", "Atomic", "Barrier", "Binary", "Bitcast", "Block",
    "Call", "CallFn", "Cast", "Comment", "Compare", "Const", "Expr", "Extract", "Fma", "For", "Function",
    "IdKind", "If", "Insert", "Iota", "LastGroup", "Let", "Limit", "Load", "MOST_COUNTS", "MatrixLoad", "Mma",
    "PRODUCTS", "Param", "ReduceLanes", "Return", "Round", "Select", "Shuffle", "Space", "Splat", "Statement",
    "Store", "SubgroupOp", "TeamMma", "TensorCopy", "TileStep", "Type", "Unary", "Unroll", "Var", "While", "WorkId",
]  # fmt: skip
"""Statements and functions are defined here, expressions in `tile_ir.semtree.expressions`: every node is imported from here."""


@frozen
class Let:
    """Declare `name`; only a `mutable` variable may be assigned later."""

    name: str
    value: Expr
    mutable: bool = False


@frozen
class Assign:
    name: str
    value: Expr


STORED_AHEAD = 128
"""Bytes between what is stored and what is fetched to be stored next."""


@frozen
class Store:
    """``ptr[index] = value`` (consecutive elements for a vector).

    `hint` is "", "streaming" (non-temporal) or "prefetch": a line `STORED_AHEAD` bytes further on is written soon, too.

    `align` is the known alignment of the address in bytes (0: that of the element); of a streaming store what it is where
    `ptr` is a multiple of `tile_ir.kernels.STREAM_ALIGN`.
    """

    ptr: Expr
    index: Expr
    value: Expr
    mask: Expr | None = None
    align: int = 0
    hint: str = ""


@frozen
class Alloc:
    """An array variable `name` of `type` (count elements, in PRIVATE or LOCAL space), uninitialised."""

    name: str
    type: Type
    align: int = 64


class Unroll(Enum):
    """What the device compiler should do with a loop."""

    NONE = "none"
    FULL = "full"
    AUTO = "auto"


@frozen
class For:
    """``for (var = start; var < stop; var += step)``; bounds are integers of one type, step is positive."""

    var: str
    start: Expr
    stop: Expr
    step: int
    body: Block
    unroll: Unroll = Unroll.NONE


@frozen
class If:
    cond: Expr
    then: Block
    other: Block | None = None


@frozen
class While:
    cond: Expr
    body: Block


@frozen
class Barrier:
    """All threads of the scope arrive before any goes on; `fence` names the memory made visible."""

    scope: str = "group"
    fence: str = "local"


@frozen
class LastGroup:
    """All threads of the group arrive; `flag`, a mutable bool, becomes true in the last of `count` groups with this `which`.

    That group then sees what the others have stored in global memory before they arrived. Groups with equal `which`, below
    `MOST_COUNTS`, are `count` of them, in every launch. Once in a kernel, not in a loop.
    """

    flag: Expr
    which: Expr
    count: int


MOST_COUNTS = 1 << 14
"""Sets of groups of one kernel that `LastGroup` may tell apart."""


@frozen
class Atomic:
    """``ptr[index] = agg(ptr[index], value)`` indivisibly."""

    agg: Aggregation
    ptr: Expr
    index: Expr
    value: Expr


@frozen
class AsyncCopy:
    """Start copying `count` elements from global to local memory, in the open batch of `group`.

    Both addresses are multiples of `align` bytes (0: of an element). Where `guard` is false nothing is copied; with
    `fill` the target's elements become 0 then.
    """

    dst: Expr
    dst_index: Expr
    src: Expr
    src_index: Expr
    count: int
    guard: Expr | None = None
    group: int = 0
    align: int = 0
    fill: bool = False


@frozen
class AsyncWait:
    """Close the batch of copies that this work item started in `group` since its last wait, empty or not.

    Then wait until at most the latest `pending` batches are unfinished.
    """

    group: int = 0
    pending: int = 0


@frozen
class TensorCopy:
    """The group starts copying a box of the float32 tensor at `src` to local memory, in the open batch of `group`.

    Along each dimension, outermost first, neighbours of the tensor are `strides` elements apart, and the box has `box` of
    them from `at` on, every `steps`-th; what is not in [0, `sizes`) becomes 0. They are rounded to `TF32_BITS` mantissa bits, ties to even. Its last
    dimension is `PANEL_BYTES` long and dense: rows that follow one another from `dst_index` on, where eight of them begin
    anew, swizzled as `TeamMma` reads them. All items come by, and meet behind each wait for its group.
    """

    dst: Expr
    dst_index: Expr
    src: Expr
    at: tuple[Expr, ...]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    steps: tuple[int, ...]
    group: int = 0


@frozen
class TileStep:
    """An instruction on the tile registers of a work item (`tile_ir.matrix.x86`).

    ``tile_load`` fills register `tiles[0]` with rows from ``ptr[index]`` on, `pitch` elements apart; ``tile_store`` writes them there;
    ``tile_zero`` fills it with zeros. A product ``c += a . b`` names the registers of c, a and b, and no memory; ``fetch_line`` and
    ``claim_line`` name no register, and ask for the line at ``ptr[index]`` to be read or written soon, which changes nothing. Registers hold
    nothing at first.
    """

    name: str
    tiles: tuple[int, ...]
    ptr: Expr | None = None
    index: Expr | None = None
    pitch: int = 0


@frozen
class TeamMma:
    """``c += a · b`` of `tile_ir.matrix.MATRIX_INSTRUCTIONS[instruction]` by the sub-groups of a team together.

    `c` are mutable float32 variables, a piece of the sub-group's rows each. `a` and `b` are arrays in local memory; the
    index, the same for the whole team, is where the first element would lie without the swizzle. Rows of `PANEL_BYTES`
    hold neighbours along k, row after row of a and column after column of b; with panels they hold neighbours along
    the other side, one k after another, and the next panel is so many elements behind (factors of 16 bits). float32 factors
    count with `TF32_BITS` mantissa bits; of `a` those to which each item has rounded its own elements, ties away from zero,
    where it is `rounded`: these go through registers, so that they may lie in panels, too. Products are complete, and c may
    be read, when an `AsyncWait` of group `PRODUCTS` says so.
    """

    instruction: str
    c: tuple[Expr, ...]
    a: Expr
    a_index: Expr
    b: Expr
    b_index: Expr
    a_panels: int = 0
    b_panels: int = 0
    rounded: bool = False

    @property
    def a_chunk(self) -> int:
        """Bytes of rows of a that stay together."""
        return OWN_BYTES if self.rounded and self.a_panels else CHUNK_BYTES


PRODUCTS = 1
"""The group in which `TeamMma` starts its products."""


@frozen
class CallFn:
    """Call a helper of this function by name."""

    name: str
    args: tuple[Expr, ...]


@frozen
class Block:
    """A scope."""

    body: tuple[Statement, ...] = ()


@frozen
class Comment:
    text: str


@frozen
class Return:
    pass


Statement = (
    Let | Assign | Store | Alloc | For | If | While | Barrier | LastGroup | Atomic | AsyncCopy | AsyncWait | TensorCopy
    | TileStep | TeamMma | CallFn | Block | Comment | Return
)  # fmt: skip


class Access(Enum):
    READ = "read"
    WRITE = "write"
    READWRITE = "readwrite"


@frozen
class Param:
    """A kernel parameter: a pointer to `elements` elements (or, in a helper, a scalar)."""

    name: str
    type: Type
    access: Access = Access.READ
    align: int = 1
    elements: int = 0
    alias_of: str | None = None
    """Another parameter this one may share storage with; all others are disjoint."""


@frozen
class Function:
    """A kernel (or helper) body; `group_size` work items per group."""

    name: str
    params: tuple[Param, ...]
    body: Block
    group_size: tuple[int, int, int] = (1, 1, 1)
    subgroup: int = 0
    helpers: tuple[Function, ...] = ()
