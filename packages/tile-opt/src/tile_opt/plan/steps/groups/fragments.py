"""Register fragments: the layout of an operand of a matrix instruction, and the loops that visit its elements.

Every operand numbers its lanes by the same two digits: `HIGH` counts fours of lanes, `LOW` the lanes of a four. So
all elements are visited by two indexes bound to lanes and one unrolled index for each digit of the register number,
and every coordinate is affine in them.
"""

from __future__ import annotations

from tile_ir.dtype import DType
from tile_ir.frozen import frozen, replace
from tile_ir.matrix import LANES, Digit, Operand
from tile_ir.stripe.affine import Affine, DivMod, DivModOp, Quasi
from tile_ir.stripe.nodes import Bind, Fragment, Index, Layout, Location, Scope, TensorType, row_major_strides

HIGH, LOW = "lane_high", "lane_low"
FOUR = 4
"""Lanes that share a value of `HIGH`."""
FRAGMENT = Location("REG", scope=Scope.SUBGROUP)
LANE_INDEXES = (
    Index(HIGH, LANES // FOUR, bind=Bind.LANE),
    Index(LOW, FOUR, bind=Bind.LANE),
)
LANE = Affine.of({HIGH: FOUR, LOW: 1})
"""The number of a lane in its sub-group."""


def fragment_type(dtype: DType, operand: Operand, tiles: tuple[int, ...]) -> TensorType:
    """`tiles` matrices of the operand's sizes in registers, row and column last."""
    sizes = (*tiles, *operand.sizes)
    names = (f"d{len(tiles)}", f"d{len(tiles) + 1}")
    lane, register = _forms(operand, names, lane=True), _forms(operand, names, lane=False)
    return TensorType(dtype, sizes, Layout(row_major_strides(sizes), 16, fragment=Fragment(lane, register)))


def _forms(operand: Operand, names: tuple[str, str], *, lane: bool) -> tuple[Quasi, ...]:
    found: list[Quasi] = []
    for name, digits, extent in zip(names, (operand.rows, operand.columns), operand.sizes, strict=True):
        for digit in digits:
            if digit.lane is lane:
                found += _digit_forms(Affine.var(name), digit, extent)
    return tuple(found)


def _digit_forms(at: Affine, digit: Digit, extent: int) -> list[Quasi]:
    """Forms whose sum is ``weight * (at // step % size)``."""
    size, step, weight = digit.size, digit.step, digit.weight
    if step == 1:
        return [at * weight if size == extent else DivMod(at, size, DivModOp.MOD, weight)]
    whole = DivMod(at, step, DivModOp.DIV, weight)
    if size * step == extent:
        return [whole]
    return [whole, DivMod(at, size * step, DivModOp.DIV, -weight * size)]


@frozen
class Walk:
    """The elements that each lane holds: a row and a column over the lane indexes and `registers`."""

    row: Affine
    column: Affine
    registers: tuple[Index, ...]
    """The last one walks neighbours in a row, where a lane has any."""


def walk(operand: Operand, prefix: str) -> Walk:
    """Loops over a lane's elements; index names start with `prefix`."""
    registers: list[tuple[int, Index]] = []
    forms: list[Affine] = []
    for axis, digits in (("r", operand.rows), ("c", operand.columns)):
        form = Affine()
        for digit in digits:
            if digit.lane:
                form = form + Affine.var(HIGH if digit.weight == FOUR else LOW, digit.step)
                continue
            index = Index(f"{prefix}_{axis}{digit.step}", digit.size, bind=Bind.UNROLL)
            registers.append((digit.weight, index))
            form = form + Affine.var(index.name, digit.step)
        forms.append(form)
    ordered = tuple(index for _, index in sorted(registers, key=lambda pair: -pair[0]))
    return Walk(forms[0], forms[1], ordered)


def shares_of(operand: Operand) -> Operand:
    """A cell for each row of a matrix and each of the lanes that hold elements of it."""
    step, rows = 1, list[Digit]()
    for digit in operand.rows:
        rows.append(digit if digit.lane else replace(digit, weight=step))
        step *= 1 if digit.lane else digit.size
    columns = tuple(replace(d, step=1) for d in operand.columns if d.lane)
    return replace(operand, rows=tuple(rows), columns=columns)
