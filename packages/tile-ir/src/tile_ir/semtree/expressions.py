"""Expressions of semtree and their types: each has a `type`, and none an effect (`tile_ir.semtree.nodes` says what they mean)."""

from __future__ import annotations

from enum import Enum

from tile_ir.dtype import DType, same_number
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


@frozen
class Const:
    """A literal; a vector type means the same value in every lane."""

    value: int | float | bool
    type: Type

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Const) and same_number(self.value, other.value) and self.type == other.type


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
