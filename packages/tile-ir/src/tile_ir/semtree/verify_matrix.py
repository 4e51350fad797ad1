"""Rules of the nodes behind matrix instructions (`tile_ir.matrix`)."""

from __future__ import annotations

from tile_ir.dtype import DType
from tile_ir.matrix import LANES, MANTISSA_BITS, MATRIX_INSTRUCTIONS, PANEL_BYTES, MatrixInstruction, instruction_of
from tile_ir.matrix.x86 import FETCHES, LOAD_TILE, STORE_TILE, TILED_INSTRUCTIONS, TILES, WORDS_OF_ROW, ZERO_TILE
from tile_ir.semtree import errors as err
from tile_ir.semtree.nodes import Expr, MatrixLoad, Mma, Round, Space, TeamMma, TensorCopy, TileStep, Type
from tile_ir.semtree.verify_common import check_access, check_equal, fail


def round_bits(e: Round) -> None:
    """Some, but not all, of a float32's mantissa stays."""
    if e.value.type.dtype is not DType.FLOAT32:
        fail(err.IllegalDtype, f"{e.value.type} rounded to mantissa bits", e)
    if not 1 <= e.bits < MANTISSA_BITS:
        fail(err.UnknownOperation, f"a float32 cannot be rounded to {e.bits} mantissa bits", e)


def matrix_load(e: MatrixLoad) -> None:
    """One, two or four matrices of 16-bit elements in local memory."""
    check_access(e.ptr, e.index, Type(e.type.dtype), None, 0, e)
    if e.ptr.type.space is not Space.LOCAL or e.ptr.type.dtype.bits != 16:
        fail(err.IllegalDtype, f"a matrix of {e.ptr.type} is loaded, not of 16-bit elements in local memory", e)
    if e.type.lanes not in (2, 4, 8):
        fail(err.LaneError, f"{e.type} is not one, two or four matrices", e)


_MOVES = (LOAD_TILE, STORE_TILE)
_REGISTERS = (
    {LOAD_TILE: 1, STORE_TILE: 1, ZERO_TILE: 1} | dict.fromkeys(FETCHES, 0) | dict.fromkeys(TILED_INSTRUCTIONS, 3)
)


def tile_step(node: TileStep) -> None:
    """Registers that exist; whole rows of words in memory that follow each other, or a product of three registers, or zeros."""
    registers = _REGISTERS.get(node.name, -1)
    if len(node.tiles) != registers:
        fail(err.UnknownOperation, f"no instruction {node.name!r} takes {len(node.tiles)} tile registers")
    if any(not 0 <= tile < TILES for tile in node.tiles) or len(set(node.tiles)) < registers:
        fail(err.LaneError, f"{node.name} takes other registers than {', '.join(map(str, node.tiles))}")
    if (node.ptr is None) == (node.name in (*_MOVES, *FETCHES)) or (node.index is None) != (node.ptr is None):
        fail(err.PointerExpected, f"{node.name} on {'no ' if node.ptr is None else ''}memory")
    if node.ptr is None or node.index is None:
        return
    check_access(node.ptr, node.index, node.ptr.type.scalar, None, 0, node)
    words = node.ptr.type.dtype in (DType.INT32, DType.FLOAT32) and node.pitch >= WORDS_OF_ROW
    if node.name in _MOVES and not words:
        fail(err.IllegalDtype, f"rows of {node.ptr.type}, {node.pitch} elements apart, make no tile", node.ptr)


def mma(e: Mma) -> None:
    """What holds with and without sub-groups."""
    sizes = [_lanes(parts) for parts in (e.a, e.b, e.c)]
    if min(e.shape) < 1 or min(sizes) < 1:
        fail(err.LaneError, f"a matrix product of shape {e.shape}", e)
    for parts in (e.a, e.b):
        check_equal(parts, e)
    if sizes[2] != e.type.lanes or any(p.type.dtype is not e.type.dtype for p in e.c):
        fail(err.TypeMismatch, f"the accumulator fragments do not make {e.type}", e)


