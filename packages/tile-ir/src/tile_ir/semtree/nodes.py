"""Semtree: the typed kernel language between the optimizer and every emitter.

Operand types are equal and casts explicit, so emitters never promote. Values are variables: `Let`
binds once, `Assign` changes a variable declared by `Let(mutable=True)`. Integer semantics are those of
the language (`docs/language.md`: division by zero gives 0, shifts are total, float→int saturates).
The core every backend has: Const, Var, Load, Store, Unary, Binary, Compare, Select, Cast, Call, Limit,
WorkId, Let, Assign, Alloc, For, If, Block, Comment. All else is listed in `Capabilities.nodes` or
rewritten by `tile_opt.legalise`.
"""

from __future__ import annotations

from enum import Enum

from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.ops import Aggregation


class Space(Enum):
    PRIVATE = "private"
    LOCAL = "local"
    GLOBAL = "global"
    CONST = "const"


@frozen
class Type:
    """A scalar (`lanes` 1), a vector, an array of `count` such values, or with `ptr` a pointer to them in `space`."""

    dtype: DType
    lanes: int = 1
    count: int = 0
    space: Space = Space.PRIVATE
    ptr: bool = False

    def vector(self, lanes: int) -> Type:
        return Type(self.dtype, lanes)

    @property
    def scalar(self) -> Type:
        return Type(self.dtype)


# --- expressions: each has a `type` ----------------------------------------------------------------


@frozen
class Const:
    """A literal; a vector type means the same value in every lane."""

    value: int | float | bool
    type: Type


@frozen
class Var:
    name: str
    type: Type


@frozen
class Load:
    """``ptr[index]``; with a vector `type`, `type.lanes` consecutive elements from `index` on.

    `index` counts elements (int32 or int64 scalar). `mask` (bool vector) suppresses lanes, which then
    hold zero. `align` is the known alignment of the address in bytes (0: that of the element).
    """

    ptr: Expr
    index: Expr
    type: Type
    mask: Expr | None = None
    align: int = 0


@frozen
class Unary:
    """`op` is neg, abs or bit_not."""

    op: str
    value: Expr
    type: Type


@frozen
class Binary:
    """`op` is add sub mul div max min bit_and bit_or bit_xor bit_left bit_right, or mod (floor) on index integers."""

    op: str
    left: Expr
    right: Expr
    type: Type


@frozen
class Compare:
    """`op` is cmp_eq … cmp_ge; the type is bool with the operands' lanes."""

    op: str
    left: Expr
    right: Expr
    type: Type


@frozen
class Fma:
    """``a * b + c`` rounded once."""

    a: Expr
    b: Expr
    c: Expr
    type: Type


@frozen
class Select:
    """``cond ? then : other``; both sides are evaluated."""

    cond: Expr
    then: Expr
    other: Expr
    type: Type


@frozen
class Cast:
    value: Expr
    type: Type


@frozen
class Bitcast:
    """The value's bits as another dtype of the same width; bool has none."""

    value: Expr
    type: Type


@frozen
class Call:
    """A math function of `tile_ir.ops` (exp, log, pow, floor …) on floats."""

    name: str
    args: tuple[Expr, ...]
    type: Type


@frozen
class Splat:
    """A scalar in every lane."""

    value: Expr
    type: Type


@frozen
class Extract:
    vector: Expr
    lane: int
    type: Type


@frozen
class Insert:
    vector: Expr
    lane: int
    value: Expr
    type: Type


@frozen
class Shuffle:
    """Lanes of `left` then `right` (numbered on) picked by `lanes`."""

    left: Expr
    right: Expr
    lanes: tuple[int, ...]
    type: Type


@frozen
class Iota:
    """0, 1, 2, … in the lanes."""

    type: Type


@frozen
class ReduceLanes:
    """Combine the lanes of a vector pairwise (a fixed tree: lane i with lane i + lanes/2)."""

    agg: Aggregation
    value: Expr
    type: Type


@frozen
class Limit:
    """The smallest or largest value of a dtype (`which` is "min" or "max"; ∓inf for floats)."""

    which: str
    type: Type


class IdKind(Enum):
    GLOBAL = "global"
    GROUP = "group"
    LOCAL = "local"


@frozen
class WorkId:
    """Number of the work item, of its group, or within its group, in dimension `axis` (0..2)."""

    kind: IdKind
    axis: int
    type: Type = Type(DType.INT32)


@frozen
class SubgroupOp:
    """Sub-group collective: reduce_*, broadcast, shuffle_xor…"""

    op: str
    args: tuple[Expr, ...]
    type: Type


@frozen
class Round:
    """A float32 rounded to `bits` explicit mantissa bits, ties away from zero; NaN and infinities stay."""

    value: Expr
    bits: int
    type: Type


@frozen
class MatrixLoad:
    """8×8 matrices of 16-bit elements from local memory to the lanes of a sub-group, `type.lanes` / 2 of them.

    Lane ``8 i + r`` gives the `index` of the first element of row r of matrix i (16-byte aligned, 8 elements in a
    row); the other lanes' indexes are not used. Lane l receives of each matrix the elements ``2 (l % 4)`` and
    ``2 (l % 4) + 1`` of row ``l // 4``; of column ``l // 4`` when `transpose`.
    """

    ptr: Expr
    index: Expr
    transpose: bool
    type: Type


@frozen
class Mma:
    """Matrix multiply-accumulate: ``d = a · b + c`` of shape (m, n, k), c and d in float32.

    In a function without sub-groups a work item holds whole matrices, row after row. With `Function.subgroup` the
    lanes hold the fragments of `tile_ir.matrix.instruction_of(shape, dtype of a)`, registers in order, and all lanes
    take part; float32 operands then count with `TF32_BITS` mantissa bits, the others are ignored.
    """

    shape: tuple[int, int, int]
    a: tuple[Expr, ...]
    b: tuple[Expr, ...]
    c: tuple[Expr, ...]
    type: Type


Expr = (
    Const | Var | Load | Unary | Binary | Compare | Fma | Select | Cast | Bitcast | Call | Splat | Extract | Insert
    | Shuffle | Iota | ReduceLanes | Limit | WorkId | SubgroupOp | Round | MatrixLoad | Mma
)  # fmt: skip

# --- statements ------------------------------------------------------------------------------------


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


@frozen
class Store:
    """``ptr[index] = value`` (consecutive elements for a vector); `hint` is "" or "streaming" (non-temporal)."""

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
class TileStep:
    """An instruction on the tile registers of a work item (`tile_ir.matrix.x86`).

    ``tile_load`` fills register `tiles[0]` with rows from ``ptr[index]`` on, `pitch` elements apart; ``tile_store`` writes them there. A
    product ``c += a . b`` names the registers of c, a and b, and no memory. Registers hold nothing at first.
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
    count with `TF32_BITS` mantissa bits. Products are complete, and c may be read, when an `AsyncWait` of group `PRODUCTS`
    says so.
    """

    instruction: str
    c: tuple[Expr, ...]
    a: Expr
    a_index: Expr
    b: Expr
    b_index: Expr
    a_panels: int = 0
    b_panels: int = 0


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
    Let | Assign | Store | Alloc | For | If | While | Barrier | LastGroup | Atomic | AsyncCopy | AsyncWait | TileStep
    | TeamMma | CallFn | Block | Comment | Return
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
