"""Blocks that a sub-group does with one instruction: products of matrices, and loads of their fragments."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tile_ir.frozen import replace
from tile_ir.matrix import (
    LANES,
    LINE_BYTES,
    LINES,
    MATRIX_INSTRUCTIONS,
    MATRIX_LOADS,
    ROUND,
    MatrixInstruction,
    Operand,
    elements,
)
from tile_ir.semtree.nodes import Expr, MatrixLoad, Mma, Shuffle, TeamMma, Type, Var
from tile_ir.stripe import nodes as stripe
from tile_ir.stripe.affine import Affine, names_in

from tile_opt.lowering.body import LoweringError, View
from tile_opt.lowering.builder import Builder
from tile_opt.lowering.forms import alignment
from tile_opt.lowering.fragments import FragmentMap

Views = Callable[[Mapping[str, Affine]], Mapping[str, View]]
"""The block's views at a point of its own indexes."""
Digit = Callable[[int, int], Affine]
"""``lane // divisor % modulus`` as an index variable."""


def rounding(instr: stripe.Instr | None) -> int:
    """Mantissa bits that a block's loads are rounded to: those of ``round(bits)``, else 0."""
    return instr.params[0] if instr is not None and instr.name == ROUND else 0


def is_collective(instr: stripe.Instr | None) -> bool:
    """Whether the whole block is one instruction of a sub-group."""
    return instr is not None and (instr.name in MATRIX_INSTRUCTIONS or instr.name in MATRIX_LOADS)


def emit_collective(builder: Builder, block: stripe.Block, views: Views, digit: Digit) -> None:
    """The instruction of `block`."""
    assert block.instr is not None
    name, args = block.instr.name, tuple(name for name, _ in block.instr.sizes)
    if name in MATRIX_INSTRUCTIONS:
        _multiply(builder, block, name, args, views, digit)
    else:
        _load(builder, block, args, views, digit, MATRIX_LOADS.index(name) > 0)


def _multiply(
    builder: Builder, block: stripe.Block, name: str, args: tuple[str, ...], views: Views, digit: Digit
) -> None:
    """``c += a · b``."""
    m, n, k = args
    instruction = MATRIX_INSTRUCTIONS[name]
    if instruction.team > 1:
        _multiply_together(builder, block, instruction, args, views, digit)
        return
    found = views(dict.fromkeys(args, Affine()))
    a, b = (
        _part(builder, block, _of(block, found, pair), operand)
        for pair, operand in (((m, k), instruction.a), ((k, n), instruction.b))
    )
    c = _whole(block, _of(block, found, (m, n)))
    builder.assign(c, Mma(instruction.shape, (a,), (b,), (c,), c.type))


def _multiply_together(
    builder: Builder,
    block: stripe.Block,
    instruction: MatrixInstruction,
    args: tuple[str, ...],
    views: Views,
    digit: Digit,
) -> None:
    """``c += a · b`` of a team, whose sub-groups have neighbouring rows of one tile."""
    m, n, k = args
    first = views(dict.fromkeys(args, Affine()))
    steps = {name: views({**dict.fromkeys(args, Affine()), name: Affine((), 1)}) for name in (m, n, k)}
    c = next((v for v in first.values() if v.root.fragments is not None), None)
    if c is None:
        raise LoweringError(f"{block.instr}: no fragments for the sums")
    moved = {name: [r for r, v in found.items() if v.offset != first[r].offset] for name, found in steps.items()}
    a, b = (next(first[r] for r in moved[side] if r in moved[k]) for side in (m, n))
    step = {id(v): steps[side][r].offset - v.offset for side in (m, n) for r, v in first.items() if r in moved[side]}
    before = _rows_before(instruction, a, step[id(a)].const, digit)
    places = [panel(builder, block, replace(a, offset=a.offset - before)), panel(builder, block, b)]
    (left, left_at, left_panels), (right, right_at, right_panels) = places
    panels = [0 if step[id(v)].const > 1 else apart for v, apart in ((a, left_panels), (b, right_panels))]
    variable, element = _place(block, c)
    start, count = list(c.root.variables).index(variable), instruction.sides["n"] // instruction.c.sizes[1]
    if element or len(c.root.variables) < start + count:
        raise LoweringError(f"{block.instr}: {c.root.name!r} is not used by whole matrices")
    c.root.read = c.root.written = True
    sums = tuple(c.root.variables[start : start + count])
    rounded = block.instr is not None and bool(block.instr.params)
    product = TeamMma(instruction.name, sums, left, left_at, right, right_at, *panels, rounded=rounded)
    if a.root.arrangement is None or a.root.arrangement.together * a.root.dtype.bytes != product.a_chunk:
        raise LoweringError(f"{block.instr}: {a.root.name!r} does not lie as items read it")
    builder.emit(product)