def team_mma(node: TeamMma, subgroup: int) -> None:
    """An instruction of a team, its factors in local memory and its sums in pieces."""
    instruction = MATRIX_INSTRUCTIONS.get(node.instruction)
    if instruction is None or instruction.team < 2:
        fail(err.UnknownOperation, f"no team of sub-groups has an instruction {node.instruction!r}")
    if subgroup != LANES:
        fail(err.LaneError, f"{node.instruction} takes sub-groups of {LANES} lanes, not {subgroup}")
    if node.rounded and instruction.a.dtype is not DType.FLOAT32:
        fail(err.IllegalDtype, f"{node.instruction} takes {instruction.a.dtype}, which is not rounded", node.a)
    for ptr, index, panels, operand, through in (
        (node.a, node.a_index, node.a_panels, instruction.a, node.rounded),
        (node.b, node.b_index, node.b_panels, instruction.b, False),
    ):
        check_access(ptr, index, Type(operand.dtype), None, 0, node)
        if ptr.type.space is not Space.LOCAL or panels < 0:
            fail(err.IllegalDtype, f"{node.instruction} takes {operand.dtype} from local memory, not {ptr.type}", ptr)
        if panels and instruction.along_depth and not through:
            fail(err.IllegalDtype, f"{node.instruction} takes rows of {operand.dtype} along k alone", ptr)
    piece = Type(instruction.c.dtype, instruction.c.registers)
    columns = len(node.c) * instruction.c.sizes[1]
    if columns != instruction.sides["n"] or any(v.type != piece for v in node.c):
        fail(
            err.TypeMismatch,
            f"{node.instruction} adds to {instruction.sides['n']} columns in pieces of {piece}",
            *node.c,
        )


MOST_DIMENSIONS, MOST_ELEMENTS, MOST_STEP, STRIDE_BYTES = 5, 256, 8, 16
"""Of a tensor that is copied: dimensions, elements along one from a box's first to behind its last, those from one that it has
to the next, and what the distance of neighbours is a multiple of."""


def tensor_copy(node: TensorCopy) -> None:
    """A box of float32 from global to local memory, of dimensions that the copy can have."""
    width, last = node.src.type.dtype.bytes, len(node.at) - 1
    check_access(node.dst, node.dst_index, Type(DType.FLOAT32), None, 0, node)
    if node.dst.type.space is not Space.LOCAL or node.src.type.space is not Space.GLOBAL:
        fail(err.AllocationError, "a box of a tensor is copied from global to local memory", node.dst, node.src)
    for at in node.at:
        check_access(node.src, at, Type(DType.FLOAT32), None, 0, node)
    lengths = {len(node.at), len(node.sizes), len(node.strides), len(node.box), len(node.steps)}
    if (
        len(lengths) > 1
        or not 1 <= len(node.at) <= MOST_DIMENSIONS
        or min(node.box) < 1
        or not 1 <= min(node.steps) <= max(node.steps) <= MOST_STEP
        or max(count * step for count, step in zip(node.box, node.steps, strict=True)) > MOST_ELEMENTS
    ):
        fail(err.AllocationError, f"a box of {node.box} elements of a tensor of {node.sizes}")
    if (
        node.box[last] * width != PANEL_BYTES
        or (node.strides[last], node.steps[last]) != (1, 1)
        or any(s * width % STRIDE_BYTES for s in node.strides[:-1])
    ):
        fail(err.AlignmentValueError, f"rows of {node.box[last]} elements in strides of {node.strides}")


def needs_lanes(e: Expr, subgroup: int) -> None:
    """A matrix load, and in a function with sub-groups a product, are the work of a whole sub-group."""
    if not isinstance(e, (MatrixLoad, Mma)) or (isinstance(e, Mma) and subgroup < 2):
        return
    instruction = instruction_of(e.shape, e.a[0].type.dtype) if isinstance(e, Mma) else None
    if isinstance(e, Mma) and instruction is None:
        fail(err.UnknownOperation, f"no matrix instruction has shape {e.shape} on {e.a[0].type.dtype}", e)
    lanes = LANES if instruction is None else instruction.lanes
    if subgroup != lanes:
        fail(err.LaneError, f"{type(e).__name__} takes sub-groups of {lanes} lanes, not {subgroup}", e)
    if isinstance(e, Mma) and instruction is not None:
        _check_fragments(e, instruction)


def _check_fragments(e: Mma, instruction: MatrixInstruction) -> None:
    for parts, operand in ((e.a, instruction.a), (e.b, instruction.b), (e.c, instruction.c)):
        if _lanes(parts) != operand.registers or parts[0].type.dtype is not operand.dtype:
            fail(err.TypeMismatch, f"{instruction.name} takes fragments of {operand.registers} {operand.dtype}", e)


def _lanes(parts: tuple[Expr, ...]) -> int:
    return sum(part.type.lanes for part in parts)
