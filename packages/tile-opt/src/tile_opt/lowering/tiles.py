"""Blocks that one work item does with an instruction on tile registers: moves of a tile, and products of tiles."""

from __future__ import annotations

from tile_ir.matrix.x86 import FETCHES, LOAD_TILE, TILED_INSTRUCTIONS, ZERO_TILE, is_tile_step
from tile_ir.semtree.nodes import TileStep
from tile_ir.stripe import nodes as stripe
from tile_ir.stripe.affine import Affine, names_in

from tile_opt.lowering.body import LoweringError, View
from tile_opt.lowering.builder import Builder
from tile_opt.lowering.matrix import Digit, Views, emit_collective, is_collective
from tile_opt.lowering.places import Home
from tile_opt.lowering.tensors import Places, emit_tensor_copy, is_tensor_copy


def is_instruction(instr: stripe.Instr | None) -> bool:
    """Whether the whole block is one instruction: on tile registers, of a sub-group, or a copy of a tensor's box."""
    return is_collective(instr) or is_tensor_copy(instr) or (instr is not None and is_tile_step(instr.name))


def emit_instruction(builder: Builder, block: stripe.Block, views: Views, places: Places, digit: Digit) -> None:
    """The instruction of `block`; `digit` makes digits of a lane's number."""
    if is_collective(block.instr):
        emit_collective(builder, block, views, digit)
    elif is_tensor_copy(block.instr):
        emit_tensor_copy(builder, block, views, places)
    else:
        _emit(builder, block, views)


def _emit(builder: Builder, block: stripe.Block, views: Views) -> None:
    """The instruction on tile registers."""
    assert block.instr is not None
    name, args = block.instr.name, [n for n, _ in block.instr.sizes]
    origin = views(dict.fromkeys(args, Affine()))
    if name in TILED_INSTRUCTIONS:
        m, n, k = args
        registers = [_register(block, origin[_over(block, pair)]) for pair in ((m, n), (m, k), (k, n))]
        builder.emit(TileStep(name, tuple(registers)))
        return
    if name in FETCHES:
        (view,) = origin.values()
        builder.emit(TileStep(name, (), view.root.ptr, builder.index(view.offset, view.quasi)))
        return
    if name == ZERO_TILE:
        (held,) = (r.into for r in block.refs)
        builder.emit(TileStep(name, (_register(block, origin[held]),)))
        return
    source, target = (r.into for r in block.refs)
    held, memory = (target, source) if name == LOAD_TILE else (source, target)
    row, column = (
        views({n: Affine((), int(n == moved)) for n in args})[memory].offset - origin[memory].offset for moved in args
    )
    view = origin[memory]
    if row.terms or column != Affine((), 1) or view.root.ptr is None:
        raise LoweringError(f"{block.instr}: rows of {memory!r} are not side by side in memory")
    index = builder.index(view.offset, view.quasi)
    builder.emit(TileStep(name, (_register(block, origin[held]),), view.root.ptr, index, row.const))
    if name == LOAD_TILE:
        view.root.read = True
    else:
        view.root.written = True
        builder.forget_loads()


def _register(block: stripe.Block, view: View) -> int:
    """The number of the register that a view is the whole of."""
    number, within = divmod(view.offset.const, view.root.chunk)
    if view.root.home is not Home.TILE or view.offset.terms or view.quasi or within:
        raise LoweringError(f"{block.instr}: {view.root.name!r} is no tile register that is known while compiling")
    return view.root.first + number


def _over(block: stripe.Block, names: tuple[str, str]) -> str:
    """The view that is indexed by `names`."""
    own = {i.name for i in block.indexes if i.value is None}
    for ref in block.refs:
        if names_in(ref.access) & own == set(names):
            return ref.into
    raise LoweringError(f"{block.instr}: no operand over {', '.join(names)}")