def _rows_before(instruction: MatrixInstruction, a: View, step: int, digit: Digit) -> Affine:
    """Elements from the team's first row, whose address it is given, to a sub-group's own.

    Rows along memory that fill one panel go on in the next one.
    """
    rows, held = instruction.sides["m"], a.root.arrangement
    if held is None or step > 1 or not held.panel == held.pitch < rows * instruction.team:
        return digit(LANES, instruction.team) * (rows * step)
    each = held.panel // rows
    beside = digit(LANES * each, instruction.team // each) * (held.rows * held.panel)
    return digit(LANES, each) * (rows * step) + beside


def panel(builder: Builder, block: stripe.Block, view: View) -> tuple[Var, Expr, int]:
    """The array of a factor, where its first element lies, and elements from panel to panel."""
    root = view.root
    if root.arrangement is None or root.ptr is None:
        raise LoweringError(f"{block.instr}: {root.name!r} does not lie as a team reads it")
    root.read = True
    at = root.arrangement.index(builder, view.offset, view.quasi, swizzled=False)
    return root.ptr, at, root.arrangement.rows * root.arrangement.panel


def _load(
    builder: Builder, block: stripe.Block, args: tuple[str, ...], views: Views, digit: Digit, transposed: bool
) -> None:
    """Every lane gives the start of a line; the lanes receive their elements of all lines."""
    row, column = args
    target = block.refs[1]
    fragments = views(dict.fromkeys(args, Affine()))[target.into].root.fragments
    if fragments is None:
        raise LoweringError(f"{block.instr}: {target.into!r} is no matrix of fragments")
    columns = next(i.range for i in block.indexes if i.name == column)
    at = _line(fragments, columns, digit, transposed)
    source = views(dict(zip((row, column), at, strict=True)))[block.refs[0].into]
    root, dtype = source.root, source.root.dtype
    if root.ptr is None or alignment(source.offset, dtype.bytes, root.align) % LINE_BYTES:
        raise LoweringError(f"{block.instr}: lines of {block.refs[0].into!r} are not aligned to {LINE_BYTES} bytes")
    root.read = True
    index = builder.index(source.offset, source.quasi)
    variable = _whole(block, views(dict.fromkeys(args, Affine()))[target.into])
    builder.assign(variable, MatrixLoad(root.ptr, index, transposed, Type(dtype, fragments.registers)))


def _line(fragments: FragmentMap, columns: int, digit: Digit, transposed: bool) -> tuple[Affine, Affine]:
    """Row and column of the first element of the line that a lane gives.

    Lane ``8 p + r`` gives line r of the matrix that registers 2 p and 2 p + 1 hold a pair of; lines follow the
    coordinate along which fours of lanes lie, or the other one when `transposed`.
    """
    where = {place: divmod(element, columns) for element, place in enumerate(fragments.place)}
    along = int(where[4, 0][1] > 0) ^ int(transposed)
    forms = [Affine(), Affine()]
    forms[along] = digit(1, LINES)
    bit = 0
    while 2 << bit < fragments.registers:
        origin = where[0, 2 << bit]
        forms = [f + digit(LINES << bit, 2) * step for f, step in zip(forms, origin, strict=True)]
        bit += 1
    return forms[0], forms[1]


def _of(block: stripe.Block, views: Mapping[str, View], names: tuple[str, str]) -> View:
    """The view of fragments that is indexed by `names`."""
    own = {i.name for i in block.indexes if i.value is None}
    for ref in block.refs:
        used = names_in(ref.access) & own
        if views[ref.into].root.fragments is not None and used == set(names):
            return views[ref.into]
    raise LoweringError(f"{block.instr}: no fragments over {', '.join(names)}")


def _whole(block: stripe.Block, view: View) -> Var:
    """The variable of a whole matrix of fragments."""
    variable, element = _place(block, view)
    if element:
        raise LoweringError(f"{block.instr}: {view.root.name!r} is not used by whole matrices")
    view.root.read = view.root.written = True
    return variable


def _part(builder: Builder, block: stripe.Block, view: View, operand: Operand) -> Expr:
    """The registers that hold an operand whose first element is the view's."""
    variable, first = _place(block, view)
    fragments, pitch = view.root.fragments, view.strides[-2]
    assert fragments is not None
    view.root.read = True
    held = elements(operand)
    registers: list[int] = []
    for register in range(operand.registers):
        places = [
            fragments.place[first + row * pitch + column]
            for row, column in (held[lane, register] for lane in range(LANES))
        ]
        if [lane for lane, _ in places] != list(range(LANES)) or len({r for _, r in places}) > 1:
            raise LoweringError(f"{block.instr}: the fragments {view.root.name!r} do not hold such an operand")
        registers.append(places[0][1])
    if registers == list(range(fragments.registers)):
        return variable
    type = variable.type.vector(len(registers))
    return builder.let("part", Shuffle(variable, variable, tuple(registers), type))


def _place(block: stripe.Block, view: View) -> tuple[Var, int]:
    """The variable that holds the view's first element, and the element's number in its matrix."""
    root, at = view.root, view.offset
    if root.fragments is None or at.terms or view.quasi:
        raise LoweringError(f"{block.instr}: {root.name!r} is no fragment, or where it is used is not known")
    matrix, element = divmod(at.const, root.fragments.elements)
    return root.variables[matrix], element
