"""The random generator as integer operations over an ordered index (facts 1.8).

2048 streams step independently; element e comes from step ``e // 2048`` of stream ``e % 2048``. The streams
are free, the steps of one are ordered and hand the state on in the state output.
"""

from __future__ import annotations

from collections.abc import Sequence

from tile_ir.dtype import DType
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Order
from tile_lang.program import Prng

from tile_opt.translate.build import Stage
from tile_opt.translate.context import Context
from tile_opt.translate.reshape import copy_reshaped

STREAMS = 2048
_COMPONENTS = ((0xFFFFFFFE, 12, 13, 19), (0xFFFFFFF8, 4, 2, 25), (0xFFFFFFF0, 17, 3, 11))
"""Per component: mask and shift of the kept part, left and right shift of the mixed part."""


def prng(context: Context, op: Prng) -> None:
    """``value`` uniform float32 in [0, 1], ``state`` the streams' states after the last draw."""
    text = f"{op.value}, {op.state} = prng_step({op.seed}, {', '.join(map(str, op.type.shape))})"
    kernel = context.kernel(text, ("prng",), op.origin)
    state = context.buffers[op.state]
    start = kernel.stage("seed", [("c", len(_COMPONENTS)), ("s", STREAMS)])
    cell = (Affine.var("c"), Affine.var("s"))
    start.store(state, cell, start.load(context.buffers[op.seed], cell))
    count = op.type.size
    if not count:
        context.add(kernel)
        return
    shape = op.type.shape
    target = context.buffers[op.value]
    flat_name = f"{op.value}_flat"
    direct = sum(size != 1 for size in shape) <= 1
    if not direct:
        target = context.temporary(flat_name, DType.FLOAT32, (count,))
        shape = (count,)
    steps = -(-count // STREAMS)
    element = Affine.of({"s": 1, "k": STREAMS if steps > 1 else 0})
    room = () if count % STREAMS == 0 else (element * -1 + (count - 1),)
    stage = kernel.stage("draw", [("s", STREAMS), ("k", steps, Order.ORDERED)], room)
    mixed = _step(stage, state)
    drawn = stage.op("cast", (mixed,), DType.FLOAT32)
    value = stage.op("div", (drawn, stage.const(4294967296.0, DType.FLOAT32)), DType.FLOAT32)
    stage.store(target, tuple(element if size != 1 else Affine() for size in shape), value)
    context.add(kernel)
    if not direct:
        copy_reshaped(context, (target, (count,)), (context.buffers[op.value], op.type.shape), text, op.origin)


def _step(stage: Stage, state: str) -> str:
    """Advance the three components of stream s; gives their exclusive or."""
    parts: list[str] = []
    for row, component in enumerate(_COMPONENTS):
        cell = (Affine((), row), Affine.var("s"))
        new = _advance(stage, stage.load(state, cell), component)
        stage.store(state, cell, new)
        parts.append(new)
    return _bits(stage, "bit_xor", _bits(stage, "bit_xor", parts[0], parts[1]), parts[2])


def _advance(stage: Stage, old: str, component: Sequence[int]) -> str:
    mask, keep, left, right = (stage.const(value, DType.UINT32) for value in component)
    kept = _bits(stage, "bit_left", _bits(stage, "bit_and", old, mask), keep)
    mixed = _bits(stage, "bit_xor", _bits(stage, "bit_left", old, left), old)
    return _bits(stage, "bit_xor", kept, _bits(stage, "bit_right", mixed, right))


def _bits(stage: Stage, name: str, a: str, b: str) -> str:
    return stage.op(name, (a, b), DType.UINT32)

