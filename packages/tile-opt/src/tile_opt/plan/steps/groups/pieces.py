"""Reductions whose operands reach the items through local memory: each step copies a piece of each row, then uses it.

Every element is used once, by the item that copied it: this is how one writes such a kernel by hand, not a gain by itself.
"""

from __future__ import annotations

from collections.abc import Iterable

from tile_ir.frozen import replace
from tile_ir.names import claim
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Bind, Direction, Index, Order, Refinement, Sync, TensorType

from tile_opt.kernel.strides import flat_stride
from tile_opt.kernel.unify import is_indirect
from tile_opt.kernel.view import KernelView, Stage, Use
from tile_opt.kernel.work import merged_use
from tile_opt.plan.tree import GROUP_MEMORY, Nest


def row_operands(view: KernelView, stage: Stage, loops: Iterable[str]) -> tuple[Use, ...]:
    """What a reduction reads of memory element by element along one of `loops`; nothing for any other stage."""
    own = [n for n in loops if n in stage.loop_names]
    if merged_use(stage) is None or not own:
        return ()
    plain = [u for u in stage.uses if u.dir is Direction.IN and not u.extent and not is_indirect(stage, u)]
    return tuple(u for u in plain if not view.is_local(u.buffer) and flat_stride(view, u, own[0]) == 1)


def in_pieces(
    view: KernelView,
    moved: Stage,
    operands: frozenset[str],
    own: frozenset[str],
    place: Affine,
    size: int,
    taken: set[str],
) -> tuple[Nest, list[Refinement]]:
    """`moved`, whose own indexes are `own`, with the uses `operands` in local memory, an element at `place`; and that memory."""
    steps = tuple(i for i in moved.loops if i.name in own and i.bind is not Bind.VECTOR)
    rest = tuple(i for i in moved.loops if i not in steps)
    memory: dict[tuple[str, tuple[Affine, ...]], Refinement] = {}
    uses: list[Use] = []
    for use in moved.uses:
        key = (use.buffer, use.forms)
        if use.name not in operands:
            uses.append(use)
            continue
        if key not in memory:
            memory[key] = _piece(view, use, size, taken)
        uses.append(replace(use, buffer=memory[key].into, forms=(place,)))
    lanes = tuple(i for i in rest if i.name in own)
    copies = tuple(_copy(*key, piece, lanes, moved.constraints, place) for key, piece in memory.items())
    merge = replace(moved, loops=rest, uses=tuple(uses))
    ordered = tuple(replace(i, order=Order.ORDERED) for i in steps)
    # The second barrier holds the next step's copies back until every item has read this step's.
    return Nest(f"{moved.name}_steps", ordered, (*copies, Sync(), merge, Sync())), list(memory.values())


def _piece(view: KernelView, use: Use, size: int, taken: set[str]) -> Refinement:
    type = TensorType.row_major(view.type_of(use.buffer).dtype, (size,), align=16)
    return Refinement(Direction.ALLOC, claim(f"{use.buffer}_local", taken), "", (Affine(),), type, loc=GROUP_MEMORY)


def _copy(
    buffer: str,
    forms: tuple[Affine, ...],
    piece: Refinement,
    lanes: tuple[Index, ...],
    constraints: tuple[Affine, ...],
    place: Affine,
) -> Stage:
    """Neighbouring items copy neighbouring elements of memory."""
    source = Use("src", buffer, forms, Direction.IN)
    target = Use("dst", piece.into, (place,), Direction.OUT)
    return Stage.copy(f"stage_{buffer}", lanes, source, target, constraints)
